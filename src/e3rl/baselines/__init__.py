"""The paper's baselines (section 5): double DQN with prioritised replay, PPO, PPO+RND."""

from e3rl.baselines.agent import DQN, PPO, PPORND
from e3rl.baselines.config import DQN_CONFIGS, DQNConfig
from e3rl.baselines.ppo_config import PPO_CONFIGS, PPOConfig

__all__ = ["DQN", "DQN_CONFIGS", "PPO", "PPORND", "PPO_CONFIGS", "DQNConfig", "PPOConfig"]
