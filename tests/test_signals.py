"""Signals that end a run: heeded at once, or at the first moment at which something can be saved."""

import os
import signal
import threading

import pytest

from e3rl.signals import HEEDED, Stopped, disturbed, heeding, undisturbed


def send(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


@pytest.mark.parametrize("number", HEEDED)
def test_a_signal_is_an_interruption_and_what_stood_before_comes_back(number):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt) as raised, heeding():  # noqa: PT012
        send(number)
        pytest.fail("not heeded")
    assert raised.value.number == number
    assert str(raised.value) == f"ended by {signal.Signals(number).name}"
    assert signal.getsignal(number) is before


def test_what_somebody_else_has_said_about_a_signal_stands():
    before, heard = signal.getsignal(signal.SIGTERM), []
    signal.signal(signal.SIGTERM, lambda number, frame: heard.append(number))
    try:
        with heeding():
            send()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]


def test_it_waits_for_the_end_of_what_is_not_to_be_disturbed():
    done = []
    with pytest.raises(Stopped), heeding():  # noqa: PT012
        with undisturbed():
            with undisturbed():
                send()
                done.append("inner")
            done.append("outer")
        pytest.fail("not heeded")
    assert done == ["inner", "outer"]


def test_asked_twice_it_waits_no_longer():
    with pytest.raises(Stopped), heeding(), undisturbed():  # noqa: PT012
        send()
        send(signal.SIGINT)
        pytest.fail("not heeded")


def test_a_stretch_that_may_be_disturbed_after_all():
    with pytest.raises(Stopped), heeding(), undisturbed():  # noqa: PT012
        with pytest.raises(Stopped), disturbed():  # noqa: PT012
            send()
            pytest.fail("not heeded")
        send()
        with disturbed():
            pytest.fail("not heeded")


def test_another_thread_hears_nothing_and_minds_nothing():
    seen = []

    def work():
        with heeding():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]
