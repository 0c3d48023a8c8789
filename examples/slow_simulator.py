"""A simulator whose step takes 20 ms: with a process for each copy of it, an epoch's episodes run side by side.

Run with `python examples/slow_simulator.py`, a minute or two. The same from the command line:
`cd examples; e3rl train slow_simulator:Balance-v0 --algo dqn --async`.
"""

import argparse
import sys
import time
from pathlib import Path

import gymnasium
import numpy as np

from e3rl import DQN, DQNConfig
from e3rl.runs.settings import changed

SETTINGS = {"total_steps": 3_000, "copies": 8, "steps": 5, "learning_starts": 200, "evaluation_episodes": 5}
QUICK = {
    "total_steps": 12,
    "copies": 2,
    "steps": 3,
    "learning_starts": 6,
    "evaluation_episodes": 1,
    "batch": 4,
}
ID = "slow_simulator:Balance-v0"
"""Processes import the module, so the id has to be registered where they find it: here, not under `__main__`."""


class Balance(gymnasium.Env):
    """Push a pendulum left, right or not at all; it should stand. Each step waits, as a heavy simulator would."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, seconds: float = 0.02):
        self.seconds = seconds

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.angle, self.speed = self.np_random.uniform(-0.5, 0.5, 2)
        return self._see(), {}

    def step(self, action):
        time.sleep(self.seconds)
        self.speed = np.clip(self.speed + 0.75 * np.sin(self.angle) + 0.5 * (action - 1), -8.0, 8.0)
        self.angle = (self.angle + 0.05 * self.speed + np.pi) % (2 * np.pi) - np.pi
        return self._see(), float(np.cos(self.angle)), False, False, {}

    def _see(self):
        return np.array([np.cos(self.angle), np.sin(self.angle), self.speed / 8.0], np.float32)


if "Balance-v0" not in gymnasium.registry:  # as `__main__` and as a module, it is the same file
    gymnasium.register("Balance-v0", entry_point="slow_simulator:Balance", max_episode_steps=100)


def train(asynchronous: bool, quick: bool) -> float:
    """Steps a second, those of all copies together, once everything is compiled."""
    config = changed(DQNConfig(), QUICK if quick else SETTINGS)
    options = {"seconds": 0.0} if quick else {}
    agent = DQN(ID, config, seed=0, env_options=options, asynchronous=asynchronous)
    reports: list[tuple[int, float]] = []
    try:
        # A callback hears how far the run is; one that returns False would stop it.
        print(agent.learn(callback=lambda progress: reports.append((progress.episode, progress.seconds))))
    finally:
        agent.close()  # ends the processes
    (first, then), (last, now) = reports[0], reports[-1]
    return (last - first) / max(now - then, 1e-9)


def main(quick: bool) -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    alone, apart = train(False, quick), train(True, quick)
    print(f"{alone:.0f} steps a second in one process, {apart:.0f} in processes of their own")


if __name__ == "__main__":  # processes import this file: what trains must not run again in each of them
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="only show that everything works")
    main(parser.parse_args().quick)
