"""Dice against a world in which it is known what is thrown, what tells and what is told."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.models.base import heeded
from e3rl.models.bernoulli import BernoulliDynamics
from e3rl.models.dice import ENOUGH, LARGEST, MEMORY, Dice, Scout, watch
from e3rl.models.ensemble import make_ensemble
from e3rl.models.fit import Fit, make_model_set, update_model_set
from e3rl.models.reading import Reader
from e3rl.replay import Blurred, Replay
from e3rl.types import Trajectory
from e3rl.values.network import QNetwork
from e3rl.values.update import QStep, make_q_state, update_q

BITS, ACTIONS, HORIZON = 5, 2, 4
KEEPS, FLIPPED, COIN, CUE, SHAKEN = range(BITS)
"""A bit that stays; its opposite if action 1 is taken; a coin; a coin that is paid; one that only action 1 throws."""


def episodes(count, seed=0):
    generator = np.random.default_rng(seed)
    obs = generator.integers(0, 2, (count, BITS))
    parts = {name: [] for name in ("obs", "action", "reward", "next_obs")}
    for _ in range(HORIZON):
        action = generator.integers(0, ACTIONS, count)
        after = generator.integers(0, 2, (count, BITS))
        after[:, KEEPS] = obs[:, KEEPS]
        after[:, FLIPPED] = obs[:, KEEPS] ^ action
        after[:, SHAKEN] = np.where(action == 1, after[:, SHAKEN], obs[:, SHAKEN])
        for name, value in zip(parts, (obs, action, obs[:, CUE], after), strict=True):
            parts[name].append(value)
        obs = after
    stacked = {name: jnp.asarray(np.stack(values, axis=1)) for name, values in parts.items()}
    last = jnp.broadcast_to(jnp.arange(HORIZON) == HORIZON - 1, (count, HORIZON))
    return Trajectory(
        stacked["obs"].astype(jnp.int8), stacked["action"], stacked["reward"].astype(jnp.float32),
        stacked["next_obs"].astype(jnp.int8), last, jnp.zeros_like(last), jnp.ones_like(last),
    )  # fmt: skip


def member(seed=0):
    return BernoulliDynamics(BITS, ACTIONS, HORIZON, 16, key=jax.random.key(seed))


@pytest.fixture(scope="module")
def judged():
    """The scout after 60 epochs of two episodes each."""
    replay = Replay.empty(1_000, jnp.zeros(BITS, jnp.int8))
    scout = Scout.fresh(member(), ACTIONS, BITS)
    learned = eqx.filter_jit(lambda scout, replay, key: scout.learned(replay, key, 2 * HORIZON))
    for t in range(60):
        replay = replay.append(episodes(2, seed=t))
        scout = learned(scout, replay, jax.random.key(t))
    return scout, replay


def test_dice_are_told_from_what_matters(judged):
    dice = judged[0].dice
    np.testing.assert_array_equal(dice.telling, [True, False, False, True, True])
    np.testing.assert_array_equal(dice.foretold[0], [True, True, False, False, True])
    np.testing.assert_array_equal(dice.foretold[1], [True, True, False, False, False])


def test_means_are_those_after_the_action(judged):
    scout, replay = judged
    rows = jax.tree.map(lambda leaf: np.asarray(leaf[: int(replay.size)]), replay.rows)
    assert float(scout.dice.seen.sum()) == len(rows.action)
    everywhere = (rows.next_obs.sum(axis=0) + 0.5) / (len(rows.action) + 1)
    for action in range(ACTIONS):
        own = rows.next_obs[rows.action == action]
        np.testing.assert_allclose(
            scout.dice.mean[action], (own.sum(axis=0) + everywhere) / (len(own) + 1), rtol=1e-5
        )


def test_before_enough_was_seen_everything_matters():
    dice = Dice.unseen(ACTIONS, BITS)
    little = dice._replace(counted=jnp.array([ENOUGH / 2 - 1, ENOUGH / 2]))
    for counts in (dice, little):
        assert counts.telling.all()
        assert counts.foretold.all()
    enough = dice._replace(counted=jnp.array([ENOUGH, 0.0]))
    assert enough.foretold.all()  # not that there is nothing to foretell, or nobody looks
    assert enough.telling.all()
    gain = dice.gain.at[:, 0, 2].set(jnp.array([ENOUGH, ENOUGH]))
    np.testing.assert_array_equal(
        enough._replace(gain=gain).foretold, np.broadcast_to(np.arange(BITS) == 2, (ACTIONS, BITS))
    )
    worth = dice.worth.at[:, 0, 1].set(jnp.array([ENOUGH, ENOUGH]))
    np.testing.assert_array_equal(enough._replace(worth=worth).telling, np.arange(BITS) == 1)


def test_counts_against_loops():
    scout, dice, reader = member(3), Dice.unseen(ACTIONS, BITS), Reader.fresh(BITS)
    replay = Replay.empty(100, jnp.zeros(BITS, jnp.int8)).append(episodes(2))
    rows, new = replay.newest(3 * HORIZON)
    others = jnp.asarray(np.random.default_rng(1).integers(0, 2, (3 * HORIZON, BITS)), jnp.float32)
    dice = watch(dice, scout, reader, rows, new, others)
    found = watch(dice, scout, reader, rows, new, others)

    assert int(new.sum()) == 2 * HORIZON
    gain, worth = np.zeros((2, ACTIONS, BITS)), np.zeros((2, ACTIONS, BITS))
    number = np.zeros(ACTIONS)
    mean, foretold = np.asarray(dice.mean), np.asarray(dice.foretold)

    def losses(obs, row):
        entries, rest = scout.entry_losses(obs, row)
        return np.minimum(np.asarray(entries), LARGEST), min(float(rest), LARGEST)

    for i in range(2 * HORIZON):
        row = jax.tree.map(lambda leaf, i=i: leaf[i], rows)
        a = int(row.action)
        number[a] += 1
        entries, rest = losses(row.obs, row)
        chance = np.where(np.asarray(row.next_obs) > 0.5, mean[a], 1 - mean[a])
        better = np.minimum(-np.log(chance), LARGEST) - entries
        whole = (entries * foretold[a]).sum() + rest
        for j in range(BITS):
            changed, other = losses(row.obs.at[j].set(others[i, j]), row)
            missed = (changed * foretold[a]).sum() + other - whole
            worth[:, a, j] += missed, missed**2
            gain[:, a, j] += better[j], better[j] ** 2
    keep = np.exp(-number / MEMORY)
    np.testing.assert_allclose(found.counted, keep * np.asarray(dice.counted) + number, rtol=1e-5)
    np.testing.assert_allclose(found.gain, keep[:, None] * np.asarray(dice.gain) + gain, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(
        found.worth, keep[:, None] * np.asarray(dice.worth) + worth, rtol=1e-4, atol=1e-4
    )


def test_coins_of_some_states_are_dice_although_they_are_foretold():
    """A light that stays as it is, and coins that are thrown while it is on: foretold better than by their mean, and
    the scout needs them where the light is hidden from it, but they tell nothing beyond it."""
    coins = 6
    replay = Replay.empty(2_000, jnp.zeros(1 + coins, jnp.int8))
    dynamics = BernoulliDynamics(1 + coins, ACTIONS, HORIZON, 16, key=jax.random.key(0))
    scout = Scout.fresh(dynamics, ACTIONS, 1 + coins)
    learned = eqx.filter_jit(lambda scout, replay, key: scout.learned(replay, key, 2 * HORIZON))
    generator = np.random.default_rng(0)
    last = jnp.broadcast_to(jnp.arange(HORIZON) == HORIZON - 1, (2, HORIZON))
    for t in range(120):
        light = np.broadcast_to(generator.integers(0, 2, (2, 1, 1)), (2, HORIZON + 1, 1))
        seen = np.concatenate([light, light * generator.integers(0, 2, (2, HORIZON + 1, coins))], axis=2)
        frames = jnp.asarray(seen, jnp.int8)
        action = jnp.asarray(generator.integers(0, ACTIONS, (2, HORIZON)))
        reward = jnp.asarray(light[:, :-1, 0], jnp.float32)
        replay = replay.append(
            Trajectory(frames[:, :-1], action, reward, frames[:, 1:], last, jnp.zeros_like(last), last | True)
        )
        scout = learned(scout, replay, jax.random.key(t))
    dice = scout.dice
    gain = dice.gain[0].sum(axis=0) / dice.counted.sum()
    assert (gain[1:] > 0.05).all()  # better than by their mean
    told = np.asarray(dice.foretold)
    assert told[:, 0].all()
    assert dice.telling[0]
    # One in ten or so seems to tell something by chance.
    assert told[:, 1:].any(axis=0).sum() <= 1
    assert dice.telling[1:].sum() <= 1


def test_blurred_rows():
    obs = jnp.asarray(np.random.default_rng(0).integers(0, 2, (6, 3)), jnp.float32)
    blurred = Blurred(jnp.array([[False, False, True], [False] * 3]), jnp.full((2, 3), 0.25))
    action = jnp.array([0, 1, 0, 1, 0, 1])
    after = np.asarray(blurred.after(obs, action))
    np.testing.assert_array_equal(after[:, :2], obs[:, :2])
    np.testing.assert_array_equal(after[:, 2], np.where(np.asarray(action) == 0, 0.25, obs[:, 2]))


def test_members_agree_about_dice_that_were_recognised(judged):
    """With as few transitions members remember other things about the coins; shown as dice they agree about them."""
    scout, replay = judged
    settings = Fit(members=3, updates=2_000, prior_weight=0.0, dice=True)
    start = make_model_set(make_ensemble(member_of, 3, jax.random.key(5)), settings)
    fit = eqx.filter_jit(update_model_set)
    rows = replay.take(jnp.arange(100))

    def apart(models):
        def one(member):
            return jax.vmap(member)(rows.obs, rows.action, rows.time).obs[:, COIN]

        return float(jnp.mean(jnp.std(eqx.filter_vmap(one)(models.members), axis=0)))

    plain, _ = fit(start, replay, jax.random.key(6), settings)
    told, _ = fit(start._replace(scout=scout), replay, jax.random.key(6), settings)
    assert apart(told) < 0.5 * apart(plain)


def member_of(key):
    return BernoulliDynamics(BITS, ACTIONS, HORIZON, 16, key=key)


def test_only_heeded_entries_are_looked_at():
    obs = jnp.asarray(np.random.default_rng(0).integers(0, 2, BITS), jnp.float32)
    heeds = jnp.arange(BITS) != 1
    dynamics = eqx.tree_at(lambda m: m.heeds, member(0), heeds, is_leaf=lambda leaf: leaf is None)
    now = jnp.array(1), jnp.array(2)
    exchanged = obs.at[1].set(1.0 - obs[1])
    np.testing.assert_array_equal(dynamics(obs, *now).obs, dynamics(exchanged, *now).obs)
    assert not np.array_equal(dynamics(obs, *now).obs, dynamics(obs.at[0].set(1.0 - obs[0]), *now).obs)
    centred = np.asarray(obs) - 0.5
    expected = np.where(heeds, centred, 0.0) * np.sqrt(BITS / (BITS - 1))  # as much in all as before
    np.testing.assert_allclose(heeded(jnp.asarray(centred), heeds), expected, rtol=1e-6)
    np.testing.assert_array_equal(heeded(jnp.asarray(centred), None), centred)


def test_weights_decay_where_they_are_used():
    """A time step that no transition of the minibatch had keeps what is known of it."""
    replay = Replay.empty(100, jnp.zeros(BITS, jnp.int8)).append(episodes(2))
    late = replay._replace(rows=replay.rows._replace(time=jnp.full_like(replay.rows.time, HORIZON - 1)))
    scout = Scout.fresh(member(3), ACTIONS, BITS)
    after = scout.learned(late, jax.random.key(0), HORIZON).member.weights
    before = scout.member.weights
    np.testing.assert_array_equal(after.gate[:-1], before.gate[:-1])
    assert not np.array_equal(after.gate[-1], before.gate[-1])
    assert not np.array_equal(after.observe, before.observe)


def test_a_value_looks_at_what_it_is_told_to():
    network = QNetwork((BITS,), ACTIONS, HORIZON, 8, heads=True, key=jax.random.key(1))
    value = make_q_state(network, QStep(1e-3, 10.0, target_rate=0.5)).heeding(jnp.arange(BITS) != 1)
    obs, now = jnp.zeros(BITS), jnp.array(2)
    for each in (value.online, value.target):
        np.testing.assert_array_equal(each(obs, now), each(obs.at[1].set(1.0), now))
        assert not np.array_equal(each(obs, now), each(obs.at[0].set(1.0), now))
    rows, targets = jnp.zeros((3, BITS)), jnp.ones((3, ACTIONS))
    learned, _ = update_q(
        value, rows, jnp.full(3, 2), targets, jnp.ones_like(targets), QStep(1e-3, 10.0, 0.5)
    )
    np.testing.assert_array_equal(learned.target.heeds, value.online.heeds)  # it is not learned
    assert not np.array_equal(learned.target.head, value.target.head)
