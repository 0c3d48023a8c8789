"""The maze: trees, fair draws, shortest paths and rewards, each against plain Python."""

from collections import Counter, deque
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare

from e3rl.envs.maze import MOVES, Maze, MazeState, carve
from e3rl.types import UserError

KEY = jax.random.key(0)
UP, RIGHT, DOWN, LEFT = range(4)
STEP_TO = [tuple(move) for move in MOVES.tolist()]

#   01234
# 0 #####     A snake with one way round: from (3, 1) up to (1, 1), right to (1, 3), down to (3, 3).
# 1 #...#
# 2 #.#.#
# 3 #.#.#
# 4 #####
SNAKE = np.ones((5, 5), bool)
SNAKE[1, 1:4] = SNAKE[1:4, 1] = SNAKE[1:4, 3] = False


def snake(agent, goal, time=0):
    agent, goal, time = (jnp.array(value, jnp.int32) for value in (agent, goal, time))
    return MazeState(jnp.array(SNAKE), agent, goal, time)


@cache
def mazes(size, count, seed=0):
    env = Maze(size)
    states, obs = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(seed), count))
    return env, states, np.asarray(obs)


def beside(cell):
    return [(cell[0] + row, cell[1] + column) for row, column in STEP_TO]


def breadth_first(walls, start):
    distance, queue = {start: 0}, deque([start])
    while queue:
        cell = queue.popleft()
        for other in beside(cell):
            if not walls[other] and other not in distance:
                distance[other] = distance[cell] + 1
                queue.append(other)
    return distance


def slow_carve(n, start, choose):
    """The same search with a set and a list; `choose(cell, directions)` picks where to go on."""
    opened, stack = {start}, [(start, UP)]
    while stack:
        cell, heading = stack[-1]
        turned = len(stack) > 2 and heading != stack[-2][1]
        free = []
        for direction, (row, column) in enumerate(beside(cell)):
            inside = 0 < row < n - 1 and 0 < column < n - 1
            touching = sum(other in opened for other in beside((row, column)))
            closed = (row, column) not in opened
            if inside and closed and touching == 1 and (not turned or direction == heading):
                free.append(direction)
        if free:
            direction = choose(cell, free)
            stack.append((beside(cell)[direction], direction))
            opened.add(stack[-1][0])
        else:
            stack.pop()
    walls = np.ones((n, n), bool)
    walls[tuple(zip(*opened, strict=True))] = False
    return walls


@pytest.mark.parametrize("size", [5, 6, 11])
def test_carving_equals_the_slow_search(size):
    fast = jax.jit(carve)
    draw = np.random.default_rng(size)
    for _ in range(20):
        row, column = (int(i) for i in draw.integers(1, size - 1, 2))
        preference = draw.random((size, size, 4), np.float32)
        slow = slow_carve(
            size, (row, column), lambda cell, free, p=preference: max(free, key=p[cell].__getitem__)
        )
        np.testing.assert_array_equal(fast(jnp.int32(row * size + column), jnp.array(preference)), slow)


@pytest.mark.parametrize("size", [5, 6, 9, 10, 20])
def test_open_cells_are_a_tree(size):
    """Connected with one edge fewer than cells: exactly one simple path between any two."""
    _, states, _ = mazes(size, 32)
    for walls in np.asarray(states.walls):
        cells = [tuple(cell) for cell in np.argwhere(~walls).tolist()]
        assert walls[0].all()
        assert walls[-1].all()
        assert walls[:, 0].all()
        assert walls[:, -1].all()
        edges = sum(not walls[other] for cell in cells for other in beside(cell)) // 2
        assert edges == len(cells) - 1
        assert len(breadth_first(walls, cells[0])) == len(cells)
        assert len(cells) > 0.5 * (size - 2) ** 2


def test_every_interior_cell_is_used_at_even_sizes_too():
    _, states, _ = mazes(6, 32)
    share = 1.0 - np.asarray(states.walls)[:, 1:-1, 1:-1].mean(axis=0)
    assert share.min() > 0.3
    assert len({walls.tobytes() for walls in np.asarray(states.walls)}) > 24


def test_mazes_are_distributed_as_by_fresh_draws_at_every_visit():
    """Ranks drawn beforehand must not tilt the search: compare how often each 5 × 5 maze appears."""
    _, states, _ = mazes(5, 4000)
    fast = Counter(walls.tobytes() for walls in np.asarray(states.walls))
    draw = np.random.default_rng(0)
    slow = Counter()
    for _ in range(4000):
        start = tuple(int(i) for i in draw.integers(1, 4, 2))
        walls = slow_carve(5, start, lambda _, free: free[draw.integers(len(free))])
        slow[walls.tobytes()] += 1
    table = np.array([(fast[maze], slow[maze]) for maze in fast | slow])
    common = table[table.sum(axis=1) >= 20]
    assert common.sum() > 0.9 * table.sum()
    assert chi2_contingency(common).pvalue > 1e-3


def test_agent_and_goal_are_a_uniform_pair_of_open_cells():
    _, states, _ = mazes(5, 4000, seed=1)
    pairs = Counter()
    for walls, agent, goal in zip(*(np.asarray(part).tolist() for part in states[:3]), strict=True):
        cells = np.argwhere(~np.array(walls)).tolist()
        if len(cells) == 7:
            pairs[cells.index(agent), cells.index(goal)] += 1
    assert all(agent != goal for agent, goal in pairs)
    assert len(pairs) == 7 * 6
    assert chisquare(list(pairs.values())).pvalue > 1e-3


def test_observation_shows_walls_agent_and_goal():
    env, states, obs = mazes(6, 32)
    assert env.observation_space.contains(obs[0])
    for i in range(len(obs)):
        np.testing.assert_array_equal(obs[i, :, :, 0], np.asarray(states.walls[i]))
        for channel, cell in ((1, states.agent[i]), (2, states.goal[i])):
            assert np.argwhere(obs[i, :, :, channel]).tolist() == [cell.tolist()]


@pytest.mark.parametrize("size", [6, 20])
def test_shortest_paths_equal_breadth_first_search(size):
    env, states, _ = mazes(size, 32)
    fast = jax.jit(jax.vmap(env.shortest_path))(states)
    returns = jax.jit(jax.vmap(env.optimal_return))(states)
    for i in range(32):
        goal, agent = tuple(states.goal[i].tolist()), tuple(states.agent[i].tolist())
        moves = breadth_first(np.asarray(states.walls[i]), goal)[agent]
        assert int(fast[i]) == moves
        wanted = 2.0 - 0.2 * (moves - 1) if moves <= 100 else -20.0
        assert float(returns[i]) == pytest.approx(wanted, abs=1e-4)


def test_rewards_of_a_hand_worked_episode():
    env = Maze(5)
    state = snake(agent=(2, 1), goal=(1, 3))
    assert int(env.shortest_path(state)) == 3
    assert float(env.optimal_return(state)) == pytest.approx(1.6)
    wanted = [
        (LEFT, -0.5, (2, 1)),
        (RIGHT, -0.5, (2, 1)),
        (DOWN, -0.2, (3, 1)),
        (DOWN, -0.5, (3, 1)),
        (UP, -0.2, (2, 1)),
        (UP, -0.2, (1, 1)),
        (RIGHT, -0.2, (1, 2)),
        (RIGHT, 2.0, (1, 3)),
    ]
    for time, (action, pay, place) in enumerate(wanted, start=1):
        state, obs, reward, terminated, truncated = env.step(KEY, state, jnp.int32(action))
        assert float(reward) == pytest.approx(pay)
        assert tuple(state.agent.tolist()) == place
        assert int(state.time) == time
        assert np.argwhere(obs[:, :, 1]).tolist() == [list(place)]
        assert bool(terminated) == (pay == 2.0)
        assert not truncated


def test_walking_the_shortest_path_earns_the_optimal_return():
    env, states, _ = mazes(10, 32)
    state = jax.tree.map(lambda leaf: leaf[0], states)
    distance = breadth_first(np.asarray(state.walls), tuple(state.goal.tolist()))
    step = jax.jit(env.step)
    wanted, earned, terminated = float(env.optimal_return(state)), 0.0, False
    while not terminated:
        ahead = beside(tuple(state.agent.tolist()))
        action = min(range(4), key=lambda a: distance.get(ahead[a], 999))
        state, _, reward, terminated, _ = step(KEY, state, jnp.int32(action))
        earned += float(reward)
    assert earned == pytest.approx(wanted, abs=1e-5)


def test_the_time_limit_truncates_and_bounds_the_optimal_return():
    env = Maze(5, time_limit=3)
    assert float(env.optimal_return(snake((3, 1), (1, 2)))) == pytest.approx(1.6)
    assert float(env.optimal_return(snake((3, 1), (1, 3)))) == pytest.approx(-0.6)
    assert float(env.optimal_return(snake((3, 1), (1, 2), time=1))) == pytest.approx(-0.4)
    for time, wanted in ((1, False), (2, True)):
        *_, truncated = env.step(KEY, snake((3, 1), (1, 3), time), jnp.int32(UP))
        assert bool(truncated) is wanted


@pytest.mark.parametrize("settings", [{"size": 4}, {"time_limit": 0}])
def test_bad_settings_are_one_clear_line(settings):
    with pytest.raises(UserError, match="must be at least"):
        Maze(**settings)
