"""An environment in Python whose steps take a while, and an agent that does nothing but play two copies of it."""

import time

import gymnasium
import numpy as np
from scripted import Echo, EchoProgram

LENGTH = 5


class Waiting(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._see(), {}

    def step(self, action):
        time.sleep(0.01)
        return self._see(), float(self.np_random.normal()), False, False, {}

    def _see(self):
        return self.np_random.random(1, np.float32)


gymnasium.register("Waiting-v0", Waiting, max_episode_steps=LENGTH)


class PlayerProgram(EchoProgram):
    def returns(self, t):
        [copies] = self.copies
        copies.reset([t, t])
        steps = [copies.step(np.array([0, 1])) for _ in range(LENGTH)]
        return np.sum([answer.reward for answer in steps], axis=0)[: len(self.seeds)]


class Player(Echo):
    algo = "faults.waiting:Player"

    @classmethod
    def make_program(cls, opened, config, seeds, asynchronous=False):
        return PlayerProgram(opened, config, seeds, asynchronous)
