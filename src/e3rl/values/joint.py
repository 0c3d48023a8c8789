"""Draws of a next state whose bits belong together.

Bernoulli models have a chance for every bit and nothing about how bits go together: of two states that exclude each
other, drawn bit by bit, they make both or neither, states that never were. A value is not fitted there, says anything,
and over many steps says it everywhere. What goes together shows in what members got wrong: the correlation of those
residuals over tried transitions makes the bits of a draw go together in the same way (a Gaussian copula). The chance of
every bit stays as it is.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from e3rl.models.ensemble import Ensemble, predict
from e3rl.replay import Replay
from e3rl.types import Key

TRIED = 1_024
"""Transitions by which it is judged, evenly from the first to the last."""
ALONE = 1e-3
"""Share of a bit's randomness that is its own, whatever was seen."""


def together(ensemble: Ensemble, replay: Replay) -> Float[Array, "D D"]:
    """How the bits of a draw go together: a root of the correlation of residuals."""
    rows = replay.evenly(TRIED)

    def expected(obs: Array, action: Array, time: Array) -> Float[Array, " D"]:
        return jnp.mean(predict(ensemble, obs, action, time).obs, axis=0)

    wrong = rows.next_obs - jax.vmap(expected)(rows.obs, rows.action, rows.time)
    covariance = wrong.T @ wrong
    size = jnp.sqrt(jnp.diagonal(covariance))
    correlation = covariance / jnp.maximum(size[:, None] * size, 1e-9)
    own = jnp.eye(len(size))
    # A bit that was never wrong goes with none.
    correlation = jnp.where(own > 0.0, 1.0, (1.0 - ALONE) * correlation)
    return jnp.linalg.cholesky(correlation)


def uniform_together(key: Key, shape: tuple[int, ...], root: Float[Array, "D D"]) -> Float[Array, "*shape D"]:
    """Uniform numbers for draws of bits that go together."""
    normal = jax.random.normal(key, (*shape, root.shape[0]))
    return jax.scipy.stats.norm.cdf(normal @ root.T)
