"""Values fitted in imagination: section 2's exploration MDP, or its exploitation twin, solved by fitted Q-iteration.

States come from the replay buffer, every action is imagined by the ensemble, the next state is drawn from a random
member, and the reward is a utility of what the members predict. Also here: what a greedy policy would collect in
imagination, by which values on the way are told apart.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from e3rl.draws import scan_drawn
from e3rl.models.base import Prediction, Problem, within_bounds
from e3rl.models.ensemble import Ensemble, predict
from e3rl.replay import Replay, Transitions
from e3rl.runs.settings import Settings, setting
from e3rl.types import Key
from e3rl.values.joint import together, uniform_together
from e3rl.values.network import QNetwork
from e3rl.values.propagated import backup
from e3rl.values.update import QState, QStep, fresh_value, update_q

LARGEST_TABLE = 20_000_000
"""Entries of predictions that are worth keeping in memory."""
REUSED, TOO_OFTEN = 4, 16
"""How often a state is drawn, in the mean, from a table of some states; and how often at most, lest the others be
missed."""
JUDGED_STARTS = 20
"""Starts of episodes from which a policy is judged in imagination."""

Utility: TypeAlias = Callable[[Prediction], Float[Array, ""]]
"""What a step is worth, by what every member predicts of it (leaves [E, …])."""


@dataclass(frozen=True)
class ValueFit(Settings):
    """How a value is fitted in imagination."""

    updates: int = setting(
        300,
        "Fitted-Q steps on imagined transitions, each time the value is planned",
        at_least=1,
        in_turn=True,
    )
    levels: int = setting(
        0,
        "Horizon up to which these are enough where values see the time step; longer ones take more, in proportion, "
        "since values learn of what is far away one time step after the other. 0 takes as many at any horizon",
        before=0,
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
    joint: bool = setting(
        False,
        "Bits of an imagined state are drawn together as they were seen to go together, not one by one",
        before=False,
    )

    def total(self, problem: Problem) -> int:
        """Steps each time the value is planned."""
        if self.levels == 0 or not problem.clock:
            return self.updates
        return max(self.updates, -(-self.updates * problem.horizon // self.levels))

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
    depth: int = 1,
) -> tuple[QState, Float[Array, ""]]:
    """`updates` steps of fitted Q-iteration on imagined transitions; the mean loss of the last ones.

    `table` holds what the members predict for the states that are drawn from (`imagine`), which saves asking them at
    every step. Members share a state at the first step and go their own ways for `depth` - 1 more (`propagated`).
    """
    members = jax.tree.leaves(ensemble)[0].shape[0]
    everything = jnp.arange(actions, dtype=jnp.int32)
    step = settings.step()
    root = together(ensemble, replay) if settings.joint and ensemble.draws_bits else None

    each = (settings.batch, actions)

    def draw(key: Key) -> tuple[Key, Int[Array, " B"], Int[Array, "B A"]]:
        """For one step a key for the noise, the states, in the buffer or the table, and who goes on from them."""
        key_rows, key_member, key_noise = jax.random.split(key, 3)
        index = (
            replay.draw(key_rows, settings.batch)
            if table is None
            else table.draw(replay, key_rows, settings.batch)
        )
        return key_noise, index, jax.random.randint(key_member, each, 0, members)

    def update(state: QState, drawn: tuple) -> tuple[QState, Float[Array, ""]]:
        key_noise, index, chosen = drawn
        if table is None:
            rows = replay.shown(index)
            predicted, gain = ask(ensemble, rows, utility, everything)
        else:
            rows = replay.take(table.rows[index])
            predicted, gain = jax.tree.map(lambda leaf: leaf[index], (table.predicted, table.utility))
        if root is None:
            noise = jax.random.uniform(key_noise, (*each, depth, *ensemble.noise_shape))
        else:
            noise = uniform_together(key_noise, (*each, depth), root)
        target = partial(backup, state.target, ensemble, utility=utility, discount=settings.discount)
        each_action = jax.vmap(target, in_axes=(0, 0, None, 0, 0))
        targets = jax.vmap(each_action)(predicted, gain, rows.time, chosen, noise)
        return update_q(state, rows.obs, rows.time, targets, jnp.ones_like(targets), step)

    losses: Array
    value, losses = scan_drawn(update, draw, value, jax.random.split(key, updates))
    return value, jnp.mean(losses[-20:])


def ask(
    ensemble: Ensemble, rows: Transitions, utility: Utility, actions: Int[Array, " A"]
) -> tuple[Prediction, Float[Array, "B A"]]:
    """Every member's predictions for each action in each of some states, [B, A, E, …], and what they are worth."""

    def one(obs: Shaped[Array, "*obs"], time: Int[Array, ""], action: Int[Array, ""]) -> tuple:
        predicted = predict(ensemble, obs, action, time)
        return predicted, utility(predicted)

    each_action = jax.vmap(one, in_axes=(None, None, 0))
    found: tuple[Prediction, Array] = jax.vmap(each_action, in_axes=(0, 0, None))(
        rows.obs, rows.time, actions
    )
    return found


class Imagined(NamedTuple):
    """What the members predict for some states in the buffer: their answers do not change while a value is fitted, so
    each is asked for once."""

    rows: Int[Array, " N"]
    """Where the states are in the buffer."""
    predicted: Prediction
    """[N, A, E, …]."""
    utility: Float[Array, "N A"]

    def draw(self, replay: Replay, key: Key, batch: int) -> Int[Array, " {batch}"]:
        """Some of the states, uniformly."""
        if self.is_whole(replay):
            return replay.draw(key, batch)
        return jax.random.randint(key, (batch,), 0, len(self.rows))

    def is_whole(self, replay: Replay) -> bool:
        """Whether every row of the buffer is there, filled or not, in its own place."""
        return len(self.rows) == replay.capacity


def imagine(
    ensemble: Ensemble, replay: Replay, utility: Utility, actions: int, draws: int, key: Key
) -> Imagined | None:
    """The table from which `draws` states are going to be drawn: of the whole buffer or, where that is larger than it
    pays, of states drawn from it. None where too few would fit."""
    every = jnp.arange(actions, dtype=jnp.int32)

    def some(rows: Int[Array, " B"]) -> tuple[Prediction, Array]:
        return ask(ensemble, replay.take(rows), utility, every)

    shapes = jax.eval_shape(some, jnp.zeros(1, jnp.int32))
    entries = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
    fit, worth_it = LARGEST_TABLE // entries, draws // REUSED
    whole = replay.capacity <= fit and (replay.capacity <= worth_it or ensemble.noise_shape == (0,))
    states = replay.capacity if whole else min(fit, worth_it)
    if states * TOO_OFTEN < draws and not whole:
        return None
    rows = jnp.arange(states) if whole else replay.draw(key, states)
    found = jax.lax.map(
        lambda row: jax.tree.map(lambda leaf: leaf[0], some(row[None])), rows, batch_size=1_024
    )
    return Imagined(rows, *found)


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
    wait: int = 0,
) -> QState:
    """`fit` over and over, `snapshots` times. Fitted values keep fluctuating: of those on the way, the one whose greedy
    policy the models like best. `wait` times without a better one end it sooner, unless that is 0."""
    starts, keys = replay.starts(JUDGED_STARTS), jax.random.split(key, snapshots)

    def goes_on(carry: _Snapshots) -> Bool[Array, ""]:
        left = carry.looked_at < snapshots
        return left & (carry.looked_at - carry.improved < wait) if wait else left

    def fit_on(carry: _Snapshots) -> _Snapshots:
        key_fit, key_judge = jax.random.split(keys[carry.looked_at])
        value = fit(carry.value, key_fit)
        score = imagined_return(value.online, ensemble, starts, horizon, key_judge)
        looked_at = carry.looked_at + 1

        def keep(new: Array, old: Array) -> Array:
            return jnp.where(score >= carry.score, new, old)

        best, kept = jax.tree.map(keep, (value, score), (carry.best, carry.score))
        return _Snapshots(
            value, best, kept, looked_at, jnp.where(score > carry.score, looked_at, carry.improved)
        )

    none = jnp.array(0, jnp.int32)
    start = _Snapshots(value, value, jnp.array(-jnp.inf), none, none)
    return jax.lax.while_loop(goes_on, fit_on, start).best


class _Snapshots(NamedTuple):
    """The value that is fitted, the best so far by its score, and how many were looked at, now and when the last one
    was better than all before it."""

    value: QState
    best: QState
    score: Float[Array, ""]
    looked_at: Int[Array, ""]
    improved: Int[Array, ""]
