"""One run of e3rl's baseline, timed."""

import time
from typing import Any

import jax
import numpy as np
from settings import EVALUATION_EPISODES, TASKS, config_of

from e3rl.baselines.loop_jax import JaxLoop
from e3rl.envs.adapter import make


def run(
    algo: str, task: str, seed: int, steps: int | None, episodes: int = EVALUATION_EPISODES
) -> dict[str, Any]:
    config = config_of(algo, task, steps)
    options = TASKS[task].options | ({"seed": seed} if task.startswith("lock") else {})
    algorithm = config.baseline()
    begun = time.perf_counter()
    loop = JaxLoop(algorithm, [make(TASKS[task].ours, **options)], [seed], config.clock)
    loop.advance(loop.begin(), 0)  # compiles and takes no step
    carry = loop.begin()
    compiled = time.perf_counter()
    round_steps = algorithm.steps * algorithm.copies
    rounds = max(1, config.total_steps // round_steps)
    returns = []
    for done in range(0, rounds, loop.size):
        carry, ended, _ = loop.advance(carry, min(loop.size, rounds - done))
        returns.append(np.asarray(ended.returns)[np.asarray(ended.ended)])
    finished = time.perf_counter()
    policy = jax.vmap(algorithm.policy)(carry.state)
    greedy = loop.evaluate(policy, episodes)[0] if episodes else np.array(np.nan)
    trained = np.concatenate(returns)
    return {
        "env_steps": rounds * round_steps,
        "episodes": len(trained),
        "return_mean": float(greedy.mean()),
        "last_training_returns_mean": float(trained[-100:].mean()) if len(trained) else None,
        "seconds": finished - begun,
        "steps_per_second": rounds * round_steps / (finished - compiled),
    }
