"""What is unknown, told from what was tried, against plain loops over tables that are known."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import CertainTables, everywhere, some_tables

from e3rl.models.ensemble import predict
from e3rl.planners.graph_search import GraphSearch
from e3rl.planners.tried import TRIED, apart_at_random, beyond_tried, still_shown, unknown_share
from e3rl.planners.utility import Marginal, Squared
from e3rl.planners.value import ValuePlanner

UTILITY = Squared(reward_scale=0.5)
MEMBERS = some_tables(CertainTables)


def evenly(replay):
    size = int(replay.size)
    return [i * (size - 1) // (TRIED - 1) for i in range(TRIED)]


def shown(replay, utility=UTILITY.disagreement):
    rows = replay.take(jnp.arange(int(replay.size)))
    each = [
        float(utility(predict(MEMBERS, *step))) for step in zip(rows.obs, rows.action, rows.time, strict=True)
    ]
    return [each[i] for i in evenly(replay)]


@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_what_tried_transitions_still_show(quantile):
    replay = everywhere()
    floor = still_shown(UTILITY.disagreement, MEMBERS, replay, quantile)
    np.testing.assert_allclose(floor, np.quantile(shown(replay), quantile), rtol=1e-5)
    rows = replay.take(jnp.array([0, 3]))
    for obs, action, time in zip(rows.obs, rows.action, rows.time, strict=True):
        predicted = predict(MEMBERS, obs, action, time)
        beyond = beyond_tried(UTILITY.disagreement, MEMBERS, replay, quantile)(predicted)
        expected = max(0.0, float(UTILITY.disagreement(predicted)) - float(floor))
        np.testing.assert_allclose(beyond, expected, rtol=1e-5, atol=1e-6)


def test_who_knows_nothing_is_as_far_apart_as_outcomes_at_random():
    replay = everywhere()
    rows = replay.take(jnp.arange(int(replay.size)))
    obs, reward = np.asarray(rows.next_obs), np.asarray(rows.reward)
    index = evenly(replay)
    total = 0.0
    for i, j in zip(index, [*index[TRIED // 2 :], *index[: TRIED // 2]], strict=True):
        total += ((obs[i] - obs[j]) ** 2).sum() + 0.5 * (reward[i] - reward[j]) ** 2
    np.testing.assert_allclose(apart_at_random(UTILITY.disagreement, replay), total / TRIED, rtol=1e-4)
    # Of independent outcomes it is twice their variance.
    variance = 2 * obs.var(axis=0).sum() + 2 * 0.5 * reward.var()
    assert abs(total / TRIED / variance - 1) < 0.5


@pytest.mark.parametrize("utility", [UTILITY, Marginal()], ids=["squared", "marginal"])
def test_the_unknown_that_episodes_met(utility):
    replay = everywhere()
    along = jnp.array([[0.0, 1.0], [2.5, 0.01]])
    found = unknown_share(along, utility.disagreement, MEMBERS, replay, 0.9)
    floor = np.quantile(shown(replay, utility.disagreement), 0.9)
    unit = float(apart_at_random(utility.disagreement, replay))
    for i, j in itertools.product(range(2), range(2)):
        expected = max(0.0, float(along[i, j]) - floor) / unit
        np.testing.assert_allclose(found[i, j], expected, rtol=1e-4, atol=1e-6)
    nothing = replay._replace(size=jnp.array(0, jnp.int32))
    assert jnp.isinf(unknown_share(along, utility.disagreement, MEMBERS, nothing, 0.9)).all()


def test_graph_search_tells_what_was_met_if_it_is_asked_to():
    replay, along = everywhere(), jnp.ones((1, 3))
    told = GraphSearch(tried=0.9)
    assert told.calibrated
    assert jnp.isfinite(told.met_unknown(along, UTILITY.disagreement, MEMBERS, replay)).all()
    silent = GraphSearch()
    assert not silent.calibrated
    assert jnp.isinf(silent.met_unknown(along, UTILITY.disagreement, MEMBERS, replay)).all()
    assert told.patience(200) == 3
    assert ValuePlanner(tried=0.9).patience(200) == 600


def test_outcomes_that_are_all_alike_are_no_unit_to_divide_by():
    replay = everywhere()
    frozen = jax.tree.map(jnp.zeros_like, replay.rows)
    alike = replay._replace(rows=frozen)
    met = unknown_share(jnp.zeros((1, 2)), UTILITY.disagreement, MEMBERS, alike, 0.9)
    np.testing.assert_array_equal(met, 0.0)
