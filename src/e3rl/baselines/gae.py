"""Generalised advantage estimation (Schulman et al. 2016) for one stream of rewards."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def advantages(
    reward: Float[Array, "H *n"],
    value: Float[Array, "H *n"],
    next_value: Float[Array, "H *n"],
    terminated: Bool[Array, "H *n"],
    truncated: Bool[Array, "H *n"],
    discount: float,
    decay: float,
) -> Float[Array, "H *n"]:
    """Â_t = Σ_k (γλ)^k δ_{t+k} up to the episode's end, δ_t = r_t + γ V(s'_t) − V(s_t).

    `next_value` is the value of where each step led. It counts as nothing past a termination; past a truncation, where
    the episode was cut but the world goes on, it counts.
    """
    error = reward + discount * jnp.where(terminated, 0.0, next_value) - value
    onward = jnp.where(terminated | truncated, 0.0, discount * decay)

    def backward(later: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        error, onward = row
        advantage = error + onward * later
        return advantage, advantage

    return jax.lax.scan(backward, jnp.zeros_like(reward[0]), (error, onward), reverse=True)[1]


def continuing_values(
    value: Float[Array, "H n"],
    next_value: Float[Array, "H n"],
    start: Bool[Array, "H n"],
    ended: Bool[Array, "H n"],
) -> Float[Array, "H n"]:
    """What follows each step when episodes run on into the next one, as for a non-episodic return.

    Within the rollout that is the value of the next row. After its last row it is the value of where the step led, or,
    if the episode ended there, of an average beginning: the mean value over the `start` rows of this rollout.
    """
    count = jnp.sum(start.astype(jnp.float32))
    beginning = jnp.sum(jnp.where(start, value, 0.0)) / jnp.maximum(count, 1.0)
    last = jnp.where(ended[-1] & (count > 0.0), beginning, next_value[-1])
    return jnp.concatenate([value[1:], last[None]])
