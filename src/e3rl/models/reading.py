"""What the entries of one observation tell about each other.

Coins that are thrown in some states only are foretold better than by their mean, yet they are dice: who foretells the
state has foretold all there is. So every entry is read off the others of the same observation. What they leave open
and what came before does not tell either was thrown after the state was decided (`models/dice.py`).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

RATE, DECAY = 1e-2, 0.1
"""Adam's step, decay of the weights."""
MEMORY = 300.0
"""Transitions after which what was counted before weighs a third: a reader that still learns is soon forgotten."""
ENOUGH = 100.0
"""Transitions before which nothing is taken to be thrown."""
OPEN = 0.25
"""Share of its loss by the mean from which on an entry is left open by the others."""
SURE = 1.5
"""Standard errors by which the past has to tell an entry better than the others do."""


class Reader(NamedTuple):
    """The chance of every bit given the others of the same observation: logistic regressions, which maximise the
    pseudo-likelihood of an Ising model."""

    weights: Float[Array, "D D"]
    bias: Float[Array, " D"]

    @staticmethod
    def fresh(entries: int) -> "Reader":
        return Reader(jnp.zeros((entries, entries)), jnp.zeros(entries))

    def __call__(self, obs: Float[Array, "B D"]) -> Float[Array, "B D"]:
        return jax.nn.sigmoid(self._logits(obs))

    def loss(self, obs: Float[Array, "B D"]) -> Float[Array, ""]:
        """Minus the logarithm of the pseudo-likelihood, in the mean over observations."""
        logits = self._logits(obs)
        return jnp.mean(jnp.sum(jax.nn.softplus(logits) - obs * logits, axis=1))

    def _logits(self, obs: Float[Array, "B D"]) -> Float[Array, "B D"]:
        others = self.weights * (1.0 - jnp.eye(len(self.bias)))
        return (obs - 0.5) @ others.T + self.bias


def optimiser() -> optax.GradientTransformation:
    return optax.adamw(RATE, weight_decay=DECAY)


class Read(NamedTuple):
    """What was counted so far, of every entry of observations that were new."""

    counted: Float[Array, ""]
    losses: Float[Array, "2 D"]
    """Sums of an entry's loss when the others tell it, and when its mean does."""
    beyond: Float[Array, "2 D"]
    """Sums, and sums of squares, of how much better the past told an entry than the others did."""

    @staticmethod
    def nothing(entries: int) -> "Read":
        return Read(jnp.array(0.0), jnp.zeros((2, entries)), jnp.zeros((2, entries)))

    def and_then(
        self,
        new: Bool[Array, " W"],
        by_others: Float[Array, "W D"],
        by_mean: Float[Array, "W D"],
        by_past: Float[Array, "W D"],
    ) -> "Read":
        """With the losses of further observations, those that are new."""
        taken = new.astype(jnp.float32)
        number = jnp.sum(taken)
        keep, better = jnp.exp(-number / MEMORY), by_others - by_past
        return Read(
            keep * self.counted + number,
            keep * self.losses + jnp.stack([taken @ by_others, taken @ by_mean]),
            keep * self.beyond + jnp.stack([taken @ better, taken @ better**2]),
        )

    @property
    def open(self) -> Bool[Array, " D"]:
        """The entries that the others leave open."""
        by_others, by_mean = self.losses
        return by_others > OPEN * by_mean

    @property
    def thrown(self) -> Bool[Array, " D"]:
        """The entries that the others leave open and the past does not tell better."""
        mean, square = self.beyond / jnp.maximum(self.counted, 1.0)
        error = jnp.sqrt(jnp.maximum(square - mean**2, 0.0) / jnp.maximum(self.counted, 1.0))
        return self.open & (mean < SURE * error) & (self.counted >= ENOUGH)
