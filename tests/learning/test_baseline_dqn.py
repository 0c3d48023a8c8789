"""The DQN learns: CartPole with e3rl's settings, and the lock at H=5 with the paper's."""

import pytest

from e3rl import DQN

pytestmark = pytest.mark.slow


def test_cart_pole_is_balanced_at_the_end_of_training_on_four_of_five_seeds():
    returns = [DQN("e3rl/CartPole-v1", seed=seed).learn()["exploit_return_mean"] for seed in range(5)]
    assert sum(mean >= 475.0 for mean in returns) >= 4, returns


def test_the_lock_of_five_levels_with_the_papers_settings():
    """Standard rewards, H = 5: the paper's DQN solves it."""
    agent = DQN("e3rl/CombinationLock-v0", "paper-lock-dqn-h5", env_options={"horizon": 5})
    summary = agent.learn()
    assert summary["exploit_return_mean"] > 0.9 * summary["optimal_return"]
