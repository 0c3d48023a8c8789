"""Settings that suit an environment by its looks, for users who name none."""

import dataclasses

import jax
import numpy as np

from e3rl.envs.adapter import GymnasiumEnvironment, make
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.determinism import looks_deterministic
from e3rl.envs.encoding import Encoding
from e3rl.envs.vector import HostEnvironments
from e3rl.neural.config import CONFIGS, NeuralE3Config
from e3rl.neural.families import natural_family
from e3rl.neural.lanes import Environment

SHORT = 100
"""Steps up to which a binary problem counts as one of finite horizon, like the lock."""


def suited_config(env: AbstractEnvironment | GymnasiumEnvironment) -> NeuralE3Config:
    """The dynamics family follows from the observations, the planner from whether steps look deterministic."""
    encoding = Encoding(env.observation_space)
    family = natural_family(encoding)
    if family == "bernoulli" and env.time_limit is not None and env.time_limit <= SHORT:
        return CONFIGS["e3rl"]
    base = CONFIGS["e3rl-image"] if family == "conv" else CONFIGS["e3rl-control"]
    changes: dict[str, object] = {"family": family}
    if all(part.kind != "continuous" for part in encoding.parts) and family != "conv":
        changes["distance"] = "marginal"
    if family == "conv":
        changes["snap"] = _is_black_and_white(env, encoding)
    if not looks_deterministic(env, jax.random.key(0)):
        changes["planner"] = "mcts"
        if base.exploit == "graph":
            changes["exploit"] = "dqn"
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def prepare(
    env: object, options: dict[str, object], config: NeuralE3Config | None
) -> tuple[Environment, NeuralE3Config]:
    """An environment ready for training, and its settings. What has an id is copied so that an epoch's episodes run
    side by side; an environment object is a single copy."""
    made = make(env, **options)
    config = config or suited_config(made)
    if isinstance(made, AbstractEnvironment):
        return made, config
    if not isinstance(env, str):
        return HostEnvironments(made), config
    made.close()

    def again() -> GymnasiumEnvironment:
        copy = make(env, **options)
        assert isinstance(copy, GymnasiumEnvironment)
        return copy

    return HostEnvironments(again, config.episodes_per_epoch), config


def _is_black_and_white(env: AbstractEnvironment | GymnasiumEnvironment, encoding: Encoding) -> bool:
    """Is the first frame made of zeros and ones?"""
    first = env.reset(jax.random.key(0))[1] if isinstance(env, AbstractEnvironment) else env.reset(0)
    frame = np.asarray(encoding.encode(first) if isinstance(env, AbstractEnvironment) else first)
    return bool(np.isin(frame, (0.0, 1.0)).all())
