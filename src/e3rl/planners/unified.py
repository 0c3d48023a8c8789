"""Exploring and exploiting in one phase: greedy in a value of predicted reward plus a falling share of disagreement.

The paper's conclusion leaves it for future work, after R-max, which is optimistic about what it does not know. Here
what is not known is what the members disagree about. Or one of them is believed for an epoch, as if it had been drawn
from the posterior.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from e3rl.models.base import Prediction, Problem
from e3rl.models.ensemble import Ensemble
from e3rl.models.fit import ModelSet
from e3rl.planners.tried import beyond_tried
from e3rl.planners.utility import mean_reward
from e3rl.planners.value import ValuePlanner, fitted
from e3rl.replay import Replay
from e3rl.runs.settings import group, setting
from e3rl.types import Key, key_for
from e3rl.values.imagined import Utility, ValueFit
from e3rl.values.update import QState


@dataclass(frozen=True)
class UnifiedPlanner(ValuePlanner):
    """Greedy in a fitted value of reward and disagreement together."""

    # The value holds reward too: it does not say what is left to explore.
    estimates: ClassVar[bool] = False

    value: ValueFit = group(ValueFit(levels=20, joint=True), "How the value is fitted")
    tried: float = setting(
        0.9,
        "Disagreement counts as far as it is above this quantile of that about transitions in the replay buffer, which "
        "were tried; 0 counts all of it",
        at_most=1,
    )
    bonus: float = setting(100.0, "Weight of disagreement beside the predicted reward, in the first episode")
    half_life: float = setting(
        3.0, "Episodes per time step of the horizon after which that weight is a half; 0 keeps it"
    )
    reward_weight: float = setting(1.0, "Weight of the predicted reward; 0 only explores")
    believed: Literal["mean", "best", "sampled"] = setting(
        "mean",
        "Whose reward counts: the mean of the members, the largest that one of them predicts, or that of one member "
        "drawn for every epoch, whose transitions are then believed as well, without any bonus",
    )

    def share(self, replay: Replay, horizon: int) -> Float[Array, ""]:
        """The weight of disagreement by now."""
        if self.half_life == 0.0:
            return jnp.array(self.bonus)
        started = (replay.rows.time == 0) & (jnp.arange(replay.capacity) < replay.size)
        episodes = jnp.sum(started, dtype=jnp.float32)
        return self.bonus * 0.5 ** (episodes / (self.half_life * horizon))

    def worth(self, disagreement: Utility, share: Float[Array, ""]) -> Utility:
        """What a step is worth: reward and disagreement, the heavier of them with a weight of at most 1. Only their
        ratio matters, and a value that had to follow large weights as they fall would be late."""
        largest = jnp.maximum(share, 1.0)

        def both(predicted: Prediction) -> Float[Array, ""]:
            reward = jnp.max(predicted.reward) if self.believed == "best" else mean_reward(predicted)
            return (self.reward_weight * reward + share * disagreement(predicted)) / largest

        return both

    @property
    def calibrated(self) -> bool:
        return False

    def prepare(
        self,
        value: QState | None,
        models: ModelSet,
        replay: Replay,
        utility: Utility,
        problem: Problem,
        key: Key,
    ) -> QState:
        share = self.share(replay, problem.horizon)
        if self.believed == "sampled":  # a single member disagrees with nobody
            models = models._replace(members=_one_of(models.members, key_for(key, "believed")))
            share = jnp.array(0.0)
        elif self.tried > 0.0:
            utility = beyond_tried(utility, models.members, replay, self.tried)
        worth = self.worth(utility, share)
        return fitted(value, self.value, models, replay, worth, problem, key, self.propagate)


def _one_of(members: Ensemble, key: Key) -> Ensemble:
    """An ensemble of one of the members."""
    chosen = jax.random.randint(key, (), 0, jax.tree.leaves(members)[0].shape[0])
    return jax.tree.map(lambda leaf: leaf[chosen][None], members)
