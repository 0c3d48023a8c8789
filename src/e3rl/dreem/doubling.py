"""DREEM without knowing the rank d: the doubling trick of appendix A.3."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from e3rl.dreem.algorithm import Dreem, Result
from e3rl.dreem.model_class import ModelClass
from e3rl.envs.tabular import TabularMDP
from e3rl.types import UserError


class Doubling(NamedTuple):
    result: Result
    """Of the attempt that finished."""
    ranks: list[int]
    """The guesses d_i = 2^i tried, the last one enough."""
    trajectories: int
    """Of all attempts."""


def learn_unknown_rank(
    models: ModelClass,
    policies: ArrayLike,
    env: TabularMDP,
    *,
    epsilon: float = 0.1,
    delta: float = 0.1,
    seed: int | np.random.Generator = 0,
    max_rank: int | None = None,
) -> Doubling:
    """For i = 1, 2, …: DREEM with d_i = 2^i and δ_i = δ / (i (i+1)), until one ends within its T_i rounds.

    The rank is at most |S| (Proposition 1), so i stops at the first 2^i ≥ |S|; `max_rank` replaces |S|.
    """
    rng = np.random.default_rng(seed)
    limit = models.num_states if max_rank is None else max_rank
    ranks: list[int] = []
    trajectories = 0
    i = 1
    while True:
        rank = 2**i
        agent = Dreem(
            models,
            policies,
            epsilon=epsilon,
            delta=delta / (i * (i + 1)),
            rank=rank,
            check_policies=i == 1,
        )
        result = agent.learn(env, rng)
        ranks.append(rank)
        trajectories += result.trajectories
        if result.finished:
            return Doubling(result, ranks, trajectories)
        if rank >= limit:
            raise UserError(
                f"DREEM did not finish in its {agent.max_rounds} rounds even with d = {rank} ≥ {limit}"
            )
        i += 1
