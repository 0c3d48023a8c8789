"""What every functional environment is: two pure functions and its spaces."""

from abc import abstractmethod
from typing import Any, TypeAlias

import equinox as eqx
import gymnasium
import numpy as np
from jaxtyping import Array, Shaped, UInt8

from e3rl.types import Action, Flag, Key, Reward

State: TypeAlias = Any
Observation: TypeAlias = Shaped[Array, "..."]
Step: TypeAlias = tuple[State, Observation, Reward, Flag, Flag]


class AbstractEnvironment(eqx.Module):
    """A pytree of an environment's constants with pure `reset` and `step`.

    Because it is a pytree, a batch of different environments is one object: `eqx.filter_vmap(make)(keys)`.
    `step` never resets by itself: past the end of an episode its result is unspecified.
    """

    time_limit: eqx.AbstractVar[int]
    """Number of steps after which an episode has ended for certain."""

    @abstractmethod
    def reset(self, key: Key) -> tuple[State, Observation]:
        """Start an episode."""

    @abstractmethod
    def step(self, key: Key, state: State, action: Action) -> Step:
        """One step: (state, observation, reward, terminated, truncated)."""

    @property
    @abstractmethod
    def observation_space(self) -> gymnasium.Space: ...

    @property
    @abstractmethod
    def action_space(self) -> gymnasium.spaces.Discrete: ...

    @abstractmethod
    def render(self, state: State) -> UInt8[np.ndarray, "h w 3"]:
        """The state as an RGB picture (on the host, not jittable)."""

    @property
    def num_actions(self) -> int:
        return int(self.action_space.n)
