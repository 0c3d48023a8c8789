"""The one door for environments: functional ones pass as they are, all others are adapted."""

import math
import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float32

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.blame import RAISED, told
from e3rl.envs.encoding import Encoding
from e3rl.envs.membership import as_array, surely_member, violation
from e3rl.envs.registration import ENVIRONMENTS, FunctionalGymEnv, build, suggestion
from e3rl.types import UserError

# Gymnasium puts these around everything it makes; they change nothing.
CHECKING_WRAPPERS = (gymnasium.wrappers.PassiveEnvChecker, gymnasium.wrappers.OrderEnforcing)


def make(env: Any, **kwargs: Any) -> "AbstractEnvironment | GymnasiumEnvironment":
    """An environment from a functional one, an id (ours or Gymnasium's) or a Gymnasium environment.

    What has a functional core comes back as that core, which runs compiled; everything else as a
    `GymnasiumEnvironment`, which runs on the host. `kwargs` go to the constructor of an id.
    """
    if isinstance(env, str):
        if env.startswith("e3rl/") or env in ENVIRONMENTS:
            return build(env, **kwargs)
        adapted = _make_by_id(env, kwargs)
        try:
            return make(adapted)
        except UserError:
            adapted.close()
            raise
    if not isinstance(env, AbstractEnvironment | GymnasiumEnvironment | gymnasium.Env):
        raise UserError(f"expected an environment or the id of one, got {type(env).__name__}")
    if kwargs:
        raise UserError(f"an environment already built takes no arguments, got {', '.join(kwargs)}")
    if not isinstance(env, gymnasium.Env):
        return env
    core = env
    while isinstance(core, CHECKING_WRAPPERS):
        core = core.env
    if isinstance(core, FunctionalGymEnv):
        return core.functional
    try:
        return GymnasiumEnvironment(env)
    except UserError:
        raise
    except RAISED as error:  # such as spaces that are missing, or no spaces
        raise UserError(f"{type(env.unwrapped).__name__} cannot be used: {told(error)}") from error


def _make_by_id(env_id: str, kwargs: dict[str, Any]) -> gymnasium.Env:
    try:
        return gymnasium.make(env_id, **kwargs)
    except gymnasium.error.UnregisteredEnv as error:
        if env_id.startswith("ALE/"):
            raise UserError(f'{env_id} needs the Atari extra: pip install "gymnasium[atari]"') from error
        module, colon, name = env_id.rpartition(":")
        known = gymnasium.registry if module else [*ENVIRONMENTS, *gymnasium.registry]
        hint = suggestion(name, list(known), f"{module}{colon}")
        own = "" if ":" in env_id else "; one of your own is named with its module, as in my_package:Mine-v0"
        raise UserError(f"unknown environment {env_id!r}{hint}{own}") from error
    except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
        raise UserError(f"{env_id} needs a package that is not installed: {one_line(error)}") from error
    except gymnasium.error.Error as error:
        if env_id.endswith(":"):
            raise UserError(f"an id is missing after {env_id!r}, as in {env_id}Mine-v0") from error
        raise UserError(f"cannot make {env_id!r}: {one_line(error)}") from error
    except UserError:
        raise
    except RAISED as error:  # whatever the author of an environment lets escape
        unknown = [name for name in kwargs if f"unexpected keyword argument '{name}'" in str(error)]
        if unknown:
            raise UserError(f"{env_id} takes no argument {unknown[0]!r}") from error
        given = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
        raise UserError(f"{env_id} cannot be made{given and f' with {given}'}: {told(error)}") from error


def one_line(error: BaseException) -> str:
    """An error's text without its line breaks."""
    return " ".join(str(error).split()) or type(error).__name__


class BadReturn(UserError):
    """An environment returned something it must not; `problem` is the message without its place."""

    def __init__(self, place: str, problem: str):
        super().__init__(f"{place}: {problem}")
        self.problem = problem


class GymnasiumEnvironment:
    """A Gymnasium environment on the host, its observations encoded and everything it returns checked.

    Actions count from 0 whatever the start of the environment's own action space.
    """

    def __init__(self, env: gymnasium.Env):
        self.env = env
        self.name: str = env.spec.id if env.spec is not None else type(env.unwrapped).__name__
        if not isinstance(env.action_space, spaces.Discrete):
            raise UserError(f"{self.name} {_refuse_actions(env.action_space)}")
        self._first_action = int(env.action_space.start)
        self.num_actions = int(env.action_space.n)
        self.action_space = spaces.Discrete(self.num_actions)
        self.observation_space = env.observation_space
        self._surely_member = surely_member(env.observation_space)
        self.encoding = Encoding(env.observation_space)
        self.time_limit = _time_limit(env)
        """Steps after which an episode is cut, None where nothing cuts it."""
        self._episode = 0
        self._step: int | None = None

    def reset(self, seed: int | np.integer | None = None) -> Float32[np.ndarray, "*shape"]:
        """Start an episode; a seed also fixes those that follow it."""
        self._episode += 1
        self._step = 0
        result = self.env.reset(seed=None if seed is None else int(seed))
        if not (isinstance(result, tuple) and len(result) == 2):
            raise self._error(f"reset must return (observation, info), got {result!r}")
        return self._encode(result[0])

    def step(self, action: Any) -> tuple[Float32[np.ndarray, "*shape"], float, bool, bool]:
        """(observation, reward, terminated, truncated) of an action, any integer scalar from 0."""
        if self._step is None:
            raise UserError(f"{self.name}: call reset() before step(), no episode is under way")
        if type(action) is not int or not 0 <= action < self.num_actions:
            action = self._index(action)
        self._step += 1
        result = self.env.step(action + self._first_action)
        if not (isinstance(result, tuple) and len(result) == 5):
            raise self._error(
                f"step must return (observation, reward, terminated, truncated, info), got {result!r}"
            )
        obs, reward, terminated, truncated, _ = result
        if terminated.__class__ is not bool or truncated.__class__ is not bool:
            for name, flag in (("terminated", terminated), ("truncated", truncated)):
                if not isinstance(flag, bool | np.bool_):
                    raise self._error(f"{name} must be a bool, got {flag!r}")
            terminated, truncated = bool(terminated), bool(truncated)
        step = self._encode(obs), self._number(reward), terminated, truncated
        if terminated or truncated:
            self._step = None
        return step

    def close(self) -> None:
        try:
            self.env.close()
        except RAISED as error:  # what was learned is not lost by that
            warnings.warn(f"{self.name} cannot be closed: {told(error)}", stacklevel=2)

    def _error(self, problem: str) -> BadReturn:
        return BadReturn(f"{self.name}, episode {self._episode}, step {self._step}", problem)

    def _encode(self, obs: Any) -> Float32[np.ndarray, "*shape"]:
        if not self._surely_member(obs):
            message = violation(self.observation_space, obs)
            if message is not None:
                raise self._error(message)
        return self.encoding.encode(obs)

    def _index(self, action: Any) -> int:
        index = np.asarray(action)
        if index.shape or index.dtype.kind not in "iu" or not 0 <= index < self.num_actions:
            raise UserError(
                f"{self.name}: action must be an integer from 0 to {self.num_actions - 1}, got {action!r}"
            )
        return int(index)

    def _number(self, reward: Any) -> float:
        if type(reward) is float and math.isfinite(reward):
            return reward
        value = as_array(reward)
        if value is None or value.size != 1 or value.dtype.kind not in "biuf":
            raise self._error(f"reward must be a number, got {reward!r}")
        if not np.isfinite(value).all():
            raise self._error(f"reward is {value.item()}")
        return float(value.item())


def _refuse_actions(space: gymnasium.Space) -> str:
    if isinstance(space, spaces.Box):
        return (
            f"has the continuous action space {space}: e3rl needs a Discrete one, "
            "wrap the environment in gymnasium.wrappers.DiscretizeAction first"
        )
    return f"has the action space {space}: e3rl needs a Discrete one, and docs/adapter.md shows how to number others"


def _time_limit(env: gymnasium.Env) -> int | None:
    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gymnasium.wrappers.TimeLimit):
            return layer._max_episode_steps
        layer = layer.env
    return env.spec.max_episode_steps if env.spec is not None else None


def batch_size(space: gymnasium.Space, obs: Any) -> int | None:
    """How many observations of `space` are side by side in `obs`, every array with a leading axis more, as
    `gymnasium.vector` has them; None where it is one observation, or none at all."""
    match space:
        case spaces.Dict():
            alike = isinstance(obs, dict) and obs.keys() == space.spaces.keys()
            parts = [(part, obs[key]) for key, part in space.spaces.items()] if alike else []
        case spaces.Tuple():
            alike = isinstance(obs, tuple) and len(obs) == len(space.spaces)
            parts = list(zip(space.spaces, obs, strict=True)) if alike else []
        case _:
            value = as_array(obs)
            if value is None or value.ndim == 0 or value.shape[1:] != space.shape:
                return None
            return len(value)
    return batch_size(*parts[0]) if parts else None
