"""The Gymnasium ids of the functional environments, and the one class that serves them all."""

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, SupportsFloat, TypeAlias

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8

from e3rl.envs.acrobot import Acrobot
from e3rl.envs.base import AbstractEnvironment, Observation, State, Step
from e3rl.envs.cart_pole import CartPole
from e3rl.envs.chain import Chain
from e3rl.envs.four_rooms import FourRooms
from e3rl.envs.key_door import KeyDoor
from e3rl.envs.lock import CombinationLock
from e3rl.envs.maze import Maze
from e3rl.envs.mountain_car import MountainCar
from e3rl.envs.river_swim import RiverSwim
from e3rl.envs.tabular import factored_mdp, latent_lock, low_rank_mdp, random_mdp
from e3rl.memory import refuse_too_large, size_of
from e3rl.registry import Registry
from e3rl.types import Action, Key, UserError, blank_key

Constructor: TypeAlias = Callable[..., AbstractEnvironment]

ENVIRONMENTS: Registry[Constructor] = Registry(
    "environment",
    "e3rl.environments",
    {
        "e3rl/CombinationLock-v0": CombinationLock,
        "e3rl/Maze-v0": Maze,
        "e3rl/KeyDoor-v0": KeyDoor,
        "e3rl/MountainCar-v0": MountainCar,
        "e3rl/Acrobot-v1": Acrobot,
        "e3rl/CartPole-v1": CartPole,
        "e3rl/RiverSwim-v0": RiverSwim,
        "e3rl/Chain-v0": Chain,
        "e3rl/FourRooms-v0": FourRooms,
        "e3rl/RandomMDP-v0": random_mdp,
        "e3rl/LowRankMDP-v0": low_rank_mdp,
        "e3rl/FactoredMDP-v0": factored_mdp,
        "e3rl/LatentLock-v0": latent_lock,
    },
)


def suggestion(word: str, known: list[str], before: str = "") -> str:
    """Words for an error; what is known by a namespace or a module is named with what stands before it."""
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {before + close[0]!r}?" if close else ""


def build(env_id: str, **kwargs: Any) -> AbstractEnvironment:
    """The functional environment of an id of ours, or of another package that offers one."""
    if env_id not in ENVIRONMENTS:
        # Without the namespace, which would make all of them look alike.
        close = get_close_matches(
            env_id.partition("/")[2], [known.partition("/")[2] for known in ENVIRONMENTS], n=1
        )
        hint = f"; did you mean 'e3rl/{close[0]}'?" if close else f"; known: {', '.join(ENVIRONMENTS)}"
        raise UserError(f"unknown environment {env_id!r}{hint}")
    constructor = ENVIRONMENTS[env_id]
    parameters = inspect.signature(constructor).parameters
    known = list(parameters)
    kwargs = {
        name: value.item() if isinstance(value, np.generic) else value for name, value in kwargs.items()
    }
    for name in kwargs:
        if name not in known:
            hint = suggestion(name, known) or f"; it takes {', '.join(known)}"
            raise UserError(f"{env_id} takes no argument {name!r}{hint}")
        fault = _fault(name, parameters[name].default, kwargs[name])
        if fault is not None:
            raise UserError(f"{env_id}: {name} must be {fault}, got {kwargs[name]!r}")
        if isinstance(parameters[name].default, float):
            kwargs[name] = float(kwargs[name])
    try:
        _refuse_too_large(env_id, constructor, kwargs)
        return constructor(**kwargs)
    except (TypeError, OverflowError, MemoryError) as error:
        given = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
        raise UserError(f"{env_id} cannot be made with {given}: {error}") from error


COPIES = 8
"""Times that an environment's own arrays are held at once, such as while it is drawn, and so are observations, as
numbers: those seen, their bounds, what they are compared with."""
SURELY_SMALL = 12
"""A whole number up to which no option makes an environment large."""


def _refuse_too_large(env_id: str, constructor: Constructor, kwargs: dict[str, Any]) -> None:
    """An error where the environment, a state or an observation would not fit into memory several times over."""
    sizes = {
        name: value
        for name, value in kwargs.items()
        if isinstance(value, int) and name not in ("seed", "time_limit")
    }
    if max(sizes.values(), default=0) <= SURELY_SMALL:
        return

    def everything(key: Key) -> Any:
        env = constructor(**kwargs)
        return eqx.filter(env, eqx.is_array), *env.reset(key)

    try:
        made, state, obs = jax.eval_shape(everything, blank_key())
    except jax.errors.JAXTypeError:  # one that looks at its own numbers, and has to look after itself
        return
    needs = {"arrays": COPIES * size_of((made, state)), "observations": COPIES * 8 * obs.size}
    refuse_too_large(env_id, needs, lambda: max(sizes, key=lambda name: sizes[name]))


def drawn_from_a_seed(env_id: str) -> bool:
    """Whether an environment of ours is itself drawn at random, as every lock is."""
    return env_id in ENVIRONMENTS and "seed" in inspect.signature(ENVIRONMENTS[env_id]).parameters


def _fault(name: str, default: Any, value: Any) -> str | None:
    """What an argument should have been, by its parameter's default; None if it is that, or cannot be told."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if name == "seed":
        fits = 0 <= value < 2**31 if whole else _is_key(value)
        return None if fits else "a whole number from 0 to 2**31 − 1"
    if name == "noise_bits":
        fits = value is None or (whole and value < 2**31)
        return None if fits else f"a whole number{' below 2**31' if whole else ''}"
    if isinstance(default, bool):  # before int: a bool is one to Python
        return None if isinstance(value, bool) else "true or false"
    if isinstance(default, int):
        return None if whole and abs(value) < 2**31 else f"a whole number{' below 2**31' if whole else ''}"
    if isinstance(default, float):
        return None if whole or isinstance(value, float) else "a number"
    return None


def _is_key(value: Any) -> bool:
    if not isinstance(value, jax.Array):
        return False
    old_style = value.dtype == jnp.uint32 and value.ndim == 1
    return jnp.issubdtype(value.dtype, jax.dtypes.prng_key) or old_style


@eqx.filter_jit
def _reset(env: AbstractEnvironment, key: Key) -> tuple[Key, State, Observation]:
    key, key_reset = jax.random.split(key)
    return key, *env.reset(key_reset)


@eqx.filter_jit
def _step(env: AbstractEnvironment, key: Key, state: State, action: Action) -> tuple[Key, Step]:
    key, key_step = jax.random.split(key)
    return key, env.step(key_step, state, action)


class FunctionalGymEnv(gymnasium.Env[Any, Any]):
    """A functional environment with Gymnasium's interface.

    `env` is the environment or its id, which then takes the other keyword arguments; a `seed` among those
    draws the environment. The seed given to `reset` draws the episodes that follow, and nothing else.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - declared so by gymnasium.Env
        "render_modes": ["rgb_array"],
        "render_fps": 30,
    }

    def __init__(self, env: str | AbstractEnvironment, render_mode: str | None = None, **kwargs: Any):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise UserError(f"render_mode must be None or 'rgb_array', got {render_mode!r}")
        if isinstance(env, AbstractEnvironment) and kwargs:
            raise UserError(f"an environment already built takes no arguments, got {', '.join(kwargs)}")
        self.functional = env if isinstance(env, AbstractEnvironment) else build(env, **kwargs)
        self.render_mode = render_mode
        self.observation_space = self.functional.observation_space
        self.action_space = self.functional.action_space
        self._key: Key | None = None
        self._state: State = None
        self._running = False

    def _to_host(self, obs: Observation) -> Any:
        dtype = self.observation_space.dtype
        return np.array(obs, dtype)[()]  # a copy of its own; `[()]` makes a scalar of an array without axes

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None or self._key is None:
            self._key = jax.random.key(int(self.np_random.integers(2**31)))
        self._key, self._state, obs = _reset(self.functional, self._key)
        self._running = True
        return self._to_host(obs), {}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        if self._key is None or not self._running:
            raise gymnasium.error.ResetNeeded("call reset() before step(): no episode is under way")
        if not self.action_space.contains(action):
            raise UserError(f"action must be an integer of {self.action_space}, got {action!r}")
        self._key, (self._state, obs, reward, terminated, truncated) = _step(
            self.functional, self._key, self._state, jnp.asarray(action, jnp.int32)
        )
        ended = bool(terminated), bool(truncated)
        self._running = not any(ended)
        return self._to_host(obs), float(reward), *ended, {}

    def render(self) -> UInt8[np.ndarray, "h w 3"] | None:
        if self.render_mode is None:
            return None
        if self._state is None:
            raise gymnasium.error.ResetNeeded("call reset() before render()")
        return self.functional.render(self._state)


def register() -> None:
    """Make the ids known to `gymnasium.make`. Calling it again changes nothing."""
    for env_id in ENVIRONMENTS:
        if env_id not in gymnasium.registry:
            # Without Gymnasium's TimeLimit: every environment ends its own episodes.
            gymnasium.register(env_id, entry_point=f"{__name__}:FunctionalGymEnv", kwargs={"env": env_id})
