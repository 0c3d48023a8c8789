"""Deterministic dynamics for images: the convolutional network of appendix C.2."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from e3rl.envs.encoding import Encoding
from e3rl.models.base import RARELY_ENDS, AbstractDynamics, AbstractFamily, Prediction, Problem
from e3rl.models.layers import SLOPE, Outputs, draw_weights
from e3rl.replay import Transitions
from e3rl.runs.settings import setting
from e3rl.types import Key

RewardHead = Literal["dense", "pooled"]
WINDOW = 3
STILL = 0.1
"""Size of the first predicted changes: before anything is learned a frame stays about as it is, so that the unrolled
prediction starts out bounded."""


def convolve(
    image: Float[Array, "h w c"], kernel: Float[Array, "window maps"], stride: int = 1
) -> Float[Array, "h2 w2 maps"]:
    """3 × 3 convolution, zero padded, as matrix products. With each member's own kernel a vmapped `lax.conv` becomes a
    grouped convolution, which is slow."""
    narrows = kernel.shape[-1] <= image.shape[-1]
    if narrows and stride == 1 and jax.default_backend() != "cpu":  # faster there, and slower on a CPU
        return multiply_and_shift(image, kernel)
    return jnp.concatenate(shifted(image, stride), axis=-1) @ kernel


def multiply_and_shift(
    image: Float[Array, "h w c"], kernel: Float[Array, "window maps"]
) -> Float[Array, "h w maps"]:
    """`convolve` by products of the places themselves, which are then moved to where they are seen from."""
    apart = kernel.reshape(WINDOW**2, image.shape[-1], -1)
    products = jnp.einsum("hwc,kcm->hwkm", image, apart)
    return reduce(operator.add, (seen[:, :, k] for k, seen in enumerate(shifted(products))))


def shifted(image: Float[Array, "h w *c"], stride: int = 1) -> list[Float[Array, "h2 w2 *c"]]:
    """The image as seen through each place of the window, zero padded."""
    h, w = image.shape[:2]
    padded = jnp.pad(image, ((1, 1), (1, 1), *[(0, 0)] * (image.ndim - 2)))
    places = [(i, j) for i in range(WINDOW) for j in range(WINDOW)]
    return [padded[i : i + h : stride, j : j + w : stride] for i, j in places]


class Weights(eqx.Module):
    """What is learned: three layers for the frame, four for reward and end. Kernels are matrices over windows."""

    first: Float[Array, "window maps"]
    first_bias: Float[Array, " maps"]
    act: Float[Array, "A maps"]
    second: Float[Array, "window2 maps"]
    second_bias: Float[Array, " maps"]
    change: Float[Array, "window2 c"]
    change_bias: Float[Array, " c"]
    look: Float[Array, "window3 maps"]
    look_bias: Float[Array, " maps"]
    look_act: Float[Array, "A maps"]
    judge: Float[Array, "window4 maps"]
    judge_bias: Float[Array, " maps"]
    hidden: Float[Array, "width features"]
    hidden_bias: Float[Array, " width"]
    out: Float[Array, "2 width"]
    out_bias: Float[Array, " 2"]


class ConvDynamics(AbstractDynamics):
    """Predicts the change of the frame by one convolution and two deconvolutions (at stride 1 these are convolutions
    too), the action embedded and added at every location of the first layer's maps.

    A separate head reads the frame, its predicted change and the action, and gives the reward and the logit of
    termination. `reward_head="dense"`: two strided convolutions and fully-connected layers, as in the paper, which
    learn every place of the image apart. `"pooled"`: two layers that judge each location by itself and the maximum of
    each map over the image, so that what is learned in one place holds in all.
    """

    weights: Weights
    shape: tuple[int, int, int] = eqx.field(static=True)
    noise_shape: tuple[int, ...] = eqx.field(static=True)
    reward_head: RewardHead = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, int, int],
        actions: int,
        maps: int = 16,
        width: int = 64,
        reward_head: RewardHead = "dense",
        *,
        key: Key,
    ):
        self.shape = shape
        self.noise_shape = (0,)
        self.reward_head = reward_head
        height, breadth, channels = shape
        area = WINDOW**2
        pooled = reward_head == "pooled"
        look_area = 1 if pooled else area
        features = maps if pooled else maps * -(-height // 4) * -(-breadth // 4)
        shapes = {
            "first": (area * channels, maps),
            "first_bias": (maps,),
            "act": (actions, maps),
            "second": (area * maps, maps),
            "second_bias": (maps,),
            "change": (area * maps, channels),
            "change_bias": (channels,),
            "look": (look_area * 2 * channels, maps),
            "look_bias": (maps,),
            "look_act": (actions, maps),
            "judge": (look_area * maps, maps),
            "judge_bias": (maps,),
            "hidden": (width, features),
            "hidden_bias": (width,),
            "out": (2, width),
            "out_bias": (2,),
        }
        self.weights = Weights(**draw_weights(shapes, _deviations(shapes), key))

    def __call__(
        self, obs: Shaped[Array, "h w c"], action: Int[Array, ""], time: Int[Array, ""]
    ) -> Prediction:
        return self.outputs(obs, action).prediction()

    def outputs(
        self, obs: Float[Array, "h w c"], action: Int[Array, ""], context: Float[Array, " maps"] | None = None
    ) -> Outputs:
        """`context` is what further inputs add to the first layer, at every location as the action does."""
        w = self.weights
        told = w.first_bias + w.act[action] if context is None else w.first_bias + w.act[action] + context
        # The action enters after the product, so that under vmap over actions the first layer is computed once.
        x = _rectify(convolve(obs - 0.5, w.first) + told)
        x = _rectify(convolve(x, w.second) + w.second_bias)
        change = convolve(x, w.change) + w.change_bias
        seen = jnp.concatenate([obs - 0.5, change], axis=-1)
        if self.reward_head == "pooled":
            x = _rectify(seen @ w.look + (w.look_bias + w.look_act[action]))
            features = jnp.max(_rectify(x @ w.judge + w.judge_bias), axis=(0, 1))
        else:
            x = _rectify(convolve(seen, w.look, stride=2) + (w.look_bias + w.look_act[action]))
            features = _rectify(convolve(x, w.judge, stride=2) + w.judge_bias).reshape(-1)
        reward, ending = w.out @ _rectify(w.hidden @ features + w.hidden_bias) + w.out_bias
        return Outputs(obs + change, reward, ending + RARELY_ENDS)

    def draw(self, prediction: Prediction, uniform: Float[Array, "0"]) -> Float[Array, "h w c"]:
        return prediction.obs

    def loss(
        self, obs: Float[Array, "h w c"], row: Transitions, key: Key
    ) -> tuple[Float[Array, ""], Float[Array, "h w c"]]:
        out = self.outputs(obs, row.action)
        error = jnp.sum((out.obs - row.next_obs) ** 2)
        return error + out.surprise(row), out.obs

    def prior_deviation(self) -> "ConvDynamics":
        deviation = _deviations({name: weight.shape for name, weight in vars(self.weights).items()})
        filled = {name: jnp.full_like(weight, deviation[name]) for name, weight in vars(self.weights).items()}
        return eqx.tree_at(lambda model: model.weights, self, Weights(**filled))


def _rectify(x: Float[Array, "*any"]) -> Float[Array, "*any"]:
    return jax.nn.leaky_relu(x, SLOPE)


def _deviations(shapes: dict[str, tuple[int, ...]]) -> dict[str, float]:
    """Standard deviation of each block's initial weights: unit variance into every layer where pixels count as ±½,
    twice that after a rectifier; the last layer of the frame starts small."""
    gain = 2 / (1 + SLOPE**2)
    deviation = {
        "first": (shapes["first"][0] / 4) ** -0.5,
        "act": 1.0,
        "second": (gain / shapes["second"][0]) ** 0.5,
        "change": STILL * (gain / shapes["change"][0]) ** 0.5,
        "look": (shapes["look"][0] / 8) ** -0.5,  # half of its inputs are changes, most of them 0
        "look_act": 1.0,
        "judge": (gain / shapes["judge"][0]) ** 0.5,
        "hidden": (gain / shapes["hidden"][1]) ** 0.5,
        "out": (gain / shapes["out"][1]) ** 0.5,
    }
    biases = {name: 0.1 for name in shapes if name.endswith("_bias")}
    return {**deviation, **biases, "change_bias": 0.1 * STILL}


HEAD = (
    'Reward and ending from a fully-connected layer over the image as in App. C.2 ("dense"), or from a maximum over '
    'its places ("pooled"), which holds wherever in the image something happens'
)


@dataclass(frozen=True)
class Conv(AbstractFamily):
    """For images [height, width, channels] whose next frame is certain."""

    calibrated: ClassVar[bool] = True

    hidden: int = setting(
        64, "Width of the fully-connected layer for reward and ending (App. C.2)", at_least=1
    )
    maps: int = setting(16, "Feature maps of every convolution (App. C.2: 16)", at_least=1)
    reward_head: RewardHead = setting("pooled", HEAD)

    @staticmethod
    def natural(encoding: Encoding) -> bool:
        return len(encoding.shape) == 3

    @staticmethod
    def refuses(encoding: Encoding) -> str | None:
        if len(encoding.shape) == 3:
            return None
        return f"images [height, width, channels], not shape {encoding.shape}"

    def make(self, problem: Problem) -> Callable[[Key], ConvDynamics]:
        height, breadth, channels = problem.shape
        return lambda key: ConvDynamics(
            (height, breadth, channels),
            problem.actions,
            maps=self.maps,
            width=self.hidden,
            reward_head=self.reward_head,
            key=key,
        )
