"""Frames of zeros and ones: rounded while planning where `snap` says so, and `snap` chosen where frames are such."""

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.envs.adapter import make
from e3rl.envs.encoding import Encoding
from e3rl.models.ensemble import make_ensemble, predict
from e3rl.neural.auto import GLANCE, suited_config
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.families import dynamics
from e3rl.planners import graph_search

SHAPE, ACTIONS, MEMBERS = (5, 4, 2), 2, 2
IMAGE = Encoding(spaces.Box(0.0, 1.0, SHAPE))
FRAME = jnp.asarray(np.random.default_rng(0).integers(0, 2, SHAPE), jnp.float32)
START = jnp.array(0, jnp.int32)


def config(snap):
    return NeuralE3Config(family="conv", planner="graph", nodes=12, frontier="root", hidden=8, snap=snap)


@eqx.filter_jit
def ensemble(snap):
    """Fresh models, but that every entry of the first channel is predicted to grow by about 0.6."""
    made = make_ensemble(dynamics(config(snap), IMAGE, ACTIONS, 10), MEMBERS, jax.random.key(0))
    return eqx.tree_at(lambda members: members.weights.change_bias, made, jnp.array([[0.6, 0.0]] * MEMBERS))


@eqx.filter_jit
def planned(snap, mode="exploit"):
    settings = config(snap).graph(ACTIONS)
    return graph_search.search(ensemble(snap), FRAME, START, mode, settings)


def first_predictions(snap):
    """Of every action and member from the root: [A, E, h, w, c]."""
    members = ensemble(snap)
    actions = jnp.arange(ACTIONS, dtype=jnp.int32)
    return np.asarray(jax.jit(jax.vmap(lambda action: predict(members, FRAME, action, START).obs))(actions))


def test_planning_rounds_frames_where_snap_is_on():
    states = np.asarray(planned(True).states)
    wanted = np.clip(np.round(first_predictions(True)), 0.0, 1.0)
    assert not np.array_equal(wanted[0, 0], FRAME)  # the models do say that something changes
    np.testing.assert_array_equal(states[1 : 1 + ACTIONS], wanted)
    assert np.isin(states, (0.0, 1.0)).all()


def test_planning_keeps_frames_as_predicted_where_snap_is_off():
    states = np.asarray(planned(False).states)
    wanted = np.clip(first_predictions(False), 0.0, 1.0)
    np.testing.assert_allclose(states[1 : 1 + ACTIONS], wanted, rtol=1e-5, atol=1e-6)
    assert np.mean(np.isin(states[1:], (0.0, 1.0))) < 0.9


def test_snap_leaves_predictions_and_training_alone():
    """Members are compared, and fitted, by what they predict before it is rounded."""
    np.testing.assert_array_equal(first_predictions(True), first_predictions(False))
    np.testing.assert_allclose(
        planned(True).utility[1 : 1 + ACTIONS], planned(False).utility[1 : 1 + ACTIONS], rtol=1e-5
    )


def test_exploration_is_not_rounded():
    np.testing.assert_array_equal(planned(True, "explore").states, planned(False, "explore").states)


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


BYTES, FLOATS = spaces.Box(0, 255, SHAPE, np.uint8), spaces.Box(0.0, 1.0, SHAPE, np.float32)
PATTERN = np.asarray(FRAME)


def film(space, *shades, bright):
    """Frames of one pattern in several shades, 1 the brightest."""
    return Film(space, [(bright * shade * PATTERN).astype(space.dtype) for shade in shades])


@pytest.mark.parametrize(
    ("env", "options", "snap"),
    [
        ("e3rl/Maze-v0", {"size": 5, "time_limit": 5}, True),
        ("e3rl/MountainCar-v0", {}, False),
        (film(FLOATS, 1, 1, 1, bright=1), {}, True),
        (film(BYTES, 1, 0, 1, bright=255), {}, True),
        (film(BYTES, 1, 1, 0.5, bright=255), {}, False),
        (film(FLOATS, 1, *[1] * GLANCE, bright=0.9), {}, False),
    ],
    ids=["maze", "mountain car", "zeros and ones", "darkest and brightest", "grey in the end", "always grey"],
)
def test_snap_is_chosen_for_frames_of_zeros_and_ones(env, options, snap):
    assert suited_config(make(env, **options)).snap == snap
