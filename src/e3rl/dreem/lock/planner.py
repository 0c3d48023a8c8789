"""Exact planning in the product class of `lock_class`: the exploration argmax by branch and bound, and exploitation.

The search runs forward over levels. A node is the pair (q, q') of state distributions that M and M' have at a level;
its branches are the joint choices of two models' arrangements at that level and of the two good states' actions. All
that a choice does is add its disagreement and send (q, q') on, and the second depends on the four outcomes of the
chosen actions only: at most 81 branches, each with the largest disagreement of any choice that leads there.

The bound: V_h(q, q'), the largest disagreement from level h on, is a maximum of norms of linear maps of (q, q'), so
subadditive and homogeneous. Split off what both have in common, m = min(q, q'):

    V_h(q, q') ≤ Σ_s m(s) V_h(s, s) + (H − h) ‖q − q'‖₁,

for mass that is not shared adds at most itself per step. V_h(s, s) obeys the same inequality one level on, which gives
an upper bound for it by backward induction over single states. The bound is attained while the best that M and M' can
do is "one lives, the other is dead", so the first dive usually ends the search; where it does not, branches whose bound
is below the best value found are cut, and the result is exact either way.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from e3rl.dreem.lock.lock_class import Level, LockClass, Survivors
from e3rl.envs.lock import DEAD, NUM_ACTIONS
from e3rl.types import UserError

SLACK = 1e-12
"""Branches that could gain no more than this are cut."""
MAX_NODES = 200_000


class ExplorePlan(NamedTuple):
    policy: Int[np.ndarray, "H 2"]
    """An action for each good state; at the last level any, since the last action of every step is uniform."""
    value: float
    """max over π, M, M' of Σ_h D(π, M, M', h)."""
    pair: Int[np.ndarray, "H 2 2"]
    """The arrangements of M and of M' that disagree: [level, model, good state]."""
    nodes: int


class _Branches(NamedTuple):
    """Every choice at one level, sorted by the outcomes it has: what the search needs of a mask [K, K]."""

    arrangements: Int[np.ndarray, "N 2"]
    order: Int[np.ndarray, " C"]
    """Choices, as flat indices into [A, A, N, N] (actions, M's and M''s arrangements), grouped by their outcomes."""
    starts: Int[np.ndarray, " G"]
    outcomes: Int[np.ndarray, "G 4"]
    """Outcome in good 1 of M and M', in good 2 of M and M'."""


def explore(lock: LockClass, survivors: Survivors, max_nodes: int = MAX_NODES) -> ExplorePlan:
    """argmax of v_explore over all deterministic time-dependent policies, with the pair of models that attains it."""
    search = _Search(lock, survivors, max_nodes)
    search.visit(0, lock.start, lock.start, 0.0, [])
    choices = np.array(search.choices)  # [H, 2 actions, 2 arrangements of M, 2 of M']
    return ExplorePlan(choices[:, 0:2], search.best, choices[:, 2:].reshape(-1, 2, 2), search.nodes)


class _Search:
    def __init__(self, lock: LockClass, survivors: Survivors, max_nodes: int):
        self.lock, self.max_nodes = lock, max_nodes
        self.branches = [_branches(level, mask) for level, mask in zip(lock.levels, survivors, strict=True)]
        self.shared = _shared_bounds(lock, self.branches)
        self.best, self.nodes = -1.0, 0
        self.choices: list[list[int]] = []
        self.seen: dict[tuple[int, bytes], float] = {}

    def bound(self, h: int, q: Float[np.ndarray, "*b T"], other: Float[np.ndarray, "*b T"]) -> np.ndarray:
        common = np.minimum(q, other)[..., :2] @ self.shared[h]
        return common + (self.lock.horizon - h) * np.abs(q - other).sum(axis=-1)

    def visit(
        self,
        h: int,
        q: Float[np.ndarray, " T"],
        other: Float[np.ndarray, " T"],
        so_far: float,
        path: list[list[int]],
    ) -> None:
        self.nodes += 1
        if self.nodes > self.max_nodes:
            raise UserError(
                f"exact planning passed {self.max_nodes} nodes; raise max_nodes or use a shorter lock"
            )
        # Two ways to the same pair of distributions have the same future: the better past decides.
        key = h, np.round(np.concatenate([q, other]), 13).tobytes()
        if self.seen.get(key, -1.0) >= so_far:
            return
        self.seen[key] = so_far
        level, options = self.lock.levels[h], self.branches[h]
        dead = float(np.abs(q[2:] - other[2:]).sum())
        scores = _local(level, q[0], other[0])[_pairs(options.arrangements[:, 0])]
        scores = scores + _local(level, q[1], other[1])[_pairs(options.arrangements[:, 1])]
        flat = np.tile(scores.ravel(), NUM_ACTIONS**2)[options.order]
        local = np.maximum.reduceat(flat, options.starts)
        totals = so_far + dead + local
        last = h == self.lock.horizon - 1
        if not last:
            o = options.outcomes
            after = q[0] * level.rows[o[:, 0]] + q[1] * level.rows[o[:, 2]]
            other_after = other[0] * level.rows[o[:, 1]] + other[1] * level.rows[o[:, 3]]
            after[:, DEAD] += q[2:].sum()
            other_after[:, DEAD] += other[2:].sum()
        bounds = totals if last else totals + self.bound(h + 1, after, other_after)
        for g in np.argsort(-bounds, kind="stable"):
            if bounds[g] <= self.best + SLACK:
                return
            choice = _choice(options, flat, int(g))
            if last:
                self.best, self.choices = float(totals[g]), [*path, choice]
                return
            self.visit(h + 1, after[g], other_after[g], float(totals[g]), [*path, choice])


def _pairs(arrangement: Int[np.ndarray, " N"]) -> tuple[np.ndarray, np.ndarray]:
    return arrangement[:, None], arrangement[None, :]


def _local(level: Level, mass: float, other: float) -> Float[np.ndarray, "K K"]:
    """1/|A| Σ_a ‖mass P_σ(·|a) − other P_σ'(·|a)‖₁ of every pair of arrangements of one good state."""
    distance = np.abs(mass * level.rows[:, None] - other * level.rows[None]).sum(axis=-1)
    return distance[level.outcomes[:, None], level.outcomes[None]].mean(axis=-1)


def _branches(level: Level, mask: np.ndarray) -> _Branches:
    arrangements = np.argwhere(mask)
    if not len(arrangements):
        raise UserError(
            "no model is left: the true lock is not in the class, or φ is below the noise of n samples"
        )
    kinds = len(level.rows)
    first, second = (level.outcomes[arrangements[:, s]].T for s in (0, 1))  # [A, N]
    one = first[:, :, None] * kinds + first[:, None, :]  # [A, N, N]
    two = second[:, :, None] * kinds + second[:, None, :]
    code = (one[:, None] * kinds**2 + two[None]).ravel()
    order = np.argsort(code, kind="stable")
    codes, starts = np.unique(code[order], return_index=True)
    outcomes = np.stack(np.unravel_index(codes, (kinds,) * 4), axis=1)
    return _Branches(arrangements, order, starts, outcomes)


def _choice(options: _Branches, flat: Float[np.ndarray, " C"], group: int) -> list[int]:
    """Actions, M's and M''s arrangements of the group's choice with the largest disagreement."""
    start = options.starts[group]
    end = options.starts[group + 1] if group + 1 < len(options.starts) else len(flat)
    count = len(options.arrangements)
    index = options.order[start + int(np.argmax(flat[start:end]))]
    a, b, i, j = np.unravel_index(index, (NUM_ACTIONS, NUM_ACTIONS, count, count))
    return [int(a), int(b), *map(int, options.arrangements[i]), *map(int, options.arrangements[j])]


def _shared_bounds(lock: LockClass, branches: list[_Branches]) -> Float[np.ndarray, "H_plus_1 2"]:
    """Upper bounds on V_h(s, s), a unit of mass of both models in good state s, by backward induction."""
    horizon = lock.horizon
    bounds = np.zeros((horizon + 1, 2))
    for h in reversed(range(horizon)):
        level = lock.levels[h]
        local = _local(level, 1.0, 1.0)
        future = np.zeros((len(level.rows),) * 2)
        if h < horizon - 1:
            rows = level.rows
            common = np.minimum(rows[:, None], rows[None])[..., :2] @ bounds[h + 1]
            future = common + (horizon - h - 1) * np.abs(rows[:, None] - rows[None]).sum(axis=-1)
        best_action = future[level.outcomes[:, None], level.outcomes[None]].max(axis=-1)
        for s in (0, 1):
            left = np.unique(branches[h].arrangements[:, s])
            bounds[h, s] = (local + best_action)[np.ix_(left, left)].max()
    return bounds


def exploit(lock: LockClass, model: Int[np.ndarray, "H 2"]) -> Int[np.ndarray, "H 2"]:
    """The best policy of one model, by backward induction."""
    values = np.zeros(2)  # of the good states one level on; being dead is worth nothing more
    policy = np.zeros((lock.horizon, 2), int)
    for h in reversed(range(lock.horizon)):
        level = lock.levels[h]
        worth = level.gains.copy()
        if h < lock.horizon - 1:
            worth[:2] += values
        q = level.tables[model[h]] @ worth
        policy[h], values = q.argmax(axis=-1), q.max(axis=-1)
    return policy


def value(lock: LockClass, model: Int[np.ndarray, "H 2"], policy: Int[np.ndarray, "H 2"]) -> float:
    """The policy's expected return in one model, in the lock's units."""
    values = np.zeros(2)
    for h in reversed(range(lock.horizon)):
        level = lock.levels[h]
        worth = level.gains.copy()
        if h < lock.horizon - 1:
            worth[:2] += values
        values = level.tables[model[h], policy[h]] @ worth
    return float(lock.start[:2] @ values)
