"""Planning by value: section 2's exploration MDP, or its exploitation twin, solved by fitted Q-iteration in
imagination.

States come from the replay buffer, every action is imagined by the ensemble, the next state is drawn from a random
member, and the reward is the planner's utility. The value is warm-started from one epoch to the next.
"""

from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from e3rl.models.base import Prediction, within_bounds
from e3rl.models.ensemble import Ensemble, predict
from e3rl.models.qnetwork import QNetwork, QSettings, QState, update_q
from e3rl.planners.utility import Distance, Mode, max_disagreement, mean_reward
from e3rl.replay import Replay
from e3rl.types import Action, Key

LARGEST_TABLE = 20_000_000
"""Entries of next observations that are worth keeping in memory."""


class ValueSettings(NamedTuple):
    updates: int
    batch: int
    discount: float
    distance: Distance
    reward_scale: float
    caution: float
    """Exploit only: disagreement times this is taken off the predicted reward."""
    q: QSettings


def utility(predicted: Prediction, mode: Mode, settings: ValueSettings) -> Float[Array, ""]:
    disagreement = max_disagreement(predicted, settings.distance, settings.reward_scale)
    if mode == "explore":
        return disagreement
    return mean_reward(predicted) - settings.caution * disagreement


def fit_value(
    value: QState,
    ensemble: Ensemble,
    replay: Replay,
    key: Key,
    mode: Mode,
    settings: ValueSettings,
    actions: int,
    table: "Imagined | None" = None,
) -> tuple[QState, Float[Array, ""]]:
    """`settings.updates` steps of fitted Q-iteration on imagined transitions; the mean loss of the last ones.

    `table` holds the answers of deterministic members (`imagine`), which saves asking them at every step.
    """
    members = jax.tree.leaves(ensemble)[0].shape[0]
    everything = jnp.arange(actions, dtype=jnp.int32)

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
        return utility(predicted, mode, settings) + alive * bootstrap(target, next_obs, time)

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
        return update_q(state, rows.obs, rows.time, targets, jnp.ones_like(targets), settings.q)

    value, losses = jax.lax.scan(update, value, jax.random.split(key, settings.updates))
    return value, jnp.mean(losses[-20:])


class Imagined(NamedTuple):
    """What deterministic members predict for every state in the buffer: their answers do not change while a value is
    fitted, so each is asked once."""

    next_obs: Float[Array, "N A E *obs"]
    alive: Float[Array, "N A E"]
    utility: Float[Array, "N A"]


def imagine(
    ensemble: Ensemble, replay: Replay, mode: Mode, settings: ValueSettings, actions: int
) -> Imagined | None:
    """The table, or None where members are stochastic or it would be too large."""
    members, rows = jax.tree.leaves(ensemble)[0].shape[0], replay.rows
    entries = rows.obs.size * actions * members
    if ensemble.noise_shape != (0,) or entries > LARGEST_TABLE:
        return None

    def one(index: Int[Array, ""], action: Int[Array, ""]) -> Imagined:
        row = replay.take(index)
        predicted = predict(ensemble, row.obs, action, row.time)
        return Imagined(
            within_bounds(predicted.obs), 1.0 - predicted.termination, utility(predicted, mode, settings)
        )

    every = jnp.arange(actions, dtype=jnp.int32)
    each_action = jax.vmap(one, in_axes=(None, 0))
    index = jnp.arange(rows.action.shape[0])
    table: Imagined = jax.lax.map(lambda i: each_action(i, every), index, batch_size=1_024)
    return table


def greedy(value: QState, obs: Shaped[Array, "*obs"], time: Int[Array, ""]) -> Action:
    return jnp.argmax(value.online(obs, time)).astype(jnp.int32)


def start_value(value: QState, replay: Replay) -> Float[Array, ""]:
    """The planned policy's value at the start of the newest episode: the estimate of v_explore for line 6."""
    best = jnp.max(value.online(replay.take(replay.recent).obs, jnp.array(0, jnp.int32)))
    return jnp.where(replay.size > 0, best, jnp.inf)


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
