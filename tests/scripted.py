"""An agent without networks, for tests of what all agents share: seeds and folders, saving, loading, the clock."""

import os
import time
from dataclasses import dataclass
from typing import ClassVar

import jax.numpy as jnp
import numpy as np

from e3rl.envs.playing.python_copies import PythonCopies
from e3rl.runs.agent import AbstractAgent, AbstractProgram
from e3rl.runs.settings import Settings, setting
from e3rl.types import UserError

PAUSE = "E3RL_TEST_PAUSE"
"""The variable that says how many seconds an episode takes."""


@dataclass(frozen=True)
class EchoConfig(Settings):
    episodes: int = setting(4, "Episodes of training", at_least=1)
    offset: int = setting(0, "Added to every action")
    together: bool = setting(True, "Whether seeds share a program")
    fails: int = setting(0, "The seed whose training ends in an error, unless 0")


class EchoProgram(AbstractProgram):
    """Plays nothing: returns are drawn from the seed, and a seed's policy is the sum of those of its training."""

    events: ClassVar[list[str]] = []
    """What programs did, of all of them."""

    def __init__(self, opened, config, seeds, asynchronous):
        self.config, self.seeds = config, list(seeds)
        self.spec, self.clock_limit = opened[0].spec, opened[0].spec.horizon
        self.copies: list[PythonCopies] = []
        if opened[0].functional is None:
            self.copies = [each.copies(2, asynchronous) for each in opened]

    def learn(self, record, resume):
        self.events.append(f"trained {self.seeds}")
        resumed = record.begin(resume, self.blank_policy)
        total = resumed.state["total"] if resumed else jnp.zeros(len(self.seeds))
        begin = resumed.abouts[0]["epoch"] if resumed else 0
        with record:
            for t in range(begin, self.config.episodes):
                returns = self.returns(t)
                time.sleep(float(os.environ.get(PAUSE, "0")))
                for lane in range(len(self.seeds)):
                    record.add(lane, "train", float(returns[lane]), 2, 2 * (t + 1))
                total = total + jnp.asarray(returns)
                record.say("train", t + 1, self.config.episodes)
                record.hold(t + 1, {"total": total})
            if self.config.fails and self.config.fails in self.seeds:
                raise UserError("broken")
            record.save()
            played = self.evaluate(None, 3)
            summaries = [record.summary(lane, played[lane], None) for lane in range(len(self.seeds))]
            record.finish({"total": total}, summaries)
        return {"total": total}, summaries

    def returns(self, t):
        return np.array([np.random.default_rng([seed, t]).normal() for seed in self.seeds], np.float32)

    def evaluate(self, policies, episodes):
        return np.stack([self.returns(1000 + i) for i in range(episodes)], axis=1)

    def act(self, policy, obs, time, key):
        return (int(np.sum(obs)) + time + self.config.offset) % self.spec.actions

    def blank_policy(self):
        return {"total": jnp.zeros(())}

    def close(self):
        self.events.append(f"closed {self.seeds}")
        for copies in self.copies:
            copies.close()


class Echo(AbstractAgent):
    """Acts by what it sees and when."""

    algo = "echo"
    settings = EchoConfig
    presets: ClassVar = {"long": EchoConfig(episodes=9)}
    renamed: ClassVar = {"shift": ("offset",)}

    @classmethod
    def suited(cls, opened):
        return EchoConfig(offset=opened.spec.actions)

    @classmethod
    def share_a_program(cls, config):
        return config.together

    @classmethod
    def make_program(cls, opened, config, seeds, asynchronous=False):
        if config.offset == 13:
            raise UserError("bad luck")
        return EchoProgram(opened, config, seeds, asynchronous)
