"""Settings that suit an environment by its looks, for users who name none."""

import dataclasses
from typing import Any

import jax

from e3rl.envs.determinism import looks_deterministic
from e3rl.envs.glance import categories_of, glance
from e3rl.envs.opening import Opened
from e3rl.models import natural_family
from e3rl.models.base import kinds_of
from e3rl.models.conv import Conv
from e3rl.models.factored import Factored
from e3rl.models.tiles import Tiles
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.presets import PRESETS, STATIONARY
from e3rl.planners.exploit_dqn import OfflineDqn
from e3rl.planners.graph_search import GraphSearch
from e3rl.planners.mcts import TreeSearch
from e3rl.planners.utility import Marginal
from e3rl.values.double_dqn import DqnFit

DENSE_EPISODES, DENSE_ROUNDS = 30, 3
"""Episodes, those of practice included, and rounds of practice where rewards differ from step to step: there is little
to look for."""


def suited_config(opened: Opened) -> NeuralE3Config:
    """The dynamics family follows from the observations, declared and seen, the planner from whether steps look
    deterministic."""
    encoding = opened.spec.encoding
    family = natural_family(encoding)
    seen = glance(opened.made)
    if opened.spec.may_hide_time and not seen.one_hot:
        return PRESETS["e3rl"]
    categories = categories_of(seen, encoding.space)
    if categories is not None:
        tiles = PRESETS["e3rl-tiles"]
        return dataclasses.replace(tiles, model=Tiles(categories=categories.count, unit=categories.unit))
    declared = kinds_of(encoding) == {"categorical"}
    model = Factored(one_hot=True) if seen.one_hot and not declared else family()
    family = type(model)
    deterministic = looks_deterministic(opened.made, jax.random.key(0))
    if deterministic and (declared or seen.one_hot):
        # States that can be told apart are planned over one by one, and learned from before an episode is over.
        return dataclasses.replace(PRESETS["e3rl-categories"], model=model)
    base = PRESETS["e3rl-image" if family is Conv else "e3rl-numbers"]
    changes: dict[str, Any] = {"model": model}
    if seen.rewards_differ:
        rounds = dataclasses.replace(base.rounds, count=min(base.rounds.count, DENSE_ROUNDS))
        episodes = DENSE_EPISODES - rounds.total
        changes |= {"rounds": rounds, "explore": dataclasses.replace(base.explore, episodes=episodes)}
    if family is Factored:
        # A category never tried may promise any reward, so what members disagree about is sought while exploring and
        # shunned while exploiting.
        changes["utility"] = dataclasses.replace(base.utility, reward_scale=1.0, caution=0.3)
        # All one-hots are equally far from the root.
        changes["planner"] = GraphSearch(frontier="nearest")
    if seen.one_hot or (family is not Conv and all(part.kind != "continuous" for part in encoding.parts)):
        chosen = changes.get("utility", base.utility)
        changes["utility"] = Marginal(reward_scale=chosen.reward_scale, caution=chosen.caution)
    if family is Conv:
        changes["exploit"] = GraphSearch(snap=seen.black_and_white)
    if not deterministic:
        slower = dataclasses.replace(STATIONARY, target_rate=0.01)
        changes["planner"] = TreeSearch(value=slower if family is Conv else STATIONARY)
        if isinstance(base.exploit, GraphSearch):
            changes["exploit"] = OfflineDqn(value=DqnFit(heads=False, ending_share=0.2))
    return dataclasses.replace(base, **changes)
