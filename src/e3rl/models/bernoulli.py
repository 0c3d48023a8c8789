"""Multivariate Bernoulli dynamics for binary observations: the combination lock's model (sections 4.1 and 5.1)."""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from e3rl.models.base import RARELY_ENDS, AbstractDynamics, Prediction
from e3rl.replay import Transitions
from e3rl.types import Key

Conditioning = Literal["input", "gate"]


class Weights(eqx.Module):
    """What is learned. The first layer is one matrix over (observation, one-hot action, one-hot time) kept in blocks,
    so that a one-hot input costs a row lookup instead of a product."""

    observe: Float[Array, "width D"]
    bias: Float[Array, " width"]
    act: Float[Array, "A width"] | None
    clock: Float[Array, "H width"] | None
    gate: Float[Array, "H A width"] | None
    hidden: Float[Array, "width width"]
    hidden_bias: Float[Array, " width"]
    head: Float[Array, "outputs width"]
    head_bias: Float[Array, " outputs"]


class BernoulliDynamics(AbstractDynamics):
    """Two hidden ReLU layers from (observation, action, time step) to the chance of each bit of the next observation.

    `conditioning="input"` feeds action and time step as one-hot inputs, as the paper's code does. `"gate"` multiplies a
    learned vector for each (time step, action) into the first hidden layer, the way appendix C.3 embeds actions: a pair
    that was never tried keeps its random gate, so members go on disagreeing about it whatever is learned elsewhere.
    """

    weights: Weights
    noise_shape: tuple[int, ...] = eqx.field(static=True)
    mean_over_bits: bool = eqx.field(static=True)

    def __init__(
        self,
        bits: int,
        actions: int,
        horizon: int,
        width: int = 64,
        conditioning: Conditioning = "gate",
        mean_over_bits: bool = False,
        *,
        key: Key,
    ):
        self.noise_shape = (bits,)
        self.mean_over_bits = mean_over_bits
        gated = conditioning == "gate"
        shapes = {
            "observe": (width, bits),
            "bias": (width,),
            "act": None if gated else (actions, width),
            "clock": None if gated else (horizon, width),
            "gate": (horizon, actions, width) if gated else None,
            "hidden": (width, width),
            "hidden_bias": (width,),
            "head": (bits + 2, width),
            "head_bias": (bits + 2,),
        }
        deviation = _deviations(width, bits, gated)
        keys = dict(zip(shapes, jax.random.split(key, len(shapes)), strict=True))
        drawn = {
            name: None if shape is None else deviation[name] * jax.random.normal(keys[name], shape)
            for name, shape in shapes.items()
        }
        self.weights = Weights(**drawn)  # type: ignore[arg-type]

    def __call__(self, obs: Shaped[Array, " D"], action: Int[Array, ""], time: Int[Array, ""]) -> Prediction:
        return self.columns(obs, action, time)

    def columns(self, obs: Shaped[Array, "D *K"], action: Int[Array, ""], time: Int[Array, ""]) -> Prediction:
        out = self._outputs(obs, action, time)
        return Prediction(jax.nn.sigmoid(out[:-2]), out[-2], jax.nn.sigmoid(out[-1]))

    def _outputs(
        self, obs: Shaped[Array, "D *K"], action: Int[Array, ""], time: Int[Array, ""]
    ) -> Float[Array, "outputs *K"]:
        """Logits of the bits, the reward, the logit of termination."""
        w = self.weights

        def column(vector: Float[Array, " n"]) -> Float[Array, "n *ones"]:
            return vector.reshape(-1, *[1] * (obs.ndim - 1))

        x = w.observe @ (obs.astype(jnp.float32) - 0.5)
        if w.gate is None:
            assert w.act is not None
            assert w.clock is not None
            x = jax.nn.relu(x + column(w.bias + w.act[action] + w.clock[time]))
        else:
            x = jax.nn.relu(x + column(w.bias)) * column(w.gate[time, action])
        x = jax.nn.relu(w.hidden @ x + column(w.hidden_bias))
        return w.head @ x + column(w.head_bias.at[-1].add(RARELY_ENDS))

    def draw(self, prediction: Prediction, uniform: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        return (uniform < prediction.obs).astype(jnp.float32)

    def draw_columns(self, prediction: Prediction, uniform: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        return self.draw(prediction, uniform)

    def most_likely(self, prediction: Prediction) -> Float[Array, "D *K"]:
        return jnp.round(prediction.obs)

    def loss(
        self, obs: Shaped[Array, " D"], row: Transitions, key: Key
    ) -> tuple[Float[Array, ""], Float[Array, " D"]]:
        out = self._outputs(obs, row.action, row.time)
        logits, reward, ending = out[:-2], out[-2], out[-1]
        bits = jax.nn.softplus(logits) - row.next_obs.astype(jnp.float32) * logits
        end = jax.nn.softplus(ending) - row.terminated.astype(jnp.float32) * ending
        observation = jnp.mean(bits) if self.mean_over_bits else jnp.sum(bits)
        return observation + 0.5 * (reward - row.reward) ** 2 + end, jax.nn.sigmoid(logits)

    def prior_deviation(self) -> "BernoulliDynamics":
        width, bits = self.weights.observe.shape
        deviation = _deviations(width, bits, self.weights.gate is not None)
        filled = {
            name: None if weight is None else jnp.full_like(weight, deviation[name])
            for name, weight in vars(self.weights).items()
        }
        return eqx.tree_at(lambda model: model.weights, self, Weights(**filled))  # type: ignore[arg-type]


def _deviations(width: int, bits: int, gated: bool) -> dict[str, float]:
    """Standard deviation of each block's initial weights: unit variance into every layer, twice that after a ReLU.

    Bits count as ±½, a one-hot block as its single active input.
    """
    shared = 1.0 if gated else 3**-0.5  # observation, action and time step share the first layer's variance
    return {
        "observe": shared * (bits / 4) ** -0.5,
        "bias": shared,
        "act": shared,
        "clock": shared,
        "gate": 1.0,
        "hidden": (2 / width) ** 0.5,
        "hidden_bias": 0.1,
        "head": (2 / width) ** 0.5,
        "head_bias": 0.1,
    }
