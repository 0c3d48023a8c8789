"""Errors as people see them: one line each, and everything for those who ask for it (`--debug`, E3RL_DEBUG=1)."""

import argparse
import contextlib
import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from e3rl.signals import said_about
from e3rl.types import UserError

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def wants_debug(args: argparse.Namespace | None) -> bool:
    return getattr(args, "debug", False) or os.environ.get("E3RL_DEBUG", "") not in ("", "0")


def one_line(text: str) -> str:
    return " ".join(COLOURS.sub("", text).split())


def explained(error: BaseException) -> str | None:
    """What went wrong, if a person can have caused it; None for a bug, which keeps its traceback."""
    text = one_line(str(error))
    if isinstance(error, UserError):
        return text
    if isinstance(error, OSError):
        return _of_the_system(error)
    if isinstance(error, MemoryError):
        return f"out of memory: lower what the run holds ({text or 'no more could be had'})"
    if type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError"):
        if "RESOURCE_EXHAUSTED" in text or "Out of memory" in text:
            return "out of memory while computing: lower the sizes of networks, batches and buffers, or the seeds"
        return f"a compiled program failed ({text.partition(':')[0]}); --debug shows everything"
    if isinstance(error, RuntimeError) and "Unable to initialize backend" in text:
        named = os.environ.get("JAX_PLATFORMS", "")
        return (
            f"JAX cannot use the device that JAX_PLATFORMS={named} names: unset it, or take JAX_PLATFORMS=cpu"
        )
    return None


def _of_the_system(error: OSError) -> str:
    names = [str(name) for name in (error.filename, error.filename2) if name is not None]
    reason = error.strerror or one_line(str(error)) or type(error).__name__
    return f"{' -> '.join(names)}: {reason}" if names else f"{reason}, says the system; --debug shows where"


def interrupted(error: KeyboardInterrupt, argv: Sequence[str]) -> str:
    """What became of a run that was interrupted, and how to go on with it."""
    notes = said_about(error)
    line = one_line("; ".join([str(error) or "interrupted", *notes]))
    if any(note.startswith("saved") for note in notes):
        # Experiments go on by themselves from what they have written.
        again = argv if "--resume" in argv or argv[:1] == ["reproduce"] else [*argv, "--resume"]
        line += f"; go on with: e3rl {shlex.join(again)}"
    return line


def tell(line: str, error: BaseException | None = None) -> None:
    """A line on stderr; after the whole story of `error` where one is given."""
    with contextlib.suppress(OSError, ValueError):  # nobody is there to read it
        if error is not None:
            traceback.print_exception(error, file=sys.stderr)
        print(f"e3rl: {line}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def patient_warnings(at_once: bool) -> Iterator[None]:
    """Warnings of libraries are told in a line each when all went well: beside an error they would hide it."""
    if at_once:
        yield
        return
    heard: dict[str, None] = {}

    def keep(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        heard[one_line(str(message))] = None

    with warnings.catch_warnings():
        warnings.showwarning = keep
        yield
    for line in heard:
        tell(f"warning: {line}")


def revive_streams() -> None:
    """A process that was started without stdout or stderr has none at all: what is written goes nowhere instead."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - for as long as the process lives


class _Named:
    """Stdout, whose errors say that they are its."""

    def __init__(self, stream: Any):
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> Any:
        return self._attempt(lambda: self._stream.write(text))

    def flush(self) -> Any:
        return self._attempt(self._stream.flush)

    def _attempt(self, action: Callable[[], Any]) -> Any:
        try:
            return action()
        except BrokenPipeError:
            raise
        except OSError as error:
            forget_stdout()
            raise UserError(f"cannot write to the standard output: {error.strerror or error}") from error


@contextlib.contextmanager
def named_stdout() -> Iterator[None]:
    """Inside, what cannot be written to stdout is an error like any other; all of it is written at the end."""
    with contextlib.redirect_stdout(_Named(sys.stdout)):
        yield
        sys.stdout.flush()


def forget_stdout() -> None:
    """Its reader has gone, or its disk is full: it must not fail again when the interpreter exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
