"""What every planner has: plans for many episodes, of which only those who need a plan pay for one."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import ACTIONS, BITS, HORIZON, PROBLEM, bits_of, everywhere, numpy_network, tables

from e3rl.models.fit import ModelSet
from e3rl.planners import EXPLOITERS, PLANNERS, base
from e3rl.planners.base import AbstractPlanner, Plan, Policy, for_those, single
from e3rl.planners.exploit_dqn import OfflineDqn
from e3rl.planners.exploit_value import ImaginedValue
from e3rl.planners.graph_search import GraphSearch
from e3rl.planners.mcts import TreeSearch
from e3rl.planners.state_graph import StateGraph
from e3rl.planners.uniform import Uniform
from e3rl.planners.value import ValuePlanner
from e3rl.replay import Scale
from e3rl.runs.settings import setting
from e3rl.values.update import QStep, make_q_state

EPISODES = 5


def double(number, word):
    return number * 2, word + 1


computed = jax.jit(for_those, static_argnums=(1, 4))


@pytest.mark.parametrize("at_once", [1, 2, 16])
def test_wanted_rows_are_computed_and_others_left(at_once):
    numbers = jnp.arange(10.0).reshape(5, 2)
    words = jnp.arange(5, dtype=jnp.int32)
    rest = jnp.full((5, 2), -1.0), jnp.full(5, -1, jnp.int32)
    for wanted in ("00000", "10101", "11111", "00001", "01111"):
        flags = np.array([letter == "1" for letter in wanted])
        found = computed(jnp.asarray(flags), double, (numbers, words), rest, at_once)
        np.testing.assert_array_equal(found[0], np.where(flags[:, None], numbers * 2, -1.0))
        np.testing.assert_array_equal(found[1], np.where(flags, words + 1, -1))


def test_the_function_is_called_only_for_wanted_rows():
    called = []

    def told(number):
        jax.debug.callback(lambda seen: called.append(int(seen)), number)
        return number * 2

    plan = jax.jit(lambda flags: for_those(flags, told, (jnp.arange(5),), jnp.zeros(5, jnp.int32), 1))
    for rows in ([0, 2, 4], [], [3], [0, 1, 2, 3, 4]):
        called.clear()
        jax.block_until_ready(plan(jnp.isin(jnp.arange(5), jnp.array(rows, jnp.int32))))
        jax.effects_barrier()
        assert sorted(called) == rows


def test_lanes_may_want_different_numbers():
    flags = jnp.array([[True, False, True], [False, False, False], [True, True, True]])
    numbers = jnp.arange(9.0).reshape(3, 3)
    words = jnp.zeros((3, 3), jnp.int32)

    @jax.jit
    @jax.vmap
    def lane(flags, numbers, words):
        return for_those(flags, double, (numbers, words), (jnp.zeros(3), words), 2)[0]

    np.testing.assert_array_equal(lane(flags, numbers, words), np.where(flags, numbers * 2, 0.0))


@dataclass(frozen=True)
class Looking(AbstractPlanner):
    """Takes the action that the first bit says, moved on by chance and time."""

    more: int = setting(0, "What is added")

    def plan(self, policy, obs, time, key, utility, problem):
        chance = (jax.random.key_data(key)[1] % 7).astype(jnp.int32)
        moved = obs[0].astype(jnp.int32) + time + chance + self.more
        return single(moved % problem.actions, utility(policy))


@dataclass(frozen=True)
class Blind(Looking):
    """The same, three times over and without looking."""

    open_loop: ClassVar[bool] = True

    def plan(self, policy, obs, time, key, utility, problem):
        first = super().plan(policy, obs, time, key, utility, problem)
        steps = jnp.arange(problem.horizon, dtype=jnp.int32)
        return Plan((first.actions[0] + steps) % problem.actions, problem.horizon - time, first.value)


nothing = tables(*np.zeros((3, 1, 1, 1, 1)))
POLICY = Policy(ModelSet(nothing, nothing, ()), None, Scale(jnp.zeros(BITS), jnp.ones(BITS)))
OBS = jnp.array([bits_of(state) for state in (0, 1, 2, 3, 1)], jnp.int8)
TIME = jnp.array([0, 1, 2, 0, 1], jnp.int32)
KEYS = jax.random.split(jax.random.key(0), EPISODES)
EVERYBODY = jnp.ones(EPISODES, bool)


def worth_seven(policy):
    return jnp.array(7.0)


def one_by_one(planner):
    return [planner.plan(POLICY, OBS[i], TIME[i], KEYS[i], worth_seven, PROBLEM) for i in range(EPISODES)]


def test_a_planner_that_looks_has_a_plan_of_one_action_for_each_episode():
    planner = Looking(more=1)
    actions, lengths, memory = planner.plan_many(POLICY, OBS, TIME, KEYS, EVERYBODY, worth_seven, PROBLEM)
    assert actions.shape == (EPISODES, 1)
    assert memory is None
    assert lengths.tolist() == [1] * EPISODES
    alone = one_by_one(planner)
    assert actions[:, 0].tolist() == [int(plan.actions[0]) for plan in alone]
    assert len(set(actions[:, 0].tolist())) > 1
    assert [float(plan.value) for plan in alone] == [7.0] * EPISODES


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_a_planner_that_does_not_look_plans_only_for_those_that_run(monkeypatch, backend):
    monkeypatch.setattr(base.jax, "default_backend", lambda: backend)
    monkeypatch.setattr(base, "AT_ONCE", 3)  # on an accelerator; one at a time on a CPU
    seen = []
    together = base.for_those
    monkeypatch.setattr(base, "for_those", lambda *given: seen.append(given[-1]) or together(*given))
    planner, running = Blind(), np.array([True, False, True, True, True])
    actions, lengths, memory = planner.plan_many(
        POLICY, OBS, TIME, KEYS, jnp.asarray(running), worth_seven, PROBLEM
    )
    assert seen == [1 if backend == "cpu" else 3]
    assert actions.shape == (EPISODES, HORIZON)
    for i, plan in enumerate(one_by_one(planner)):
        assert actions[i].tolist() == (plan.actions.tolist() if running[i] else [0] * HORIZON)
        assert int(lengths[i]) == (HORIZON - int(TIME[i]) if running[i] else 0)
    assert memory is None


def test_a_planner_that_only_searches_has_no_value_and_nothing_to_train():
    planner = Looking()
    assert planner.fresh(PROBLEM, KEYS[0]) is None
    value = make_q_state(numpy_network(4), QStep(learning_rate=1e-3, gradient_clip=1.0))
    given = (value, POLICY.models, everywhere(), worth_seven, PROBLEM, KEYS[0])
    assert planner.prepare(*given) is planner.refine(*given, 3) is value


def test_uniform_takes_every_action_alike_and_knows_nothing():
    planner = Uniform()
    assert (planner.open_loop, planner.estimates) == (False, False)
    keys = jax.random.split(jax.random.key(1), 2_000)
    plans = jax.jit(jax.vmap(lambda key: planner.plan(POLICY, OBS[0], TIME[0], key, worth_seven, PROBLEM)))(
        keys
    )
    assert plans.actions.shape == (2_000, 1)
    counts = np.bincount(np.asarray(plans.actions[:, 0]), minlength=ACTIONS)
    assert len(counts) == ACTIONS
    np.testing.assert_allclose(counts / 2_000, 1 / ACTIONS, atol=0.04)
    assert np.all(np.asarray(plans.length) == 1)
    assert np.all(np.isinf(plans.value))


def test_who_explores_and_who_exploits():
    assert {name: PLANNERS[name] for name in ("value", "graph", "states", "mcts", "uniform")} == {
        "value": ValuePlanner, "graph": GraphSearch, "states": StateGraph, "mcts": TreeSearch, "uniform": Uniform,
    }  # fmt: skip
    assert {name: EXPLOITERS[name] for name in ("value", "dqn", "graph", "states", "mcts")} == {
        "value": ImaginedValue, "dqn": OfflineDqn, "graph": GraphSearch, "states": StateGraph, "mcts": TreeSearch,
    }  # fmt: skip
    assert [kind.__name__ for kind in EXPLOITERS.values() if not kind.from_models] == ["OfflineDqn"]
    assert [kind.__name__ for kind in PLANNERS.values() if kind.open_loop] == ["GraphSearch", "StateGraph"]
    assert all(dataclasses.is_dataclass(kind) for kind in (*PLANNERS.values(), *EXPLOITERS.values()))
