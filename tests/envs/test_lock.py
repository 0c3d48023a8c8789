"""The combination lock against its exact table and against episodes worked by hand."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from e3rl.envs.lock import DEAD, GOOD_1, GOOD_2, NUM_ACTIONS, NUM_STATES, STIRRING, CombinationLock, LockState
from e3rl.envs.playing import episode_return, rollout
from e3rl.types import UserError


def known_lock(horizon, antishaped=False, switch=0.0):
    """From every good state action 0 leads to GOOD_1, 1 to GOOD_2, 2 and 3 to DEAD; 1 pays at the end."""
    lock = CombinationLock(horizon, antishaped, switch)
    successor = jnp.broadcast_to(
        jnp.array([GOOD_1, GOOD_2, DEAD, DEAD], jnp.int32), (horizon, 2, NUM_ACTIONS)
    )
    pays = jnp.broadcast_to(jnp.arange(NUM_ACTIONS) == 1, (2, NUM_ACTIONS))
    return eqx.tree_at(lambda lock: (lock.successor, lock.pays), lock, (successor, pays))


def play(lock, actions, seed=0):
    plan = jnp.array(actions, jnp.int32)
    return rollout(lock, lambda key, obs, t: plan[t], jax.random.key(seed))


@pytest.mark.parametrize(
    ("actions", "standard", "antishaped"),
    [
        ([0, 1, 0, 1], 5.0, 5.0 - 3 / 4),  # alive throughout, the paid action at the end
        ([0, 1, 0, 0], 0.0, -3 / 4),  # alive throughout, a good but unpaid action at the end
        ([0, 1, 0, 2], 0.0, -3 / 4),  # dying on the last step brings nothing
        ([2, 1, 0, 1], 0.0, 0.1),  # dead at once, paid for dying once only
        ([1, 0, 3, 1], 0.0, 0.1 - 2 / 4),  # two moves among the good, then dead
        ([1, 1, 1, 1], 5.0, 5.0 - 3 / 4),
    ],
)
def test_returns_of_episodes_worked_by_hand(actions, standard, antishaped):
    assert float(episode_return(play(known_lock(4), actions))) == pytest.approx(standard)
    assert float(episode_return(play(known_lock(4, antishaped=True), actions))) == pytest.approx(antishaped)


def test_observation_shows_the_latent_state_and_the_level():
    lock = eqx.tree_at(
        lambda lock: lock.successor,
        CombinationLock(3, noise_bits=2, observe_level=True),
        known_lock(3).successor,
    )
    assert lock.observation_space.n == 3 + 2 + 3
    obs = play(lock, [1, 1, 2], seed=1).next_obs
    # Dynamics may swap good outcomes with chance 0.1; this seed's do not.
    np.testing.assert_array_equal(obs[:, :3], [[0, 1, 0], [0, 1, 0], [0, 0, 1]])
    np.testing.assert_array_equal(obs[:, 5:], [[0, 1, 0], [0, 0, 1], [0, 0, 0]])  # past the last level: none


def step_many(lock, state, action, copies, seed):
    keys = jax.random.split(jax.random.key(seed), copies)
    next_state, obs, reward, *_ = jax.vmap(lambda key: lock.step(key, state, action))(keys)
    return np.asarray(next_state.latent), np.asarray(obs), np.asarray(reward)


def test_transition_frequencies_match_the_table():
    """Chi-square over every (level, state, action), Bonferroni-corrected; impossible moves never happen."""
    copies, lock = 2000, CombinationLock(3, antishaped=True, switch=0.3, seed=4)
    chance, pay = lock.transition_table()
    rows = np.array(list(np.ndindex(3, 3, NUM_ACTIONS)), np.int32)
    keys = jax.random.split(jax.random.key(0), (len(rows), copies))

    def one(row, key):
        state, _, reward, *_ = lock.step(key, LockState(row[0], row[1]), row[2])
        return state.latent, reward

    latent, reward = jax.jit(jax.vmap(jax.vmap(one, in_axes=(None, 0))))(jnp.array(rows), keys)
    latent, reward = np.asarray(latent), np.asarray(reward)
    for row, seen, paid in zip(rows, latent, reward, strict=True):
        expected = copies * chance[tuple(row)]
        counts = np.bincount(seen, minlength=3)
        possible = expected > 0
        assert counts[~possible].sum() == 0
        np.testing.assert_allclose(paid, pay[tuple(row)][seen], atol=1e-6)
        if possible.sum() > 1:
            assert stats.chisquare(counts[possible], expected[possible]).pvalue > 0.001 / len(rows)


def test_no_swap_at_the_last_level():
    lock = known_lock(3, switch=1.0)
    good = jnp.array(GOOD_1, jnp.int32)
    for level, reached in ((0, GOOD_2), (1, GOOD_2), (2, GOOD_1)):
        state = LockState(jnp.array(level, jnp.int32), good)
        latent, _, _ = step_many(lock, state, jnp.array(0, jnp.int32), 20, seed=level)
        assert set(latent) == {reached}


def test_start_and_noise_are_fair_coins():
    lock = CombinationLock(5, noise_bits=6)
    state, obs = jax.vmap(lock.reset)(jax.random.split(jax.random.key(1), 2000))
    assert set(np.unique(state.latent)) == {GOOD_1, GOOD_2}
    bits = np.column_stack([state.latent, np.asarray(obs)[:, 3:]])
    # 4.5 standard deviations of a fair coin's mean.
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 4.5 * 0.5 / np.sqrt(2000)
    assert np.abs(np.corrcoef(bits.T) - np.eye(7)).max() < 4.5 / np.sqrt(2000)


def test_noise_that_one_action_stirs_up():
    lock = CombinationLock(horizon=6, noise_bits=40, noise="stirred")
    state, obs = lock.reset(jax.random.key(0))
    assert not obs[NUM_STATES:].any()
    for step, action in enumerate((0, STIRRING, 1, 2, STIRRING)):
        state, obs, *_ = lock.step(jax.random.key(step), state, jnp.array(action))
        ones = int(obs[NUM_STATES:].sum())
        assert 5 < ones < 35 if action == STIRRING else ones == 0


def test_noise_whose_amount_differs_by_state():
    lock = CombinationLock(horizon=6, noise_bits=40, noise="by_state")
    keys = jax.random.split(jax.random.key(1), 400)
    for latent, live in ((GOOD_1, 40), (GOOD_2, 20), (DEAD, 0)):
        state = LockState(jnp.array(0), jnp.array(latent))
        stay = int(np.argmax(np.asarray(lock.successor)[0, min(latent, GOOD_2)] == latent))
        after, obs, *_ = jax.vmap(lock.step, in_axes=(0, None, None))(keys, state, jnp.array(stay))
        bits = np.asarray(obs)[np.asarray(after.latent) == latent, NUM_STATES:]
        np.testing.assert_allclose(bits.mean(axis=0)[:live], 0.5, atol=0.15)
        assert not bits[:, live:].any()


@pytest.mark.parametrize("seed", range(4))
def test_the_key_of_every_level_is_drawn_as_the_paper_says(seed):
    lock = CombinationLock(20, seed=seed)
    np.testing.assert_array_equal(
        np.sort(lock.successor, axis=-1), np.tile([GOOD_1, GOOD_2, DEAD, DEAD], (20, 2, 1))
    )
    assert len(np.unique(np.asarray(lock.successor).reshape(-1, 4), axis=0)) > 4
    assert np.array_equal(np.asarray(lock.pays).sum(axis=1), [1, 1])
    both = CombinationLock(20, rewarded_actions=2, seed=seed)
    np.testing.assert_array_equal(both.pays, np.asarray(both.successor[-1]) != DEAD)


@pytest.mark.parametrize("horizon", [1, 2, 5, 20, 200])
def test_optimal_return(horizon):
    assert CombinationLock(horizon).optimal_return == pytest.approx(5.0)
    shaped = CombinationLock(horizon, antishaped=True).optimal_return
    assert shaped == pytest.approx(5.0 - (horizon - 1) / horizon)


@pytest.mark.parametrize(("horizon", "rewarded"), [(1, 1), (3, 2), (20, 1), (20, 2)])
def test_chance_of_uniform_play(horizon, rewarded):
    """(1/2)^(H−1) to be alive at the last level, then one or two of four actions. The paper: 1e-6, H = 20."""
    chance = CombinationLock(horizon, rewarded_actions=rewarded).uniform_success_probability
    assert chance == pytest.approx(2.0 ** -(horizon + 2 - rewarded), rel=1e-12)


def test_horizon_200_runs():
    lock = CombinationLock(200, antishaped=True)
    episode = play(lock, [0] * 200)
    assert episode.obs.shape == (200, 203)
    assert bool(episode.valid.all())
    assert np.array_equal(np.flatnonzero(episode.terminated), [199])


def test_seed_of_the_lock_and_keys_of_the_episode_are_separate():
    one, same, other = (CombinationLock(5, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.successor, same.successor)
    assert not np.array_equal(one.successor, other.successor)
    key = jax.random.key(9)
    np.testing.assert_array_equal(one.reset(key)[1], other.reset(key)[1])
    assert not np.array_equal(one.reset(key)[1], one.reset(jax.random.key(10))[1])


def test_a_batch_of_locks_is_one_object():
    keys = jax.random.split(jax.random.key(0), 3)
    locks = eqx.filter_vmap(lambda key: CombinationLock(4, seed=key))(keys)
    for i, key in enumerate(keys):
        np.testing.assert_array_equal(locks.successor[i], CombinationLock(4, seed=key).successor)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": 0}, "horizon must be at least 1, got 0"),
        ({"switch": 1.5}, "switch must be a probability, got 1.5"),
        ({"switch": float("nan")}, "switch must be a probability, got nan"),
        ({"noise_bits": -1}, "noise_bits must not be negative, got -1"),
        ({"noise": "never"}, "noise must be one of always, stirred, by_state, got 'never'"),
        ({"rewarded_actions": 3}, "rewarded_actions must be 1 .* or 2 .*, got 3"),
    ],
)
def test_bad_inputs(arguments, message):
    with pytest.raises(UserError, match=message):
        CombinationLock(**arguments)
