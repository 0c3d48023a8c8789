"""One phase: the share of disagreement falls, and the value that is fitted is that of both rewards together."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import (
    ACTIONS,
    HORIZON,
    PROBLEM,
    STATES,
    CertainTables,
    backward_induction,
    everywhere,
    numpy_network,
    some_tables,
)

from e3rl.models.base import Prediction
from e3rl.models.fit import ModelSet
from e3rl.neural.config import Explore, NeuralE3Config
from e3rl.planners import PLANNERS
from e3rl.planners.unified import UnifiedPlanner
from e3rl.planners.utility import Mean
from e3rl.planners.value import ValuePlanner
from e3rl.types import UserError
from e3rl.values.imagined import ValueFit
from e3rl.values.update import make_q_state

SETTINGS = ValueFit(updates=1500, batch=48, discount=0.9, learning_rate=3e-3, target_rate=0.02, hidden=32)
UTILITY = Mean(reward_scale=0.5, caution=0.0)
KEY = jax.random.key(1)
MEMBERS = some_tables(CertainTables)


@eqx.filter_jit
def prepared(planner, replay):
    start = make_q_state(numpy_network(planner.value.hidden), planner.value.step())
    models = ModelSet(MEMBERS, MEMBERS, ())
    return planner.prepare(start, models, replay, UTILITY.explore, PROBLEM, KEY)


def test_the_share_halves_with_the_episodes():
    """Of `everywhere`, four rows begin episodes; at three steps a half-life of 2 is six of them."""
    planner, replay = UnifiedPlanner(bonus=3.0, half_life=2.0), everywhere()
    for size, episodes in ((0, 0), (2, 2), (4, 4), (12, 4)):  # rows beyond the size do not count
        share = planner.share(replay._replace(size=jnp.array(size, jnp.int32)), HORIZON)
        assert float(share) == pytest.approx(3.0 * 0.5 ** (episodes / 6))
    for_ever = dataclasses.replace(planner, half_life=0.0)
    assert float(for_ever.share(replay, HORIZON)) == 3.0


def test_without_reward_it_only_explores():
    """With no weight for the reward the value is that of the planner that explores, bit by bit."""
    value = dataclasses.replace(SETTINGS, updates=5)
    unified = UnifiedPlanner(value=value, tried=0.5, bonus=1.0, half_life=0.0, reward_weight=0.0)
    explorer = ValuePlanner(value=value, tried=0.5)
    jax.tree.map(
        np.testing.assert_array_equal, *(prepared(each, everywhere()) for each in (unified, explorer))
    )


def test_the_value_is_of_reward_and_disagreement_together():
    planner = UnifiedPlanner(value=SETTINGS, tried=0.0, bonus=0.3, half_life=0.0)
    value = prepared(planner, everywhere())
    rows = everywhere().rows
    learned = np.asarray(jax.jit(lambda q: jax.vmap(q)(rows.obs, rows.time))(value.target))
    oracle = dataclasses.replace(UTILITY)
    object.__setattr__(oracle, "caution", -0.3)  # a bonus is a caution below zero
    exact = backward_induction(MEMBERS, oracle, True, SETTINGS.discount)
    np.testing.assert_allclose(learned.reshape(HORIZON, STATES, ACTIONS), exact[:HORIZON], atol=0.05)


@pytest.mark.parametrize(("believed", "reward"), [("mean", 2.0), ("best", 4.0)])
def test_whose_reward_counts(believed, reward):
    predicted = Prediction(jnp.zeros((3, 2)), jnp.array([1.0, 4.0, 1.0]), jnp.zeros(3))
    planner = UnifiedPlanner(believed=believed, reward_weight=0.5)
    worth = planner.worth(lambda predicted: jnp.array(10.0), jnp.array(0.2))
    assert float(worth(predicted)) == pytest.approx(0.5 * reward + 2.0)


def test_one_member_is_believed_at_a_time():
    """The value is that of one of the members alone, where it gets what it expects."""
    planner = UnifiedPlanner(value=SETTINGS, believed="sampled", bonus=5.0)
    value = prepared(planner, everywhere())
    rows = everywhere().rows
    learned = np.asarray(jax.jit(lambda q: jax.vmap(q)(rows.obs, rows.time))(value.target))
    alone = [jax.tree.map(lambda leaf, e=e: jnp.stack([leaf[e]] * 2), MEMBERS) for e in range(2)]
    errors = [
        np.abs(
            learned.reshape(HORIZON, STATES, ACTIONS) - backward_induction(one, UTILITY, True, 0.9)[:HORIZON]
        )
        for one in alone
    ]
    assert min(error.max() for error in errors) < 0.05


def test_it_says_nothing_about_what_is_left_to_explore():
    assert PLANNERS["unified"] is UnifiedPlanner
    with pytest.raises(UserError, match="planner 'unified' has none"):
        NeuralE3Config(planner=UnifiedPlanner(), explore=Explore(epsilon=0.1))
