"""Tabular MDPs against brute force: enumerated policies, loops over states, the lock they come from."""

from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from e3rl.envs.lock import CombinationLock
from e3rl.envs.tabular import (
    TabularMDP,
    TabularState,
    factored_mdp,
    lock_chain,
    lock_reward_range,
    low_rank_mdp,
    random_mdp,
)
from e3rl.types import UserError

COIN = [[[0.5, 0.5]], [[0.0, 1.0]]]  # one action: from 0 a fair coin, 1 absorbs


def value_of(mdp, policy):
    """Expected return of a deterministic time-dependent policy, following the distribution of s_h forward."""
    occupancy, total = mdp.start, 0.0
    for h in range(mdp.horizon):
        table = mdp.transitions_per_step[h]
        reached = np.zeros(mdp.num_states)
        for s in range(mdp.num_states):
            reached += occupancy[s] * table[s, policy[h][s]]
        occupancy = reached
        total += occupancy @ mdp.rewards
    return total


def best_by_enumeration(mdp):
    rules = list(product(range(mdp.num_actions), repeat=mdp.num_states))
    return max(value_of(mdp, policy) for policy in product(rules, repeat=mdp.horizon))


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 1000), stationary=st.booleans())
def test_optimal_return_is_the_best_of_all_policies(seed, stationary):
    mdp = random_mdp(3, 2, 2, seed)
    if not stationary:
        other = random_mdp(3, 2, 2, seed + 1)
        tables = np.stack([mdp.transitions, other.transitions])
        mdp = TabularMDP(tables, mdp.rewards, mdp.start, 2)
    assert mdp.optimal_return == pytest.approx(best_by_enumeration(mdp), abs=1e-12)


def test_optimal_return_of_a_chain_by_hand():
    # s_1 is 1 with chance 1/2, s_2 with 3/4, s_3 with 7/8; the start's own reward is not paid.
    mdp = TabularMDP(COIN, [0.0, 1.0], [1.0, 0.0], 3)
    assert mdp.optimal_return == 0.5 + 0.75 + 0.875
    assert TabularMDP(COIN, [1.0, 0.0], [0.0, 1.0], 3).optimal_return == 0.0


def test_tables_are_float64_and_copied():
    table = np.array(COIN)
    mdp = TabularMDP(table, [0.0, 1.0], [1.0, 0.0], 2)
    table[:] = 0.0
    assert mdp.transitions.dtype == mdp.rewards.dtype == mdp.start.dtype == np.float64
    assert mdp.transitions.sum() == 2.0
    assert mdp.transitions_per_step.shape == (2, 2, 1, 2)


@pytest.mark.parametrize("per_step", [False, True])
def test_samples_follow_the_tables(per_step):
    copies, mdp = 3000, random_mdp(3, 2, 2, seed=7)
    if per_step:
        tables = np.stack([mdp.transitions, np.roll(mdp.transitions, 1, axis=-1)])
        mdp = TabularMDP(tables, mdp.rewards, mdp.start, 2)
    rows = np.array(list(np.ndindex(2, 3, 2)), np.int32)
    keys = jax.random.split(jax.random.key(0), (len(rows), copies))

    def one(row, key):
        state, obs, reward, terminated, _ = mdp.step(key, TabularState(row[0], row[1]), row[2])
        return state.state, obs, reward, terminated

    reached, obs, reward, ended = jax.jit(jax.vmap(jax.vmap(one, in_axes=(None, 0))))(jnp.array(rows), keys)
    np.testing.assert_array_equal(reached, obs)
    np.testing.assert_allclose(reward, mdp.rewards[np.asarray(reached)], rtol=1e-6)
    np.testing.assert_array_equal(ended, np.broadcast_to(rows[:, :1] == 1, ended.shape))
    for (h, s, a), seen in zip(rows, np.asarray(reached), strict=True):
        expected = copies * mdp.transitions_per_step[h][s, a]
        assert stats.chisquare(np.bincount(seen, minlength=3), expected).pvalue > 0.001 / len(rows)
    starts = np.asarray(jax.vmap(lambda key: mdp.reset(key)[1])(keys[0]))
    assert stats.chisquare(np.bincount(starts, minlength=3), copies * mdp.start).pvalue > 0.001


def test_impossible_moves_never_happen():
    mdp = TabularMDP(COIN, [0.0, 1.0], [0.0, 1.0], 4)
    state, _ = mdp.reset(jax.random.key(0))
    step = eqx.filter_jit(mdp.step)
    for i in range(4):
        state, _, reward, *_ = step(jax.random.key(i), state, jnp.array(0, jnp.int32))
        assert (int(state.state), float(reward)) == (1, 1.0)


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_low_rank(rank):
    """Proposition 2's matrix Γ(s', (s, a)) has rank K; a random MDP has full rank."""
    gamma = low_rank_mdp(6, 2, 3, rank, seed=rank).transitions.reshape(12, 6).T
    assert np.linalg.matrix_rank(gamma) == rank
    assert np.linalg.matrix_rank(random_mdp(6, 2, 3).transitions.reshape(12, 6)) == 6


def digits(state, values, factors):
    return [(state // values ** (factors - 1 - i)) % values for i in range(factors)]


@pytest.mark.parametrize(("values", "factors", "parents"), [(2, 3, 1), (3, 2, 1), (2, 2, 0), (2, 3, 2)])
def test_factored(values, factors, parents):
    """Next factors are independent given (s, a), and each depends on `parents` factors of s only."""
    mdp = factored_mdp(values, factors, parents, num_actions=2, horizon=2, seed=3)
    states = range(values**factors)
    assert mdp.num_states == len(states)
    marginal = np.zeros((factors, mdp.num_states, 2, values))
    for s, a, after in product(states, range(2), states):
        for i, digit in enumerate(digits(after, values, factors)):
            marginal[i, s, a, digit] += mdp.transitions[s, a, after]
    for s, a, after in product(states, range(2), states):
        chances = [marginal[i, s, a, digit] for i, digit in enumerate(digits(after, values, factors))]
        assert mdp.transitions[s, a, after] == pytest.approx(np.prod(chances), abs=1e-12)
    for i in range(factors):
        matters = {
            j
            for j, s, other in product(range(factors), states, states)
            if [
                k
                for k in range(factors)
                if digits(s, values, factors)[k] != digits(other, values, factors)[k]
            ]
            == [j]
            and not np.allclose(marginal[i, s], marginal[i, other], atol=1e-12)
        }
        assert len(matters) == parents


@pytest.mark.parametrize("rewarded", [1, 2])
@pytest.mark.parametrize("antishaped", [False, True])
def test_lock_chain_has_the_returns_of_the_lock(antishaped, rewarded):
    """For fixed sequences of actions and for the optimum, up to the affine map of the rewards."""
    lock = CombinationLock(3, antishaped, switch=0.2, rewarded_actions=rewarded, seed=5)
    chain = lock_chain(lock)
    assert chain.num_states == 3 * 3 + 2 + (3 if antishaped else 0)
    low, high = lock_reward_range(lock)
    chance, reward = lock.transition_table()
    for actions in product(range(4), repeat=3):
        latent, expected = np.array([0.5, 0.5, 0.0]), 0.0
        for h, a in enumerate(actions):
            joint = latent[:, None] * chance[h, :, a]
            expected += np.sum(joint * reward[h, :, a])
            latent = joint.sum(axis=0)
        policy = [[a] * chain.num_states for a in actions]
        assert 3 * low + (high - low) * value_of(chain, policy) == pytest.approx(expected, abs=1e-12)
    assert 3 * low + (high - low) * chain.optimal_return == pytest.approx(lock.optimal_return, abs=1e-12)


def test_standard_lock_chain_is_worth_one():
    chain = lock_chain(CombinationLock(200))
    assert chain.num_states == 602
    assert chain.optimal_return == pytest.approx(1.0)
    assert np.flatnonzero(chain.rewards).tolist() == [600]


def test_seeds_differ():
    for make in (random_mdp, low_rank_mdp, factored_mdp):
        one, same, other = (make(seed=seed) for seed in (0, 0, 1))
        for name in ("transitions", "rewards", "start"):
            np.testing.assert_array_equal(getattr(one, name), getattr(same, name))
            assert not np.array_equal(getattr(one, name), getattr(other, name))


def test_render_marks_the_agent():
    mdp = random_mdp(3, 2, 2)
    pictures = [mdp.render(TabularState(jnp.array(0), jnp.array(s))) for s in range(3)]
    blue = [np.argwhere((picture == (38, 139, 210)).all(axis=-1)).mean(axis=0)[1] for picture in pictures]
    assert blue[0] < blue[1] < blue[2]


NAN = float("nan")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"horizon": 0}, "horizon must be at least 1, got 0"),
        ({"transitions": [[[0.5, 0.5]], [[0.5, 0.4]]]}, r"transitions\[1, 0\] sums to 0.9, not to 1"),
        ({"transitions": [[[1.5, -0.5]], [[0.5, 0.5]]]}, r"transitions\[0, 0\] .* not a probability: -0.5"),
        ({"transitions": [[[NAN, 0.5]], [[0.5, 0.5]]]}, r"transitions\[0, 0\] .* not a probability: nan"),
        ({"transitions": [COIN, [[[0.5, 0.5]], [[0.0, 2.0]]]]}, r"transitions\[1, 1, 0\] sums to 2"),
        ({"transitions": [COIN] * 3}, "transitions hold 3 time steps, the horizon is 2"),
        ({"transitions": [[0.5, 0.5]]}, r"must have shape \[S, A, S\] or \[H, S, A, S\], got \[1, 2\]"),
        ({"transitions": [[["a"]]]}, "transitions must be an array of numbers"),
        ({"rewards": [0.0, 2.0]}, r"rewards\[1\] must lie in \[0, 1\], got 2.0"),
        ({"rewards": [NAN, 0.0]}, r"rewards\[0\] must lie in \[0, 1\], got nan"),
        ({"rewards": [0.0]}, r"rewards must have shape \[2\], got \[1\]"),
        ({"start": [0.5, 0.6]}, "start sums to 1.1, not to 1"),
        ({"start": [-1.0, 2.0]}, "start holds an entry that is not a probability: -1.0"),
        ({"start": [1.0]}, r"start must have shape \[2\], got \[1\]"),
    ],
)
def test_bad_tables(arguments, message):
    good = {"transitions": COIN, "rewards": [0.0, 1.0], "start": [1.0, 0.0], "horizon": 2}
    with pytest.raises(UserError, match=message):
        TabularMDP(**good | arguments)


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (random_mdp, {"num_states": 0}, "num_states must be at least 1, got 0"),
        (random_mdp, {"num_actions": -1}, "num_actions must be at least 1"),
        (random_mdp, {"horizon": 0}, "horizon must be at least 1"),
        (low_rank_mdp, {"rank": 0}, "rank must be at least 1"),
        (low_rank_mdp, {"num_states": 3, "rank": 4}, "rank must be at most num_states=3, got 4"),
        (
            factored_mdp,
            {"num_factors": 2, "num_parents": 3},
            "num_parents must be from 0 to num_factors=2, got 3",
        ),
        (factored_mdp, {"num_factors": 20}, "2\\^20 states are too many"),
    ],
)
def test_bad_sizes(make, arguments, message):
    with pytest.raises(UserError, match=message):
        make(**arguments)
