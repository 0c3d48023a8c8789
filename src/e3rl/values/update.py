"""One training step of an action value, and what it carries along."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Shaped

from e3rl.models.base import Problem
from e3rl.types import Action, Key
from e3rl.values.network import QNetwork


class QState(NamedTuple):
    online: QNetwork
    target: QNetwork
    optimiser: optax.OptState
    updates: Int[Array, ""]

    def heeding(self, entries: Bool[Array, " D"]) -> "QState":
        """The same, looking at these entries of observations only."""
        return self._replace(online=_heeding(self.online, entries), target=_heeding(self.target, entries))


def _heeding(network: QNetwork, entries: Bool[Array, " D"]) -> QNetwork:
    return eqx.tree_at(lambda network: network.heeds, network, entries, is_leaf=lambda leaf: leaf is None)


@dataclass(frozen=True)
class QStep:
    """How one step of training is taken."""

    learning_rate: float
    gradient_clip: float
    target_rate: float = 0.0
    """Polyak step of the target network towards the online one after every update; 0 for hard copies."""
    target_period: int = 1
    """Updates between hard copies; ignored with a Polyak step."""
    huber: float = 1.0
    """Errors beyond this count linearly instead of squared."""
    decay: int = 0
    """Updates over which the learning rate falls to a share of itself; 0: it stays."""
    left: float = 0.1
    """That share."""

    def optimiser(self) -> optax.GradientTransformation:
        rate: float | optax.Schedule = self.learning_rate
        if self.decay:
            rate = optax.linear_schedule(self.learning_rate, self.left * self.learning_rate, self.decay)
        return optax.chain(optax.clip_by_global_norm(self.gradient_clip), optax.adam(rate))


def make_q_state(network: QNetwork, step: QStep) -> QState:
    return QState(
        network,
        network,
        step.optimiser().init(eqx.filter(network, eqx.is_inexact_array)),
        jnp.array(0, jnp.int32),
    )


def fresh_value(problem: Problem, hidden: int, heads: bool, step: QStep, key: Key) -> QState:
    """The value before any training, for all time steps or, with a clock, each of them."""
    horizon = problem.horizon if problem.clock else None
    return make_q_state(QNetwork(problem.shape, problem.actions, horizon, hidden, heads, key=key), step)


def update_q(
    state: QState,
    obs: Shaped[Array, "B *obs"],
    time: Int[Array, " B"],
    targets: Float[Array, "B A"],
    weights: Float[Array, "B A"],
    step: QStep,
) -> tuple[QState, Float[Array, ""]]:
    """One Huber step of Q(obs, time) towards `targets` where `weights` is not zero, then the target network follows."""
    state, value, _ = update_q_rows(state, obs, time, targets, weights, step)
    return state, value


def update_q_rows(
    state: QState,
    obs: Shaped[Array, "B *obs"],
    time: Int[Array, " B"],
    targets: Float[Array, "B A"],
    weights: Float[Array, "B A"],
    step: QStep,
    importance: Float[Array, " B"] | None = None,
) -> tuple[QState, Float[Array, ""], Float[Array, "B A"]]:
    """`update_q` whose rows count by `importance`, which the mean is not divided by (prioritised replay); returns also
    the values from before the step."""

    def loss(network: QNetwork) -> tuple[Float[Array, ""], Float[Array, "B A"]]:
        values = jax.vmap(network)(obs, time)
        error = optax.huber_loss(values, targets, delta=step.huber)
        counted = weights if importance is None else weights * importance[:, None]
        return jnp.sum(counted * error) / jnp.sum(weights), values

    (value, values), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(state.online)
    with jax.numpy_dtype_promotion("standard"):  # Adam raises its decay to a whole number of updates
        change, optimiser = step.optimiser().update(gradient, state.optimiser)
    online = eqx.apply_updates(state.online, change)
    updates = state.updates + 1

    def follow(old: Array, new: Array) -> Array:
        if not eqx.is_inexact_array(new):
            return new
        if step.target_rate > 0.0:
            return old + step.target_rate * (new - old)
        return jnp.where(updates % step.target_period == 0, new, old)

    return QState(online, jax.tree.map(follow, state.target, online), optimiser, updates), value, values


def greedy(value: QState, obs: Shaped[Array, "*obs"], time: Int[Array, ""]) -> Action:
    return jnp.argmax(value.online(obs, time)).astype(jnp.int32)
