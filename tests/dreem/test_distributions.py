"""Occupancies, D, v_explore and v_exploit against enumeration of every trajectory."""

import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e3rl.dreem.distributions import (
    disagreement,
    pairwise_disagreement,
    per_step,
    state_distributions,
    v_exploit,
    v_explore,
)
from e3rl.planners.utility import total_variation

EXACT = {"rtol": 0, "atol": 1e-12}


def draw(seed, models=3, policies=4, horizon=3, states=3, actions=2, stationary=True):
    """Tables with zeros among their entries, a start and policies."""
    rng = np.random.default_rng(seed)
    shape = (models, states, actions) if stationary else (models, horizon, states, actions)
    tables = rng.dirichlet(np.full(states, 0.5), size=shape)
    chosen = rng.integers(actions, size=(policies, horizon, states))
    return per_step(tables, horizon), rng.dirichlet(np.ones(states)), chosen


sizes = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**16),
        "horizon": st.integers(1, 4),
        "states": st.integers(1, 3),
        "actions": st.integers(1, 3),
        "stationary": st.booleans(),
    }
)


def chance(model, start, policy, path):
    """Of the state sequence s_0 … s_h under the policy."""
    steps = (model[h, s, policy[h, s], t] for h, (s, t) in enumerate(itertools.pairwise(path)))
    return start[path[0]] * np.prod(list(steps))


@given(sizes)
@settings(max_examples=25, deadline=None)
def test_occupancies_are_sums_over_trajectories(size):
    models, start, policies = draw(**size)
    found = state_distributions(models, start, policies)
    horizon, states = models.shape[1:3]
    for m, p, h in np.ndindex(len(models), len(policies), horizon + 1):
        expected = np.zeros(states)
        for path in itertools.product(range(states), repeat=h + 1):
            expected[path[-1]] += chance(models[m], start, policies[p], path)
        np.testing.assert_allclose(found[m, p, h], expected, **EXACT)


@given(sizes)
@settings(max_examples=25, deadline=None)
def test_disagreement_is_a_sum_over_trajectories_with_a_uniform_last_action(size):
    models, start, policies = draw(**size)
    horizon, states, actions, _ = models.shape[1:]
    occupancy = state_distributions(models, start, policies)
    found = disagreement(models[0], models[1], occupancy[0], occupancy[1])
    for p, h in np.ndindex(len(policies), horizon):
        ends = np.zeros((2, states, actions, states))
        for path in itertools.product(range(states), repeat=h + 1):
            for k in range(2):
                ends[k, path[-1]] += (
                    chance(models[k], start, policies[p], path) / actions * models[k, h, path[-1]]
                )
        assert found[p, h] == pytest.approx(np.abs(ends[0] - ends[1]).sum(), abs=1e-12)


@given(sizes)
@settings(max_examples=25, deadline=None)
def test_v_explore_is_the_best_pair_and_v_exploit_the_expected_reward(size):
    models, start, policies = draw(**size)
    occupancy = state_distributions(models, start, policies)
    pairs = pairwise_disagreement(models, occupancy)
    np.testing.assert_array_equal(pairs, pairs.swapaxes(0, 1))
    np.testing.assert_allclose(
        v_explore(models, start, policies), pairs.sum(axis=3).max(axis=(0, 1)), **EXACT
    )
    rewards = np.linspace(0.0, 1.0, models.shape[2])
    values = v_exploit(occupancy, rewards)
    for m, p in np.ndindex(values.shape):
        expected = sum(float(occupancy[m, p, h] @ rewards) for h in range(1, models.shape[1] + 1))
        assert values[m, p] == pytest.approx(expected, abs=1e-12)


def test_total_variation_has_no_half_and_agrees_with_the_planners():
    p, q = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    assert total_variation(p, q) == 2.0
    assert float(total_variation(jnp.asarray(p), jnp.asarray(q))) == 2.0


def test_the_last_action_of_a_policy_never_matters():
    models, start, policies = draw(0, horizon=3)
    changed = policies.copy()
    changed[:, -1] = 1 - changed[:, -1]
    np.testing.assert_array_equal(v_explore(models, start, policies), v_explore(models, start, changed))


def test_models_that_differ_only_where_no_policy_goes_do_not_disagree():
    tables = np.zeros((2, 3, 2, 3))
    tables[:, :2, :, 1] = 1.0  # 0 → 1 → 1
    tables[0, 2, :, 0] = tables[1, 2, :, 2] = 1.0
    policies = np.zeros((1, 3, 3), int)
    assert v_explore(per_step(tables, 3), np.array([1.0, 0.0, 0.0]), policies) == [0.0]
