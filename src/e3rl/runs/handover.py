"""When an agent cannot go on where it is: why, and all that it has seen, for another to go on with."""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float, Int

from e3rl.types import Trajectory, UserError


class Steps(NamedTuple):
    """Episodes one after the other, a row a step. Observations are encoded."""

    obs: Float[np.ndarray, "N *obs"]
    action: Int[np.ndarray, " N"]
    time: Int[np.ndarray, " N"]
    """The step within its episode: an episode begins where it is 0."""
    reward: Float[np.ndarray, " N"]
    next_obs: Float[np.ndarray, "N *obs"]
    terminated: Bool[np.ndarray, " N"]

    @property
    def episodes(self) -> int:
        return int(np.sum(self.time == 0))


class HandOver(UserError):
    """Raised by a program; `steps` is its experience. Where nobody takes over, it reads as an error that says what to
    do instead."""

    def __init__(self, why: str, instead: str, steps: Steps):
        super().__init__(f"{why}: {instead}")
        self.why, self.steps = why, steps


def padded_episodes(steps: Steps, first: Int[np.ndarray, " n"], count: int, horizon: int) -> Trajectory:
    """The episodes that begin with these steps, and `count` − n empty ones."""

    def column(values: np.ndarray) -> np.ndarray:
        out = np.zeros((count, horizon, *values.shape[1:]), values.dtype)
        for row, start in enumerate(first.tolist()):
            length = _length(steps, start)
            out[row, :length] = values[start : start + length]
        return out

    valid = column(np.ones(len(steps.time), bool))
    last = valid & ~np.append(valid[:, 1:], np.zeros((count, 1), bool), axis=1)
    terminated = column(steps.terminated)
    columns: list[Any] = [column(each) for each in (steps.obs, steps.action, steps.reward, steps.next_obs)]
    return Trajectory(*columns, *(jnp.asarray(flag) for flag in (terminated, last & ~terminated, valid)))


def _length(steps: Steps, start: int) -> int:
    """Of the episode that begins there."""
    following = np.flatnonzero(steps.time[start + 1 :] == 0)
    return int(following[0]) + 1 if len(following) else len(steps.time) - start
