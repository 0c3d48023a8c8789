"""e3rl: reinforcement learning agents that explore on purpose, then exploit."""

# ruff: noqa: E402 - what follows takes a second, in which somebody may press Ctrl-C
from e3rl.signals import quiet_start
from e3rl.starting import collect_rarely, is_command

quiet_start()
if is_command():
    collect_rarely()

from importlib import import_module
from typing import TYPE_CHECKING, Any

from e3rl._version import __version__
from e3rl.envs.adapter import make
from e3rl.envs.registration import register

if TYPE_CHECKING:
    from e3rl.baselines import DQN, PPO, PPORND, DQNConfig, PPOConfig
    from e3rl.dreem import Dreem
    from e3rl.experiments.agents import load
    from e3rl.neural.agent import UE2, NeuralE3
    from e3rl.neural.config import NeuralE3Config
    from e3rl.tabular.agent import TabularE3
    from e3rl.tabular.config import TabularE3Config

_LATER = {
    "DQN": "e3rl.baselines",
    "DQNConfig": "e3rl.baselines",
    "Dreem": "e3rl.dreem",
    "NeuralE3": "e3rl.neural.agent",
    "NeuralE3Config": "e3rl.neural.config",
    "PPO": "e3rl.baselines",
    "PPOConfig": "e3rl.baselines",
    "PPORND": "e3rl.baselines",
    "TabularE3": "e3rl.tabular.agent",
    "TabularE3Config": "e3rl.tabular.config",
    "UE2": "e3rl.neural.agent",
    "load": "e3rl.experiments.agents",
}
"""The agents are imported on first use, so that environments alone stay quick to import."""

__all__ = [
    "DQN",
    "PPO",
    "PPORND",
    "UE2",
    "DQNConfig",
    "Dreem",
    "NeuralE3",
    "NeuralE3Config",
    "PPOConfig",
    "TabularE3",
    "TabularE3Config",
    "__version__",
    "load",
    "make",
]

register()


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'e3rl' has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
