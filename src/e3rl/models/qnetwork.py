"""The action-value network and its one training step, shared by planning in imagination and by the offline DQN."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Shaped

from e3rl.types import Key


class QNetwork(eqx.Module):
    """Two hidden ReLU layers from (observation, time step) to a value per action.

    With `heads` the last layer has its own weights for every time step, so that learning about one step does not
    disturb the values of the others; without, the time step is an input only. Values at step H, past the end, are zero.
    """

    observe: Float[Array, "width D"]
    clock: Float[Array, "H width"]
    hidden: Float[Array, "width width"]
    hidden_bias: Float[Array, " width"]
    head: Float[Array, "heads A width"]
    head_bias: Float[Array, "heads A"]

    def __init__(self, inputs: int, actions: int, horizon: int, width: int, heads: bool, *, key: Key):
        k_observe, k_clock, k_hidden, k_head = jax.random.split(key, 4)
        count = horizon if heads else 1
        self.observe = jax.random.normal(k_observe, (width, inputs)) * (inputs / 4) ** -0.5
        self.clock = jax.random.normal(k_clock, (horizon, width)) * (0.1 if heads else 1.0)
        self.hidden = jax.random.normal(k_hidden, (width, width)) * (2 / width) ** 0.5
        self.hidden_bias = jnp.zeros(width)
        self.head = jax.random.normal(k_head, (count, actions, width)) * 0.1 * width**-0.5
        self.head_bias = jnp.zeros((count, actions))

    def __call__(self, obs: Shaped[Array, "D *K"], time: Int[Array, ""]) -> Float[Array, "A *K"]:
        """The values of one observation, or of the columns of a matrix of them."""
        horizon = self.clock.shape[0]
        step = jnp.minimum(time, horizon - 1)
        row = step if self.head.shape[0] > 1 else 0

        def column(vector: Float[Array, " n"]) -> Float[Array, "n *ones"]:
            return vector.reshape(-1, *[1] * (obs.ndim - 1))

        x = jax.nn.relu(self.observe @ (obs.astype(jnp.float32) - 0.5) + column(self.clock[step]))
        x = jax.nn.relu(self.hidden @ x + column(self.hidden_bias))
        values = self.head[row] @ x + column(self.head_bias[row])
        return jnp.where(time < horizon, values, 0.0)


class QState(NamedTuple):
    online: QNetwork
    target: QNetwork
    optimiser: optax.OptState
    updates: Int[Array, ""]


class QSettings(NamedTuple):
    learning_rate: float
    clip: float
    target_rate: float
    """Polyak step towards the online network after every update; 0 for hard copies."""
    target_period: int
    """Updates between hard copies; ignored with a Polyak step."""

    def optimiser(self) -> optax.GradientTransformation:
        return optax.chain(optax.clip_by_global_norm(self.clip), optax.adam(self.learning_rate))


def make_q_state(network: QNetwork, settings: QSettings) -> QState:
    return QState(
        network,
        network,
        settings.optimiser().init(eqx.filter(network, eqx.is_array)),
        jnp.array(0, jnp.int32),
    )


def update_q(
    state: QState,
    obs: Shaped[Array, "B D"],
    time: Int[Array, " B"],
    targets: Float[Array, "B A"],
    weights: Float[Array, "B A"],
    settings: QSettings,
) -> tuple[QState, Float[Array, ""]]:
    """One Huber step of Q(obs, time) towards `targets` where `weights` is not zero, then the target network follows."""

    def loss(network: QNetwork) -> Float[Array, ""]:
        error = optax.huber_loss(jax.vmap(network)(obs, time), targets)
        return jnp.sum(weights * error) / jnp.sum(weights)

    value, gradient = eqx.filter_value_and_grad(loss)(state.online)
    with jax.numpy_dtype_promotion("standard"):  # Adam raises its decay to a whole number of updates
        change, optimiser = settings.optimiser().update(gradient, state.optimiser)
    online = eqx.apply_updates(state.online, change)
    updates = state.updates + 1

    def follow(old: Array, new: Array) -> Array:
        if settings.target_rate > 0.0:
            return old + settings.target_rate * (new - old)
        return jnp.where(updates % settings.target_period == 0, new, old)

    return QState(online, jax.tree.map(follow, state.target, online), optimiser, updates), value
