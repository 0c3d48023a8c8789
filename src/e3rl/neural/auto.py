"""Settings that suit an environment by its looks, for users who name none."""

import dataclasses
import functools
from collections.abc import Callable
from typing import cast

import jax
import numpy as np

from e3rl.envs.adapter import GymnasiumEnvironment, make
from e3rl.envs.base import AbstractEnvironment, rollout, uniform_policy
from e3rl.envs.determinism import looks_deterministic
from e3rl.envs.encoding import Encoding
from e3rl.envs.vector import HostEnvironments
from e3rl.neural.config import CONFIGS, NeuralE3Config
from e3rl.neural.families import natural_family
from e3rl.neural.lanes import Environment
from e3rl.types import UserError

GLANCE = 50
"""Frames that are looked at."""
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
    if family == "factored":
        # All one-hots are equally far from the root. A category never tried may promise any reward, so what members
        # disagree about is sought while exploring and shunned while exploiting.
        changes |= {"frontier": "nearest", "reward_scale": 1.0, "caution": 0.3}
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
    env: object, options: dict[str, object], config: NeuralE3Config | None, asynchronous: bool = False
) -> tuple[Environment, NeuralE3Config]:
    """An environment ready for training, and its settings. What has an id is copied so that an epoch's episodes run
    side by side, if `asynchronous` in processes of their own; an environment object is a single copy."""
    made = make(env, **options)
    if asynchronous and not (isinstance(env, str) and isinstance(made, GymnasiumEnvironment)):
        raise UserError("only Gymnasium environments given by their id can be asynchronous")
    config = config or suited_config(made)
    if isinstance(made, AbstractEnvironment):
        return made, config
    if not isinstance(env, str):
        return HostEnvironments(made), config
    made.close()
    again = cast(Callable[[], GymnasiumEnvironment], functools.partial(make, env, **options))
    return HostEnvironments(again, config.episodes_per_epoch, asynchronous=asynchronous), config


def _is_black_and_white(env: AbstractEnvironment | GymnasiumEnvironment, encoding: Encoding) -> bool:
    """Are the frames of some random play made of zeros and ones?"""
    if isinstance(env, AbstractEnvironment):
        episode = rollout(env, uniform_policy(env.num_actions), jax.random.key(0), encoding.encode)
        return bool(np.isin(np.asarray(episode.obs), (0.0, 1.0)).all())
    random = np.random.default_rng(0)
    try:
        frames, ended = [env.reset(0)], False
        while not ended and len(frames) < GLANCE:
            frame, _, terminated, truncated = env.step(random.integers(env.num_actions))
            frames.append(frame)
            ended = terminated or truncated
    except Exception:  # whatever an environment raises will be told when it is trained on
        return False
    return bool(np.isin(frames, (0.0, 1.0)).all())
