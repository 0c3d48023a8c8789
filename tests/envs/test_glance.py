"""What random play shows of an environment, and which images are made of ids."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.envs.adapter import GymnasiumEnvironment
from e3rl.envs.glance import (
    EPISODES,
    FEWEST_CATEGORIES,
    MOST_CATEGORIES,
    STEPS,
    Categories,
    categories_of,
    glance,
)
from e3rl.envs.key_door import KeyDoor
from e3rl.envs.maze import Maze

SHAPE = (4, 5, 2)


class Film(gymnasium.Env):
    """Frames drawn from `values` at random; every seventh step pays and, if it `ends`, ends the episode."""

    def __init__(self, space, values, ends=True, breaks=0):
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self.values, self.ends, self.breaks = np.asarray(values), ends, breaks
        self.actions = []

    def _frame(self):
        return self.np_random.choice(self.values, self.observation_space.shape).astype(
            self.observation_space.dtype
        )

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self._frame(), {}

    def step(self, action):
        self.count += 1
        self.actions.append(int(action))
        if self.count == self.breaks:
            raise RuntimeError("the reel tore")
        last = self.count == 7
        return self._frame(), 3.0 * last, self.ends and last, False, {}


def box(low, high, dtype=np.float32, shape=SHAPE):
    return spaces.Box(low, high, shape, dtype)


def seen(space, values, **more):
    return glance(GymnasiumEnvironment(Film(space, values, **more)))


def test_a_glance_is_some_short_episodes():
    short = seen(box(0, 255, np.uint8), [0, 51, 255])
    assert [len(episode) for episode in short.episodes] == [8] * EPISODES
    assert short.rewards == [*[0.0] * 6, 3.0] * EPISODES
    assert len(short.frames) == 8 * EPISODES
    np.testing.assert_allclose(np.unique(short.frames), [0.0, 0.2, 1.0], rtol=1e-6)
    endless = seen(box(0, 255, np.uint8), [0, 51], ends=False)
    assert [len(episode) for episode in endless.episodes] == [STEPS] * EPISODES
    assert not np.array_equal(endless.episodes[0][0], endless.episodes[1][0])


def test_it_is_the_same_every_time():
    films = [Film(box(0, 255, np.uint8), [0, 51]) for _ in range(2)]
    first, second = (glance(GymnasiumEnvironment(film)) for film in films)
    np.testing.assert_array_equal(first.frames, second.frames)
    assert films[0].actions == films[1].actions
    assert set(films[0].actions) == {0, 1}


@pytest.mark.parametrize("breaks", [1, 5])
def test_an_environment_that_raises_shows_nothing(breaks):
    space = box(0, 5, np.int64)
    nothing = seen(space, [0, 1, 2], breaks=breaks)
    assert (nothing.episodes, nothing.rewards, nothing.frames) == ([], [], [])
    assert not nothing.one_hot
    assert not nothing.black_and_white
    assert categories_of(nothing, space) is None


IDS = list(range(6))
BRIGHT = list(range(0, 256, 5))


@pytest.mark.parametrize(
    ("space", "values", "expected"),
    [
        # Ids in bytes that declare all 256 values: room for some that random play did not come across.
        (box(0, 255, np.uint8), IDS, Categories(FEWEST_CATEGORIES, 1 / 255)),
        (box(0, 255, np.uint8), [0, 3, 10], Categories(16, 1 / 255)),
        (box(0, 255, np.uint8), [0, 3, 31], Categories(64, 1 / 255)),
        (box(0, 5, np.uint8), IDS, Categories(6, 1 / 5)),
        (box(0, 5, np.int64), [0, 2, 3], Categories(6, 1 / 5)),
        (box(-1, 3, np.int32), [-1, 0, 3], Categories(5, 1 / 4)),
        (box(0, 5, np.int64, (4, 5)), IDS, Categories(6, 1 / 5)),
        (box(0.0, 1.0), [0.0, 0.25, 0.75], Categories(5, 0.25)),
        (box(-2.0, 2.0), [-2.0, 0.0, 2.0], Categories(3, 0.5)),
    ],
)  # fmt: skip
def test_few_values_in_even_steps_are_ids(space, values, expected):
    found = categories_of(seen(space, values), space)
    assert found is not None
    assert (found.count, found.unit) == (expected.count, pytest.approx(expected.unit, rel=1e-5))


@pytest.mark.parametrize(
    ("space", "values"),
    [
        (box(0, 255, np.uint8), BRIGHT),
        (box(0, 255, np.uint8), [0, 100, 200]),  # few, but they would be the 201st
        (box(0, 255, np.uint8), [0, 255]),
        (box(0.0, 1.0), [0.0, 1.0]),
        (box(0.0, 1.0), [0.0, 0.3, 1.0]),  # uneven
        (box(0.0, 1.0), np.linspace(0.0, 1.0, MOST_CATEGORIES + 1)),
        (box(-np.inf, np.inf), [0.0, 1.0, 2.0]),
        (box(0, 5, np.int64, (20,)), IDS),  # no image
        (spaces.MultiBinary(SHAPE), [0, 1]),
        (spaces.Box(np.zeros(SHAPE, int), np.broadcast_to([5, 9], SHAPE), SHAPE, np.int64), IDS[:3]),
    ],
    ids=["brightness", "few shades", "black and white bytes", "black and white", "uneven", "many", "no bounds",
         "a vector", "bits", "bounds that differ"],
)  # fmt: skip
def test_what_is_not_made_of_ids(space, values):
    assert categories_of(seen(space, values), space) is None


def test_environments_of_the_package():
    room, maze = KeyDoor(5, time_limit=20), Maze(5)
    assert categories_of(glance(room), room.observation_space) == Categories(8, 1 / 255)
    assert glance(maze).black_and_white
    assert categories_of(glance(maze), maze.observation_space) is None


class Lamps(Film):
    """As many as `values` says are lit, the brightest with 1."""

    def _frame(self):
        lit = np.zeros(self.observation_space.shape, self.observation_space.dtype)
        lit[self.np_random.permutation(lit.size)[: len(self.values)]] = self.values
        return lit


@pytest.mark.parametrize(
    ("space", "lit", "one_hot"),
    [
        (box(0.0, 1.0, shape=(5,)), [1.0], True),
        (spaces.MultiBinary(5), [1], True),
        (box(0, 1, np.int8, (5,)), [1], True),
        (box(0.0, 1.0, shape=(5,)), [1.0, 1.0], False),
        (box(0.0, 1.0, shape=(5,)), [0.5, 0.5], False),
        (box(0.0, 1.0, shape=(5,)), [], False),
        (box(-1.0, 1.0, shape=(5,)), [1.0, 1.0, -1.0], False),
    ],
)
def test_one_hots_are_seen_whatever_they_are_declared_as(space, lit, one_hot):
    assert glance(GymnasiumEnvironment(Lamps(space, lit))).one_hot == one_hot


def test_categories_that_are_declared_are_seen_as_one_hots_too():
    class Dice(Film):
        def _frame(self):
            return int(self.np_random.integers(4))

    assert glance(GymnasiumEnvironment(Dice(spaces.Discrete(4), [0]))).one_hot
