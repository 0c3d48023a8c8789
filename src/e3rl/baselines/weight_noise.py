"""Parameter space noise (Plappert et al. 2018): explore by acting greedily with perturbed weights, by an amount that
adapts."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from e3rl.types import Key
from e3rl.values.network import QNetwork

FIRST, FACTOR = 0.01, 1.01
"""σ at the start, and by what a round of updates raises or lowers it, as in OpenAI Baselines."""


class WeightNoise(NamedTuple):
    acting: QNetwork
    """The perturbed network that acts, the same until an episode ends."""
    sigma: Float[Array, ""]
    """Standard deviation of the noise, as a multiple of the root mean square of the array that it is added to."""


def first_noise(network: QNetwork, key: Key) -> WeightNoise:
    sigma = jnp.array(FIRST, jnp.float32)
    return WeightNoise(perturbed(network, sigma, key), sigma)


def perturbed(network: QNetwork, sigma: Float[Array, ""], key: Key) -> QNetwork:
    """Noise on every array of weights. There is no layer norm that would make them alike, so it is as large as they
    are: an array of zeros stays as it is."""
    weights, rest = eqx.partition(network, eqx.is_inexact_array)
    arrays, structure = jax.tree.flatten(weights)
    noisy = [
        array + sigma * jnp.sqrt(jnp.mean(jnp.square(array))) * jax.random.normal(k, array.shape)
        for array, k in zip(arrays, jax.random.split(key, len(arrays)), strict=True)
    ]
    found: QNetwork = eqx.combine(jax.tree.unflatten(structure, noisy), rest)
    return found


def divergence(network: QNetwork, other: QNetwork, obs: Shaped[Array, "B *obs"]) -> Float[Array, ""]:
    """KL of the softmax policies of two networks' values, its mean over observations."""

    def log_policy(network: QNetwork) -> Float[Array, "B A"]:
        return jax.nn.log_softmax(jax.vmap(lambda one: network(one, jnp.array(0)))(obs))

    log_p, log_q = log_policy(network), log_policy(other)
    return jnp.mean(jnp.sum(jnp.exp(log_p) * (log_p - log_q), axis=-1))


def allowed(epsilon: Float[Array, ""], actions: int) -> Float[Array, ""]:
    """The divergence of ε-greedy play from greedy play (appendix C.1 there)."""
    return -jnp.log(1.0 - epsilon + epsilon / actions)


def adapted(
    noise: WeightNoise,
    network: QNetwork,
    obs: Shaped[Array, "B *obs"],
    epsilon: Float[Array, ""],
    ended: Bool[Array, ""],
    key: Key,
) -> WeightNoise:
    """After a round of updates: σ rises where a fresh perturbation changes the policy by less than ε-greedy play would,
    and falls otherwise. Once an episode has `ended`, the fresh one acts."""
    fresh = perturbed(network, noise.sigma, key)
    small = divergence(network, fresh, obs) < allowed(epsilon, network.actions)
    acting = jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, noise.acting)
    return WeightNoise(acting, jnp.where(small, noise.sigma * FACTOR, noise.sigma / FACTOR))
