"""Values fitted in imagination: section 2's exploration MDP, or its exploitation twin, solved by fitted Q-iteration.

States come from the replay buffer, every action is imagined by the ensemble, the next state is drawn from a random
member, and the reward is a utility of what the members predict. Also here: what a greedy policy would collect in
imagination, by which values on the way are told apart.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from e3rl.models.base import Prediction, Problem, within_bounds
from e3rl.models.ensemble import Ensemble, predict
from e3rl.replay import Replay
from e3rl.runs.settings import Settings, setting
from e3rl.types import Key
from e3rl.values.network import QNetwork
from e3rl.values.update import QState, QStep, fresh_value, update_q

LARGEST_TABLE = 20_000_000
"""Entries of next observations that are worth keeping in memory."""
JUDGED_STARTS = 20
"""Starts of episodes from which a policy is judged in imagination."""

Utility: TypeAlias = Callable[[Prediction], Float[Array, ""]]
"""What a step is worth, by what every member predicts of it (leaves [E, …])."""


@dataclass(frozen=True)
class ValueFit(Settings):
    """How a value is fitted in imagination."""

    updates: int = setting(
        300, "Fitted-Q steps on imagined transitions, each time the value is planned", at_least=1
    )
    batch: int = setting(64, "States from the replay buffer per step", at_least=1)
    learning_rate: float = setting(1e-3, "Adam's step", above=0)
    decay: bool = setting(False, "Let the learning rate fall to a tenth over the updates")
    gradient_clip: float = setting(10.0, "Largest global norm of a gradient", above=0)
    target_rate: float = setting(
        0.01, "Polyak step of the target network towards the online one, after every step", above=0, at_most=1
    )
    discount: float = setting(1.0, "γ", at_most=1)
    huber: float = setting(1.0, "Errors beyond this count linearly", above=0)
    heads: bool = setting(True, "A last layer of its own for every time step")
    hidden: int = setting(64, "Width of the two hidden layers", at_least=1)

    def step(self) -> QStep:
        return QStep(
            learning_rate=self.learning_rate,
            gradient_clip=self.gradient_clip,
            target_rate=self.target_rate,
            huber=self.huber,
            decay=self.updates if self.decay else 0,
        )

    def fresh(self, problem: Problem, key: Key) -> QState:
        """The value before any training."""
        return fresh_value(problem, self.hidden, self.heads, self.step(), key)


def fit_value(
    value: QState,
    ensemble: Ensemble,
    replay: Replay,
    key: Key,
    utility: Utility,
    settings: ValueFit,
    updates: int,
    actions: int,
    table: "Imagined | None" = None,
) -> tuple[QState, Float[Array, ""]]:
    """`updates` steps of fitted Q-iteration on imagined transitions; the mean loss of the last ones.

    `table` holds the answers of deterministic members (`imagine`), which saves asking them at every step.
    """
    members = jax.tree.leaves(ensemble)[0].shape[0]
    everything = jnp.arange(actions, dtype=jnp.int32)
    step = settings.step()

    def bootstrap(target: QState, next_obs: Shaped[Array, "*obs"], time: Int[Array, ""]) -> Float[Array, ""]:
        return settings.discount * jnp.max(target.target(next_obs, time + 1))

    def backup(
        target: QState, obs: Shaped[Array, "*obs"], time: Int[Array, ""], action: Int[Array, ""], key: Key
    ) -> Float[Array, ""]:
        """u(s, a) + γ (1 − end) max_a' Q(s', a'), with s' drawn from a random member."""
        key_member, key_noise = jax.random.split(key)
        predicted = predict(ensemble, obs, action, time)
        chosen = jax.random.randint(key_member, (), 0, members)
        member, own = jax.tree.map(lambda leaf: leaf[chosen], (ensemble, predicted))
        next_obs = within_bounds(member.draw(own, jax.random.uniform(key_noise, ensemble.noise_shape)))
        alive = 1.0 - own.termination
        return utility(predicted) + alive * bootstrap(target, next_obs, time)

    def looked_up(table: Imagined, target: QState, row: Array, time: Array, action: Array, key: Key) -> Array:
        """The same, of deterministic members that were asked before."""
        chosen = jax.random.randint(key, (), 0, members)
        next_obs, alive = table.next_obs[row, action, chosen], table.alive[row, action, chosen]
        return table.utility[row, action] + alive * bootstrap(target, next_obs, time)

    def update(state: QState, key: Key) -> tuple[QState, Float[Array, ""]]:
        key_rows, key_backup = jax.random.split(key)
        index = replay.draw(key_rows, settings.batch)
        rows = replay.take(index)
        keys = jax.random.split(key_backup, (settings.batch, actions))
        each_action = jax.vmap(backup, in_axes=(None, None, None, 0, 0))
        states = rows.obs
        if table is not None:
            each_action = jax.vmap(partial(looked_up, table), in_axes=(None, None, None, 0, 0))
            states = index
        each_row = jax.vmap(each_action, in_axes=(None, 0, 0, None, 0))
        targets = each_row(state, states, rows.time, everything, keys)
        return update_q(state, rows.obs, rows.time, targets, jnp.ones_like(targets), step)

    value, losses = jax.lax.scan(update, value, jax.random.split(key, updates))
    return value, jnp.mean(losses[-20:])


class Imagined(NamedTuple):
    """What deterministic members predict for every state in the buffer: their answers do not change while a value is
    fitted, so each is asked once."""

    next_obs: Float[Array, "N A E *obs"]
    alive: Float[Array, "N A E"]
    utility: Float[Array, "N A"]


def imagine(ensemble: Ensemble, replay: Replay, utility: Utility, actions: int) -> Imagined | None:
    """The table, or None where members are stochastic or it would be too large."""
    members, rows = jax.tree.leaves(ensemble)[0].shape[0], replay.rows
    entries = rows.obs.size * actions * members
    if ensemble.noise_shape != (0,) or entries > LARGEST_TABLE:
        return None

    def one(index: Int[Array, ""], action: Int[Array, ""]) -> Imagined:
        row = replay.take(index)
        predicted = predict(ensemble, row.obs, action, row.time)
        return Imagined(within_bounds(predicted.obs), 1.0 - predicted.termination, utility(predicted))

    every = jnp.arange(actions, dtype=jnp.int32)
    each_action = jax.vmap(one, in_axes=(None, 0))
    index = jnp.arange(rows.action.shape[0])
    table: Imagined = jax.lax.map(lambda i: each_action(i, every), index, batch_size=1_024)
    return table


def imagined_return(
    value: QNetwork, ensemble: Ensemble, starts: Shaped[Array, "B *obs"], horizon: int, key: Key
) -> Float[Array, ""]:
    """What the greedy policy would collect from `starts` in episodes of `horizon` steps, in the mean over them and the
    members. It costs no episode, so it can judge policies that have not been tried."""

    def episode(member: Ensemble, obs: Shaped[Array, "*obs"], key: Key) -> Float[Array, ""]:
        def step(carry: tuple, inputs: tuple) -> tuple:
            obs, alive, total = carry
            time, key = inputs
            predicted = member(obs, jnp.argmax(value(obs, time)).astype(jnp.int32), time)
            drawn = member.draw(predicted, jax.random.uniform(key, member.noise_shape))
            total += alive * predicted.reward
            return (within_bounds(drawn), alive * (1.0 - predicted.termination), total), None

        steps = jnp.arange(horizon, dtype=jnp.int32), jax.random.split(key, horizon)
        start = (obs.astype(jnp.float32), jnp.array(1.0), jnp.array(0.0))
        total: Float[Array, ""] = jax.lax.scan(step, start, steps)[0][2]
        return total

    keys = jax.random.split(key, starts.shape[0])
    each_start = jax.vmap(episode, in_axes=(None, 0, 0))
    each_member = eqx.filter_vmap(each_start, in_axes=(eqx.if_array(0), None, None))
    return jnp.mean(each_member(ensemble, starts, keys))


def best_snapshot(
    fit: Callable[[QState, Key], QState],
    value: QState,
    ensemble: Ensemble,
    replay: Replay,
    horizon: int,
    key: Key,
    snapshots: int,
) -> QState:
    """`fit` over and over, `snapshots` times. Fitted values keep fluctuating: of those on the way, the one whose greedy
    policy the models like best."""
    starts = replay.starts(JUDGED_STARTS)

    def fit_on(carry: tuple[QState, QState, Array], key: Key) -> tuple:
        value, best, best_score = carry
        key_fit, key_judge = jax.random.split(key)
        value = fit(value, key_fit)
        score = imagined_return(value.online, ensemble, starts, horizon, key_judge)
        better = score >= best_score
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), value, best)
        return (value, best, jnp.where(better, score, best_score)), None

    start = (value, value, jnp.array(-jnp.inf))
    best: QState = jax.lax.scan(fit_on, start, jax.random.split(key, snapshots))[0][1]
    return best
