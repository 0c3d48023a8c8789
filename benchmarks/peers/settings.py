"""What the peers are compared on: tasks, budgets, and one set of hyperparameters told to both libraries."""

import dataclasses
from typing import Any, NamedTuple

from e3rl.baselines import DQNConfig, PPOConfig
from e3rl.baselines.base import BaselineConfig


class Task(NamedTuple):
    ours: str
    """Id of the JAX environment."""
    theirs: str | None
    """Id of the Gymnasium one; None for the lock, whose NumPy twin is in numpy_lock.py."""
    options: dict[str, Any]


TASKS = {
    "CartPole-v1": Task("e3rl/CartPole-v1", "CartPole-v1", {}),
    "CartPole-v1-sb3-defaults": Task("e3rl/CartPole-v1", "CartPole-v1", {}),
    "Acrobot-v1": Task("e3rl/Acrobot-v1", "Acrobot-v1", {}),
    "lock-h5": Task("e3rl/CombinationLock-v0", None, {"horizon": 5, "observe_level": True}),
}

CONFIGS: dict[tuple[str, str], BaselineConfig] = {
    ("dqn", "CartPole-v1"): DQNConfig(total_steps=100_000),
    ("dqn", "Acrobot-v1"): DQNConfig(total_steps=100_000),
    ("dqn", "lock-h5"): DQNConfig(total_steps=50_000, learning_starts=200),
    ("ppo", "CartPole-v1"): PPOConfig(total_steps=200_000),
    ("ppo", "CartPole-v1-sb3-defaults"): PPOConfig(
        total_steps=100_000,
        copies=1,
        steps=2048,
        minibatches=32,
        epochs=10,
        learning_rate=3e-4,
        anneal=False,
        discount=0.99,
        gae_lambda=0.95,
    ),
    ("ppo", "Acrobot-v1"): PPOConfig(total_steps=200_000, discount=0.99, gae_lambda=0.94),
    ("ppo", "lock-h5"): PPOConfig(
        total_steps=100_000, discount=0.99, gae_lambda=0.95, entropy_coefficient=0.01
    ),
}
"""e3rl's defaults, changed only where a task asks for it; both libraries get the same numbers."""

EVALUATION_EPISODES = 100


def config_of(algo: str, task: str, steps: int | None) -> BaselineConfig:
    config = CONFIGS[algo, task]
    return config if steps is None else dataclasses.replace(config, total_steps=steps)


def sb3_arguments(config: BaselineConfig) -> dict[str, Any]:
    """The same settings in Stable-Baselines3's words."""
    assert isinstance(config, PPOConfig | DQNConfig)
    rate = config.learning_rate
    annealed = (lambda left: rate * left) if config.anneal else rate
    if isinstance(config, PPOConfig):
        rollout = config.steps * config.copies
        return {
            "learning_rate": annealed,
            "n_steps": config.steps,
            "batch_size": rollout // config.minibatches,
            "n_epochs": config.epochs,
            "gamma": config.discount,
            "gae_lambda": config.gae_lambda,
            "clip_range": config.clip,
            "clip_range_vf": config.value_clip or None,
            "normalize_advantage": config.normalise_advantages,
            "ent_coef": config.entropy_coefficient,
            "vf_coef": config.value_coefficient,
            "max_grad_norm": config.gradient_clip,
            "policy_kwargs": {"net_arch": {"pi": [config.hidden] * 2, "vf": [config.hidden] * 2}},
        }
    steps_per_update = config.steps * config.copies / config.updates
    return {
        "learning_rate": annealed,
        "buffer_size": config.capacity,
        "learning_starts": config.learning_starts,
        "batch_size": config.batch,
        "gamma": config.discount,
        "train_freq": config.steps,
        "gradient_steps": config.updates,
        "target_update_interval": round(config.target_period * steps_per_update),
        "exploration_fraction": config.exploration_fraction,
        "exploration_initial_eps": 1.0,
        "exploration_final_eps": config.final_epsilon,
        "max_grad_norm": config.gradient_clip,
        "policy_kwargs": {"net_arch": [config.hidden] * 2},
    }
