"""What is unknown, as told from what was tried: disagreement counts as far as it is above that about transitions in the
replay buffer, and is measured by how far two outcomes that were met at random are apart."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from e3rl.models.base import Prediction
from e3rl.models.ensemble import Ensemble, predict
from e3rl.replay import Replay
from e3rl.values.imagined import Utility

TRIED = 1_024
"""Transitions by which the disagreement that is left is judged, evenly from the first to the last."""
AT_ONCE = 128
"""Transitions about which members are asked together: of images a thousand would take much memory."""


def still_shown(utility: Utility, members: Ensemble, replay: Replay, quantile: float) -> Float[Array, ""]:
    """What tried transitions are still worth, by their quantile: the noise of a finite fit where all is known."""
    rows = replay.evenly(TRIED)

    def still(step: tuple[Shaped[Array, "*obs"], Int[Array, ""], Int[Array, ""]]) -> Float[Array, ""]:
        return utility(predict(members, *step))

    found = jax.lax.map(still, (rows.obs, rows.action, rows.time), batch_size=AT_ONCE)
    return jnp.quantile(found, quantile)


def beyond_tried(utility: Utility, members: Ensemble, replay: Replay, quantile: float) -> Utility:
    """What a step is worth beyond what tried ones are still worth."""
    floor = still_shown(utility, members, replay, quantile)
    return lambda predicted: jnp.maximum(utility(predicted) - floor, 0.0)


def apart_at_random(utility: Utility, replay: Replay) -> Float[Array, ""]:
    """The disagreement of two who know nothing: each foretells an outcome that was met at some other time."""
    rows = replay.evenly(TRIED)
    later = jax.tree.map(lambda leaf: jnp.roll(leaf, TRIED // 2, axis=0), rows)

    def apart(one: tuple, other: tuple) -> Float[Array, ""]:
        (obs, reward), (other_obs, other_reward) = one, other
        rewards = jnp.stack([reward, other_reward])
        return utility(Prediction(jnp.stack([obs, other_obs]), rewards, jnp.zeros(2)))

    return jnp.mean(jax.vmap(apart)((rows.next_obs, rows.reward), (later.next_obs, later.reward)))


def unknown_share(
    along: Float[Array, "n H"], utility: Utility, members: Ensemble, replay: Replay, quantile: float
) -> Float[Array, "n H"]:
    """How much of the disagreement along episodes was about what had not been tried: 1 where members were as far apart
    as if they knew nothing. Infinite while there is nothing to compare with."""
    floor = still_shown(utility, members, replay, quantile)
    unit = jnp.maximum(apart_at_random(utility, replay), jnp.finfo(jnp.float32).tiny)
    return jnp.where(replay.size > 0, jnp.maximum(along - floor, 0.0) / unit, jnp.inf)
