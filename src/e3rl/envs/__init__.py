"""Functional JAX environments, their Gymnasium ids, and the adapter for everybody else's."""

from e3rl.envs.acrobot import Acrobot
from e3rl.envs.adapter import GymnasiumEnvironment, make
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.cart_pole import CartPole
from e3rl.envs.chain import Chain
from e3rl.envs.encoding import Encoding
from e3rl.envs.four_rooms import FourRooms
from e3rl.envs.key_door import KeyDoor
from e3rl.envs.lock import CombinationLock
from e3rl.envs.maze import Maze
from e3rl.envs.mountain_car import MountainCar
from e3rl.envs.opening import Opened, open_environment
from e3rl.envs.playing import PythonCopies, episode_return, rollout, uniform_policy
from e3rl.envs.registration import ENVIRONMENTS, FunctionalGymEnv, build, register
from e3rl.envs.river_swim import RiverSwim
from e3rl.envs.spec import Spec
from e3rl.envs.tabular import (
    TabularMDP,
    factored_mdp,
    latent_lock,
    lock_chain,
    low_rank_mdp,
    random_mdp,
)

__all__ = [
    "ENVIRONMENTS",
    "AbstractEnvironment",
    "Acrobot",
    "CartPole",
    "Chain",
    "CombinationLock",
    "Encoding",
    "FourRooms",
    "FunctionalGymEnv",
    "GymnasiumEnvironment",
    "KeyDoor",
    "Maze",
    "MountainCar",
    "Opened",
    "PythonCopies",
    "RiverSwim",
    "Spec",
    "TabularMDP",
    "build",
    "episode_return",
    "factored_mdp",
    "latent_lock",
    "lock_chain",
    "low_rank_mdp",
    "make",
    "open_environment",
    "random_mdp",
    "register",
    "rollout",
    "uniform_policy",
]
