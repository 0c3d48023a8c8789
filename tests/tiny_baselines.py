"""One tiny configuration of each baseline for everybody, as tiny.py has one of Neural-E³."""

from tiny import lock

from e3rl.baselines import DQNConfig, PPOConfig
from e3rl.baselines.rnd import Rnd
from e3rl.envs.opening import open_environment
from e3rl.runs.agent import AbstractAgent
from e3rl.runs.folder import RunFolder
from e3rl.runs.record import Record

STEPS = 90
"""Of training: 15 iterations of three steps in two copies."""
FRAME = {"total_steps": STEPS, "evaluation_episodes": 5, "copies": 2, "steps": 3, "hidden": 8}
DQN_CHANGES = {**FRAME, "updates": 2, "batch": 4, "capacity": 64, "learning_starts": 12, "target_period": 5}
PPO_CHANGES = {**FRAME, "epochs": 2, "minibatches": 2}
TINY_DQN = DQNConfig(clock=True, **DQN_CHANGES)
TINY_PPO = PPOConfig(clock=True, **PPO_CHANGES)
TINY_RND = PPOConfig(clock=True, bonus=Rnd(embedding=4), **PPO_CHANGES)


def program(agent: type[AbstractAgent], config, seeds, envs=None):
    """A baseline on a lock for each seed, or on other environments; a checkpoint at every word."""
    opened = [open_environment(env) for env in envs or [lock(seed) for seed in seeds]]
    made = agent.make_program(opened, config, seeds)
    made.checkpoint_seconds = 0.0
    return made


def record(agent: type[AbstractAgent], config, seeds, out=None, watch=lambda progress: None) -> Record:
    """The record of such a program, in a folder for each seed or nowhere."""
    folders = [RunFolder(out / f"seed{seed}") for seed in seeds] if out else []
    return Record(seeds, folders, [agent.describe(None, {}, seed, config) for seed in seeds], watch)
