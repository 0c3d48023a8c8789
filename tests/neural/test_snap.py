"""Frames of zeros and ones: exploitation by graph search rounds its states where frames are such."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.envs.glance import STEPS
from e3rl.envs.opening import open_environment
from e3rl.neural.auto import suited_config
from e3rl.planners.graph_search import GraphSearch

SHAPE = (5, 4, 2)
BYTES, FLOATS = spaces.Box(0, 255, SHAPE, np.uint8), spaces.Box(0.0, 1.0, SHAPE, np.float32)
PATTERN = np.random.default_rng(0).integers(0, 2, SHAPE)


class Film(gymnasium.Env):
    """Shows frame after frame whatever is done, then ends."""

    def __init__(self, space, frames):
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self.frames = frames

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = 0
        return self.frames[0], {}

    def step(self, action):
        self.at += 1
        return self.frames[self.at], 0.0, self.at == len(self.frames) - 1, False, {}


def film(space, *shades, bright):
    """Frames of one pattern in several shades, 1 the brightest."""
    return Film(space, [(bright * shade * PATTERN).astype(space.dtype) for shade in shades])


@pytest.mark.parametrize(
    ("env", "options", "snap"),
    [
        ("e3rl/Maze-v0", {"size": 5}, True),
        (film(FLOATS, 1, 1, 1, bright=1), {}, True),
        (film(BYTES, 1, 0, 1, bright=255), {}, True),
        (film(BYTES, 1, 1, 0.5, bright=255), {}, False),
        (film(FLOATS, 1, *[0.43] * STEPS, bright=0.9), {}, False),
    ],
    ids=["maze", "zeros and ones", "darkest and brightest", "grey in the end", "shades of grey"],
)
def test_snap_is_chosen_for_frames_of_zeros_and_ones(env, options, snap):
    """For exploiting alone: exploration is drawn by what rounding would take away."""
    opened = open_environment(env, options)
    try:
        config = suited_config(opened)
    finally:
        opened.close()
    assert config.exploit == GraphSearch(snap=snap)
    assert isinstance(config.planner, GraphSearch)
    assert not config.planner.snap
