"""Signals that end a run: heeded at once, or at the first moment at which something can be saved."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import e3rl
from e3rl.signals import (
    HEEDED,
    Stopped,
    disturbed,
    heeding,
    held_back,
    left_to_the_parent,
    noted,
    said_about,
    undisturbed,
)


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


def test_a_process_of_another_heeds_signals_once_it_is_told_to():
    before, told = {number: signal.getsignal(number) for number in HEEDED}, []
    try:
        left_to_the_parent(lambda: bool(told))
        with heeding():
            for number in HEEDED:
                send(number)
            told.append("stop")
            with pytest.raises(Stopped):  # noqa: PT012
                send()
                pytest.fail("not heeded")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_processes_that_are_started_meanwhile_are_not_reached():
    with held_back():
        process = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(0.5); print('lives')"],
            stdout=subprocess.PIPE,
            text=True,
        )
    process.terminate()
    assert process.communicate()[0] == "lives\n"
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) & set(HEEDED)


def test_another_thread_hears_nothing_and_minds_nothing():
    seen = []

    def work():
        with heeding():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]


class Collected:
    """Sends a signal when Python takes it away, where an exception would be printed and forgotten."""

    def __del__(self):
        send()


def collect():
    """As JAX does something with every garbage collection."""

    def callback(phase, info):
        send()
        gc.callbacks.remove(callback)

    gc.callbacks.append(callback)
    gc.collect(0)  # of the youngest: after many tests all of them take seconds


@pytest.mark.parametrize("how", [Collected, collect], ids=["__del__", "collector"])
def test_it_is_not_lost_where_exceptions_are(how):
    with pytest.raises(Stopped), heeding():  # noqa: PT012
        how()
        time.sleep(5.0)
        pytest.fail("not heeded")


CALLED = {
    "script": ["bin/e3rl"],
    "module": ["-m", "e3rl.cli"],
    "another program": ["bin/other"],
}


@pytest.mark.parametrize("name", CALLED)
def test_ctrl_c_while_imports_run(name, tmp_path):
    """One line from our command; a program that imports the library is interrupted as always."""
    (tmp_path / "bin").mkdir()
    for script in ("e3rl", "other"):
        (tmp_path / "bin" / script).write_text("from e3rl.cli import run\nrun()\n")
    (tmp_path / "gymnasium.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)"
    )
    source = str(Path(e3rl.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, *CALLED[name], "envs"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), source])},
        capture_output=True,
        text=True,
    )
    if name == "another program":
        assert done.stderr.endswith("KeyboardInterrupt\n")
    else:
        assert (done.returncode, done.stderr, done.stdout) == (
            130,
            "e3rl: interrupted while starting, nothing was changed\n",
            "",
        )


IMPATIENT = """
import os, signal, time
from e3rl import cli

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.1)

def tell(line, error, say=cli.tell):
    interrupt()
    say(line, error)

cli.tell = tell
cli.envs = lambda args: interrupt()
cli.run()
"""


def test_ctrl_c_again_does_not_cut_the_last_word_off(tmp_path):
    (tmp_path / "e3rl").write_text(IMPATIENT)
    source = str(Path(e3rl.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "e3rl", "envs"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (130, "e3rl: ended by SIGINT\n")


def test_what_was_said_first_about_an_interruption_stands():
    with pytest.raises(Stopped) as raised, noted(lambda: "outer"), noted(lambda: "inner"):
        raise Stopped(signal.SIGINT)
    assert said_about(raised.value) == ["inner"]


def test_an_interruption_in_the_middle_of_another_tells_of_that():
    with pytest.raises(Stopped) as raised, noted(lambda: "of no use"):  # noqa: PT012
        try:
            with noted(lambda: "saved"):
                raise Stopped(signal.SIGINT)
        finally:
            raise Stopped(signal.SIGTERM)
    assert said_about(raised.value) == ["saved"]
    other = Stopped(signal.SIGINT)
    other.__context__ = ValueError()
    other.__context__.add_note("somebody's")
    assert said_about(other) == []
