"""Settings that suit an environment by its looks, for users who name none."""

import dataclasses
from typing import Any

import jax
import numpy as np

from e3rl.envs.adapter import GymnasiumEnvironment
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.determinism import looks_deterministic
from e3rl.envs.encoding import Encoding
from e3rl.envs.opening import Opened
from e3rl.envs.playing.rollout import rollout, uniform_policy
from e3rl.models import natural_family
from e3rl.models.bernoulli import Bernoulli
from e3rl.models.conv import Conv
from e3rl.models.factored import Factored
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.presets import PRESETS, STATIONARY
from e3rl.planners.exploit_dqn import OfflineDqn
from e3rl.planners.graph_search import GraphSearch
from e3rl.planners.mcts import TreeSearch
from e3rl.planners.utility import Marginal
from e3rl.values.double_dqn import DqnFit

GLANCE = 50
"""Frames that are looked at."""
SHORT = 100
"""Steps up to which a binary problem counts as one of finite horizon, like the lock."""


def suited_config(opened: Opened) -> NeuralE3Config:
    """The dynamics family follows from the observations, the planner from whether steps look deterministic."""
    encoding = opened.spec.encoding
    family = natural_family(encoding)
    if family is Bernoulli and opened.spec.horizon <= SHORT:
        return PRESETS["e3rl"]
    base = PRESETS["e3rl-image" if family is Conv else "e3rl-control"]
    changes: dict[str, Any] = {"model": family()}
    if family is Factored:
        # A category never tried may promise any reward, so what members disagree about is sought while exploring and
        # shunned while exploiting.
        changes["utility"] = dataclasses.replace(base.utility, reward_scale=1.0, caution=0.3)
        # All one-hots are equally far from the root.
        changes["planner"] = GraphSearch(frontier="nearest")
    if family is not Conv and all(part.kind != "continuous" for part in encoding.parts):
        chosen = changes.get("utility", base.utility)
        changes["utility"] = Marginal(reward_scale=chosen.reward_scale, caution=chosen.caution)
    if family is Conv:
        changes["exploit"] = GraphSearch(snap=_is_black_and_white(opened.made, encoding))
    if not looks_deterministic(opened.made, jax.random.key(0)):
        slower = dataclasses.replace(STATIONARY, target_rate=0.01)
        changes["planner"] = TreeSearch(value=slower if family is Conv else STATIONARY)
        if isinstance(base.exploit, GraphSearch):
            changes["exploit"] = OfflineDqn(value=DqnFit(heads=False, ending_share=0.2))
    return dataclasses.replace(base, **changes)


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
