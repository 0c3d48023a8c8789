"""Planning by value: greedy in the value of the exploration MDP (section 2), fitted in imagination between episodes and
warm-started from one epoch to the next."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped

from e3rl.models.base import Problem
from e3rl.models.fit import ModelSet
from e3rl.planners.base import AbstractPlanner, Plan, Policy, single
from e3rl.planners.tried import beyond_tried
from e3rl.replay import Replay
from e3rl.runs.settings import group, setting
from e3rl.types import Key, key_for
from e3rl.values.imagined import Utility, ValueFit, fit_value, imagine
from e3rl.values.update import QState

PATIENCE, LEAST_PATIENCE = 3, 10
"""Epochs in a row in which little must be left to find, per time step of the horizon and at least: values travel
backwards from one epoch to the next, and while it is not yet known which entries of observations matter, members agree
for a while about what none of them sees."""


def fitted(
    value: QState | None,
    settings: ValueFit,
    models: ModelSet,
    replay: Replay,
    utility: Utility,
    problem: Problem,
    key: Key,
    depth: int = 1,
) -> QState:
    """The value after as many steps as the settings say; before the first episode, when there is nothing to imagine
    from, as it was."""
    assert value is not None
    replay = models.shown(replay)
    updates = settings.total(problem)
    draws = updates * settings.batch
    key_table = key_for(key, "imagined")
    table = imagine(models.members, replay, utility, problem.actions, draws, key_table)
    new, _ = fit_value(
        value, models.members, replay, key, utility, settings, updates, problem.actions, table, depth
    )
    return jax.tree.map(lambda new, old: jnp.where(replay.size > 0, new, old), new, value)


def greedily(policy: Policy, obs: Shaped[Array, "*obs"], time: Int[Array, ""]) -> Plan:
    """The action of largest value."""
    assert policy.value is not None
    values = policy.value.online(policy.scale(obs), time)
    return single(jnp.argmax(values).astype(jnp.int32), jnp.max(values))


@dataclass(frozen=True)
class ValuePlanner(AbstractPlanner):
    """Greedy in a fitted value."""

    value: ValueFit = group(ValueFit(), "How the value is fitted")
    tried: float = setting(
        0.0,
        "Disagreement counts as far as it is above this quantile of that about transitions in the replay buffer, which "
        "were tried; 0 counts all of it",
        at_most=1,
        before=0.0,
    )
    propagate: int = setting(
        1,
        "Steps after which members that imagine share a state again: they go their own ways until then, and their "
        "disagreement is that of their own states' successors; with 1 they are asked about one state at every step",
        at_least=1,
        before=1,
    )

    @property
    def calibrated(self) -> bool:
        return self.tried > 0.0

    def patience(self, horizon: int) -> int:
        return max(LEAST_PATIENCE, PATIENCE * horizon)

    def fresh(self, problem: Problem, key: Key) -> QState:
        return self.value.fresh(problem, key)

    def prepare(
        self,
        value: QState | None,
        models: ModelSet,
        replay: Replay,
        utility: Utility,
        problem: Problem,
        key: Key,
    ) -> QState:
        if self.tried > 0.0:
            utility = beyond_tried(utility, models.members, replay, self.tried)
        return fitted(value, self.value, models, replay, utility, problem, key, self.propagate)

    def plan(
        self,
        policy: Policy,
        obs: Shaped[Array, "*obs"],
        time: Int[Array, ""],
        key: Key,
        utility: Utility,
        problem: Problem,
    ) -> Plan:
        return greedily(policy, obs, time)
