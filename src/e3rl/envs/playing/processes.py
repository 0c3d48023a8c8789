"""Copies of a Python environment in processes of their own, through `gymnasium.vector`."""

import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AsyncVectorEnv, AutoresetMode
from jaxtyping import Int

from e3rl.envs.adapter import GymnasiumEnvironment
from e3rl.envs.playing.copy import REPORT, REST, Answer, Copy, Failure, gather
from e3rl.types import UserError


class _Maker:
    """Makes a copy: of the environment that is `here`, or in a process of its own, to which that one does not go."""

    def __init__(self, make: Callable[[], GymnasiumEnvironment], here: GymnasiumEnvironment | None):
        self._make = make
        self._here = here

    def __call__(self) -> Copy:
        return Copy(self._make(), closes=True) if self._here is None else Copy(self._here, closes=False)

    def __getstate__(self) -> dict[str, Any]:
        return {"_make": self._make, "_here": None}


class Processes:
    """`make` is called in each of `count` processes; `here` is like what it makes, and only shows the spaces."""

    def __init__(self, here: GymnasiumEnvironment, make: Callable[[], GymnasiumEnvironment], count: int):
        self._obs = np.zeros((count, *here.encoding.shape), np.float32)
        # Spawned, because a fork of a process in which JAX has started threads can hang.
        try:
            self._vector = AsyncVectorEnv(
                [_Maker(make, here)] * count, context="spawn", autoreset_mode=AutoresetMode.DISABLED
            )
        except (EOFError, ConnectionError) as error:
            raise UserError(
                f"{here.name}: a process could not make its copy: register the id in a module that is "
                "imported, not under __main__"
            ) from error

    def reset(self, seeds: Sequence[int | None]) -> Answer:
        asked = [copy for copy, seed in enumerate(seeds) if seed is not None]
        return self._ask(asked, self._vector.reset, seed=list(seeds))

    def step(self, actions: Int[np.ndarray, " n"]) -> Answer:
        return self._ask(np.flatnonzero(actions != REST).tolist(), self._vector.step, actions)

    def _ask(self, asked: list[int], question: Callable[..., Any], *args: Any, **kwargs: Any) -> Answer:
        """What the copies answer. When a process is gone for good, none of those `asked` has answered."""
        try:
            self._obs, *rewards, info = question(*args, **kwargs)
        except (EOFError, ConnectionError, ClosedEnvironmentError):
            self._end()
            nothing = np.zeros(len(self._obs), bool)
            failure = Failure("the process of a copy ended", traceback.format_exc())
            failures = dict.fromkeys(asked, failure)
            return Answer(self._obs.copy(), nothing.astype(np.float32), nothing, nothing.copy(), failures)
        return gather(self._obs, rewards[0] if rewards else np.zeros(len(self._obs)), list(info[REPORT]))

    def _end(self) -> None:
        for process in self._vector.processes:
            process.terminate()
        self._vector.closed = True

    def close(self) -> None:
        try:
            self._vector.close()
        except (EOFError, ConnectionError):
            self._end()
