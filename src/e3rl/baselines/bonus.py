"""Intrinsic rewards for PPO: what a bonus is, and none."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Shaped

from e3rl.runs.settings import Settings
from e3rl.types import Key


class AbstractStream(eqx.Module):
    """A stream of intrinsic rewards: a network that is trained along with the policy, and what it keeps beside that."""

    @property
    @abstractmethod
    def coefficient(self) -> float:
        """Weight of this stream's advantages."""

    @property
    @abstractmethod
    def discount(self) -> float:
        """γ_I."""

    @abstractmethod
    def init(self, key: Key, shape: tuple[int, ...]) -> tuple[Any, Any]:
        """What gradients reach, and the rest, which has a field `ended`: whether each copy's last step ended its
        episode."""

    @abstractmethod
    def reward(
        self, trained: Any, kept: Any, next_obs: Shaped[Array, "T n *obs"]
    ) -> tuple[Float[Array, "T n"], Any]:
        """The reward of every step, for where it led, and what is kept after it."""

    @abstractmethod
    def loss(self, trained: Any, kept: Any, obs: Float[Array, "N *obs"], key: Key) -> Float[Array, ""]:
        """What training adds to the loss."""


@dataclass(frozen=True)
class AbstractBonus(Settings):
    """Where intrinsic rewards come from, with its settings."""

    @abstractmethod
    def stream(self, width: int, maps: int, copies: int) -> AbstractStream | None:
        """The stream, with networks like those of the policy."""


@dataclass(frozen=True)
class NoBonus(AbstractBonus):
    """The environment's own rewards and nothing else."""

    def stream(self, width: int, maps: int, copies: int) -> None:
        return None
