"""The paper's baselines (section 5): double DQN with prioritised replay, PPO, PPO+RND."""

from e3rl.baselines.agent import DQN, PPO, PPORND
from e3rl.baselines.dqn import DQNConfig
from e3rl.baselines.ppo import PPOConfig
from e3rl.baselines.presets import DQN_CONFIGS, PPO_CONFIGS

__all__ = ["DQN", "DQN_CONFIGS", "PPO", "PPORND", "PPO_CONFIGS", "DQNConfig", "PPOConfig"]
