"""The networks of PPO and of random network distillation."""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from e3rl.types import Key

KERNEL = 3


def orthogonal(key: Key, rows: int, columns: int, gain: float) -> Float[Array, "{rows} {columns}"]:
    return jax.nn.initializers.orthogonal(gain)(key, (rows, columns), jnp.float32)


class Network(eqx.Module):
    """Hidden layers of one width and a linear head, orthogonal weights and zero biases; images pass two strided
    convolutions with ReLU first. `gains` scales each group of outputs: (rows, gain) pairs."""

    kernels: tuple[Float[Array, "h w from to"], ...]
    weights: tuple[Float[Array, "to from"], ...]
    biases: tuple[Float[Array, " to"], ...]
    activation: Callable = eqx.field(static=True)
    stride: int = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, ...],
        gains: tuple[tuple[int, float], ...],
        width: int,
        depth: int,
        maps: int,
        activation: Callable,
        *,
        key: Key,
    ):
        k_kernels, k_hidden, k_head = jax.random.split(key, 3)
        features = math.prod(shape)
        self.activation, self.kernels, self.stride = activation, (), 1
        if len(shape) == 3:
            height, breadth, channels = shape
            self.stride = 1 + max(height, breadth) // 32
            kernels = []
            for k_kernel, stride in zip(jax.random.split(k_kernels), (self.stride, 2), strict=True):
                flat = orthogonal(k_kernel, maps, KERNEL * KERNEL * channels, math.sqrt(2.0))
                kernels.append(flat.T.reshape(KERNEL, KERNEL, channels, maps))
                height, breadth, channels = -(-height // stride), -(-breadth // stride), maps
            self.kernels, features = tuple(kernels), height * breadth * maps
        sizes = [features] + [width] * depth
        hidden = [
            orthogonal(k, rows, columns, math.sqrt(2.0))
            for k, columns, rows in zip(
                jax.random.split(k_hidden, max(depth, 1)), sizes, sizes[1:], strict=False
            )
        ]
        head = [
            orthogonal(k, rows, sizes[-1], gain)
            for k, (rows, gain) in zip(jax.random.split(k_head, len(gains)), gains, strict=True)
        ]
        self.weights = (*hidden, jnp.concatenate(head))
        self.biases = tuple(jnp.zeros(weight.shape[0]) for weight in self.weights)

    def __call__(self, obs: Float[Array, "*obs"]) -> Float[Array, " outputs"]:
        return self.many(obs[None])[0]

    def many(self, obs: Float[Array, "N *obs"]) -> Float[Array, "N outputs"]:
        """What `vmap` gives, but with the rows as columns of the products: on a CPU the gradient of the weights then
        takes two thirds of the time."""
        x = obs
        for kernel, stride in zip(self.kernels, (self.stride, 2), strict=False):
            window = (stride, stride)
            x = jax.lax.conv_general_dilated(
                x, kernel, window, "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x)
        x = x.reshape(x.shape[0], -1).T
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            x = self.activation(weight @ x + bias[:, None])
        return (self.weights[-1] @ x + self.biases[-1][:, None]).T


class ActorCritic(eqx.Module):
    """Logits over A actions and one value per reward stream.

    Policy and values have networks of their own, or with `shared` one network with two groups of outputs.
    """

    policy: Network
    critic: Network | None
    actions: int = eqx.field(static=True)
    input_gain: float = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, ...],
        actions: int,
        streams: int,
        width: int,
        maps: int,
        shared: bool,
        value_gain: float,
        input_gain: float = 1.0,
        *,
        key: Key,
    ):
        self.actions, self.input_gain = actions, input_gain
        k_policy, k_critic = jax.random.split(key)
        # A nearly uniform first policy: small weights before the logits.
        choose, value = (actions, 0.01), (streams, value_gain)
        self.policy = Network(
            shape, (choose, value) if shared else (choose,), width, 2, maps, jnp.tanh, key=k_policy
        )
        self.critic = None if shared else Network(shape, (value,), width, 2, maps, jnp.tanh, key=k_critic)

    def __call__(self, obs: Float[Array, "*obs"]) -> tuple[Float[Array, " A"], Float[Array, " S"]]:
        logits, values = self.many(obs[None])
        return logits[0], values[0]

    def many(self, obs: Float[Array, "N *obs"]) -> tuple[Float[Array, "N A"], Float[Array, "N S"]]:
        centred = (obs - 0.5) * self.input_gain  # entries with bounds arrive in [0, 1]
        outputs = self.policy.many(centred)
        values = outputs[:, self.actions :] if self.critic is None else self.critic.many(centred)
        return outputs[:, : self.actions], values
