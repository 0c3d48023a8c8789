"""DREEM on the latent combination lock: Algorithm 1 filled with the product class of `lock_class`."""

import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int

from e3rl.dreem.eliminate import RealizabilityError
from e3rl.dreem.lock.lock_class import (
    LockClass,
    Survivors,
    eliminate,
    lock_class,
    models_left,
    sample_counts,
)
from e3rl.dreem.lock.planner import exploit, explore, value
from e3rl.dreem.sampling import check_trajectories
from e3rl.dreem.theory import check_fraction
from e3rl.e3 import Epoch, Slots, explicit_explore_exploit, small_disagreement
from e3rl.envs.lock import GOAL_REWARD, NUM_ACTIONS, CombinationLock
from e3rl.types import UserError

LOCK_RANK = 2
"""d: the dead states' rows are known, so a level's misfit is a combination of those of its two good states."""
LOCK_BETA = 2.0 * math.sqrt(2.0)
"""β of that factorisation: ‖(P(good 1), P(good 2))‖₂ ≤ 1, and each state's misfit is at most 2."""


class Round(NamedTuple):
    v_explore: float
    models_before: int
    models_after: int
    episodes: int
    """Trajectories of this round: n for each of the H steps, whose last action is uniform."""
    policy: Int[np.ndarray, "H 2"]
    survivors: Survivors
    """After the round."""


class LockRun(NamedTuple):
    rounds: list[Round]
    finished: bool
    """Whether v_explore fell to ε/|A|, and not the limit on rounds ended it."""
    policy: Int[np.ndarray, "H 2"]
    true_model_kept: bool
    models_left: int
    v_explore: float
    """At the end."""
    value: float
    optimal_value: float

    @property
    def episodes(self) -> int:
        return sum(row.episodes for row in self.rounds)


def dreem_on_lock(
    lock: CombinationLock, n: int, phi: float, epsilon: float = 0.05, max_rounds: int = 1000, seed: int = 0
) -> LockRun:
    """Run DREEM with n trajectories per round and step, misfit threshold φ and tolerance ε.

    ε counts in the units of section 2, rewards in [0, 1]: the lock's returns divided by the span of its rewards.
    """
    check_trajectories(n)
    if not phi > 0.0:
        raise UserError(f"phi must be positive, got {phi}")
    check_fraction("epsilon", epsilon)
    candidates, rng = lock_class(lock), np.random.default_rng(seed)
    rounds: list[Round] = []

    def plan(survivors: Survivors, replay: Any, before: Any, t: int) -> tuple[Any, float]:
        found = explore(candidates, survivors)
        return found.policy, found.value

    def stop(t: int, v_explore: float) -> bool:
        return small_disagreement(v_explore, epsilon, NUM_ACTIONS) or t >= max_rounds

    def collect(policy: Any, replay: Any, t: int) -> tuple[Any, None]:
        return sample_counts(candidates, policy, n, rng), None

    def update_model_set(survivors: Survivors, counts: Any, t: int) -> tuple[Survivors, int]:
        kept, smallest = eliminate(candidates, survivors, counts, n, phi)
        if not models_left(kept):
            raise RealizabilityError(
                f"round {t + 1} eliminated every model: φ = {phi:g} is below the noise of n = {n} samples; "
                f"smallest misfits per step: {np.round(smallest, 4).tolist()}"
            )
        return kept, models_left(survivors)

    def write_down(epoch: Epoch) -> None:
        left, episodes = models_left(epoch.models), n * candidates.horizon
        rounds.append(Round(epoch.v_explore, epoch.fitted, left, episodes, epoch.policy, epoch.models))

    def choose(survivors: Survivors, replay: Any, v_explore: float) -> LockRun:
        policy = exploit(candidates, np.stack([np.argwhere(mask)[0] for mask in survivors]))
        return LockRun(
            rounds,
            finished=small_disagreement(v_explore, epsilon, NUM_ACTIONS),
            policy=policy,
            true_model_kept=_kept(candidates, survivors),
            models_left=models_left(survivors),
            v_explore=v_explore,
            value=value(candidates, candidates.truth, policy),
            optimal_value=value(candidates, candidates.truth, exploit(candidates, candidates.truth)),
        )

    slots = Slots(plan, stop, collect, update_model_set, choose)
    return explicit_explore_exploit(candidates.everything(), None, slots, after_epoch=write_down)


def reward_span(lock: CombinationLock) -> float:
    """What a return is divided by to count in section 2's units."""
    return GOAL_REWARD + (1.0 / lock.horizon if lock.antishaped else 0.0)


def safe_threshold(n: int, horizon: int, rounds: int, delta: float) -> float:
    """A φ that keeps the true lock in every one of `rounds` rounds with probability 1 − δ.

    For the true model each test function's average has mean zero and, given the roll-in, terms within an interval of
    length 2; Hoeffding's inequality and a union over the 144² functions of a level, H levels and the rounds give it.
    """
    functions = 144**2
    return math.sqrt(2.0 * math.log(functions * horizon * rounds / delta) / n)


def _kept(candidates: LockClass, survivors: Survivors) -> bool:
    return all(bool(mask[tuple(truth)]) for mask, truth in zip(survivors, candidates.truth, strict=True))
