"""The combination lock as a plain NumPy environment, so that a Python library steps it at Python's own speed."""

from typing import Any

import gymnasium
import numpy as np

from e3rl.envs.lock import DEAD, NUM_ACTIONS, NUM_STATES, CombinationLock


class NumpyLock(gymnasium.Env):
    """The same lock as `CombinationLock(**options)`: its tables, the same observations and rewards."""

    def __init__(self, **options: Any):
        lock = CombinationLock(**options)
        chance, self.reward = lock.transition_table()
        self.cumulative = np.cumsum(chance, axis=-1)
        self.horizon, self.noise, self.levels = lock.horizon, lock.noise_bits, lock.observe_level
        self.observation_space = lock.observation_space
        self.action_space = gymnasium.spaces.Discrete(NUM_ACTIONS)
        self.level, self.latent = 0, 0

    def _observe(self) -> np.ndarray:
        parts = [np.arange(NUM_STATES) == self.latent, self.np_random.integers(0, 2, self.noise)]
        if self.levels:
            parts.append(np.arange(self.horizon) == self.level)
        return np.concatenate(parts).astype(np.int8)

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.level, self.latent = 0, int(self.np_random.integers(DEAD))
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        row = self.cumulative[self.level, self.latent, action]
        after = int(np.searchsorted(row, self.np_random.random(), side="right"))
        reward = float(self.reward[self.level, self.latent, action, after])
        self.level, self.latent = self.level + 1, after
        return self._observe(), reward, self.level == self.horizon, False, {}
