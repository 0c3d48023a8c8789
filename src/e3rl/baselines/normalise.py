"""Running statistics: what random network distillation divides its observations and its rewards by."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

EPSILON = 1e-8


class Moments(NamedTuple):
    """Mean and variance of everything seen, entry by entry."""

    mean: Float[Array, "*entry"]
    variance: Float[Array, "*entry"]
    seen: Float[Array, ""]

    @staticmethod
    def empty(shape: tuple[int, ...] = ()) -> "Moments":
        return Moments(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(()))

    def update(self, batch: Float[Array, "..."]) -> "Moments":
        """Merge a batch, whatever its leading axes, by the parallel formula of Chan et al."""
        rows = batch.reshape(-1, *self.mean.shape)
        new = float(rows.shape[0])
        total = self.seen + new
        difference = jnp.mean(rows, axis=0) - self.mean
        squares = (
            self.variance * self.seen
            + jnp.var(rows, axis=0) * new
            + jnp.square(difference) * self.seen * new / total
        )
        return Moments(self.mean + difference * new / total, squares / total, total)

    @property
    def deviation(self) -> Float[Array, "*entry"]:
        return jnp.sqrt(self.variance + EPSILON)

    def normalise(self, batch: Float[Array, "..."], clip: float = math.inf) -> Float[Array, "..."]:
        """(x − mean) / deviation, kept within ± `clip`."""
        return jnp.clip((batch - self.mean) / self.deviation, -clip, clip)


class ReturnScale(NamedTuple):
    """The running deviation of a discounted sum of rewards, which sets their scale and not their mean."""

    running: Float[Array, " n"]
    """Σ_k γ^k r_{t−k} of every environment, carried from rollout to rollout."""
    moments: Moments

    @staticmethod
    def empty(copies: int) -> "ReturnScale":
        return ReturnScale(jnp.zeros(copies), Moments.empty())

    def update(self, reward: Float[Array, "T n"], discount: float) -> "ReturnScale":
        def forward(running: Array, reward: Array) -> tuple[Array, Array]:
            running = discount * running + reward
            return running, running

        running, sums = jax.lax.scan(forward, self.running, reward)
        return ReturnScale(running, self.moments.update(sums))

    def normalise(self, reward: Float[Array, "T n"]) -> Float[Array, "T n"]:
        return reward / self.moments.deviation
