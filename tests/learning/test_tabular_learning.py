"""Tabular E³ at its defaults: what its policies are worth, computed from the world itself where that can be."""

import gymnasium
import numpy as np
import pytest

from e3rl.runs.settings import changed
from e3rl.tabular.agent import TabularE3
from e3rl.tabular.config import TabularE3Config

pytestmark = pytest.mark.slow


def trained(env, options, episodes, seed):
    agent = TabularE3(env, changed(TabularE3Config(), {"explore.episodes": episodes}), seed, options)
    return agent, agent.learn()


def worth(agent, env, options):
    """The expected return of the agent's policy, by backward induction over Gymnasium's own table."""
    world = gymnasium.make(env, **options).unwrapped
    value = np.zeros(len(world.P))
    for time in reversed(range(agent.program.spec.horizon)):
        taken = [world.P[s][agent.predict(s, time)] for s in world.P]
        value = np.array([sum(p * (r + (not end) * value[t]) for p, t, r, end in way) for way in taken])
    return float(world.initial_state_distrib @ value)


@pytest.mark.parametrize("seed", [200, 201, 202])
def test_the_slippery_lake(seed):
    """The best policy is worth 0.744."""
    agent, summary = trained("FrozenLake-v1", {}, 100, seed)
    assert summary["explore_episodes"] <= 100
    assert worth(agent, "FrozenLake-v1", {}) >= 0.70


@pytest.mark.parametrize(
    ("env", "options", "episodes", "least"),
    [
        ("FrozenLake-v1", {"map_name": "8x8", "is_slippery": False}, 20, 1.0),
        ("FrozenLake-v1", {"map_name": "8x8"}, 300, 0.58),
        ("Taxi-v4", {}, 60, 7.5),
        ("CliffWalking-v1", {}, 5, -13.0),
    ],
    ids=["sure lake", "large slippery lake", "taxi", "cliff"],
)
def test_toy_text(env, options, episodes, least):
    agent, _ = trained(env, options, episodes, 200)
    assert worth(agent, env, options) >= least


@pytest.mark.parametrize(
    ("env", "options", "episodes", "share"),
    [
        ("e3rl/RiverSwim-v0", {"n": 6}, 30, 0.95),
        ("e3rl/RiverSwim-v0", {"n": 20}, 60, 0.95),
        ("e3rl/Chain-v0", {}, 40, 1.0),
        ("e3rl/FourRooms-v0", {"observation": "image"}, 60, 1.0),
        ("e3rl/FourRooms-v0", {"observation": "coordinates"}, 60, 1.0),
    ],
    ids=["river of 6", "river of 20", "chain", "rooms as an image", "rooms as coordinates"],
)
def test_worlds_of_this_package(env, options, episodes, share):
    _, summary = trained(env, options, episodes, 200)
    assert summary["exploit_return_mean"] >= share * summary["optimal_return"] - 1e-4
