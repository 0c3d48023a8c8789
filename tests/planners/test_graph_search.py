"""Graph search against lists and loops, breadth-first search on known mazes, and a graph written out."""

import dataclasses
import json
import math
from collections import deque
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from jaxtyping import Array, Float, Int
from tables import one_of, plain_utility

from e3rl.envs.encoding import Encoding
from e3rl.envs.spec import Spec
from e3rl.models.base import AbstractDynamics, Prediction, Problem, within_bounds
from e3rl.models.fit import ModelSet
from e3rl.planners.base import Policy
from e3rl.planners.graph_search import (
    NO_ACTION,
    NO_LIMIT,
    NO_PARENT,
    GraphSearch,
    best_node,
    path_to,
    search,
)
from e3rl.planners.utility import Hellinger, Marginal, Mean, Squared
from e3rl.replay import Scale

MEMBERS, ACTIONS, TIME, LONGEST = 3, 3, 2, 50
GOLDEN = Path(__file__).parents[1] / "golden" / "graph_search.json"
SETTINGS = GraphSearch(nodes=50)
VECTOR, IMAGE = (2,), (2, 3, 3)  # the image has more entries than are written out one by one
CLEAR = 1e-5
"""Decisions closer than this could go either way in single precision; the oracle refuses to judge them."""

UTILITIES = {
    "squared": (Squared(reward_scale=0.0), False),
    "squared with rewards": (Squared(reward_scale=0.7), False),
    "marginal": (Marginal(reward_scale=0.7), False),
    "mean": (Mean(reward_scale=0.7), False),
    "hellinger": (Hellinger(reward_scale=0.1), False),
    "exploit": (Squared(caution=0.0), True),
    "exploit with caution": (Marginal(reward_scale=0.7, caution=0.3), True),
}
"""Utilities, and whether they are used to exploit."""


def fast_utility(utility, exploits):
    def of(predicted):
        # The waves below have means that are no chances.
        return (utility.exploit if exploits else utility.explore)(
            predicted._replace(obs=within_bounds(predicted.obs)) if type(utility) is Hellinger else predicted
        )

    return of


FAST = {name: fast_utility(*each) for name, each in UTILITIES.items()}


class Waves(AbstractDynamics):
    """Smooth dynamics of no meaning, whose likeliest next state is not its mean one and which depend on the time."""

    weight: Float[Array, "D D"]
    shift: Float[Array, "A D"]
    paid: Float[Array, " D"]
    noise_shape: tuple[int, ...] = eqx.field(static=True, default=(0,))

    def __call__(self, obs, action, time):
        inner = self.weight @ obs.reshape(-1) + self.shift[action] + 0.1 * time.astype(jnp.float32)
        after = obs.reshape(-1) + 0.3 * jnp.sin(inner)
        reward = jnp.dot(self.paid, jnp.cos(inner))
        return Prediction(after.reshape(obs.shape), reward, jax.nn.sigmoid(4.0 * inner[0] - 4.0))

    def most_likely(self, prediction):
        return 0.9 * prediction.obs

    def draw(self, prediction, uniform):
        raise NotImplementedError

    def loss(self, obs, row, key):
        raise NotImplementedError

    def prior_deviation(self):
        raise NotImplementedError


def waves(shape, seed):
    rng = np.random.default_rng(seed)
    size = math.prod(shape)
    weight = rng.normal(0.0, 1.5 / size**0.5, (size, size)) + rng.normal(0.0, 0.1, (MEMBERS, size, size))
    drawn = (weight, rng.normal(0.0, 1.0, (MEMBERS, ACTIONS, size)), rng.normal(0.0, 1.0, (MEMBERS, size)))
    return Waves(*(jnp.array(array, jnp.float32) for array in drawn))


def start_of(shape):
    return np.random.default_rng(9).uniform(0.2, 0.8, shape).astype(np.float32)


def predict(ensemble, states, action, time):
    """Every member's (mean, likeliest state, reward, termination) in double precision."""
    rows = []
    for e in range(MEMBERS):
        weight, shift, paid = (np.asarray(leaf[e], float) for leaf in jax.tree.leaves(ensemble))
        inner = weight @ states[e] + shift[action] + 0.1 * time
        mean = states[e] + 0.3 * np.sin(inner)
        likeliest = np.clip(0.9 * mean, 0.0, 1.0)  # imagination stays within the bounds
        rows.append((mean, likeliest, paid @ np.cos(inner), 1 / (1 + np.exp(4.0 - 4.0 * inner[0]))))
    return [np.array(column) for column in zip(*rows, strict=True)]


def slow_search(ensemble, obs, utility="squared", settings=SETTINGS, deepest=math.inf, time=TIME):
    """Algorithm DeterministicPlanner with a list of dictionaries."""
    root = np.asarray(obs, float).reshape(-1)
    chosen, exploits = UTILITIES[utility]
    graph = [
        {"path": [], "parent": NO_PARENT, "states": [root] * MEMBERS, "mean": root, "utility": 0.0,
         "priority": np.inf}
    ]  # fmt: skip
    leave = False
    while len(graph) < settings.nodes and not leave:
        priorities = [node["priority"] for node in graph]
        top = max(priorities)
        if top == -np.inf:
            break
        assert sum(other >= top - CLEAR for other in priorities) == 1
        index = priorities.index(top)
        node = graph[index]
        node["priority"] = -np.inf
        for action in range(ACTIONS):
            depth = len(node["path"])
            means, states, rewards, ends = predict(ensemble, node["states"], action, time + depth)
            told = np.clip(means, 0.0, 1.0) if utility == "hellinger" else means
            mean = sum(states) / MEMBERS
            assert abs(np.mean(ends) - 0.5) > CLEAR
            others = graph[:1] if settings.frontier == "root" else graph
            nearest = min(math.dist(mean, other["mean"]) for other in others)
            new = {
                "path": [*node["path"], action],
                "parent": index,
                "states": list(states),
                "mean": mean,
                "utility": node["utility"] + plain_utility(chosen, exploits, told, rewards),
                "priority": -np.inf if np.mean(ends) > 0.5 or depth + 1 >= deepest else nearest,
            }
            graph.append(new)
            leave |= 0.0 < settings.exit_utility < new["utility"] / len(new["path"])
    return graph


def per_step(node):
    return node["utility"] / len(node["path"])


def best_of(slow):
    return max(slow[1:], key=per_step)


@eqx.filter_jit
def grown(ensemble, obs, key, which, deepest, settings, actions, among):
    """The graph, and the plan to its best node; the utility is one `among` several."""
    time, utility = jnp.array(TIME, jnp.int32), one_of(which, [FAST[name] for name in among])
    graph = search(ensemble, obs, time, utility, settings, actions, deepest)
    return graph, path_to(graph, best_node(graph, key, settings.top_share), LONGEST)


def run(
    ensemble, obs, utility="squared", settings=SETTINGS, deepest=NO_LIMIT, actions=ACTIONS, among=("squared",)
):
    if (settings, actions) == (SETTINGS, ACTIONS):
        among = tuple(UTILITIES)
    which, deepest = (jnp.array(number, jnp.int32) for number in (among.index(utility), deepest))
    found = grown(ensemble, jnp.asarray(obs), jax.random.key(0), which, deepest, settings, actions, among)
    return jax.tree.map(np.asarray, found)


def actions_of(plan):
    return plan.actions[: plan.length].tolist()


def path_in(graph, node):
    path = []
    while graph.parent[node] != NO_PARENT:
        path.append(int(graph.action[node]))
        node = graph.parent[node]
    return path[::-1]


def assert_same(graph, slow):
    assert graph.size == len(slow)
    for i, node in enumerate(slow):
        assert graph.parent[i] == node["parent"]
        assert graph.depth[i] == len(node["path"])
        assert path_in(graph, i) == node["path"]
        np.testing.assert_allclose(graph.states[i].reshape(MEMBERS, -1), node["states"], atol=1e-4)
        np.testing.assert_allclose(graph.mean[i].reshape(-1), node["mean"], atol=1e-4)
        assert graph.utility[i] == pytest.approx(node["utility"], abs=1e-4)
        assert graph.priority[i] == pytest.approx(node["priority"], abs=1e-4)


@pytest.mark.parametrize("seed", [1, 3])
@pytest.mark.parametrize("shape", [VECTOR, IMAGE], ids=["vector", "image"])
@pytest.mark.parametrize("utility", UTILITIES)
def test_the_whole_search_is_that_of_plain_python(shape, utility, seed):
    """Whatever the utility is, that is what the plan maximises."""
    ensemble, obs = waves(shape, seed), start_of(shape)
    slow = slow_search(ensemble, obs, utility)
    graph, plan = run(ensemble, obs, utility)
    assert_same(graph, slow)
    best = best_of(slow)
    assert actions_of(plan) == best["path"]
    assert plan.length == len(best["path"])
    assert plan.value == pytest.approx(per_step(best), abs=1e-4)


def test_utilities_do_not_all_have_the_same_plan():
    ensemble, obs = waves(VECTOR, 3), start_of(VECTOR)
    plans = {tuple(actions_of(run(ensemble, obs, utility)[1])) for utility in UTILITIES}
    assert len(plans) > 2


def test_the_frontier_may_be_measured_from_the_root():
    ensemble, obs = waves(IMAGE, 5), start_of(IMAGE)
    settings = dataclasses.replace(SETTINGS, frontier="root")
    graph, _ = run(ensemble, obs, settings=settings)
    assert_same(graph, slow_search(ensemble, obs, settings=settings))
    assert not np.array_equal(graph.parent, run(ensemble, obs)[0].parent)


def test_the_graph_ends_with_all_children_of_its_last_expansion():
    """N_max = 50 and 3 actions: 17 expansions, 52 nodes, as `while |V| < N_max` around `for a` has it."""
    graph, _ = run(waves(VECTOR, 0), start_of(VECTOR))
    assert graph.size == len(graph.parent) == 52
    assert graph.action.tolist() == [NO_ACTION, *[0, 1, 2] * 17]
    assert np.all(np.isfinite(graph.utility))
    assert GraphSearch(nodes=52).expansions(ACTIONS) == 17
    assert GraphSearch(nodes=53).expansions(ACTIONS) == 18


@pytest.mark.parametrize("seed", range(4))
def test_nothing_grows_from_a_predicted_ending(seed):
    ensemble = waves(VECTOR, seed)
    graph, _ = run(ensemble, start_of(VECTOR))
    ended = []
    for i in range(1, int(graph.size)):
        parent = graph.parent[i]
        *_, ends = predict(ensemble, graph.states[parent], graph.action[i], TIME + graph.depth[parent])
        ended.append(np.mean(ends) > 0.5)
        if ended[-1]:
            assert graph.priority[i] == -np.inf
            assert i not in graph.parent
    if seed == 0:
        assert any(ended)  # the test is about something


class Rooms(AbstractDynamics):
    """The exact model of a grid with walls, from coordinates in eighths or from an image of where one is."""

    walls: Array
    goal: Int[Array, " 2"]
    noise_shape: tuple[int, ...] = eqx.field(static=True, default=(0,))

    def __call__(self, obs, action, time):
        size = self.walls.shape[0]
        if obs.ndim == 3:
            flat = jnp.argmax(obs[..., 0].reshape(-1)).astype(jnp.int32)
            here = jnp.stack([flat // size, flat % size])
        else:
            here = (8.0 * obs).astype(jnp.int32)
        there = here + jnp.array(MOVES, jnp.int32)[action]
        blocked = self.walls[there[0], there[1]]
        after = jnp.where(blocked, here, there)
        won = jnp.all(after == self.goal)
        reward = jnp.where(won, 2.0, jnp.where(blocked, -0.5, -0.2))
        if obs.ndim == 3:
            seen = jnp.zeros_like(obs).at[after[0], after[1], 0].set(1.0)
        else:
            seen = after.astype(jnp.float32) / 8.0
        return Prediction(seen, reward, won.astype(jnp.float32))

    def draw(self, prediction, uniform):
        raise NotImplementedError

    def loss(self, obs, row, key):
        raise NotImplementedError

    def prior_deviation(self):
        raise NotImplementedError


MOVES = [(-1, 0), (1, 0), (0, -1), (0, 1)]


def maze(seed, size=8):
    """Walls at random within a border, and two cells that a path joins."""
    rng = np.random.default_rng(seed)
    walls = np.pad(rng.random((size - 2, size - 2)) < 0.25, 1, constant_values=True)
    cells = [tuple(cell) for cell in np.argwhere(~walls).tolist()]
    while True:
        start, goal = (cells[i] for i in rng.choice(len(cells), 2, replace=False))
        steps = breadth_first(walls, start).get(goal)
        if steps is not None and steps > 3:
            return walls, start, goal, steps


def breadth_first(walls, start):
    """Steps to every cell that can be reached."""
    steps, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        for move in MOVES:
            there = (here[0] + move[0], here[1] + move[1])
            if not walls[there] and there not in steps:
                steps[there] = steps[here] + 1
                queue.append(there)
    return steps


@pytest.mark.parametrize("image", [False, True], ids=["coordinates", "image"])
@pytest.mark.parametrize("seed", range(4))
def test_the_exploit_plan_is_the_shortest_path(image, seed):
    walls, start, goal, steps = maze(seed)
    one = Rooms(jnp.array(walls), jnp.array(goal, jnp.int32))
    exact = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), one)
    obs = np.array(start, np.float32) / 8.0
    if image:
        obs = np.zeros((8, 8, 1), np.float32)
        obs[start] = 1.0
    settings = GraphSearch(nodes=200)
    both = {"settings": settings, "actions": 4, "among": ("squared", "exploit")}
    _, plan = run(exact, obs, "exploit", **both)
    here = np.array(start)
    for action in actions_of(plan):
        here += MOVES[action]
        assert not walls[tuple(here)]
    assert tuple(here) == goal
    assert plan.length == steps
    assert plan.value == pytest.approx((2.0 - 0.2 * (steps - 1)) / steps, abs=1e-5)
    _, explored = run(exact, obs, "squared", **both)
    assert explored.value == 0.0  # exact members have nothing to disagree about


def test_a_search_that_runs_out_of_nodes_stops():
    """Everything ends at once: the root's children are all there is."""
    ensemble = waves(VECTOR, 0)
    ensemble = eqx.tree_at(lambda m: m.shift, ensemble, ensemble.shift.at[..., 0].set(50.0))
    graph, plan = run(ensemble, start_of(VECTOR))
    assert graph.size == 1 + ACTIONS
    assert plan.length == 1
    assert np.all(graph.parent[1 : 1 + ACTIONS] == 0)
    assert np.all(graph.parent[1 + ACTIONS :] == NO_PARENT)
    assert np.all(graph.priority == -np.inf)
    assert np.all(graph.utility[1 + ACTIONS :] == -np.inf)
    assert plan.value == graph.utility[1 : 1 + ACTIONS].max()


@pytest.mark.parametrize("utility", UTILITIES)
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_predictions_that_are_not_finite_are_neither_expanded_nor_chosen(utility, wrong):
    ensemble = waves(VECTOR, 0)
    ensemble = eqx.tree_at(lambda m: m.shift, ensemble, ensemble.shift.at[1, 2].set(wrong))
    graph, plan = run(ensemble, start_of(VECTOR), utility)
    assert graph.size == 52
    bad = graph.action == 2
    assert np.all(graph.utility[bad] == -np.inf)
    assert np.all(graph.priority[bad] == -np.inf)
    assert np.all(graph.action[graph.parent[1:]] != 2)
    assert 2 not in actions_of(plan)
    assert np.isfinite(plan.value)


SEVERAL = np.random.default_rng(4).uniform(0.0, 1.0, (4, *VECTOR)).astype(np.float32)
EARLY = dataclasses.replace(SETTINGS, exit_utility=0.85)
"""Of the searches from `SEVERAL` some leave early, some never."""


def test_exit_utility_ends_the_search_with_the_first_good_expansion():
    ensemble, sizes = waves(VECTOR, 5), []
    for obs in SEVERAL:
        graph, _ = run(ensemble, obs, settings=EARLY)
        slow = slow_search(ensemble, obs, settings=EARLY)
        assert_same(graph, slow)
        sizes.append(int(graph.size))
        assert (per_step(best_of(slow)) > EARLY.exit_utility) == (graph.size < 52)
    assert 52 in sizes
    assert any(1 + ACTIONS < size < 52 for size in sizes)


def test_vmapped_episodes_are_those_planned_one_by_one():
    ensemble = waves(VECTOR, 5)
    keys, obs = jax.random.split(jax.random.key(0), 4), jnp.asarray(SEVERAL)
    first, no_limit = jnp.array(0, jnp.int32), jnp.array(NO_LIMIT, jnp.int32)
    rest = (first, no_limit, EARLY, ACTIONS, ("squared",))
    together = jax.jit(jax.vmap(lambda o, key: grown(ensemble, o, key, *rest)))(obs, keys)
    for lane in range(4):
        graph, plan = grown(ensemble, obs[lane], keys[lane], *rest)
        lane_graph, lane_plan = jax.tree.map(lambda leaf, lane=lane: leaf[lane], together)
        size = int(graph.size)
        assert lane_plan.actions.tolist() == plan.actions.tolist()
        assert (int(lane_plan.length), int(lane_graph.size)) == (int(plan.length), size)
        for ours, theirs in zip(lane_graph[:-1], graph[:-1], strict=True):
            np.testing.assert_allclose(ours[:size], theirs[:size], rtol=1e-4, atol=1e-5)


def test_top_share_returns_each_of_the_best_nodes_sooner_or_later():
    ensemble, obs = waves(VECTOR, 2), start_of(VECTOR)
    best = sorted(slow_search(ensemble, obs)[1:], key=per_step, reverse=True)
    graph, _ = run(ensemble, obs)
    draw = jax.jit(jax.vmap(lambda graph, key: best_node(graph, key, 0.1), in_axes=(None, 0)))
    keys = jax.random.split(jax.random.key(0), 200)
    paths = {tuple(path_in(graph, int(node))) for node in draw(graph, keys)}
    assert paths == {tuple(node["path"]) for node in best[:5]}
    one = set(draw(graph._replace(size=np.int32(10)), keys).tolist())  # less than one node: the best
    assert [path_in(graph, node) for node in one] == [best[0]["path"]]


@pytest.mark.parametrize("left", [1, 2, 4])
def test_nothing_grows_beyond_the_end_of_the_episode(left):
    ensemble, obs = waves(VECTOR, 1), start_of(VECTOR)
    assert run(ensemble, obs, "exploit")[0].depth.max() > left
    slow = slow_search(ensemble, obs, "exploit", deepest=left)
    graph, plan = run(ensemble, obs, "exploit", deepest=left)
    assert_same(graph, slow)
    assert graph.depth[: graph.size].max() == left
    assert actions_of(plan) == best_of(slow)["path"]


def test_the_planner_searches_scaled_observations_within_the_time_that_is_left():
    horizon = 6
    problem = Problem(Spec("waves", Encoding(spaces.Box(-1.0, 3.0, VECTOR)), ACTIONS, horizon), clock=True)
    ensemble, scaled = waves(VECTOR, 1), start_of(VECTOR)
    policy = Policy(ModelSet(ensemble, ensemble, ()), None, Scale(jnp.full(2, -1.0), jnp.full(2, 3.0)))
    planner = dataclasses.replace(SETTINGS, top_share=0.1)
    utility = FAST["marginal"]

    @jax.jit
    def plan(time, key):
        return planner.plan(policy, jnp.asarray(4.0 * scaled - 1.0), time, key, utility, problem)

    assert planner.open_loop
    assert not planner.estimates
    assert planner.fresh(problem, jax.random.key(0)) is None
    for time in (2, 4, 5):
        slow = slow_search(ensemble, scaled, "marginal", deepest=horizon - time, time=time)
        best = sorted(slow[1:], key=per_step, reverse=True)
        allowed = [tuple(node["path"]) for node in best[: max(int(0.1 * (len(slow) - 1)), 1)]]
        seen = set()
        for seed in range(20):
            found = plan(jnp.array(time, jnp.int32), jax.random.key(seed))
            assert found.actions.shape == (horizon,)
            path = tuple(actions_of(found))
            seen.add(path)
            chosen = best[allowed.index(path)]
            assert float(found.value) == pytest.approx(per_step(chosen), abs=1e-4)
        assert len(seen) > 1 or len(allowed) == 1


def test_snap_rounds_the_states_that_are_planned_from_and_no_prediction():
    """Members are compared, and fitted, by what they predict before it is rounded."""
    ensemble, obs = waves(IMAGE, 1), start_of(IMAGE)
    plain, _ = run(ensemble, obs)
    rounded, _ = run(ensemble, obs, settings=dataclasses.replace(SETTINGS, snap=True))
    first = slice(1, 1 + ACTIONS)
    np.testing.assert_array_equal(rounded.states[first], np.round(plain.states[first]))
    np.testing.assert_allclose(rounded.utility[first], plain.utility[first], rtol=1e-5)
    assert np.isin(rounded.states[1 : rounded.size], (0.0, 1.0)).all()
    assert 0.0 < np.mean(rounded.states[1 : rounded.size]) < 1.0
    assert np.mean(np.isin(plain.states[1:], (0.0, 1.0))) < 0.5


def test_golden_graph():
    """A small graph as it was when it was checked against the plain-Python search."""
    graph, _ = run(waves(VECTOR, 1), start_of(VECTOR), settings=dataclasses.replace(SETTINGS, nodes=20))
    golden = json.loads(GOLDEN.read_text())
    assert graph.parent.tolist() == golden["parent"]
    assert graph.action.tolist() == golden["action"]
    assert graph.depth.tolist() == golden["depth"]
    np.testing.assert_allclose(graph.mean, golden["mean"], atol=1e-4)
    np.testing.assert_allclose(graph.utility, golden["utility"], atol=1e-4)
    priority = [-np.inf if p is None else p for p in golden["priority"]]  # null: not to be expanded
    np.testing.assert_allclose(graph.priority, priority, atol=1e-4)
