"""Planners that learn a value: what they fit, with how many updates, and that they act greedily in it."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import (
    ACTIONS,
    BITS,
    HORIZON,
    PROBLEM,
    STATES,
    CertainTables,
    backward_induction,
    everywhere,
    numpy_network,
    one_of,
    some_tables,
)

from e3rl.models.fit import ModelSet
from e3rl.neural.presets import PRESETS
from e3rl.planners import exploit_dqn, exploit_value
from e3rl.planners import value as fitting
from e3rl.planners.base import Policy
from e3rl.planners.exploit_dqn import OfflineDqn
from e3rl.planners.exploit_value import ImaginedValue
from e3rl.planners.mcts import TreeSearch
from e3rl.planners.utility import Mean
from e3rl.planners.value import ValuePlanner
from e3rl.replay import Scale
from e3rl.runs.settings import changed
from e3rl.types import UserError
from e3rl.values import imagined
from e3rl.values.double_dqn import DqnFit
from e3rl.values.imagined import ValueFit
from e3rl.values.update import make_q_state

SETTINGS = ValueFit(updates=1500, batch=48, discount=0.9, learning_rate=3e-3, target_rate=0.02, hidden=32)
UTILITY = Mean(reward_scale=0.5, caution=0.3)
KEY = jax.random.key(1)


def models_of(members):
    return ModelSet(members, members, ())


def start(settings=SETTINGS):
    return make_q_state(numpy_network(settings.hidden), settings.step())


@pytest.mark.parametrize(
    "planner", [ValuePlanner(value=SETTINGS), TreeSearch(value=SETTINGS)], ids=["value", "mcts"]
)
def test_the_value_is_fitted_for_the_utility_that_is_planned_for(planner):
    """Disagreement to explore and the reward to exploit, whoever the planner is. Before the first episode there is
    nothing to imagine from."""
    members = some_tables(CertainTables)

    @eqx.filter_jit
    def prepare(which, replay):
        utility = one_of(which, [UTILITY.explore, UTILITY.exploit])
        return planner.prepare(start(), models_of(members), replay, utility, PROBLEM, KEY)

    values = jax.jit(lambda network, rows: jax.vmap(network)(rows.obs, rows.time))
    for exploits in (False, True):
        value = prepare(jnp.array(int(exploits)), everywhere())
        learned = np.asarray(values(value.target, everywhere().rows)).reshape(HORIZON, STATES, ACTIONS)
        exact = backward_induction(members, UTILITY, exploits, SETTINGS.discount)
        np.testing.assert_allclose(learned, exact[:HORIZON], atol=0.05)
        assert int(value.updates) == SETTINGS.updates
    nothing = prepare(jnp.array(0), everywhere()._replace(size=jnp.array(0, jnp.int32)))
    jax.tree.map(np.testing.assert_array_equal, nothing, start())


def test_members_go_their_own_ways_for_as_many_steps_as_are_set(monkeypatch):
    asked = []

    def recorded(value, *given):
        asked.append(given[-1])
        return value, jnp.array(0.0)

    monkeypatch.setattr(fitting, "fit_value", recorded)
    given = models_of(some_tables()), everywhere(), UTILITY.explore, PROBLEM, KEY
    for planner in (ValuePlanner(), ValuePlanner(propagate=3), TreeSearch()):
        planner.prepare(start(), *given)
    assert asked == [1, 3, 1]


VALUES = {
    "value": ValuePlanner(value=ValueFit(hidden=4)),
    "imagined": ImaginedValue(value=ValueFit(hidden=4)),
    "dqn": OfflineDqn(value=DqnFit(hidden=4)),
}


@pytest.mark.parametrize("name", VALUES)
def test_the_plan_is_the_action_of_largest_value(name):
    planner = VALUES[name]
    fresh = eqx.filter_eval_shape(planner.fresh, PROBLEM, KEY)
    assert fresh.online.head.shape == (HORIZON, ACTIONS, 4)
    worth = jnp.array([[0.0, 1.0], [3.0, 2.0], [5.0, 7.0]])
    network = eqx.tree_at(lambda q: q.head_bias, jax.tree.map(jnp.zeros_like, numpy_network(4)), worth)
    policy = Policy(
        models_of(some_tables()),
        make_q_state(network, planner.value.step()),
        Scale(jnp.zeros(BITS), jnp.ones(BITS)),
    )
    for time in range(HORIZON):
        plan = planner.plan(policy, jnp.zeros(BITS, jnp.int8), jnp.array(time), KEY, UTILITY.explore, PROBLEM)
        assert (plan.actions.tolist(), int(plan.length)) == ([int(worth[time].argmax())], 1)
        assert float(plan.value) == float(worth[time].max())
    assert (planner.open_loop, planner.estimates) == (False, True)


def test_values_see_observations_in_the_scale_of_the_buffer():
    network = numpy_network(4)
    low, high = jnp.array([-2.0, 1.0]), jnp.array([2.0, 5.0])
    policy = Policy(models_of(some_tables()), make_q_state(network, SETTINGS.step()), Scale(low, high))
    obs = jnp.array([0.0, 4.0])
    plan = ValuePlanner().plan(policy, obs, jnp.array(1), KEY, UTILITY.explore, PROBLEM)
    assert float(plan.value) == pytest.approx(
        float(jnp.max(network(jnp.array([0.5, 0.75]), jnp.array(1)))), rel=1e-5
    )


class Recorded:
    """Stands in for the functions that fit: every update adds 1 to a weight, and every call is written down."""

    def __init__(self, monkeypatch):
        self.calls, self.tables = [], []
        monkeypatch.setattr(exploit_value, "fit_value", self.fit_value)
        monkeypatch.setattr(exploit_dqn, "fit_dqn", self.fit_dqn)
        monkeypatch.setattr(exploit_value, "imagine", lambda *given: self.tables.append(given[:-1]))
        # The farther the weight is from 4, the less is collected.
        monkeypatch.setattr(imagined, "imagined_return", lambda q, *_: -jnp.abs(q.hidden_bias[0] - 4.0))

    def fit_value(self, value, members, replay, key, utility, settings, updates, actions, table):
        self.calls.append((members, utility, settings, updates, actions))
        return self.more(value, updates), jnp.array(0.0)

    def fit_dqn(self, value, replay, key, settings, updates):
        self.calls.append((settings, updates))
        return self.more(value, updates), jnp.array(0.0)

    def more(self, value, updates):
        grown = eqx.tree_at(lambda q: q.hidden_bias, value.online, value.online.hidden_bias + updates)
        return value._replace(online=grown, updates=value.updates + updates)


def blank(planner):
    return make_q_state(jax.tree.map(jnp.zeros_like, numpy_network(4)), planner.value.step())


@pytest.mark.parametrize("kind", [ImaginedValue, OfflineDqn])
@pytest.mark.parametrize(("snapshots", "kept"), [(1, 6), (3, 4)])
def test_exploitation_keeps_the_best_snapshot_and_rounds_refine_it(monkeypatch, kind, snapshots, kept):
    """Of 2, 4 and 6 updates, 4 collect most in imagination."""
    recorded = Recorded(monkeypatch)
    planner = kind(
        value=(ValueFit if kind is ImaginedValue else DqnFit)(updates=6, hidden=4), snapshots=snapshots
    )
    members, replay = some_tables(), everywhere()
    given = models_of(members), replay, UTILITY.exploit, PROBLEM, KEY
    prepared = planner.prepare(blank(planner), *given)
    assert int(prepared.updates) == int(prepared.online.hidden_bias[0]) == kept
    refined = planner.refine(prepared, *given, 5)
    assert int(refined.updates) == kept + 5  # the last: real episodes will judge it
    shared = (members, UTILITY.exploit, planner.value) if kind is ImaginedValue else (planner.value,)
    rest = (ACTIONS,) if kind is ImaginedValue else ()
    assert recorded.calls == [(*shared, 6 // snapshots, *rest), (*shared, 5, *rest)]
    if kind is ImaginedValue:
        batch = planner.value.batch
        assert recorded.tables == [(members, replay, UTILITY.exploit, ACTIONS, n * batch) for n in (6, 5)]
    assert kind.from_models is (kind is ImaginedValue)


def test_where_there_is_one_snapshot_nobody_waits():
    """Who takes one in place of a preset's many need not know that these were waited for."""
    waiting = changed(PRESETS["e3rl-numbers"], {"exploit.snapshots": 1}).exploit
    assert (waiting.snapshots, waiting.wait) == (1, 12)


@pytest.mark.parametrize(("kind", "fit"), [(ImaginedValue, ValueFit), (OfflineDqn, DqnFit)])
def test_snapshots_have_to_divide_the_updates(kind, fit):
    with pytest.raises(UserError, match="snapshots must divide the updates, 10, got 3"):
        kind(value=fit(updates=10), snapshots=3)
