"""Neural-E³ learns the lock: whole runs with the settings people use, on seeds that tuned nothing."""

import dataclasses
import math

import pytest

from e3rl.envs.lock import CombinationLock
from e3rl.neural.config import CONFIGS, NeuralE3Config
from e3rl.neural.training import Training

pytestmark = pytest.mark.slow


def test_the_defaults_solve_the_antishaped_lock_of_five_levels():
    """Solved: at least 95% of the optimal return over 100 greedy episodes, on every seed."""
    seeds = (21, 22)
    envs = [CombinationLock(5, antishaped=True, seed=seed) for seed in seeds]
    _, _, summaries = Training(envs, NeuralE3Config(), seeds).learn()
    for summary, env in zip(summaries, envs, strict=True):
        assert summary["optimal_return"] == pytest.approx(env.optimal_return)
        assert summary["exploit_return_mean"] >= 0.95 * env.optimal_return


def test_uniform_exploration_does_not_find_the_long_lock():
    """UE² pays for what it cannot see: at ten levels uniform play is paid once in two thousand episodes."""
    env = CombinationLock(10, antishaped=True, seed=21)
    config = NeuralE3Config(planner="uniform", explore_episodes=250, model_updates=20, exploit_updates=2_000)
    _, _, (summary,) = Training([env], config, [21]).learn()
    assert summary["exploit_return_mean"] < 0.5 * env.optimal_return


def test_the_papers_settings_run_at_a_small_size():
    config = dataclasses.replace(
        CONFIGS["paper-lock-h5"], explore_ratio=0, explore_episodes=40, playouts=8, particles=4, model_updates=5,
        exploit_updates=50,
    )  # fmt: skip
    env = CombinationLock(5, antishaped=True, seed=21)
    _, replay, (summary,) = Training([env], config, [21]).learn()
    assert int(replay.size[0]) == 40 * 5
    assert summary["explore_episodes"] == 40
    assert math.isfinite(summary["exploit_return_mean"])
