"""What every baseline is: pure functions over a state, so that whole training loops are one program."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Shaped

from e3rl.runs.settings import Settings, setting
from e3rl.types import Action, Key

State: TypeAlias = Any
"""A pytree of arrays: networks, optimiser, buffers, counters."""
Metrics: TypeAlias = dict[str, Float[Array, "..."]]
"""Scalars, or one a lane where several seeds are trained together."""


class Rollout(NamedTuple):
    """T steps of n environments, leading axes [T, n]. Observations are encoded and scaled."""

    obs: Shaped[Array, "T n *obs"]
    action: Int[Array, "T n"]
    reward: Float[Array, "T n"]
    next_obs: Shaped[Array, "T n *obs"]
    """What the step led to, before any reset: where an episode ended, not the next one's start."""
    terminated: Bool[Array, "T n"]
    truncated: Bool[Array, "T n"]
    extra: Any
    """What `act` returned beside the actions, such as log-probabilities."""


class AbstractBaseline(eqx.Module):
    """One algorithm; its settings are static fields.

    The frame calls `act` T times, then `learn` once with those T steps of n environments, over and over.
    """

    steps: eqx.AbstractVar[int]
    """T, environment steps per `learn`."""
    copies: eqx.AbstractVar[int]
    """n, environments in parallel."""

    @abstractmethod
    def init(self, key: Key, shape: tuple[int, ...], actions: int) -> State:
        """The state before the first step, for observations of `shape`."""

    @abstractmethod
    def act(self, state: State, key: Key, obs: Shaped[Array, "n *obs"]) -> tuple[Int[Array, " n"], Any]:
        """Actions that explore, and whatever `learn` wants to know about them."""

    @abstractmethod
    def learn(self, state: State, key: Key, rollout: Rollout) -> tuple[State, Metrics]:
        """The state after T more steps of n environments."""

    @abstractmethod
    def greedy(self, state: State, key: Key, obs: Shaped[Array, "*obs"], time: Int[Array, ""]) -> Action:
        """The action to exploit with, for one observation."""

    def policy(self, state: State) -> State:
        """What `greedy` needs of the state: the part of a finished run that is kept. All of it unless overridden."""
        return state


@dataclass(frozen=True)
class BaselineConfig(Settings):
    """What the frame needs to know about any baseline. Each algorithm's own settings extend it."""

    total_steps: int = setting(
        100_000, "Environment steps of training, those of all parallel environments together", at_least=1
    )
    clock: bool = setting(
        False,
        "Observations come with a one-hot of the time step, as the lock's need that do not show the level",
    )
    evaluation_episodes: int = setting(100, "Greedy episodes at the end", at_least=1)

    @abstractmethod
    def baseline(self) -> AbstractBaseline:
        """The algorithm with these settings."""
