"""The action-value network, shared by planning in imagination, the offline DQN and the DQN baseline."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from e3rl.draws import normals
from e3rl.models.base import heeded
from e3rl.types import Key


class QNetwork(eqx.Module):
    """Two hidden ReLU layers from (observation, time step) to a value per action; images pass a convolution first.

    Without a `horizon` the values are the same at every time step. With one, values at step H, past the end, are zero,
    and with `heads` the last layer has its own weights for every time step, so that learning about one step does not
    disturb the values of the others; otherwise the time step is an input only. Before any training every action is
    worth about `optimism`.
    """

    kernel: Float[Array, "3 3 channels maps"] | None
    observe: Float[Array, "width features"]
    bias: Float[Array, " width"] | None
    clock: Float[Array, "H width"] | None
    hidden: Float[Array, "width width"]
    hidden_bias: Float[Array, " width"]
    head: Float[Array, "heads A width"]
    head_bias: Float[Array, "heads A"]
    heeds: Bool[Array, " features"] | None
    """The entries of observations that it looks at; None for all."""
    stride: int = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, ...],
        actions: int,
        horizon: int | None,
        width: int,
        heads: bool = False,
        maps: int = 8,
        optimism: float = 0.0,
        *,
        key: Key,
    ):
        names = ("observe", "clock", "hidden", "head")
        keys = dict(zip(names, jax.random.split(key, len(names)), strict=True))
        count = horizon if heads and horizon is not None else 1
        features = math.prod(shape)
        shapes: dict[str, tuple[int, ...]] = {}
        self.stride, self.heeds = 1, None
        if len(shape) == 3:
            height, breadth, channels = shape
            self.stride = 1 + max(height, breadth) // 32
            keys["kernel"], keys["observe"] = jax.random.split(keys["observe"])
            shapes["kernel"] = (3, 3, channels, maps)
            features = -(-height // self.stride) * -(-breadth // self.stride) * maps
        shapes |= {
            "observe": (width, features),
            "clock": (width,) if horizon is None else (horizon, width),
            "hidden": (width, width),
            "head": (count, actions, width),
        }
        drawn = normals(keys, shapes)
        self.kernel = drawn["kernel"] * (2 / (9 * channels)) ** 0.5 if "kernel" in drawn else None
        spread = 4.0 if self.kernel is None else 2.0  # inputs in [0, 1] less a half; outputs of a ReLU
        self.observe = drawn["observe"] * (features / spread) ** -0.5
        # Hinges spread over the observations' range, where a clock of random vectors does it otherwise.
        self.bias, self.clock = drawn["clock"], None
        if horizon is not None:
            self.bias, self.clock = None, drawn["clock"] * (0.1 if heads else 1.0)
        self.hidden = drawn["hidden"] * (2 / width) ** 0.5
        self.hidden_bias = jnp.zeros(width)
        self.head = drawn["head"] * 0.1 * width**-0.5
        self.head_bias = jnp.full((count, actions), optimism, jnp.float32)

    @property
    def actions(self) -> int:
        return self.head.shape[-2]

    def __call__(self, obs: Shaped[Array, "*obs"], time: Int[Array, ""]) -> Float[Array, " A"]:
        return self._values(self._features(obs), time)

    def lasts(self, time: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the episode is not over at this step; without a clock nobody knows of an end."""
        return jnp.array(True) if self.clock is None else time < self.clock.shape[0]

    def columns(self, obs: Shaped[Array, "*obs K"], time: Int[Array, ""]) -> Float[Array, "A K"]:
        """The values of K observations on the last axis."""
        features = self._features(obs) if self.kernel is None else jax.vmap(self._features, -1, -1)(obs)
        return self._values(features, time)

    def _features(self, obs: Shaped[Array, "*obs"]) -> Float[Array, "..."]:
        centred = obs.astype(jnp.float32) - 0.5
        if self.kernel is None:
            return heeded(centred, self.heeds)
        x = jax.lax.conv_general_dilated(
            centred[None],
            self.kernel,
            (self.stride, self.stride),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        return jax.nn.relu(x).reshape(-1)

    def _values(self, features: Float[Array, "features *K"], time: Int[Array, ""]) -> Float[Array, "A *K"]:
        def column(vector: Float[Array, " n"]) -> Float[Array, "n *ones"]:
            return vector.reshape(-1, *[1] * (features.ndim - 1))

        if self.clock is None:
            assert self.bias is not None
            row, shift = jnp.array(0), self.bias
        else:
            step = jnp.minimum(time, self.clock.shape[0] - 1)
            row = step if self.head.shape[-3] > 1 else jnp.array(0)
            shift = self.clock[step]
        x = jax.nn.relu(self.observe @ features + column(shift))
        x = jax.nn.relu(self.hidden @ x + column(self.hidden_bias))
        values = self.head[row] @ x + column(self.head_bias[row])
        return jnp.where(self.lasts(time), values, 0.0)
