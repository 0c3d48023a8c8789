"""UE² (section 5.2): Neural-E³ whose exploration is uniform and whose exploitation is the same."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import AGENT, LOCK, OPTIONS, TINY, lock

from e3rl.envs.opening import open_environment
from e3rl.neural.agent import UE2, NeuralE3
from e3rl.neural.compiled_agent import CompiledAgent
from e3rl.neural.presets import PRESETS
from e3rl.planners.uniform import Uniform
from e3rl.runs.lanes import seed_keys, side_by_side
from e3rl.runs.settings import changed

HORIZON, EPOCHS, ACTIONS = 3, 300, 4
ENVS, KEYS = side_by_side([lock(3), lock(4)]), seed_keys([3, 4])


@pytest.fixture(scope="module")
def agent():
    return CompiledAgent(AGENT.spec, changed(TINY, {"planner": "uniform"}))


@pytest.fixture(scope="module")
def begin():
    return AGENT.init(KEYS)


def test_it_is_neural_e3_with_nobody_planning():
    opened = open_environment(LOCK, OPTIONS)
    changes = {"model.hidden": "8"}
    chosen = NeuralE3.configured(opened, "paper-lock-h5", changes)
    assert chosen == changed(PRESETS["paper-lock-h5"], changes)
    ue2 = UE2.configured(opened, "paper-lock-h5", changes)
    assert ue2 == changed(chosen, {"planner": "uniform"})
    assert UE2.configured(opened) == changed(PRESETS["e3rl"], {"planner": "uniform"})
    assert UE2.describe(LOCK, OPTIONS, 3, ue2)["algo"] == "ue2"
    assert UE2(LOCK, TINY, env_options=OPTIONS).config.planner == Uniform()


def test_exploration_is_uniform_at_every_step_and_heeds_no_models(agent, begin):
    """Epochs after the first, where Neural-E³ would plan."""
    models, _, replay = begin
    policy, v_explore = agent.plan(models, None, replay, KEYS, jnp.full(2, 1))
    assert np.all(np.isinf(v_explore))  # nobody says when to stop
    assert policy.value is None

    def actions(policy, t):
        _, collected, _ = agent.collect(ENVS, policy, replay, KEYS, jnp.full(2, t))
        return np.asarray(collected.rows.action)[:, :HORIZON]

    taken = np.stack([actions(policy, t) for t in range(1, EPOCHS + 1)])  # [epoch, seed, step]
    for step in taken.reshape(-1, HORIZON).T:
        counts, expected = np.bincount(step, minlength=ACTIONS), 2 * EPOCHS / ACTIONS
        # Pearson's statistic with 3 degrees of freedom is beyond 21 once in ten thousand.
        assert np.sum((counts - expected) ** 2) / expected < 21.0
    weights, rest = eqx.partition(models.members, eqx.is_inexact_array)
    members = eqx.combine(jax.tree.map(jnp.negative, weights), rest)
    other = policy._replace(models=models._replace(members=members))
    np.testing.assert_array_equal(taken[:5], [actions(other, t) for t in range(1, 6)])


def test_exploitation_is_that_of_neural_e3(agent, begin):
    """From the same models and experience, to the bit."""
    models, value, replay = begin
    policy, _ = AGENT.plan(models, value, replay, KEYS, jnp.zeros(2, jnp.int32))
    _, replay, _ = AGENT.collect(ENVS, policy, replay, KEYS, jnp.zeros(2, jnp.int32))
    own, other = (each.exploit(models, replay, KEYS) for each in (agent, AGENT))
    assert jax.tree.structure(own) == jax.tree.structure(other)
    for one, two in zip(jax.tree.leaves(own), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(one, two)
