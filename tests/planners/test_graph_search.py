"""Graph search against lists and loops, breadth-first search on known mazes, and a graph written out."""

import json
import math
from collections import deque
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, Int

from e3rl.models.base import AbstractDynamics, Prediction
from e3rl.planners.graph_search import NO_ACTION, NO_PARENT, GraphSettings, best_node, plan, search
from e3rl.planners.utility import max_squared_distance

MEMBERS, ACTIONS, TIME = 3, 3, 2
GOLDEN = Path(__file__).parents[1] / "golden" / "graph_search.json"
SETTINGS = GraphSettings(nodes=50, actions=ACTIONS, reward_scale=0.0, exit_utility=0.0, top_share=0.0)
VECTOR, IMAGE = (2,), (2, 3, 3)  # the image has more entries than are written out one by one
CLEAR = 1e-5
"""Decisions closer than this could go either way in single precision; the oracle refuses to judge them."""


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


def slow_search(ensemble, obs, mode, settings, deepest=math.inf):
    """Algorithm DeterministicPlanner with a list of dictionaries."""
    root = np.asarray(obs, float).reshape(-1)
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
        for action in range(settings.actions):
            time = TIME + len(node["path"])
            means, states, rewards, ends = predict(ensemble, node["states"], action, time)
            if mode == "explore":
                gained = max(
                    sum((means[i] - means[j]) ** 2) + settings.reward_scale * (rewards[i] - rewards[j]) ** 2
                    for i in range(MEMBERS)
                    for j in range(MEMBERS)
                )
            else:
                gained = sum(rewards) / MEMBERS
            mean = sum(states) / MEMBERS
            assert abs(np.mean(ends) - 0.5) > CLEAR
            others = graph[:1] if settings.frontier == "root" else graph
            nearest = min(math.dist(mean, other["mean"]) for other in others)
            new = {
                "path": [*node["path"], action],
                "parent": index,
                "states": list(states),
                "mean": mean,
                "utility": node["utility"] + gained,
                "priority": -np.inf if np.mean(ends) > 0.5 or time + 1 >= TIME + deepest else nearest,
            }
            graph.append(new)
            leave |= 0.0 < settings.exit_utility < new["utility"] / len(new["path"])
    return graph


def per_step(node):
    return node["utility"] / len(node["path"])


@eqx.filter_jit
def fast_plan(ensemble, obs, key, mode, settings, longest):
    return plan(ensemble, obs, jnp.array(TIME, jnp.int32), key, mode, settings, longest)


def run(ensemble, obs, mode="explore", settings=SETTINGS, longest=SETTINGS.nodes, seed=0):
    found = fast_plan(ensemble, jnp.asarray(obs), jax.random.key(seed), mode, settings, longest)
    return jax.tree.map(np.asarray, found)


def actions_of(found):
    return found.actions[: found.length].tolist()


def path_to(graph, node):
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
        assert path_to(graph, i) == node["path"]
        np.testing.assert_allclose(graph.states[i].reshape(MEMBERS, -1), node["states"], atol=1e-4)
        np.testing.assert_allclose(graph.mean[i].reshape(-1), node["mean"], atol=1e-4)
        assert graph.utility[i] == pytest.approx(node["utility"], abs=1e-4)
        assert graph.priority[i] == pytest.approx(node["priority"], abs=1e-4)


@pytest.mark.parametrize("shape", [VECTOR, IMAGE], ids=["vector", "image"])
@pytest.mark.parametrize(
    ("mode", "reward_scale"), [("explore", 0.0), ("explore", 0.7), ("exploit", 0.0)], ids=str
)
@pytest.mark.parametrize("seed", [1, 2, 3, 5])
def test_the_whole_search_is_that_of_plain_python(shape, mode, reward_scale, seed):
    ensemble, obs = waves(shape, seed), start_of(shape)
    settings = SETTINGS._replace(reward_scale=reward_scale)
    slow = slow_search(ensemble, obs, mode, settings)
    found = run(ensemble, obs, mode, settings)
    assert_same(found.graph, slow)
    best = max(slow[1:], key=per_step)
    assert actions_of(found) == best["path"]
    assert found.length == len(best["path"])
    assert found.value == pytest.approx(per_step(best), abs=1e-4)


def test_the_frontier_may_be_measured_from_the_root():
    ensemble, obs = waves(IMAGE, 5), start_of(IMAGE)
    settings = SETTINGS._replace(frontier="root")
    found = run(ensemble, obs, settings=settings)
    assert_same(found.graph, slow_search(ensemble, obs, "explore", settings))
    assert not np.array_equal(found.graph.parent, run(ensemble, obs).graph.parent)


def test_the_graph_ends_with_all_children_of_its_last_expansion():
    """N_max = 50 and 3 actions: 17 expansions, 52 nodes, as `while |V| < N_max` around `for a` has it."""
    graph = run(waves(VECTOR, 0), start_of(VECTOR)).graph
    assert graph.size == len(graph.parent) == 52
    assert graph.action.tolist() == [NO_ACTION, *[0, 1, 2] * 17]
    assert np.all(np.isfinite(graph.utility))


@pytest.mark.parametrize("seed", range(4))
def test_nothing_grows_from_a_predicted_ending(seed):
    ensemble = waves(VECTOR, seed)
    graph = run(ensemble, start_of(VECTOR)).graph
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
    settings = GraphSettings(nodes=200, actions=4, reward_scale=0.0, exit_utility=0.0, top_share=0.0)
    found = run(exact, obs, "exploit", settings)
    here = np.array(start)
    for action in actions_of(found):
        here += MOVES[action]
        assert not walls[tuple(here)]
    assert tuple(here) == goal
    assert found.length == steps
    assert found.value == pytest.approx((2.0 - 0.2 * (steps - 1)) / steps, abs=1e-5)
    explored = run(exact, obs, "explore", settings)
    assert explored.value == 0.0  # exact members have nothing to disagree about


def test_a_search_that_runs_out_of_nodes_stops():
    """Everything ends at once: the root's children are all there is."""
    ensemble = waves(VECTOR, 0)
    ensemble = eqx.tree_at(lambda m: m.shift, ensemble, ensemble.shift.at[..., 0].set(50.0))
    found = run(ensemble, start_of(VECTOR))
    assert found.graph.size == 1 + ACTIONS
    assert found.length == 1
    assert np.all(found.graph.parent[1 : 1 + ACTIONS] == 0)
    assert np.all(found.graph.parent[1 + ACTIONS :] == NO_PARENT)
    assert np.all(found.graph.priority == -np.inf)
    assert np.all(found.graph.utility[1 + ACTIONS :] == -np.inf)
    assert found.value == found.graph.utility[1 : 1 + ACTIONS].max()


@pytest.mark.parametrize("mode", ["explore", "exploit"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_predictions_that_are_not_finite_are_neither_expanded_nor_chosen(mode, wrong):
    ensemble = waves(VECTOR, 0)
    ensemble = eqx.tree_at(lambda m: m.shift, ensemble, ensemble.shift.at[1, 2].set(wrong))
    found = run(ensemble, start_of(VECTOR), mode)
    graph = found.graph
    assert graph.size == 52
    bad = graph.action == 2
    assert np.all(graph.utility[bad] == -np.inf)
    assert np.all(graph.priority[bad] == -np.inf)
    assert np.all(graph.action[graph.parent[1:]] != 2)
    assert 2 not in actions_of(found)
    assert np.isfinite(found.value)


def test_exit_utility_ends_the_search_with_the_first_good_expansion():
    ensemble, obs = waves(VECTOR, 3), start_of(VECTOR)
    whole = run(ensemble, obs)
    settings = SETTINGS._replace(exit_utility=float(whole.value) * 0.9)
    slow = slow_search(ensemble, obs, "explore", settings)
    found = run(ensemble, obs, settings=settings)
    assert 1 + ACTIONS < found.graph.size < whole.graph.size
    assert_same(found.graph, slow)
    assert actions_of(found) == max(slow[1:], key=per_step)["path"]
    assert found.value > settings.exit_utility


def test_top_share_returns_each_of_the_best_nodes_sooner_or_later():
    ensemble, obs = waves(VECTOR, 2), start_of(VECTOR)
    best = sorted(slow_search(ensemble, obs, "explore", SETTINGS)[1:], key=per_step, reverse=True)
    graph = run(ensemble, obs).graph
    draws = jax.vmap(lambda key: best_node(graph, key, 0.1))(jax.random.split(jax.random.key(0), 200))
    paths = {tuple(path_to(graph, int(node))) for node in draws}
    assert paths == {tuple(node["path"]) for node in best[:5]}
    one = best_node(graph, jax.random.key(1), 0.01)  # less than one node: the best
    assert path_to(graph, int(one)) == best[0]["path"]
    found = run(ensemble, obs, settings=SETTINGS._replace(top_share=0.1), seed=3)
    assert tuple(actions_of(found)) in paths
    chosen = next(node for node in best if node["path"] == actions_of(found))
    assert found.value == pytest.approx(per_step(chosen), abs=1e-4)


def test_exploit_plans_are_the_best_whatever_the_share():
    ensemble, obs = waves(VECTOR, 2), start_of(VECTOR)
    best = max(slow_search(ensemble, obs, "exploit", SETTINGS)[1:], key=per_step)
    for seed in range(5):
        found = run(ensemble, obs, "exploit", SETTINGS._replace(top_share=0.5), seed=seed)
        assert actions_of(found) == best["path"]


@pytest.mark.parametrize("left", [1, 2, 4])
def test_nothing_is_planned_beyond_the_end_of_the_episode(left):
    """`longest` is the episode's time limit: the root is at step TIME of it."""
    ensemble, obs = waves(VECTOR, 1), start_of(VECTOR)
    assert run(ensemble, obs, "exploit").graph.depth.max() > left
    slow = slow_search(ensemble, obs, "exploit", SETTINGS, left)
    found = run(ensemble, obs, "exploit", longest=TIME + left)
    assert_same(found.graph, slow)
    assert found.graph.depth[: found.graph.size].max() == left
    assert actions_of(found) == max(slow[1:], key=per_step)["path"]
    assert found.actions.shape == (TIME + left,)


@pytest.mark.parametrize("shape", [VECTOR, IMAGE], ids=["vector", "image"])
def test_vmapped_episodes_are_those_planned_one_by_one(shape):
    ensemble = waves(shape, 3)
    obs = jnp.asarray(np.random.default_rng(4).uniform(0.0, 1.0, (4, *shape)), jnp.float32)
    keys = jax.random.split(jax.random.key(0), 4)
    # Some lanes leave early, some never.
    values = [float(fast_plan(ensemble, o, keys[0], "explore", SETTINGS, 10).value) for o in obs]
    settings = SETTINGS._replace(top_share=0.1, exit_utility=0.5 * sum(sorted(values)[1:3]))
    together = jax.jit(jax.vmap(lambda o, k: fast_plan(ensemble, o, k, "explore", settings, 10)))(obs, keys)
    assert len(set(np.asarray(together.graph.size).tolist())) > 1
    for lane in range(4):
        alone = fast_plan(ensemble, obs[lane], keys[lane], "explore", settings, 10)
        own = jax.tree.map(lambda leaf, lane=lane: leaf[lane], together)
        size = int(alone.graph.size)
        assert own.actions.tolist() == alone.actions.tolist()
        assert (int(own.length), int(own.graph.size)) == (int(alone.length), size)
        for ours, theirs in zip(own.graph[:-1], alone.graph[:-1], strict=True):
            np.testing.assert_allclose(ours[:size], theirs[:size], rtol=1e-4, atol=1e-5)


def test_largest_squared_distance_by_hand():
    obs = jnp.array([[[0.0], [0.0]], [[1.0], [2.0]], [[0.5], [0.0]]])
    predicted = Prediction(obs, jnp.array([1.0, 0.0, 4.0]), jnp.zeros(3))
    assert float(max_squared_distance(predicted, 0.0)) == pytest.approx(5.0)  # members 0 and 1
    assert float(max_squared_distance(predicted, 1.0)) == pytest.approx(4.25 + 16.0)  # members 1 and 2


def test_golden_graph():
    """A small graph as it was when it was checked against the plain-Python search."""
    ensemble, settings = waves(VECTOR, 1), SETTINGS._replace(nodes=20)
    grow = jax.jit(lambda obs: search(ensemble, obs, jnp.array(TIME), "explore", settings))
    graph = grow(jnp.asarray(start_of(VECTOR)))
    golden = json.loads(GOLDEN.read_text())
    assert graph.parent.tolist() == golden["parent"]
    assert graph.action.tolist() == golden["action"]
    assert graph.depth.tolist() == golden["depth"]
    np.testing.assert_allclose(graph.mean, golden["mean"], atol=1e-4)
    np.testing.assert_allclose(graph.utility, golden["utility"], atol=1e-4)
    priority = [-np.inf if p is None else p for p in golden["priority"]]  # null: not to be expanded
    np.testing.assert_allclose(graph.priority, priority, atol=1e-4)
