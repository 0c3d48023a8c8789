"""Seeds trained in processes, each on processors of its own: threads of one process would wait for each other.

The parent trains nothing: it hands out seeds, hears how far they are, and is the one that signals end. A worker trains
one seed after the other, so that what it has compiled serves them all, and speaks to its parent alone.
"""

import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from types import ModuleType
from typing import Any, NoReturn, TypeAlias

import jax

from e3rl.memory import available
from e3rl.runs.kept_programs import also_compiled, compiled_so_far, keep_compiled_programs
from e3rl.runs.merged_progress import MergedProgress
from e3rl.runs.processors import bound_to, processors, shares
from e3rl.runs.progress import Progress, Watcher
from e3rl.signals import held_back, left_to_the_parent, undisturbed
from e3rl.starting import collect_rarely
from e3rl.types import UserError

Say: TypeAlias = Callable[[str], None]
Work: TypeAlias = Callable[[int, Watcher, Say], Any]
"""Trains the seed of a number, and returns what is to be known of it. It is sent to the workers."""
OWN_MEMORY = 0.7e9
"""Bytes of a worker beside what it trains: Python, JAX, compiled programs."""
BETWEEN = 0.2
"""Seconds between two words about the same phase."""
PATIENCE = 10.0
"""Seconds that a worker may take to leave when there is nothing left to do."""
SIGNAL_AT_PARENTS_DEATH = 1
"""As prctl(2) calls it."""
STOP = "stop"
"""In place of a seed's number: leave the one that is under way."""
BEING_WRITTEN = "Error reading persistent compilation cache entry"
"""JAX's words where another worker is just keeping the program that this one looks for, and then compiles itself."""
NOTHING = -1
"""In place of the number of the seed that is under way."""


class Word(Enum):
    """What a worker has to say; most of them with something beside it."""

    READY = "it has nothing to do"
    SEEN = "how far it is, and what was compiled meanwhile"
    SAID = "a line for people"
    WARNED = "a warning of some library"
    DONE = "a seed, with what there is to know of it"
    FAILED = "at a seed, by an error"
    STOPPED = "and has left its seed"
    GONE = "nothing, and never will again"


def processors_each(seeds: int) -> list[set[int]]:
    """Processors for as many workers as there can be use for. Each has as many as another, whatever is left to do: how
    many there are may change how a program rounds."""
    here = processors()
    workers = min(seeds, len(here))
    return [set(sorted(own)[: len(here) // workers]) for own in shares(here, workers)]


def room_for(memory: float) -> int:
    """How many workers fit that need so many bytes each to train; one at least."""
    return max(1, int(available() / (OWN_MEMORY + memory)))


def train_in_processes(
    work: Work, seeds: Mapping[int, int], owned: Sequence[set[int]], watch: Watcher, say: Say
) -> dict[int, Any]:
    """What `work` returns for each of the seeds, by number; at most a worker for each of the sets of processors. An
    interruption here, or an error at one of them, ends all that are under way, each as an interruption ends it."""
    todo = iter(seeds)
    found: dict[int, Any] = {}
    merged = MergedProgress(len(seeds))
    crew: list[_Worker] = []
    try:
        with undisturbed(), held_back():
            for own in owned[: len(seeds)]:
                crew.append(_Worker(work, own))
        while len(found) < len(seeds):
            for worker in _speaking(crew):
                word, about = worker.hear()
                if word is Word.SEEN:
                    progress, compiled = about
                    also_compiled(compiled)
                    told = merged.take(worker.at, progress)
                    if told is not None:
                        watch(told)
                elif word is Word.SAID:
                    say(f"seed {seeds[worker.at]}: {about}")
                elif word is Word.WARNED:
                    if not str(about).startswith(BEING_WRITTEN):
                        warnings.warn(about, stacklevel=2)
                elif word is Word.FAILED:
                    raise about
                elif word is Word.STOPPED:  # by an environment: we have not asked for it
                    raise KeyboardInterrupt
                elif word is Word.GONE:
                    raise UserError(_lost(worker, seeds))
                else:
                    if word is Word.DONE:
                        found[worker.at] = about
                        merged.end(worker.at)
                    worker.give(next(todo, None))
    except BaseException:
        _stop(crew)
        raise
    finally:
        for worker in crew:
            worker.end()
    return found


class _Worker:
    """A worker as its parent sees it."""

    def __init__(self, work: Work, own: set[int]):
        context = multiprocessing.get_context("spawn")  # where JAX has threads, a fork can hang
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_live, args=(theirs, os.getpid(), _said_to_jax(), work))
        self.at = NOTHING
        """The number of the seed that is under way."""
        self.leaves = False
        with theirs, _without_main(), bound_to(own):
            self.process.start()

    def hear(self) -> tuple[Word, Any]:
        """The next word, in one piece."""
        with suppress(EOFError, OSError), undisturbed():
            word: tuple[Word, Any] = self.pipe.recv()
            return word
        return Word.GONE, None

    def give(self, seed: int | None) -> None:
        self.at, self.leaves = NOTHING if seed is None else seed, seed is None
        self.tell(seed)

    def tell(self, order: int | str | None) -> None:
        with suppress(OSError), undisturbed():  # it may be gone, as we shall hear
            self.pipe.send(order)

    def end(self) -> None:
        """Whoever is not leaving has said his last word, or had none to say yet."""
        self.process.join(PATIENCE if self.leaves else 0.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()


def _speaking(crew: Sequence[_Worker]) -> Iterator[_Worker]:
    """Those who have a word for us, once there is one."""
    by_pipe: dict[Any, _Worker] = {worker.pipe: worker for worker in crew if not worker.leaves}
    yield from (by_pipe[pipe] for pipe in wait(list(by_pipe)))


def _stop(crew: Sequence[_Worker]) -> None:
    """Wait until seeds that are under way are saved and left."""
    busy = [worker for worker in crew if worker.at != NOTHING]
    for worker in busy:
        worker.tell(STOP)
    while busy:
        for worker in _speaking(busy):
            word, _ = worker.hear()
            if word in (Word.DONE, Word.FAILED, Word.STOPPED, Word.GONE):
                busy.remove(worker)


def _lost(worker: _Worker, seeds: Mapping[int, int]) -> str:
    worker.process.join(PATIENCE)
    code = worker.process.exitcode or 0
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    if how.endswith("SIGKILL"):
        how += ", as when memory runs out"
    at = "had not begun" if worker.at == NOTHING else f"was at seed {seeds[worker.at]}"
    return f"a process that {at} has ended ({how}); --resume goes on from what is saved"


@contextmanager
def _without_main() -> Iterator[None]:
    """A process that is spawned inside does not run the script again that this one is: it may do anything."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _said_to_jax() -> dict[str, Any]:
    """Its options here, those that another process can be told."""
    options: dict[str, Any] = getattr(jax.config, "values")  # noqa: B009 - it has no type
    plain = (bool, int, float, str, Enum, type(None))
    return {name: value for name, value in options.items() if isinstance(value, plain)}


# In the worker:


def _live(pipe: Connection, parent: int, said_to_jax: dict[str, Any], work: Work) -> None:
    """All that a worker does."""
    _die_with(parent)
    collect_rarely()
    own = _Own(pipe)
    left_to_the_parent(lambda: own.told_to_stop)
    threading.Thread(target=own.listen, daemon=True).start()
    try:
        usual = _said_to_jax()
        for name, value in said_to_jax.items():
            if value != usual[name]:
                jax.config.update(name, value)
        if said_to_jax["jax_compilation_cache_dir"] is not None:
            keep_compiled_programs()
        warnings.showwarning = lambda message, *_, **__: own.tell(Word.WARNED, " ".join(str(message).split()))
        own.tell(Word.READY)
        while (number := own.begin()) is not None:
            own.tell(*_trained(work, number, own))
    except KeyboardInterrupt:
        own.tell(Word.STOPPED)
        _leave(0)


def _trained(work: Work, number: int, own: "_Own") -> tuple[Word, Any]:
    try:
        return Word.DONE, work(number, own.watch, lambda line: own.tell(Word.SAID, line))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return Word.FAILED, _portable(error)


class _Own:
    """A worker's end of the pipe."""

    def __init__(self, pipe: Connection):
        self.told_to_stop = False
        self._seeds: SimpleQueue[int | None] = SimpleQueue()
        self._pipe = pipe
        self._phase = ""
        self._next = 0.0
        self._compiled = compiled_so_far()

    def listen(self) -> None:
        """In a thread of its own, which is also the first to know that the parent is gone."""
        with suppress(EOFError, OSError):
            while True:
                order = self._pipe.recv()
                if order == STOP:
                    self.told_to_stop = True
                    os.kill(os.getpid(), signal.SIGTERM)  # to the main thread, which may be waiting
                else:
                    self._seeds.put(order)
        _leave(1)

    def begin(self) -> int | None:
        """The number of the next seed, once we are given one; None if there is none any more."""
        self._phase = ""
        return self._seeds.get()

    def tell(self, word: Word, about: Any = None) -> None:
        """All of it or nothing."""
        try:
            with undisturbed():
                self._pipe.send((word, about))
        except OSError:  # nobody is there
            _leave(1)

    def watch(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.phase == self._phase and now < self._next and progress.episode < progress.episodes:
            return
        self._phase, self._next = progress.phase, now + BETWEEN
        compiled = compiled_so_far()
        since, self._compiled = compiled - self._compiled, compiled
        self.tell(Word.SEEN, (progress, since))


def _portable(error: BaseException) -> BaseException:
    """The error as another process can be told of it, where it came from in a note."""
    sent: BaseException = UserError(str(error))
    if not isinstance(error, UserError):
        try:
            sent = pickle.loads(pickle.dumps(error))
        except Exception:
            sent = RuntimeError(f"{type(error).__name__}: {error}")
    sent.add_note("".join(traceback.format_exception(error)))
    return sent


def _die_with(parent: int) -> None:
    """On Linux the system sees to it, whatever is being computed; elsewhere `_Own.listen`."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SIGNAL_AT_PARENTS_DEATH, signal.SIGKILL)
        if os.getppid() != parent:
            _leave(1)


def _leave(code: int) -> NoReturn:
    """At once: what is still being computed in other threads would crash while the interpreter takes itself apart."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
