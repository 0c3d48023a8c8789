"""Where the rounds of practice stand (App. C.3), and what a checkpoint in them holds."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from e3rl.neural.config import Rounds
from e3rl.neural.slots import OneSeed
from e3rl.planners.base import Policy
from e3rl.replay import Replay
from e3rl.runs.lanes import unless_over

ROUND, ROUNDS, EXPLORED = "round", "rounds", "explored"
"""What is said about a checkpoint that was made in the rounds: how many are over, of how many, and the episodes before
them."""


class Practice(NamedTuple):
    """The policy that is tried and the best of those before it, a lane for each seed."""

    tried: Policy
    best: Policy
    score: Float[Array, "*lanes"]
    """The mean return of the best in its real episodes."""
    v_explore: Float[Array, "*lanes"]
    """When exploration ended."""

    @staticmethod
    def begin(policy: Policy, v_explore: Float[Array, "*lanes"]) -> "Practice":
        return Practice(policy, policy, jnp.full_like(v_explore, -jnp.inf), v_explore)

    def judged(self, returns: Float[Array, "lanes n"]) -> tuple["Practice", Bool[np.ndarray, " lanes"]]:
        """After episodes of the policy that is tried, and whether it is now the best; of equals the later one is, which
        has learned from more."""
        score = jnp.mean(returns, axis=1)
        worse = ~(np.asarray(score) >= np.asarray(self.score))
        best, score = unless_over(worse, (self.tried, score), (self.best, self.score))
        return self._replace(best=best, score=score), ~worse


def rounds_of(rounds: Rounds, ceiling: int, replay: Replay) -> list[int]:
    """How many each seed practises, where exploration was to take `ceiling` episodes and took those in its buffer."""
    there = np.arange(replay.rows.time.shape[1]) < np.asarray(replay.size)[:, None]
    explored = np.count_nonzero(there & (np.asarray(replay.rows.time) == 0), axis=1)
    spare = np.maximum(ceiling - explored, 0) * (rounds.leftover and rounds.count > 0)
    found: list[int] = (rounds.count + spare // rounds.episodes).tolist()
    return found


def saved_shapes(one: OneSeed, about: Mapping[str, Any]) -> tuple:
    """One seed's state in a checkpoint of which `about` is said: models, the planner's value and the replay buffer; in
    the rounds nobody explores, and where these stand is added."""

    def state(key: Array) -> tuple:
        models, value, replay = one.fresh(key)
        if ROUND not in about:
            return models, value, replay
        policy = one.untrained(models, replay.scale, key)
        return models, None, replay, Practice.begin(policy, jnp.array(jnp.inf))

    found: tuple = eqx.filter_eval_shape(state, jax.random.key(0))
    return found


def exploration_starts(time: Int[np.ndarray, " rows"], about: Mapping[str, Any]) -> Int[np.ndarray, " n"]:
    """The rows of a checkpoint's replay buffer at which episodes of exploration begin, and the one after the last of
    them: those of practice come later."""
    starts = np.append(np.flatnonzero(time == 0), len(time))
    practised = about["rows"] - about.get(EXPLORED, about["rows"])
    return starts[: len(starts) - practised]
