"""What several dynamics families are built of: their outputs, their weights, the gated network of appendix C.3."""

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from e3rl.models.base import Prediction
from e3rl.replay import Transitions
from e3rl.types import Key

SLOPE = 0.2
"""Of the LeakyReLU on its negative side, as in the paper's code."""
CHANGE = 0.03
"""The change of a scaled state that counts as one unit, in what the network puts out and in the loss. One step moves a
scaled state by a few hundredths, a reward or an ending by about 1: in these units all three are of one size, and the
prediction unrolled from fresh weights stays bounded."""


class Outputs(NamedTuple):
    """The next observation, the reward, the logit of termination."""

    obs: Float[Array, "..."]
    reward: Float[Array, "..."]
    ending: Float[Array, "..."]

    def prediction(self, detail: Any = ()) -> Prediction:
        return Prediction(self.obs, self.reward, jax.nn.sigmoid(self.ending), detail)

    def surprise(self, row: Transitions) -> Array:
        """Squared error of the reward and cross-entropy of the end of one transition."""
        end = jax.nn.softplus(self.ending) - row.terminated.astype(self.ending.dtype) * self.ending
        return (self.reward - row.reward) ** 2 + end


def draw_weights(
    shapes: dict[str, tuple[int, ...]], deviation: dict[str, float], key: Key
) -> dict[str, Array]:
    """Normal weights, all in one call because the random generator dominates the time this takes to compile."""
    sizes = [math.prod(shape) for shape in shapes.values()]
    drawn = jax.random.normal(key, (sum(sizes),))
    blocks = jnp.split(drawn, np.cumsum(sizes)[:-1].tolist())
    return {
        name: deviation[name] * block.reshape(shape)
        for (name, shape), block in zip(shapes.items(), blocks, strict=True)
    }


class GatedNetwork(eqx.Module):
    """Three linear layers with LeakyReLU between them; the action's embedding multiplies the first hidden layer."""

    observe: Float[Array, "width D"]
    bias: Float[Array, " width"]
    gate: Float[Array, "A width"]
    hidden: Float[Array, "width width"]
    hidden_bias: Float[Array, " width"]
    head: Float[Array, "outputs width"]
    head_bias: Float[Array, " outputs"]

    def __init__(self, inputs: int, actions: int, width: int, outputs: int, *, key: Key):
        shapes = {
            "observe": (width, inputs),
            "bias": (width,),
            "gate": (actions, width),
            "hidden": (width, width),
            "hidden_bias": (width,),
            "head": (outputs, width),
            "head_bias": (outputs,),
        }
        for name, weight in draw_weights(shapes, gated_deviations(inputs, width), key).items():
            setattr(self, name, weight)

    def __call__(
        self,
        inputs: Float[Array, "D *K"],
        action: Int[Array, ""],
        context: Float[Array, "n *K"] | None = None,
    ) -> Float[Array, "outputs *K"]:
        """One input, or K of them as columns; `context` is what further inputs add to the first layer."""
        return self._upper(self._first(inputs, context) * column(self.gate[action], inputs))

    def each(self, inputs: Float[Array, "D B"], actions: Int[Array, " B"]) -> Float[Array, "outputs B"]:
        """Columns with an action each. The product with zeros and ones has a faster gradient than picking rows."""
        taken = jax.nn.one_hot(actions, self.gate.shape[0], axis=0)
        return self._upper(self._first(inputs) * (self.gate.T @ taken))

    def every_action(self, inputs: Float[Array, " D"]) -> Float[Array, "outputs A"]:
        return self._upper(self._first(inputs)[:, None] * self.gate.T)

    def _first(
        self, inputs: Float[Array, "D *K"], context: Float[Array, "n *K"] | None = None
    ) -> Float[Array, "n *K"]:
        x = self.observe @ inputs + column(self.bias, inputs)
        return jax.nn.leaky_relu(x if context is None else x + context, SLOPE)

    def _upper(self, x: Float[Array, "n *K"]) -> Float[Array, "outputs *K"]:
        x = jax.nn.leaky_relu(self.hidden @ x + column(self.hidden_bias, x), SLOPE)
        return self.head @ x + column(self.head_bias, x)

    def prior_deviation(self) -> "GatedNetwork":
        width, inputs = self.observe.shape
        filled = [
            jnp.full_like(getattr(self, name), sd) for name, sd in gated_deviations(inputs, width).items()
        ]
        return eqx.tree_at(lambda network: jax.tree.leaves(network), self, filled)


def column(vector: Float[Array, " n"], like: Float[Array, "D *K"]) -> Float[Array, "n *ones"]:
    return vector.reshape(-1, *[1] * (like.ndim - 1))


def gated_deviations(inputs: int, width: int) -> dict[str, float]:
    """Standard deviation of each block's initial weights: unit variance into every layer when inputs are uniform on an
    interval of length 1, twice that after a rectifier. The order is that of the fields."""
    rectified = (2 / (1 + SLOPE**2) / width) ** 0.5
    return {
        "observe": (inputs / 12) ** -0.5,
        "bias": 1.0,
        "gate": 1.0,
        "hidden": rectified,
        "hidden_bias": 0.1,
        "head": rectified,
        "head_bias": 0.1,
    }
