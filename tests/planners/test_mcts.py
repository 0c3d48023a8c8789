"""Tree search over an ensemble against a plain-Python search, brute force, and a tree written out."""

import dataclasses
import json
import math
from collections import Counter
from pathlib import Path
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import (
    ACTIONS,
    BITS,
    HORIZON,
    MEMBERS,
    PROBLEM,
    STATES,
    CertainTables,
    TableDynamics,
    bits_of,
    everywhere,
    numpy_network,
    one_of,
    plain_utility,
    tables,
)

from e3rl.models.fit import ModelSet
from e3rl.planners import mcts
from e3rl.planners.base import Policy
from e3rl.planners.mcts import TreeSearch
from e3rl.planners.tree import NOBODY
from e3rl.planners.utility import Hellinger, Joint, Marginal, Mean, Squared
from e3rl.replay import Scale
from e3rl.values.update import QStep, make_q_state

SCALE = 0.5
GOLDEN = Path(__file__).parents[1] / "golden" / "mcts_tree.json"
SETTINGS = TreeSearch(playouts=40, particles=4, leaf="zero", choice="mean")
OWN_DICE = dataclasses.replace(SETTINGS, common_noise=False, choice="best")
BELIEFS = dataclasses.replace(OWN_DICE, from_samples=False, choice="visits")
IN_BATCHES = dataclasses.replace(SETTINGS, batch=2)

UTILITIES = {
    "explore": (Marginal(reward_scale=SCALE), False),
    "exploit": (Marginal(caution=0.0), True),
    "mean": (Mean(reward_scale=SCALE), False),
    "hellinger": (Hellinger(reward_scale=SCALE, caution=0.3), True),
    "squared": (Squared(reward_scale=SCALE), False),
    "joint": (Joint(reward_scale=SCALE), False),
    "cautious": (Squared(reward_scale=SCALE, caution=0.3), True),
}
"""Utilities, and whether they are used to exploit."""
FAST = [utility.exploit if exploits else utility.explore for utility, exploits in UTILITIES.values()]


@eqx.filter_jit
def search(ensemble, value, obs, time, key, which, settings, line=None):
    """`mcts.search` and the tree that it grew."""
    trees = []

    def recorded(original):
        def grown(*args, **kwargs):
            trees.append(original(*args, **kwargs))
            return trees[0]

        return grown

    one_by_one, in_batches = recorded(mcts.mctx.search), recorded(mcts.grow)
    with mock.patch.object(mcts.mctx, "search", one_by_one), mock.patch.object(mcts, "grow", in_batches):
        utility = one_of(which, FAST)
        found = mcts.search(ensemble, value, obs, time, key, utility, settings, HORIZON, ACTIONS, line)
    return found, trees[0]


@jax.jit
def batched_best_sequence(tree):
    return mcts.best_sequence(tree)


def best_sequence(tree):
    return np.asarray(batched_best_sequence(jax.tree.map(lambda leaf: leaf[None], tree)))


def run(ensemble, settings=SETTINGS, utility="explore", value=None, state=0, time=0, seed=0, line=None):
    plan, tree = search(
        ensemble,
        value,
        jnp.array(bits_of(state), jnp.int8),
        jnp.array(time),
        jax.random.key(seed),
        jnp.array(list(UTILITIES).index(utility), jnp.int32),
        settings,
        None if line is None else jnp.array([*line, *[NOBODY] * (HORIZON - len(line))], jnp.int32),
    )
    return plan, jax.tree.map(lambda leaf: np.asarray(leaf)[0], tree)


def with_leaf(leaf):
    return dataclasses.replace(SETTINGS, leaf=leaf)


@pytest.fixture(scope="module")
def certain():
    """Members that are sure of the next state, each of its own; rewards and endings are any numbers."""
    rng = np.random.default_rng(0)
    shape = (MEMBERS, HORIZON, STATES, ACTIONS)
    return tables(rng.integers(0, 2, (*shape, BITS)), rng.uniform(-1, 1, shape), rng.uniform(0, 0.4, shape))


@pytest.fixture(scope="module")
def network():
    return numpy_network(4, deviation=0.7, seed=1)


class SlowSearch:
    """UCT with dictionaries and loops. Untried actions come in any order; that order is read off the fast tree."""

    def __init__(self, ensemble, fast, state, time, utility, leaf_value):
        self.tables = [np.asarray(leaf, float) for leaf in jax.tree.leaves(ensemble)]
        self.utility, self.leaf_value, self.fast = UTILITIES[utility], leaf_value, fast
        self.nodes = {0: {"states": [state] * MEMBERS, "time": time, "children": {}, "returns": [0.0]}}
        for playout in range(SETTINGS.playouts):
            self.play(playout + 1)

    def step(self, node, action):
        """Next states, reward and the chance to go on, by the tables."""
        obs, reward, end = self.tables
        t = min(node["time"], HORIZON - 1)  # steps past the end happen in mctx's tree but count for nothing
        at = [(e, t, node["states"][e], action) for e in range(MEMBERS)]
        after = [sum(int(bit) << i for i, bit in enumerate(obs[index])) for index in at]
        gained = plain_utility(*self.utility, [obs[i] for i in at], [reward[i] for i in at])
        onwards = 1 - np.mean([end[i] for i in at]) if node["time"] + 1 < HORIZON else 0.0
        return after, gained, onwards

    def play(self, new):
        path, index, depth = [], 0, 0
        while True:
            node = self.nodes[index]
            untried = [a for a in range(ACTIONS) if a not in node["children"]]
            if untried:
                action = int(self.fast.action_from_parent[new])
                assert int(self.fast.parents[new]) == index
                assert action in untried
                after, gained, onwards = self.step(node, action)
                self.nodes[new] = {"states": after, "time": node["time"] + 1, "children": {}, "returns": []}
                node["children"][action] = {"node": new, "visits": 0, "reward": gained, "onwards": onwards}
            else:
                action = self.best(node)
            path.append((index, action))
            index, depth = node["children"][action]["node"], depth + 1
            if untried or depth == HORIZON:
                break
        if not untried:
            assert int(self.fast.parents[new]) == -1  # a leaf at the depth limit is visited again
        value = self.leaf_value(self.nodes[index])
        self.nodes[index]["returns"] = [value] if not untried else self.nodes[index]["returns"] + [value]
        for index, action in reversed(path):
            child = self.nodes[index]["children"][action]
            child["visits"] += 1
            value = child["reward"] + child["onwards"] * value
            self.nodes[index]["returns"].append(value)

    def q(self, edge):
        return edge["reward"] + edge["onwards"] * np.mean(self.nodes[edge["node"]]["returns"])

    def best(self, node):
        visits = 1 + sum(edge["visits"] for edge in node["children"].values())
        scores = [
            self.q(node["children"][a])
            + SETTINGS.ucb * math.sqrt(math.log(visits) / node["children"][a]["visits"])
            for a in range(ACTIONS)
        ]
        first, second = sorted(scores, reverse=True)[:2]
        assert first - second > 1e-5  # no tie: both searches must decide alike
        return int(np.argmax(scores))


def particle_value(network):
    """max_a of the mean over members of Q(s_e, a); certain members have all their particles in one place."""
    evaluate = jax.jit(lambda obs, time: network(obs, time))

    def value(node):
        rows = [evaluate(jnp.array(bits_of(s), jnp.int8), jnp.array(node["time"])) for s in node["states"]]
        return float(np.max(np.mean(rows, axis=0)))

    return value


@pytest.mark.parametrize(
    ("utility", "leaf", "time"),
    [*((utility, "zero", 0) for utility in UTILITIES), ("exploit", "value", 0), ("explore", "value", 1)],
)
def test_the_whole_search_is_that_of_plain_python(certain, network, utility, leaf, time):
    settings = with_leaf(leaf)
    plan, tree = run(certain, settings, utility, network, state=1, time=time)
    leaf_value = particle_value(network) if leaf == "value" else lambda node: 0.0
    slow = SlowSearch(certain, tree, 1, time, utility, leaf_value)
    for index, node in slow.nodes.items():
        assert tree.node_values[index] == pytest.approx(np.mean(node["returns"]), abs=1e-4)
        for action in range(ACTIONS):
            edge = node["children"].get(action)
            assert tree.children_index[index, action] == (edge["node"] if edge else -1)
            assert tree.children_visits[index, action] == (edge["visits"] if edge else 0)
            if edge:
                assert tree.children_rewards[index, action] == pytest.approx(edge["reward"], abs=1e-5)
                assert tree.children_discounts[index, action] == pytest.approx(edge["onwards"], abs=1e-5)
        for e, state in enumerate(node["states"]):
            np.testing.assert_array_equal(
                tree.embeddings.particles[index, e].T, [bits_of(state)] * settings.particles
            )
    root = slow.nodes[0]
    values = [slow.q(root["children"][a]) for a in range(ACTIONS)]
    assert int(plan.action) == int(np.argmax(values))
    assert float(plan.value) == pytest.approx(max(values), abs=1e-4)


@pytest.mark.parametrize(("kind", "stored"), [(TableDynamics, jnp.int8), (CertainTables, jnp.float32)])
def test_particles_take_a_byte_an_entry_only_where_they_are_bits(certain, kind, stored):
    members, number = kind(certain.obs, certain.reward, certain.termination), jnp.array(0)
    given = (members, None, jnp.zeros(BITS), number, jax.random.key(0), number, SETTINGS)
    _, tree = eqx.filter_eval_shape(search, *given)
    assert tree.embeddings.particles.dtype == stored


def test_visits_add_up(certain, network):
    _, tree = run(certain, with_leaf("value"), "exploit", network)
    assert tree.children_visits[0].sum() == SETTINGS.playouts
    for node in range(SETTINGS.playouts + 1):
        children = tree.children_visits[node]
        if children.sum() > 0:  # its own first visit and one for every visit below
            assert tree.node_visits[node] == 1 + children.sum()
            q = tree.children_rewards[node] + tree.children_discounts[node] * tree.children_values[node]
            mean = (tree.raw_values[node] + np.dot(children, q)) / tree.node_visits[node]
            assert tree.node_values[node] == pytest.approx(mean, abs=1e-4)


def paths_to(tree):
    """Every node's actions from the root, by following children down."""
    found, queue = {0: []}, [0]
    while queue:
        node = queue.pop()
        for action, child in enumerate(tree.children_index[node]):
            if child != -1:
                found[int(child)] = [*found[node], action]
                queue.append(int(child))
    return found


@pytest.mark.parametrize("utility", ["explore", "exploit"])
def test_best_sequence_is_the_best_of_all_paths(certain, network, utility):
    _, tree = run(certain, with_leaf("value"), utility, network, state=2)
    best = np.full(ACTIONS, -np.inf)
    for end, actions in paths_to(tree).items():
        node, total, weight = 0, 0.0, 1.0
        for action in actions:
            total += weight * tree.children_rewards[node, action]
            weight *= tree.children_discounts[node, action]
            node = tree.children_index[node, action]
        assert node == end
        if actions:
            best[actions[0]] = max(best[actions[0]], total + weight * tree.raw_values[end])
    np.testing.assert_allclose(best_sequence(tree), best, atol=1e-5)


def narrow(sequence):
    """Identical coin-flipping members that part, in prediction and reward, at the end of one action sequence only.

    State 1 means on the path, state 0 off it.
    """
    shape = (MEMBERS, HORIZON, STATES, ACTIONS)
    obs, reward = np.zeros((*shape, BITS)), np.zeros(shape)
    obs[..., 1] = 0.5  # a coin that says nothing
    for t, action in enumerate(sequence):
        for state in (1, 3):
            if t < HORIZON - 1:
                obs[:, t, state, action, 0] = 1.0
            else:
                obs[1, t, state, action, 0] = 1.0
                reward[:, t, state, action] = 1.0
    return tables(obs, reward, np.zeros(shape))


@pytest.mark.parametrize(
    ("utility", "leaf"),
    [
        ("explore", "zero"),
        ("exploit", "zero"),
        ("exploit", "rollout"),
        ("explore", "value"),
        ("exploit", "value"),
    ],
)
def test_plan_finds_the_one_sequence_that_pays(network, leaf, utility):
    """Three ways to choose read one tree; with a value for a leaf, one that knows nothing."""
    blank = jax.tree.map(jnp.zeros_like, network)
    for sequence in [(0, 1, 1), (1, 0, 1)]:
        plan, tree = run(narrow(sequence), with_leaf(leaf), utility, blank, state=1)
        assert int(plan.action) == sequence[0]
        assert np.argmax(tree.children_visits[0]) == sequence[0]
        assert np.argmax(best_sequence(tree)) == sequence[0]


@pytest.mark.parametrize("batch", [0, 3])
@pytest.mark.parametrize("leaf", ["zero", "value"])
def test_every_edge_is_what_the_models_say(certain, network, batch, leaf):
    """However the tree grows: rewards, chances to go on, particles and values of its nodes, by the tables."""
    settings = dataclasses.replace(SETTINGS, batch=batch, leaf=leaf)
    _, tree = run(certain, settings, "exploit", network, state=2)
    slow = SlowSearch.__new__(SlowSearch)
    slow.tables = [np.asarray(part, float) for part in jax.tree.leaves(certain)]
    slow.utility = UTILITIES["exploit"]
    value = particle_value(network)
    for end, actions in paths_to(tree).items():
        node, at = {"states": [2] * MEMBERS, "time": 0}, 0
        if len(actions) > HORIZON:
            continue
        for action in actions:
            after, gained, onwards = slow.step(node, action)
            assert tree.children_rewards[at, action] == pytest.approx(gained, abs=1e-5)
            assert tree.children_discounts[at, action] == pytest.approx(onwards, abs=1e-5)
            node, at = {"states": after, "time": node["time"] + 1}, tree.children_index[at, action]
        assert at == end
        assert tree.embeddings.time[end] == len(actions)
        for e, state in enumerate(node["states"]):
            np.testing.assert_array_equal(
                tree.embeddings.particles[end, e].T, [bits_of(state)] * settings.particles
            )
        if actions:
            assert tree.raw_values[end] == pytest.approx(value(node) if leaf == "value" else 0.0, abs=1e-5)
    if batch:  # nothing is looked for past the end
        assert max(map(len, paths_to(tree).values())) == HORIZON


@pytest.mark.parametrize("leaf", ["zero", "rollout"])
@pytest.mark.parametrize("utility", ["explore", "exploit"])
def test_batches_find_the_one_sequence_that_pays(leaf, utility):
    for sequence in [(0, 1, 1), (1, 0, 1)]:
        for choice in ("best", "mean", "visits"):
            settings = dataclasses.replace(IN_BATCHES, leaf=leaf, choice=choice)
            plan, tree = run(narrow(sequence), settings, utility, state=1)
            assert int(plan.action) == sequence[0]
            assert np.argmax(best_sequence(tree)) == sequence[0]


def test_batches_share_dice_and_have_their_own():
    """With common noise a node's particles depend on the actions that lead to it alone."""
    rng = np.random.default_rng(2)
    shape = (1, HORIZON, STATES, ACTIONS)
    one = tables(rng.uniform(0.2, 0.8, (*shape, BITS)), rng.integers(0, 8, shape) / 8, np.zeros(shape))
    twins = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (MEMBERS, *leaf.shape[1:])), one)
    _, tree = run(twins, IN_BATCHES)
    assert np.all(tree.children_rewards == 0.0)
    same, _ = run(twins, IN_BATCHES, seed=0)
    _, noisy = run(twins, dataclasses.replace(OWN_DICE, batch=2))
    assert np.all(noisy.children_rewards[0] > 0.0)
    filled = noisy.node_visits > 0
    assert not np.array_equal(noisy.embeddings.particles[filled, 0], noisy.embeddings.particles[filled, 1])
    assert float(same.value) == 0.0


def test_a_rollout_takes_no_more_steps_than_are_left(certain):
    """Nor with all actions of a node together, where there is no device to take them at once."""
    calls, trees, grow = [], [], mcts.grow

    def utility(predicted):
        jax.debug.callback(lambda reward: calls.append(1), predicted.reward)
        return FAST[0](predicted)

    def grown(*args):
        trees.append(grow(*args))
        return trees[0]

    @jax.jit
    def plan(key):
        start, now = jnp.array(bits_of(0), jnp.int8), jnp.array(0)
        settings = dataclasses.replace(SETTINGS, leaf="rollout", batch=1)
        mcts.search(certain, None, start, now, key, utility, settings, HORIZON, ACTIONS)
        return trees[0].parents[0]

    with mock.patch.object(mcts, "grow", grown):
        parents = np.asarray(plan(jax.random.key(0)))
    jax.effects_barrier()
    depths = [0]
    for parent in parents[1:]:
        depths.append(1 + depths[parent])
    assert len(calls) == sum(1 + max(HORIZON - depth, 0) for depth in depths[1:])


@pytest.mark.parametrize(("batch", "playouts"), [(0, 3), (1, 6), (2, 10)])
def test_a_line_is_tried_first_and_told_anew(batch, playouts):
    """So few playouts do not find the sequence that pays; told of it they do, and tell what comes next."""
    sequence = (1, 0, 1)
    members = narrow(sequence)
    settings = dataclasses.replace(SETTINGS, playouts=playouts, choice="best", batch=batch, reuse=True)
    found, _ = run(members, settings, "exploit", state=1, line=sequence)
    assert (int(found.action), float(found.value)) == (1, pytest.approx(1.0))
    assert found.line.tolist() == [0, 1, NOBODY]
    if batch < 2:
        unaware, _ = run(members, settings, "exploit", state=1, line=())
        assert float(unaware.value) < 1.0


def test_without_a_line_a_search_that_reuses_is_one_that_does_not(certain):
    for batch in (0, 2):
        settings = dataclasses.replace(SETTINGS, batch=batch)
        plain, tree = run(certain, settings)
        again, same = run(certain, dataclasses.replace(settings, reuse=True), line=())
        np.testing.assert_array_equal(tree.parents, same.parents)
        assert int(plain.action) == int(again.action)
        assert plain.line is None


def test_what_is_remembered_is_the_rest_of_the_best_sequence(certain):
    planner = dataclasses.replace(SETTINGS, reuse=True, choice="best")
    memory, key = planner.memory(PROBLEM), jax.random.key(0)
    assert memory.tolist() == [NOBODY] * HORIZON
    assert (planner.plan_by_plan, SETTINGS.plan_by_plan, SETTINGS.memory(PROBLEM)) == (True, False, None)
    obs = jnp.array([[1, -1]], jnp.int8)
    plans = planner.plan_many(
        policy_of(narrow((1, 0, 1))), obs, jnp.zeros(1, jnp.int32), key[None], jnp.ones(1, bool),
        Mean(caution=0.0).exploit, PROBLEM, planner.memories(PROBLEM, 1),
    )  # fmt: skip
    assert plans.actions.tolist() == [[1]]
    assert plans.memory.tolist() == [[0, 1, NOBODY]]


@pytest.mark.parametrize("settings", [SETTINGS, OWN_DICE, BELIEFS], ids=lambda settings: settings.choice)
@pytest.mark.parametrize("state", [0, 3])
def test_each_choice_reads_its_own_statistic(certain, network, settings, state):
    plan, tree = run(certain, settings, value=network, state=state)
    q = tree.children_rewards[0] + tree.children_discounts[0] * tree.children_values[0]
    scores = {"best": best_sequence(tree), "mean": q, "visits": tree.children_visits[0]}
    assert int(plan.action) == int(np.argmax(scores[settings.choice]))


def test_common_noise_leaves_identical_members_nothing_to_disagree_about(network):
    """Rewards are eighths and particles four, so that means are exact and zero is zero."""
    rng = np.random.default_rng(2)
    shape = (1, HORIZON, STATES, ACTIONS)
    one = tables(rng.uniform(0.2, 0.8, (*shape, BITS)), rng.integers(0, 8, shape) / 8, np.zeros(shape))
    twins = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (MEMBERS, *leaf.shape[1:])), one)
    shared, tree = run(twins, value=network)
    assert float(shared.value) == 0.0
    assert np.all(tree.children_rewards == 0.0)
    np.testing.assert_array_equal(tree.embeddings.particles[:, 0], tree.embeddings.particles[:, 1])
    assert len(np.unique(tree.embeddings.particles[1:], axis=0)) > 1

    sampled, noisy = run(twins, OWN_DICE, value=network)
    assert float(sampled.value) > 0.3
    assert np.all(noisy.children_rewards[0] > 0.0)
    believed, calm = run(twins, BELIEFS, value=network)
    assert np.all(
        calm.children_rewards[0] == 0.0
    )  # from one state, one belief; later their particles are elsewhere
    assert float(believed.value) < float(sampled.value)


def test_particles_are_compared_as_a_whole_where_the_utility_does(network):
    """Rewards apart, as a dictionary counts the particles of the node that is reached."""
    rng = np.random.default_rng(5)
    shape = (MEMBERS, HORIZON, STATES, ACTIONS)
    members = tables(rng.uniform(0.2, 0.8, (*shape, BITS)), np.zeros(shape), np.zeros(shape))
    found = set()
    for settings in (SETTINGS, OWN_DICE):
        _, tree = run(members, settings, "joint", network)
        for node in range(len(tree.parents)):
            for action, child in enumerate(tree.children_index[node]):
                if child != -1:
                    p, q = (
                        Counter(map(tuple, drawn.T.tolist())) for drawn in tree.embeddings.particles[child]
                    )
                    slow = sum(abs(p[x] - q[x]) for x in p | q) / settings.particles
                    assert tree.children_rewards[node, action] == pytest.approx(slow, abs=1e-6)
                    found.add(slow)
    assert found >= {0.0, 0.5, 1.0, 1.5}


@pytest.mark.parametrize("leaf", ["zero", "rollout"])
@pytest.mark.parametrize("time", [0, 2])
def test_nothing_is_earned_past_the_horizon(network, leaf, time):
    """A reward of 1 at every step: no tree, however deep, finds more than the steps that are left."""
    shape = (MEMBERS, HORIZON, STATES, ACTIONS)
    paid = tables(np.full((*shape, BITS), 0.5), np.ones(shape), np.zeros(shape))
    plan, tree = run(paid, with_leaf(leaf), "exploit", network, time=time)
    left = HORIZON - time
    assert best_sequence(tree).max() == pytest.approx(left, rel=1e-6)
    if leaf == "rollout":  # every playout runs to the end, so every one earns the same
        assert float(plan.value) == pytest.approx(left, rel=1e-5)
        for node, actions in paths_to(tree).items():
            if actions:
                assert tree.raw_values[node] == pytest.approx(max(left - len(actions), 0))


def test_endings_weigh_what_follows_them(network):
    """With chance ½ to end at each step a reward of 1 a step is worth 1 + ½ + ¼."""
    shape = (MEMBERS, HORIZON, STATES, ACTIONS)
    paid = tables(np.full((*shape, BITS), 0.5), np.ones(shape), np.full(shape, 0.5))
    plan, _ = run(paid, with_leaf("rollout"), "exploit", network)
    assert float(plan.value) == pytest.approx(1.75, rel=1e-5)


def policy_of(members, value=None):
    return Policy(ModelSet(members, members, ()), value, Scale(jnp.full(BITS, -1.0), jnp.full(BITS, 1.0)))


STEP = QStep(learning_rate=1e-3, gradient_clip=10.0)


@pytest.mark.parametrize(("kind", "particles"), [(TableDynamics, 4), (CertainTables, 1)])
@pytest.mark.parametrize("leaf", ["zero", "value"])
def test_the_planner_searches_scaled_observations_with_the_value_it_was_given(
    monkeypatch, certain, network, kind, particles, leaf
):
    """Of deterministic members one particle is as good as many."""
    asked = {}

    def recorded(members, value, obs, time, key, utility, settings, horizon, actions, line):
        asked.update(members=members, value=value, obs=obs, utility=utility, settings=settings)
        assert (int(time), horizon, actions, line) == (2, HORIZON, ACTIONS, None)
        return mcts.Found(jnp.array(1, jnp.int32), jnp.array(0.25))

    monkeypatch.setattr(mcts, "search", recorded)
    members = kind(certain.obs, certain.reward, certain.termination)
    value = make_q_state(network, STEP) if leaf == "value" else None
    planner, utility = with_leaf(leaf), Mean().explore
    plan = planner.plan(
        policy_of(members, value),
        jnp.array([1, -1], jnp.int8),
        jnp.array(2),
        jax.random.key(0),
        utility,
        PROBLEM,
    )
    assert asked["members"] is members
    assert asked["obs"].tolist() == [1.0, 0.0]
    assert asked["value"] is (network if leaf == "value" else None)
    assert asked["utility"] is utility
    assert asked["settings"] == dataclasses.replace(planner, particles=particles)
    assert (plan.actions.tolist(), int(plan.length), float(plan.value)) == ([1], 1, 0.25)


def test_without_a_value_at_the_leaves_none_is_made_or_fitted(certain):
    planner, key = with_leaf("rollout"), jax.random.key(0)
    assert planner.fresh(PROBLEM, key) is None
    models = policy_of(certain).models
    assert planner.prepare(None, models, everywhere(), Mean().explore, PROBLEM, key) is None


def test_golden_tree(certain, network):
    """A small tree as it was when it was checked against the plain-Python search."""
    _, tree = run(certain, utility="exploit", value=network, state=1)
    golden = json.loads(GOLDEN.read_text())
    assert tree.parents.tolist() == golden["parents"]
    assert tree.action_from_parent.tolist() == golden["actions"]
    assert tree.node_visits.tolist() == golden["visits"]
    np.testing.assert_allclose(tree.node_values, golden["values"], atol=1e-4)
