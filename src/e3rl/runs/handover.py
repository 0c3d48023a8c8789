"""When an agent cannot go on where it is: why, and all that it has seen, for another to go on with."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from e3rl.types import UserError


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
