"""One run of Stable-Baselines3's DQN or PPO, timed. Needs the packages of requirements.txt."""

import time
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from numpy_lock import NumpyLock
from settings import EVALUATION_EPISODES, TASKS, config_of, sb3_arguments
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv


def environments(task: str, seed: int, copies: int, first_seed: int) -> DummyVecEnv:
    kind = TASKS[task]

    def make() -> gymnasium.Env:
        return NumpyLock(**kind.options, seed=seed) if kind.theirs is None else gymnasium.make(kind.theirs)

    return make_vec_env(make, n_envs=copies, seed=first_seed)


def run(
    algo: str, task: str, seed: int, steps: int | None, episodes: int = EVALUATION_EPISODES
) -> dict[str, Any]:
    torch.set_num_threads(1)  # faster than several for networks of this size
    config = config_of(algo, task, steps)
    algorithm = {"dqn": stable_baselines3.DQN, "ppo": stable_baselines3.PPO}[algo]
    begun = time.perf_counter()
    envs = environments(task, seed, config.copies, 1_000 * seed)
    model = algorithm(
        "MlpPolicy", envs, seed=seed, device="cpu", stats_window_size=100, **sb3_arguments(config)
    )
    start = time.perf_counter()
    model.learn(config.total_steps)
    learning = time.perf_counter() - start
    seconds = time.perf_counter() - begun
    test = environments(task, seed, 1, 1_000 * seed + 500)
    greedy = evaluate_policy(model, test, episodes, return_episode_rewards=True)[0] if episodes else [np.nan]
    monitors = [env for env in envs.envs if isinstance(env, Monitor)]
    window = [episode["r"] for episode in model.ep_info_buffer]
    return {
        "env_steps": int(model.num_timesteps),
        "episodes": sum(len(env.get_episode_rewards()) for env in monitors),
        "return_mean": float(np.mean(greedy)),
        "last_training_returns_mean": float(np.mean(window)) if window else None,
        "seconds": seconds,
        "steps_per_second": model.num_timesteps / learning,
    }
