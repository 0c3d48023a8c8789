"""Key and door: layouts, steps and shortest ways, each against plain Python."""

from collections import Counter, deque
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from e3rl.envs.drawing import AGENT, DOOR_KEY, GOAL, INK, LINK, PAPER
from e3rl.envs.key_door import KeyDoor, KeyDoorState, fewest_steps
from e3rl.types import UserError

LEFT, RIGHT, FORWARD, PICK_UP, UNLOCK = range(5)
SIGNS = ".#GkDd"
"""Floor, wall, goal, key, locked door, open door: their ids in order."""
EAST, SOUTH, WEST, NORTH = range(4)
ROOM = """
#####
#k#.#
#.D.#
#.#G#
#####
"""


def state_of(picture, agent, heading, carrying=0, time=0):
    cells = [[SIGNS.index(sign) for sign in line] for line in picture.split()]
    return KeyDoorState(
        *(jnp.array(value, jnp.int32) for value in (cells, agent, heading, carrying, time)),
    )


def listed(state):
    """The same state for Python: rows of signs, place, heading, whether it has the key."""
    rows = tuple("".join(SIGNS[what] for what in row) for row in np.asarray(state.cells).tolist())
    return rows, tuple(np.asarray(state.agent).tolist()), int(state.heading), bool(state.carrying)


def moved(now, action):
    """The rules as they are told, and whether the goal was reached."""
    rows, (row, column), heading, carrying = now
    if action == LEFT:
        return (rows, (row, column), [NORTH, EAST, SOUTH, WEST][heading], carrying), False
    if action == RIGHT:
        return (rows, (row, column), [SOUTH, WEST, NORTH, EAST][heading], carrying), False
    down, right = {EAST: (0, 1), SOUTH: (1, 0), WEST: (0, -1), NORTH: (-1, 0)}[heading]
    ahead = row + down, column + right
    sign = rows[ahead[0]][ahead[1]]

    def becomes(new):
        line = rows[ahead[0]]
        line = line[: ahead[1]] + new + line[ahead[1] + 1 :]
        return (*rows[: ahead[0]], line, *rows[ahead[0] + 1 :])

    if action == FORWARD and sign in ".dG":
        return (rows, ahead, heading, carrying), sign == "G"
    if action == PICK_UP and sign == "k":
        return (becomes("."), (row, column), heading, True), False
    if action == UNLOCK and sign == "D" and carrying:
        return (becomes("d"), (row, column), heading, carrying), False
    return now, False


def shown(now):
    """The image of a state."""
    rows, place, heading, carrying = now
    image = np.zeros((len(rows), len(rows), 3), np.uint8)
    for row, line in enumerate(rows):
        for column, sign in enumerate(line):
            image[row, column, 0] = SIGNS.index(sign)
    image[place][1:] = 1 + heading, carrying
    return image


def shortest(start):
    """Actions of a shortest way to the goal, by trying everything."""
    ways, waiting = {start: []}, deque([start])
    while waiting:
        now = waiting.popleft()
        for action in range(5):
            after, reached = moved(now, action)
            if reached:
                return [*ways[now], action]
            if after not in ways:
                ways[after] = [*ways[now], action]
                waiting.append(after)
    raise AssertionError("no way to the goal")


@cache
def layouts(size, count):
    env = KeyDoor(size)
    return jax.tree.map(np.asarray, jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(0), count)))


def layout(size, i):
    return jax.tree.map(lambda leaf: jnp.asarray(leaf[i]), layouts(size, 1_000)[0])


@jax.jit
def carried_out(state, actions):
    """Everything that a sequence of actions leads to."""
    env = KeyDoor(5, time_limit=40)

    def step(state, action):
        state, *seen = env.step(jax.random.key(0), state, action)
        return state, (state, *seen)

    return jax.lax.scan(step, state, actions)[1]


@pytest.mark.parametrize("seed", range(6))
def test_steps_are_those_of_the_rules(seed):
    """On a shortest way, with chance actions before it, in between and after it."""
    rng = np.random.default_rng(seed)
    start = layout(5, seed)
    now, actions = listed(start), []
    while len(actions) < 30:
        for action in [*rng.integers(5, size=3).tolist(), shortest(now)[0]]:
            after, reached = moved(now, action)
            actions.append(action)
            now = now if reached else after
            if reached:
                break
        if reached:
            break
    actions = (actions + rng.integers(5, size=30).tolist())[:30]
    states, obs, reward, terminated, truncated = jax.tree.map(
        np.asarray, carried_out(start, jnp.array(actions, jnp.int32))
    )
    now = listed(start)
    for i, action in enumerate(actions):
        now, reached = moved(now, action)
        assert listed(jax.tree.map(lambda leaf, i=i: leaf[i], states)) == now
        np.testing.assert_array_equal(obs[i], shown(now))
        assert terminated[i] == reached
        assert reward[i] == pytest.approx((1 - 0.9 * (i + 1) / 40) if reached else 0.0)
        assert not truncated[i]
        if reached:
            return  # what comes after is unspecified
    assert not terminated.any()


def test_the_time_limit_ends_an_episode():
    env, step = KeyDoor(5, time_limit=3), jax.jit(KeyDoor(5, time_limit=3).step)
    state = state_of(ROOM, (3, 1), NORTH)
    for time in range(3):
        state, _, reward, terminated, truncated = step(jax.random.key(0), state, jnp.array(LEFT))
        assert (bool(truncated), bool(terminated), float(reward)) == (time == 2, False, 0.0)
    assert (env.time_limit, KeyDoor(6).time_limit) == (3, 360)


@pytest.mark.parametrize("size", [5, 7])
def test_fewest_steps_are_those_of_trying_everything(size):
    """From the beginning, and from every third state on the way."""
    for i in range(4):
        state = layout(size, i)
        now, way = listed(state), shortest(listed(state))
        for done in range(0, len(way), 3):
            current = state_of("\n".join(now[0]), now[1], now[2], int(now[3]))
            assert fewest_steps(current) == len(way) - done == len(shortest(now))
            for action in way[done : done + 3]:
                now, _ = moved(now, action)


def test_fewest_steps_by_hand():
    """Between the key and the door."""
    assert fewest_steps(state_of(ROOM, (2, 1), NORTH)) == 7
    assert shortest(listed(state_of(ROOM, (2, 1), NORTH))) == [
        PICK_UP, RIGHT, UNLOCK, FORWARD, FORWARD, RIGHT, FORWARD
    ]  # fmt: skip


@pytest.mark.parametrize("size", [5, 6])
def test_every_layout_has_a_wall_with_a_door_and_its_things_on_the_right_sides(size):
    states, obs = layouts(size, 1_000)
    seen = Counter()
    for i in range(1_000):
        rows, place, heading, carrying = listed(jax.tree.map(lambda leaf, i=i: leaf[i], states))
        inside = [row[1:-1] for row in rows[1:-1]]
        signs = Counter("".join(inside))
        assert (signs["k"], signs["D"], signs["G"], signs["#"]) == (1, 1, 1, size - 3)
        assert "".join(rows[0] + rows[-1] + "".join(row[0] + row[-1] for row in rows)) == "#" * 4 * size
        [(door, split)] = [(r, c) for r, row in enumerate(rows) for c, sign in enumerate(row) if sign == "D"]
        assert all(row[split] == "#" for r, row in enumerate(rows) if r != door)
        [lies] = [(r, c) for r, row in enumerate(rows) for c, sign in enumerate(row) if sign == "k"]
        [goal] = [(r, c) for r, row in enumerate(rows) for c, sign in enumerate(row) if sign == "G"]
        assert 0 < lies[1] < split < goal[1] < size - 1
        assert 0 < place[1] < split
        assert rows[place[0]][place[1]] == "."
        assert not carrying
        assert int(states.time[i]) == 0
        seen.update(
            {
                ("split", split): 1,
                ("door", door): 1,
                ("heading", heading): 1,
                ("pair", split, place, lies): split == 2,
            }
        )
        np.testing.assert_array_equal(obs[i], shown((rows, place, heading, carrying)))
    kinds = {"split": size - 4, "door": size - 2, "heading": 4, "pair": (size - 2) * (size - 3)}
    for kind, count in kinds.items():
        found = [times for name, times in seen.items() if name[0] == kind and times]
        assert len(found) == count
        assert count == 1 or chisquare(found).pvalue > 1e-4


def test_the_best_return_is_close_to_one_and_the_goal_can_always_be_reached():
    for i in range(20):
        steps = fewest_steps(layout(5, i))
        assert 5 <= steps <= 20


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 4}, "size must be at least 5, border included, got 4"),
        ({"time_limit": -1}, "time_limit must not be negative, got -1"),
    ],
)
def test_what_it_refuses(options, message):
    with pytest.raises(UserError, match=message):
        KeyDoor(**options)


def test_the_picture():
    """Colours at places worked out by hand; row 0, column 0 is the corner at the top left."""
    env = KeyDoor(5)
    picture = env.render(state_of(ROOM, (3, 1), EAST))
    side = len(picture) // 5

    def at(row, column, picture=picture):
        return tuple(int(value) for value in picture[int((row + 0.5) * side), int((column + 0.5) * side)])

    assert at(0, 0) == at(1, 2) == at(4, 4) == INK
    assert at(1, 3) == at(2, 3) == PAPER
    assert at(3, 3) == GOAL
    assert at(2, 2) == LINK
    assert at(1, 1.2) == DOOR_KEY
    assert at(3, 0.85) == AGENT
    noses = {EAST: (3, 1.3), SOUTH: (3.3, 1), WEST: (3, 0.7), NORTH: (2.7, 1)}
    for heading, nose in noses.items():
        turned = env.render(state_of(ROOM, (3, 1), heading))
        assert {other: at(*place, turned) == INK for other, place in noses.items()} == {
            other: other == heading for other in noses
        }
        assert at(*nose, turned) == INK
    opened = env.render(state_of(ROOM.replace("k", ".").replace("D", "d"), (3, 1), NORTH, carrying=1))
    assert (at(2, 2, opened), at(2, 1.55, opened)) == (PAPER, LINK)
    assert at(1, 1.2, opened) == PAPER  # the key is where the agent is
    assert at(3, 1.1, opened) == DOOR_KEY
