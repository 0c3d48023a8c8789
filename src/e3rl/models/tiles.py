"""Dynamics for images of categories: a softmax for every place and channel, convolutions across."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from e3rl.envs.encoding import Encoding
from e3rl.models.base import RARELY_ENDS, AbstractDynamics, AbstractFamily, Prediction, Problem
from e3rl.models.conv import WINDOW, convolve
from e3rl.models.layers import SLOPE, draw_weights
from e3rl.replay import Transitions
from e3rl.runs.settings import setting
from e3rl.types import Key

STAYS = 3.0
"""Logit by which a place keeps its category before anything is learned: most of an image is still."""


class Weights(eqx.Module):
    """What is learned: three layers for the image, three for reward and end. Kernels are matrices over windows."""

    first: Float[Array, "window maps"]
    first_bias: Float[Array, " maps"]
    act: Float[Array, "A maps"]
    second: Float[Array, "window2 maps"]
    second_bias: Float[Array, " maps"]
    second_act: Float[Array, "A maps"]
    change: Float[Array, "maps categories"]
    change_bias: Float[Array, " categories"]
    judge: Float[Array, "maps width"]
    judge_bias: Float[Array, " width"]
    hidden: Float[Array, "width width2"]
    hidden_bias: Float[Array, " width"]
    out: Float[Array, "3 width"]
    out_bias: Float[Array, " 3"]


class _Outputs(NamedTuple):
    logits: Float[Array, "h w c categories"]
    size: Float[Array, ""]
    """Of the reward, if one is paid."""
    paid: Float[Array, ""]
    ending: Float[Array, ""]


class TileDynamics(AbstractDynamics):
    """What a place shows next follows from the places around it and the action, by the same rule everywhere; reward and
    end from the place where most speaks for them. Of the reward there is a chance that it is paid and a size: most
    steps pay nothing at all, and a planner would add up what a single number is off.

    Category k is the value k · `unit` of a scaled observation. A prediction's `obs` are chances, with the categories on
    a last axis of their own.
    """

    weights: Weights
    shape: tuple[int, int, int] = eqx.field(static=True)
    categories: int = eqx.field(static=True)
    unit: float = eqx.field(static=True)
    noise_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int, int],
        actions: int,
        categories: int,
        unit: float,
        maps: int = 16,
        width: int = 32,
        *,
        key: Key,
    ):
        self.shape = self.noise_shape = shape
        self.categories, self.unit = categories, unit
        inputs, area = shape[2] * categories, WINDOW**2
        shapes = {
            "first": (area * inputs, maps),
            "first_bias": (maps,),
            "act": (actions, maps),
            "second": (area * maps, maps),
            "second_bias": (maps,),
            "second_act": (actions, maps),
            "change": (maps, inputs),
            "change_bias": (inputs,),
            "judge": (maps, width),
            "judge_bias": (width,),
            "hidden": (width, width),
            "hidden_bias": (width,),
            "out": (3, width),
            "out_bias": (3,),
        }
        self.weights = Weights(**draw_weights(shapes, _deviations(shapes, shape[2]), key))

    def __call__(
        self, obs: Shaped[Array, "h w c"], action: Int[Array, ""], time: Int[Array, ""]
    ) -> Prediction:
        out = self._outputs(obs, action)
        paid, ends = jax.nn.sigmoid(out.paid), jax.nn.sigmoid(out.ending)
        return Prediction(jax.nn.softmax(out.logits), paid * out.size, ends)

    def _category(self, obs: Shaped[Array, "h w c"]) -> Int[Array, "h w c"]:
        return jnp.clip(jnp.round(obs / self.unit), 0, self.categories - 1).astype(jnp.int32)

    def _outputs(self, obs: Shaped[Array, "h w c"], action: Int[Array, ""]) -> _Outputs:
        w = self.weights
        shown = jax.nn.one_hot(self._category(obs), self.categories)
        height, breadth, _ = obs.shape
        # The action enters after the product, so that under vmap over actions the first layer is computed once.
        x = convolve(shown.reshape(height, breadth, -1), w.first)
        x = _rectify(x + (w.first_bias + w.act[action]))
        x = _rectify(convolve(x, w.second) + (w.second_bias + w.second_act[action]))
        logits = STAYS * shown + (x @ w.change + w.change_bias).reshape(shown.shape)
        features = jnp.max(_rectify(x @ w.judge + w.judge_bias), axis=(0, 1))
        size, paid, ending = w.out @ _rectify(w.hidden @ features + w.hidden_bias) + w.out_bias
        return _Outputs(logits, size, paid + RARELY_ENDS, ending + RARELY_ENDS)

    def draw(self, prediction: Prediction, uniform: Float[Array, "h w c"]) -> Float[Array, "h w c"]:
        below = jnp.cumsum(prediction.obs, axis=-1)[..., :-1]
        return self.unit * jnp.sum(uniform[..., None] >= below, axis=-1).astype(jnp.float32)

    def most_likely(self, prediction: Prediction) -> Float[Array, "h w c"]:
        return self.unit * jnp.argmax(prediction.obs, axis=-1).astype(jnp.float32)

    def loss(
        self, obs: Float[Array, "h w c"], row: Transitions, key: Key
    ) -> tuple[Float[Array, ""], Float[Array, "h w c"]]:
        out = self._outputs(obs, row.action)
        chances = jax.nn.log_softmax(out.logits)
        seen = jax.nn.one_hot(self._category(row.next_obs), self.categories)
        mean = self.unit * jnp.exp(chances) @ jnp.arange(self.categories, dtype=jnp.float32)
        paid = row.reward != 0.0
        amiss = jnp.where(paid, (out.size - row.reward) ** 2, 0.0)
        flags = _surprise(out.paid, paid) + _surprise(out.ending, row.terminated)
        return flags + amiss - jnp.sum(seen * chances), mean

    def prior_deviation(self) -> "TileDynamics":
        deviation = _deviations(
            {name: weight.shape for name, weight in vars(self.weights).items()}, self.shape[2]
        )
        filled = {name: jnp.full_like(weight, deviation[name]) for name, weight in vars(self.weights).items()}
        return eqx.tree_at(lambda model: model.weights, self, Weights(**filled))


def _surprise(logit: Float[Array, ""], flag: Bool[Array, ""]) -> Float[Array, ""]:
    """Cross-entropy of a flag."""
    return jax.nn.softplus(logit) - flag.astype(logit.dtype) * logit


def _rectify(x: Float[Array, "*any"]) -> Float[Array, "*any"]:
    return jax.nn.leaky_relu(x, SLOPE)


def _deviations(shapes: dict[str, tuple[int, ...]], channels: int) -> dict[str, float]:
    """Standard deviation of each block's initial weights: unit variance into every layer where a window has a one in
    every place and channel, twice that after a rectifier."""
    gain = 2 / (1 + SLOPE**2)
    deviation = {
        "first": (WINDOW**2 * channels) ** -0.5,
        "act": 1.0,
        "second": (gain / shapes["second"][0]) ** 0.5,
        "second_act": 1.0,
        "change": (gain / shapes["change"][0]) ** 0.5,
        "judge": (gain / shapes["judge"][0]) ** 0.5,
        "hidden": (gain / shapes["hidden"][1]) ** 0.5,
        "out": (gain / shapes["out"][1]) ** 0.5,
    }
    return {**deviation, **{name: 0.1 for name in shapes if name.endswith("_bias")}}


@dataclass(frozen=True)
class Tiles(AbstractFamily):
    """For images [height, width, channels] of few distinct values, which are categories and not brightness."""

    of_probabilities: ClassVar[bool] = True
    calibrated: ClassVar[bool] = True

    categories: int = setting(8, "Values that a place of the image can show", at_least=2)
    unit: float = setting(
        1 / 255,
        "How far two neighbouring values are apart where observations are scaled to [0, 1]: 1/255 for ids in bytes",
        above=0,
        at_most=1,
    )
    maps: int = setting(16, "Feature maps of every convolution", at_least=1)
    hidden: int = setting(32, "Width of the layers for reward and ending", at_least=1)

    @staticmethod
    def refuses(encoding: Encoding) -> str | None:
        if len(encoding.shape) == 3:
            return None
        return f"images [height, width, channels], not shape {encoding.shape}"

    def make(self, problem: Problem) -> Callable[[Key], TileDynamics]:
        height, breadth, channels = problem.shape
        return lambda key: TileDynamics(
            (height, breadth, channels),
            problem.actions,
            self.categories,
            self.unit,
            maps=self.maps,
            width=self.hidden,
            key=key,
        )
