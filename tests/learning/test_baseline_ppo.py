"""PPO and PPO+RND learn: whole runs with the settings people use, on seeds that tuned nothing."""

import dataclasses

import numpy as np
import pytest

from e3rl import PPO, PPOConfig
from e3rl.baselines.loop_jax import JaxLoop
from e3rl.baselines.presets import PPO_CONFIGS
from e3rl.envs.lock import CombinationLock

pytestmark = pytest.mark.slow

LEVELS, LOCK_EPISODES = 15, 8_000
SEEDS = range(10, 15)


def test_ppo_balances_the_pole_within_200_000_steps():
    """At the end of training: at least 475 on four of five seeds."""
    config = PPOConfig(total_steps=200_000)
    means = [PPO("e3rl/CartPole-v1", config, seed).learn()["exploit_return_mean"] for seed in range(5)]
    assert sum(mean >= 475.0 for mean in means) >= 4, means


def last_returns(name, seed):
    """The mean of the last hundred training episodes on a lock, as a share of the best."""
    env = CombinationLock(LEVELS, seed=seed)
    config = dataclasses.replace(PPO_CONFIGS[name], total_steps=LOCK_EPISODES * LEVELS)
    algorithm = config.baseline()
    loop = JaxLoop(algorithm, [env], [seed], config.clock)
    carry, returns = loop.begin(), []
    rounds = config.total_steps // (algorithm.steps * algorithm.copies)
    for done in range(0, rounds, loop.size):
        carry, ended, _ = loop.advance(carry, min(loop.size, rounds - done))
        returns.append(np.asarray(ended.returns)[np.asarray(ended.ended)])
    return float(np.concatenate(returns)[-100:].mean()) / env.optimal_return


def test_random_network_distillation_opens_a_lock_that_ppo_does_not():
    """Fifteen levels: of ten, chance alone finds the reward once in 2,048 episodes."""
    with_bonus = [last_returns("paper-lock-ppo-rnd", seed) for seed in SEEDS]
    without = [last_returns("paper-lock-ppo", seed) for seed in SEEDS]
    assert sum(share >= 0.5 for share in with_bonus) >= 4
    assert max(without) < 0.2
