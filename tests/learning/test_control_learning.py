"""Neural-E³ learns to drive and to swing: e3rl's defaults and the paper's settings, one seed each, which may end
a little below what most seeds reach."""

import pytest

from e3rl import NeuralE3

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("env", "config", "episodes", "least"),
    [
        ("e3rl/MountainCar-v0", "e3rl-control", 50, -130.0),
        ("e3rl/Acrobot-v1", "e3rl-control", 50, -115.0),
        ("e3rl/MountainCar-v0", "steadied-control", 100, -125.0),
    ],
)
def test_greedy_return_after_exploration(env, config, episodes, least):
    summary = NeuralE3(env, config, seed=0).learn()
    assert summary["explore_episodes"] == episodes
    assert summary["exploit_return_mean"] >= least
