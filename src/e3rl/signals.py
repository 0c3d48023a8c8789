"""Signals that end a run: Ctrl-C, a scheduler's SIGTERM, a lost terminal's SIGHUP. Each is an exception at a moment at
which the run can still be saved.

This file and `starting` need nothing but the standard library: they are there before the imports that take a second.
"""

import contextlib
import gc
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from e3rl.starting import is_command

HEEDED = [
    number for name in ("SIGINT", "SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None
]
INTERRUPTED = 128
"""The exit code of a process that a signal has ended, less the signal's number."""
SOON = 0.01
"""Seconds until a signal that came at a bad moment comes again."""


class Stopped(KeyboardInterrupt):
    """A signal has ended the run."""

    def __init__(self, number: int):
        super().__init__(f"ended by {signal.Signals(number).name}")
        self.number = number


class _State:
    """Of the process, as signals are."""

    quiet = 0
    """How many `undisturbed` blocks are under way."""
    waiting: int | None = None
    """The signal that came meanwhile."""


def quiet_start() -> None:
    """Where the `e3rl` command is starting, Ctrl-C is one line from now on, instead of a traceback out of some import,
    until `heeding` takes over. Importing the library into another program changes nothing."""
    if is_command() and signal.getsignal(signal.SIGINT) in UNHANDLED:
        signal.signal(signal.SIGINT, _leave)


def _leave(number: int, frame: FrameType | None) -> None:
    """There is nothing to save yet; and imports may take an exception for a package that is not there."""
    with contextlib.suppress(OSError):
        os.write(2, b"e3rl: interrupted while starting, nothing was changed\n")
    os._exit(INTERRUPTED + number)


UNHANDLED = (signal.SIG_DFL, signal.default_int_handler, _leave)
"""What stands where nobody has said what a signal is to do: only that is replaced."""


def _is_lost(frame: FrameType | None) -> bool:
    """Whether an exception would go no further than somewhere in these frames: Python prints and forgets it."""
    lost = {getattr(callback, "__code__", None) for callback in gc.callbacks}
    while frame is not None:
        if frame.f_code in lost or frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def _heed(number: int, frame: FrameType | None) -> None:
    if _is_lost(frame):
        threading.Timer(SOON, os.kill, (os.getpid(), number)).start()
        return
    again, _State.waiting = _State.waiting is not None, number
    if again or not _State.quiet:  # somebody who asks twice means at once
        _State.waiting = None
        raise Stopped(number)


@contextlib.contextmanager
def heeding() -> Iterator[None]:
    """Inside, signals that end a process raise `Stopped`. Only the main thread can be told of them. Our own command is
    deaf once it is ended by one: it has a last word to say."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in HEEDED}
        before = {number: handler for number, handler in before.items() if handler in UNHANDLED}
    try:
        for number in before:
            signal.signal(number, _heed)
        yield
    except KeyboardInterrupt:
        if _leave in before.values():
            before = dict.fromkeys(before, signal.SIG_IGN)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is _leave else handler)
        if before:
            _State.waiting = None


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """A signal that comes inside is heeded at the end: there would be nothing to save in between."""
    _State.quiet += 1
    try:
        yield
    finally:
        _State.quiet -= 1
    raise_waiting()


@contextlib.contextmanager
def disturbed() -> Iterator[None]:
    """Inside `undisturbed`, a stretch in which signals are heeded at once after all."""
    kept, _State.quiet = _State.quiet, 0
    try:
        raise_waiting()
        yield
    finally:
        _State.quiet = kept


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Processes that are started inside are not reached by signals that end a run, until they call
    `left_to_the_parent`."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    from multiprocessing import resource_tracker

    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED)
    try:
        resource_tracker.ensure_running()  # a process too; starting it lets some of them in again
        signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def left_to_the_parent(told: Callable[[], bool] = lambda: False) -> None:
    """In a process that was started in `held_back`: signals come to all processes of a terminal or a job, and the
    parent heeds them. Here they are, once that one has `told` this one to end."""

    def handle(number: int, frame: FrameType | None) -> None:
        if told():
            _heed(number, frame)

    for number in HEEDED:
        signal.signal(number, handle)  # unlike SIG_IGN, not passed on to what the environment starts
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED)


@contextlib.contextmanager
def noted(what: Callable[[], str]) -> Iterator[None]:
    """An interruption from inside about which nothing has been said says `what()`."""
    try:
        yield
    except KeyboardInterrupt as error:
        if not said_about(error):
            error.add_note(what())
        raise


def said_about(error: BaseException | None) -> list[str]:
    """The notes of an interruption; where it came while another was dealt with, what had been said about that."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) and hasattr(error, "__notes__"):
            return error.__notes__
        error = error.__context__
    return []


def raise_waiting() -> None:
    """Heed the signal that came in between, if one did and nothing else keeps it waiting."""
    if _State.waiting is not None and not _State.quiet:
        number, _State.waiting = _State.waiting, None
        raise Stopped(number)
