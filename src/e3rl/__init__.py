"""e3rl: reinforcement learning agents that explore on purpose, then exploit."""

from typing import Any

from e3rl._version import __version__
from e3rl.envs.adapter import make
from e3rl.envs.registration import register

__all__ = ["Dreem", "NeuralE3", "NeuralE3Config", "__version__", "make"]

register()


def __getattr__(name: str) -> Any:
    """The agents are imported on first use, so that environments alone stay quick to import."""
    if name == "NeuralE3":
        from e3rl.neural.agent import NeuralE3

        return NeuralE3
    if name == "Dreem":
        from e3rl.dreem import Dreem

        return Dreem
    if name == "NeuralE3Config":
        from e3rl.neural.config import NeuralE3Config

        return NeuralE3Config
    raise AttributeError(f"module 'e3rl' has no attribute {name!r}")
