"""One tiny configuration of each baseline for everybody, as tiny.py has one of Neural-E³."""

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
from tiny import lock

from e3rl.baselines import DQNConfig, PPOConfig
from e3rl.baselines.base import AbstractBaseline, BaselineConfig
from e3rl.baselines.rnd import Rnd
from e3rl.envs.opening import open_environment
from e3rl.runs.agent import AbstractAgent
from e3rl.runs.folder import RunFolder
from e3rl.runs.record import Record
from e3rl.runs.settings import setting

STEPS = 90
"""Of training: 15 iterations of three steps in two copies."""
FRAME = {"total_steps": STEPS, "evaluation_episodes": 5, "copies": 2, "steps": 3, "hidden": 8}
DQN_CHANGES = {**FRAME, "updates": 2, "batch": 4, "capacity": 64, "learning_starts": 12, "target_period": 5}
PPO_CHANGES = {**FRAME, "epochs": 2, "minibatches": 2}
TINY_DQN = DQNConfig(clock=True, **DQN_CHANGES)
TINY_PPO = PPOConfig(clock=True, **PPO_CHANGES)
TINY_RND = PPOConfig(clock=True, bonus=Rnd(embedding=4), **PPO_CHANGES)


class Idle(AbstractBaseline):
    """Acts at random and learns nothing, but remembers its last rollout; greedily it always takes action 0."""

    steps: int = eqx.field(static=True)
    copies: int = eqx.field(static=True)

    def init(self, key, shape, actions):
        return {"learned": jnp.array(0, jnp.int32), "obs": jnp.zeros((self.steps, self.copies, *shape))}

    def act(self, state, key, obs):
        return jax.random.randint(key, (self.copies,), 0, 2), None

    def learn(self, state, key, rollout):
        learned = {"learned": state["learned"] + 1, "obs": rollout.obs}
        return learned, {"reward": jnp.mean(rollout.reward)}

    def greedy(self, state, key, obs, time):
        return jnp.array(0, jnp.int32)


@dataclass(frozen=True)
class IdleConfig(BaselineConfig):
    """For tests of the loops around an algorithm: nothing in it takes time to compile."""

    total_steps: int = setting(STEPS, "Environment steps", at_least=1)
    evaluation_episodes: int = setting(5, "Greedy episodes at the end", at_least=1)
    copies: int = setting(2, "Environments in parallel", at_least=1)
    steps: int = setting(3, "Steps of each between two rounds", at_least=1)

    def baseline(self):
        return Idle(self.steps, self.copies)


def program(agent: type[AbstractAgent], config, seeds, envs=None):
    """A baseline on a lock for each seed, or on other environments."""
    opened = [open_environment(env) for env in envs or [lock(seed) for seed in seeds]]
    return agent.make_program(opened, config, seeds)


def record(agent: type[AbstractAgent], config, seeds, out=None, watch=lambda progress: None) -> Record:
    """The record of such a program, in a folder for each seed or nowhere; a checkpoint at every word."""
    folders = [RunFolder(out / f"seed{seed}") for seed in seeds] if out else []
    return Record(seeds, folders, [agent.describe(None, {}, seed, config) for seed in seeds], watch, 0.0)
