"""Planning over predicted states, against breadth-first search and value iteration with lists and dicts.

Rewards are eighths and the discount is a half, so that sums are exact and ties are the same ties.
"""

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jaxtyping import Array, Float

from e3rl.envs.encoding import Encoding
from e3rl.envs.spec import Spec
from e3rl.models.base import AbstractDynamics, Prediction, Problem
from e3rl.models.fit import ModelSet
from e3rl.planners.base import Policy
from e3rl.planners.state_graph import NOWHERE, PRECISION, StateGraph, digest, find, root
from e3rl.replay import Scale

STATES, ACTIONS, HORIZON, MEMBERS = 40, 3, 12, 2
STEP = 1 / 64
"""State k is seen as k/64."""
PROBLEM = Problem(Spec("rooms", Encoding(spaces.Box(0.0, 1.0, (1,))), ACTIONS, HORIZON), clock=False)
DISCOUNT = 0.5


class Rooms(AbstractDynamics):
    """Chances of the next state, rewards and endings from tables."""

    chances: Float[Array, "S A S"]
    reward: Float[Array, "S A"]
    ends: Float[Array, "S A"]
    noise_shape: ClassVar[tuple[int, ...]] = (0,)

    def __call__(self, obs, action, time):
        at = (jnp.round(obs[0] / STEP).astype(jnp.int32), action)
        return Prediction(self.chances[at], self.reward[at], self.ends[at])

    def most_likely(self, prediction):
        return STEP * jnp.argmax(prediction.obs, keepdims=True).astype(jnp.float32)

    def draw(self, prediction, uniform):
        raise NotImplementedError

    def loss(self, obs, row, key):
        raise NotImplementedError

    def prior_deviation(self):
        raise NotImplementedError


@dataclass
class World:
    """Where actions lead; what two members say they earn; whether they say that this ends the episode."""

    leads: np.ndarray
    rewards: np.ndarray
    ends: np.ndarray

    @staticmethod
    def drawn(seed):
        rng = np.random.default_rng(seed)
        leads = rng.integers(STATES, size=(STATES, ACTIONS))
        leads[:, 2] = np.arange(STATES)  # waiting changes nothing
        rewards = rng.integers(9, size=(MEMBERS, STATES, ACTIONS)) / 8
        ends = rng.random((MEMBERS, STATES, ACTIONS)) < 0.05
        return World(leads, rewards, ends.astype(float))

    @property
    def policy(self):
        """The first member is sure of what comes next, the second doubts it."""
        one_hot = np.eye(STATES)[self.leads]
        doubt = 0.6 * one_hot + 0.4 * np.roll(one_hot, 1, axis=-1)
        given = (np.stack([one_hot, doubt]), self.rewards, self.ends)
        members = Rooms(*(jnp.asarray(leaf, jnp.float32) for leaf in given))
        return Policy(ModelSet(members, members, ()), None, Scale(jnp.zeros(1), jnp.ones(1)))

    def gain(self, state, action):
        return abs(self.rewards[0, state, action] - self.rewards[1, state, action])

    def alive(self, state, action):
        return 1.0 - self.ends[:, state, action].mean()


def apart(predicted):
    """What `World.gain` says."""
    return jnp.max(predicted.reward) - jnp.min(predicted.reward)


@dataclass
class Slow:
    """The same planner in plain Python."""

    world: World
    nodes: int
    once: bool
    found: list = field(default_factory=list)
    edges: dict = field(default_factory=dict)
    """(state, action) -> [next state or None, gain, chance to go on]."""
    worth: dict = field(default_factory=dict)
    last: tuple | None = None

    def plan(self, state, time):
        if time > 0 and state in self.found:
            changed = self.note(state)
        else:
            self.found, self.edges, self.worth, changed = [state], {}, {}, True
        self.grow()
        if changed:
            self.worth = {}
            self.iterate()
        values = [self.q(state, action) for action in range(ACTIONS)]
        self.last = state, values.index(max(values))
        return self.last[1], max(values)

    def note(self, state):
        edge = self.edges[self.last]
        gain = 0.0 if self.once or edge[0] is None else edge[1]
        told = edge[0] != state or gain != edge[1]
        edge[:] = [state, gain, 1.0]
        return told

    def grow(self):
        for state in self.found:  # which grows on the way
            for action in range(ACTIONS):
                if (state, action) in self.edges:
                    continue
                after, alive = int(self.world.leads[state, action]), self.world.alive(state, action)
                if alive > 0.5 and after not in self.found and len(self.found) < self.nodes:
                    self.found.append(after)
                there = after if alive > 0.5 and after in self.found else None
                self.edges[state, action] = [there, self.world.gain(state, action), alive]

    def q(self, state, action):
        after, gain, alive = self.edges[state, action]
        return gain + DISCOUNT * alive * (0.0 if after is None else self.worth.get(after, 0.0))

    def iterate(self):
        enough = PRECISION * max(abs(gain) for _, gain, _ in self.edges.values())
        for _ in range(HORIZON):
            better = {state: max(self.q(state, action) for action in range(ACTIONS)) for state in self.found}
            moved = max(abs(better[state] - self.worth.get(state, 0.0)) for state in self.found)
            self.worth = better
            if moved <= enough:
                return


def planner(nodes=64, once=False):
    return StateGraph(nodes=nodes, discount=DISCOUNT, once=once)


@eqx.filter_jit
def plan_on(policy, state, time, memory, planner):
    return planner.plan_on(policy, state, time, jax.random.key(0), apart, PROBLEM, memory)


def seen(state):
    return jnp.array([state * STEP], jnp.float32)


class Fast:
    """The planner under test in an episode."""

    def __init__(self, world, nodes, once):
        self.planner, self.policy = planner(nodes, once), world.policy
        self.memory = self.planner.memory(PROBLEM)

    def plan(self, state, time):
        found = plan_on(self.policy, seen(state), jnp.array(time, jnp.int32), self.memory, self.planner)
        assert (found.actions.shape, int(found.length)) == ((1,), 1)
        self.memory = found.memory
        return int(found.actions[0]), float(found.value)

    @property
    def found(self):
        graph = self.memory.graph
        return [round(float(state) / STEP) for state in np.asarray(graph.states)[: int(graph.size), 0]]

    @property
    def edges(self):
        graph, names = jax.tree.map(np.asarray, self.memory.graph), [*self.found, None]
        assert NOWHERE == -1  # the last name
        return {
            (state, action): [
                names[graph.next[i, action]],
                float(graph.gain[i, action]),
                float(graph.alive[i, action]),
            ]
            for i, state in enumerate(names[:-1])
            for action in range(ACTIONS)
        }


def assert_same(fast, slow):
    assert fast.found == slow.found
    assert fast.edges == slow.edges
    worth = np.asarray(fast.memory.worth)[: len(slow.found)]
    np.testing.assert_allclose(worth, [slow.worth[state] for state in slow.found], rtol=1e-6)


@pytest.mark.parametrize("nodes", [7, 64])
@pytest.mark.parametrize("seed", range(2))
def test_graph_values_and_action_are_those_of_breadth_first_search(seed, nodes):
    """With room for all states and with room for some; more than are expanded at once."""
    world = World.drawn(seed)
    fast, slow = Fast(world, nodes, once=False), Slow(world, nodes, once=False)
    assert fast.plan(5, 0) == slow.plan(5, 0)
    assert_same(fast, slow)
    assert len(slow.found) == nodes if nodes == 7 else len(slow.found) > 16
    graph = fast.memory.graph
    assert int(graph.expanded) == int(graph.size)
    assert np.all(np.asarray(graph.states)[len(slow.found) :] == 0.0)


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize(("seed", "nodes"), [(0, 7), (1, 64)])
def test_an_episode_in_a_world_that_differs(seed, nodes, once):
    """Facts are noted, surprises and `once` make values change, and states that are not there begin a new graph."""
    world, truth = World.drawn(seed), World.drawn(seed)
    rng = np.random.default_rng(seed)
    truth.leads = np.where(
        rng.random(truth.leads.shape) < 0.3, rng.integers(STATES, size=truth.leads.shape), truth.leads
    )
    fast, slow = Fast(world, nodes, once), Slow(world, nodes, once)
    for start in (3, 8):  # two episodes: the second forgets the first
        state, begun = start, 0
        for time in range(HORIZON):
            action, value = slow.plan(state, time)
            assert fast.plan(state, time) == (action, pytest.approx(value, rel=1e-6))
            assert_same(fast, slow)
            begun += slow.found[0] == state
            state = int(truth.leads[state, action])
        assert begun >= 1


def test_a_surprise_is_a_fact():
    world = World.drawn(1)
    fast = Fast(world, 64, once=False)
    action, _ = fast.plan(5, 0)
    expected = int(world.leads[5, action])
    other = next(state for state in fast.found if state not in (5, expected))
    before = fast.edges
    fast.plan(other, 1)
    assert fast.edges == {**before, (5, action): [other, before[5, action][1], 1.0]}


def test_an_end_that_does_not_come_earns_nothing():
    world = World.drawn(1)
    world.ends[:, 5] = 1.0
    fast = Fast(world, 64, once=False)
    action, value = fast.plan(5, 0)
    assert value > 0.0
    assert fast.edges[5, action][0] is None
    fast.plan(5, 1)
    assert fast.edges[5, action] == [5, 0.0, 1.0]


@pytest.mark.parametrize("once", [False, True])
def test_a_step_that_went_as_imagined_is_worth_nothing_a_second_time_if_once(once):
    world = World.drawn(2)
    world.ends[:] = 0.0
    fast = Fast(world, 64, once)
    action, _ = fast.plan(5, 0)
    before, worth = fast.edges, np.asarray(fast.memory.worth)
    assert before[5, action][1] > 0.0
    fast.plan(int(world.leads[5, action]), 1)
    assert fast.edges == ({**before, (5, action): [before[5, action][0], 0.0, 1.0]} if once else before)
    assert np.array_equal(fast.memory.worth, worth) == (not once)


def test_nothing_is_remembered_at_the_beginning_of_an_episode():
    """Not even where the state is one that the last episode knew."""
    world = World.drawn(1)
    fast, fresh = Fast(world, 64, once=True), Fast(world, 64, once=True)
    fast.plan(5, 0)
    fast.plan(int(world.leads[5, 0]), 1)
    assert fast.plan(5, 0) == fresh.plan(5, 0)
    for ours, own in zip(jax.tree.leaves(fast.memory), jax.tree.leaves(fresh.memory), strict=True):
        np.testing.assert_array_equal(ours, own)


def test_episodes_side_by_side_remember_their_own_and_those_that_wait_forget_nothing():
    world, some = World.drawn(1), planner(7)
    policy, memory = world.policy, some.memories(PROBLEM, 3)
    keys = jax.random.split(jax.random.key(0), 3)

    @jax.jit
    def plan(states, time, running, memory):
        return some.plan_many(policy, states, time, keys, running, apart, PROBLEM, memory)

    def at(states):
        return jnp.stack([seen(state) for state in states])

    everybody = jnp.ones(3, bool)
    first = plan(at([5, 6, 7]), jnp.zeros(3, jnp.int32), everybody, memory)
    after = [
        int(world.leads[state, int(action)])
        for state, action in zip((5, 6, 7), first.actions[:, 0], strict=True)
    ]
    running = jnp.array([True, False, True])
    second = plan(at(after), jnp.ones(3, jnp.int32), running, first.memory)
    for i, start in enumerate((5, 6, 7)):
        alone = Fast(world, 7, once=False)
        assert alone.plan(start, 0)[0] == int(first.actions[i, 0])
        if running[i]:
            assert alone.plan(after[i], 1)[0] == int(second.actions[i, 0])
        for ours, own in zip(jax.tree.leaves(second.memory), jax.tree.leaves(alone.memory), strict=True):
            np.testing.assert_array_equal(ours[i], own)


def test_some_actions_are_left_to_chance_and_remembered_as_taken():
    world, count = World.drawn(1), 400
    sure = planner()
    best = int(sure.plan(world.policy, seen(5), jnp.array(0), jax.random.key(0), apart, PROBLEM).actions[0])
    some = dataclasses.replace(sure, chance=0.6)

    def taken(key):
        plan = some.plan(world.policy, seen(5), jnp.array(0), key, apart, PROBLEM)
        return plan.actions[0], plan.memory.action

    actions, remembered = jax.jit(jax.vmap(taken))(jax.random.split(jax.random.key(1), count))
    np.testing.assert_array_equal(actions, remembered)
    share = np.bincount(actions, minlength=PROBLEM.actions) / count
    wanted = np.full(PROBLEM.actions, 0.6 / PROBLEM.actions)
    wanted[best] += 0.4
    np.testing.assert_allclose(share, wanted, atol=4 * (0.25 / count) ** 0.5)


def test_a_plan_without_memory_is_that_of_a_new_episode():
    world, time = World.drawn(3), jnp.array(4, jnp.int32)
    some = planner()
    alone = jax.jit(lambda obs: some.plan(world.policy, obs, time, jax.random.key(0), apart, PROBLEM))(
        seen(5)
    )
    assert (int(alone.actions[0]), float(alone.value)) == Slow(world, 64, once=False).plan(5, 4)


def slow_digest(state):
    factors = np.random.default_rng(0).integers(2**32, size=(2, state.size), dtype=np.uint32) | np.uint32(1)
    whole = [round(float(entry) * 65536) * 0x9E3779B1 % 2**32 for entry in state.ravel()]
    whole = [x ^ x >> 15 for x in whole]
    return [sum(x * int(f) for x, f in zip(whole, row, strict=True)) % 2**32 for row in factors]


def test_digests_of_lit_lamps_differ():
    lamps = jnp.eye(5_000)
    assert len({tuple(pair) for pair in np.asarray(jax.vmap(digest)(lamps)).tolist()}) == len(lamps)


def test_digests_are_sums_of_whole_numbers_and_tell_states_apart():
    rng = np.random.default_rng(0)
    ids = rng.integers(6, size=(2_000, 3, 3, 2)).astype(np.float32) / np.float32(255)
    digests = np.asarray(jax.jit(jax.vmap(digest))(jnp.asarray(ids)))
    for state, pair in zip(ids[:50], digests, strict=False):
        assert pair.tolist() == slow_digest(state)
    assert len({tuple(pair) for pair in digests.tolist()}) == len({state.tobytes() for state in ids})
    signed = np.array([-0.5, 0.25, -1.0], np.float32)
    assert digest(jnp.asarray(signed)).tolist() == slow_digest(signed)
    assert digest(jnp.asarray(signed[::-1])).tolist() != slow_digest(signed)


def test_only_rows_that_are_there_are_found():
    """The digest of zeros is zero, as is an empty row's."""
    graph = root(jnp.array([0.5]), 4, ACTIONS)
    places, there = find(graph, jnp.stack([digest(jnp.zeros(1)), digest(jnp.array([0.5]))]))
    assert there.tolist() == [False, True]
    assert int(places[1]) == 0
