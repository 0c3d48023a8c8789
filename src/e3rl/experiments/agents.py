"""Every agent that can be trained, by the name that `--algo` takes."""

from pathlib import Path
from typing import Any

from e3rl.baselines.agent import DQN, PPO, PPORND
from e3rl.neural.agent import UE2, NeuralE3
from e3rl.registry import Registry
from e3rl.runs.agent import AbstractAgent, read_config

AGENTS: Registry[type[AbstractAgent]] = Registry(
    "algorithm",
    "e3rl.agents",
    {
        "neural-e3": NeuralE3,
        "ue2": UE2,
        "dqn": DQN,
        "ppo": PPO,
        "ppo-rnd": PPORND,
    },
)


def load(path: str | Path, env: Any = None) -> AbstractAgent:
    """The agent of a run folder, whichever it is."""
    return AGENTS.called(read_config(Path(path))["algo"]).load(path, env)
