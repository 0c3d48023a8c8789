"""Mixture density network (Bishop 1994) for vectors whose next state is uncertain (section 4.1)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int, Shaped

from e3rl.models.base import RARELY_ENDS, AbstractDynamics, AbstractFamily, Prediction, Problem
from e3rl.models.layers import CHANGE, GatedNetwork, Outputs
from e3rl.replay import Transitions
from e3rl.runs.settings import setting
from e3rl.types import Key

LOG_DEVIATION = (-5.0, 1.0)
"""Bounds of a component's log standard deviation in units of `CHANGE`: without a lower one the likelihood of a state
that never varies would grow without end."""
TAIL = 1e-6
"""Uniform noise is kept this far from 0 and 1, where the normal quantile is infinite."""


class Mixture(NamedTuple):
    """M diagonal Gaussians over the next state."""

    log_weight: Float[Array, "n *K"]
    mean: Float[Array, "n D *K"]
    log_deviation: Float[Array, "n D *K"]


class MdnDynamics(AbstractDynamics):
    """The gated network of appendix C.3 with M weights, M means of the change of state and M diagonal deviations."""

    network: GatedNetwork
    components: int = eqx.field(static=True)
    noise_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, entries: int, actions: int, components: int = 5, width: int = 64, *, key: Key):
        outputs = components * (1 + 2 * entries) + 2
        self.network = GatedNetwork(entries, actions, width, outputs, key=key)
        self.components = components
        self.noise_shape = (entries + 1,)

    def __call__(self, obs: Shaped[Array, " D"], action: Int[Array, ""], time: Int[Array, ""]) -> Prediction:
        return self.columns(obs, action, time)

    def columns(self, obs: Shaped[Array, "D *K"], action: Int[Array, ""], time: Int[Array, ""]) -> Prediction:
        outputs, mixture = self._outputs(obs, action)
        return outputs.prediction(mixture)

    def _outputs(self, obs: Float[Array, "D *K"], action: Int[Array, ""]) -> tuple[Outputs, Mixture]:
        out = self.network(obs - 0.5, action)
        m = self.components
        log_weight = jax.nn.log_softmax(out[:m], axis=0)
        centre, spread = out[m:-2].reshape(2, m, *obs.shape)
        low, high = LOG_DEVIATION
        log_deviation = low + (high - low) * jax.nn.sigmoid(spread) + jnp.log(CHANGE)
        mixture = Mixture(log_weight, obs + CHANGE * centre, log_deviation)
        mean = jnp.sum(jnp.exp(log_weight)[:, None] * mixture.mean, axis=0)
        return Outputs(mean, out[-2], out[-1] + RARELY_ENDS), mixture

    def draw(self, prediction: Prediction, uniform: Float[Array, "n *K"]) -> Float[Array, "D *K"]:
        """The component by the first number, the Gaussian's entries by the others."""
        mixture: Mixture = prediction.detail
        passed = jnp.cumsum(jnp.exp(mixture.log_weight[:-1]), axis=0) <= uniform[0]
        chosen = jax.nn.one_hot(jnp.sum(passed, axis=0), self.components, axis=0)[:, None]
        mean, log_deviation = (
            jnp.sum(chosen * leaf, axis=0) for leaf in (mixture.mean, mixture.log_deviation)
        )
        return mean + jnp.exp(log_deviation) * ndtri(jnp.clip(uniform[1:], TAIL, 1.0 - TAIL))

    def draw_columns(self, prediction: Prediction, uniform: Float[Array, "n *K"]) -> Float[Array, "D *K"]:
        return self.draw(prediction, uniform)

    def most_likely(self, prediction: Prediction) -> Float[Array, "D *K"]:
        """The mean of the heaviest component: the mean of all may be a state that cannot be."""
        mixture: Mixture = prediction.detail
        heaviest = jax.nn.one_hot(jnp.argmax(mixture.log_weight, axis=0), self.components, axis=0)
        return jnp.sum(heaviest[:, None] * mixture.mean, axis=0)

    def log_likelihood(self, prediction: Prediction, next_obs: Float[Array, " D"]) -> Float[Array, ""]:
        """log p(s' | s, a), up to (D/2) log 2π and in the units of `CHANGE`."""
        mixture: Mixture = prediction.detail
        error = (next_obs - mixture.mean) * jnp.exp(-mixture.log_deviation)
        density = 0.5 * error**2 + mixture.log_deviation - jnp.log(CHANGE)
        return jax.nn.logsumexp(mixture.log_weight - jnp.sum(density, axis=1))

    def loss(
        self, obs: Float[Array, " D"], row: Transitions, key: Key
    ) -> tuple[Float[Array, ""], Float[Array, " D"]]:
        outputs, mixture = self._outputs(obs, row.action)
        likelihood = self.log_likelihood(outputs.prediction(mixture), row.next_obs)
        return outputs.surprise(row) - likelihood, outputs.obs

    def prior_deviation(self) -> "MdnDynamics":
        return eqx.tree_at(lambda model: model.network, self, self.network.prior_deviation())


@dataclass(frozen=True)
class Mdn(AbstractFamily):
    """For vectors of numbers whose next value is uncertain."""

    hidden: int = setting(64, "Hidden layer size", at_least=1)
    components: int = setting(5, "M, Gaussians in the mixture", at_least=1)

    def make(self, problem: Problem) -> Callable[[Key], MdnDynamics]:
        return lambda key: MdnDynamics(
            problem.entries, problem.actions, components=self.components, width=self.hidden, key=key
        )
