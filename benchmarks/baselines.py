"""Environment steps of the baselines, acting and learning together, on one CPU.

The yardstick is Stable-Baselines3 with the same hyperparameters on the same tasks (`peers/settings.py`), where it is
installed; both libraries take turns. PPO on CartPole is measured twice: with settings tuned for it (8 environments, one
large minibatch), and with Stable-Baselines3's own defaults (one environment, minibatches of 64). PPO+RND is timed over
a million steps of the lock, compilation included. `products_s` is what the matrix products of learning alone would take
at numpy's sgemm rate for large matrices.
"""

import importlib
import statistics
import sys
import time
from pathlib import Path

import numpy as np
from timing import sgemm_rate

from e3rl.baselines import PPO_CONFIGS, DQNConfig, PPOConfig
from e3rl.baselines.loop_jax import JaxLoop
from e3rl.baselines.observer import Observer, horizon_of
from e3rl.envs.adapter import make

sys.path.insert(0, str(Path(__file__).parent / "peers"))

CONFIG = {
    "unit": "seconds per million environment steps (ppo-rnd/lock: for a million, with compilation)",
    "repeats": 3,
    "our_steps": 200_000,
    "their_steps": 20_000,
    "tasks": [
        ["ppo", "CartPole-v1-sb3-defaults"], ["ppo", "CartPole-v1"], ["ppo", "lock-h5"], ["dqn", "CartPole-v1"],
    ],
    "rnd": {"config": "paper-lock-ppo-rnd", "horizon": 10, "steps": 1_000_000, "seed": 0},
}  # fmt: skip
QUICK = {
    "repeats": 2,
    "our_steps": 20_000,
    "their_steps": 3_000,
    "tasks": [["ppo", "CartPole-v1"], ["dqn", "CartPole-v1"]],
    "rnd": None,
}


def with_bonus() -> dict:
    """A million steps of PPO+RND on the lock, from nothing to the end."""
    wanted = CONFIG["rnd"]
    began = time.perf_counter()
    config = PPO_CONFIGS[wanted["config"]]
    env = make("e3rl/CombinationLock-v0", horizon=wanted["horizon"], seed=wanted["seed"])
    loop = JaxLoop(config.baseline(), [env], [wanted["seed"]], config.clock)
    carry, episodes = loop.begin(), 0
    rounds = wanted["steps"] // (config.steps * config.copies)
    for done in range(0, rounds, loop.size):
        carry, ended, _ = loop.advance(carry, min(loop.size, rounds - done))
        episodes += int(np.sum(np.asarray(ended.ended)))
    return {
        "name": f"baselines/ppo-rnd/lock-h{wanted['horizon']}",
        "ours_s": time.perf_counter() - began,
        "yardstick": None,
        "yardstick_s": None,
        "ratio": None,
        "episodes": episodes,
    }


def learning_flops(config: DQNConfig | PPOConfig, inputs: int, actions: int) -> float:
    """Floating-point operations of the matrix products in the learning of an environment step. A gradient costs two
    forward passes less the one towards the inputs."""

    def passes(outputs: int, forward: int, gradient: int) -> float:
        first, rest = inputs * config.hidden, config.hidden * (config.hidden + outputs)
        return 2 * ((forward + gradient) * first + (forward + 2 * gradient) * rest)

    if isinstance(config, DQNConfig):  # online and target network of what came next, and the step itself
        rows = config.updates * config.batch / (config.steps * config.copies)
        return rows * passes(actions, forward=3, gradient=1)
    return config.epochs * (passes(actions, 1, 1) + passes(1, 1, 1))


def products(algo: str, task: str) -> float:
    """Seconds of the products of a million steps."""
    settings = importlib.import_module("settings")
    config, where = settings.config_of(algo, task, None), settings.TASKS[task]
    env = make(where.ours, **where.options)
    shape = Observer(env.observation_space, horizon_of(env.time_limit, config.clock)).shape
    return 1e6 * learning_flops(config, shape[0], env.num_actions) / sgemm_rate()


def beside(algo: str, task: str) -> dict:
    libraries = {"ours": (importlib.import_module("ours"), CONFIG["our_steps"])}
    try:
        libraries["theirs"] = importlib.import_module("theirs"), CONFIG["their_steps"]
    except ImportError:
        print("e3rl: stable-baselines3 is not installed, so the rows have no yardstick", file=sys.stderr)
    taken: dict[str, list[float]] = {name: [] for name in libraries}
    for _ in range(CONFIG["repeats"]):
        for name, (library, steps) in libraries.items():
            taken[name].append(1e6 / library.run(algo, task, 0, steps, episodes=0)["steps_per_second"])
    ours = statistics.median(taken["ours"])
    theirs = statistics.median(taken["theirs"]) if "theirs" in taken else None
    bound = products(algo, task)
    return {
        "name": f"baselines/{algo}/{task}",
        "ours_s": ours,
        "yardstick": None if theirs is None else "stable-baselines3",
        "yardstick_s": theirs,
        "ratio": None if theirs is None else theirs / ours,
        "products_s": bound,
        "sgemm_fraction": bound / ours,
        "each_s": taken,
    }


def rows() -> list[dict]:
    return [beside(*task) for task in CONFIG["tasks"]] + ([with_bonus()] if CONFIG["rnd"] else [])
