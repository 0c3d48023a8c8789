"""e3rl: reinforcement learning agents that explore on purpose, then exploit."""

from e3rl.envs.adapter import make
from e3rl.envs.registration import register

__all__ = ["make"]
__version__ = "0.1.0"

register()
