"""Copies of a Python environment in processes of their own, through `gymnasium.vector`."""

import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from multiprocessing.connection import wait
from typing import Any

import numpy as np
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from gymnasium.vector.async_vector_env import _async_worker

from e3rl.envs.adapter import GymnasiumEnvironment
from e3rl.envs.blame import RAISED, told
from e3rl.envs.playing.copy import REPORT, REST, WENT_ON, Copy, Errand, Failure, Report, Told
from e3rl.signals import held_back, left_to_the_parent, undisturbed
from e3rl.types import UserError

GONE = (EOFError, OSError, ClosedEnvironmentError)
"""What is seen of a process that has ended."""
PATIENCE = 10.0
"""Seconds that a process may take to close its environment, after which it is killed."""


class _Maker:
    """Makes a copy: of the environment that is `here`, or in a process of its own, to which that one does not go."""

    def __init__(self, make: Callable[[], GymnasiumEnvironment], here: GymnasiumEnvironment | None):
        self._make = make
        self._here = here

    def __call__(self) -> Copy:
        return Copy(self._make(), closes=True) if self._here is None else Copy(self._here, closes=False)

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": self._make, "_here": None}


class _Line:
    """A process's end of its pipe. When nobody is at the other end any more, the process ends, without a word."""

    def __init__(self, pipe: Any):
        self._pipe = pipe

    def recv(self) -> Any:
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionError):
            sys.exit()

    def send(self, answer: Any) -> None:
        try:
            self._pipe.send(answer)
        except ConnectionError:
            sys.exit()


def _work(index: int, make: Callable[..., Any], pipe: Any, *more: Any) -> None:
    """What a process does. The one that trains heeds signals: it still needs this one's answer."""
    left_to_the_parent()
    try:
        copy = make()
    except RAISED as error:
        sys.exit(f"e3rl: copy {index + 1} could not be made: {told(error)}")
    worker: Any = _async_worker
    worker(index, lambda: copy, _Line(pipe), *more)


class _Vector(AsyncVectorEnv):
    """Whose processes live as long as this one wants."""

    def __init__(self, makers: Sequence[_Maker]):
        with ExitStack() as self._starting:
            self._starting.enter_context(undisturbed())
            self._starting.enter_context(held_back())
            # Spawned, because a fork of a process in which JAX has started threads can hang.
            super().__init__(makers, context="spawn", autoreset_mode=AutoresetMode.DISABLED, worker=_work)

    def _check_spaces(self) -> None:
        """The processes are there now: waiting for their answers may be interrupted."""
        try:
            self._starting.close()
            super()._check_spaces()
        except BaseException:
            self.close()
            raise

    def close_extras(self, timeout: float | None = None, terminate: bool = False) -> None:
        """Whatever was asked last, and answered or not: gymnasium's own would wait for answers it has read already."""
        for pipe in self.parent_pipes:
            if pipe is not None:
                pipe.close()
        for process in self.processes:
            process.join(PATIENCE)
            if process.is_alive():
                process.kill()
                process.join()
        # Its semaphores are given back with it, also where the interpreter is left at once.
        del self.error_queue


class Processes:
    """`make` is called in each of `count` processes; `here` is like what it makes, and only shows the spaces."""

    def __init__(self, here: GymnasiumEnvironment, make: Callable[[], GymnasiumEnvironment], count: int):
        self._obs = np.zeros((count, *here.encoding.shape), np.float32)
        self._away: dict[int, Any] = {}
        """The pipes of those on an errand."""
        try:
            self._vector = _Vector([_Maker(make, here)] * count)
        except (EOFError, ConnectionError) as error:
            raise UserError(
                f"{here.name}: a process could not make its copy: register the id in a module that is "
                "imported, not under __main__"
            ) from error

    def reset(self, seeds: Sequence[int | None]) -> list[Told]:
        return self._ask([seed is not None for seed in seeds], self._vector.reset, seed=list(seeds))

    def step(self, actions: Sequence[int]) -> list[Told]:
        return self._ask([action != REST for action in actions], self._vector.step, np.array(actions))

    def _ask(self, asked: list[bool], question: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Told]:
        """What the copies answer. When a process is gone for good, none of those `asked` has answered."""
        try:
            self._obs, *rewards, info = question(*args, **kwargs)
        except GONE:
            ended = _gone()
            self.close()
            return [(obs, 0.0, ended if one else WENT_ON) for obs, one in zip(self._obs, asked, strict=True)]
        paid = rewards[0].tolist() if rewards else [0.0] * len(self._obs)
        return list(zip(self._obs, paid, info[REPORT], strict=True))

    def send(self, copy: int, errand: Errand) -> None:
        pipe = self._away[copy] = self._vector.parent_pipes[copy]
        with suppress(*GONE):  # which is noticed when it does not come back
            pipe.send(("_call", ("run", (errand,), {})))

    def back(self, everyone: bool) -> list[tuple[int, list[Told]]]:
        """What was answered on errands by those that are back: by at least one, or by everyone. Everyone too when a
        process is gone for good, as the others go with it."""
        found: list[tuple[int, list[Told]]] = []
        ended: Report | None = None
        while self._away and (everyone or ended is not None or not found):
            pipes = list(self._away.values())
            there = [pipe for pipe in pipes if pipe.closed] or wait(pipes)
            for copy in [copy for copy, pipe in self._away.items() if pipe in there]:
                answers: list[Told] = []
                try:
                    answers, went_well = self._away.pop(copy).recv()
                except GONE:
                    went_well = False
                if not went_well:
                    ended = ended or _gone()
                    answers = [(self._obs[copy], 0.0, ended)]
                found.append((copy, answers))
        if ended is not None:
            self.close()
        return found

    def close(self) -> None:
        self._vector.close()


def _gone() -> Report:
    return Report(failure=Failure("the process of a copy ended", traceback.format_exc()))
