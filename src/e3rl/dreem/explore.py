"""argmax over Π of v_explore, line 5 of Algorithm 1, exact over all pairs of models (section 2 with section 3's D).

Written with minima instead of absolute values, D(π, M, M', h) = 2 − 2/|A| Σ_{s,a,s'} min(μ(s) p, μ'(s) p') for the
occupancies μ, μ' at time h − 1 and the chances p, p' of s' given (s, a). Two bounds from above follow, each from
min(μ p, μ' p') ≥ min(μ, μ') min(p, p'):
  of a policy  Σ_h D ≤ 2H − Σ_h Σ_s min(μ, μ')(s) G_h(s),  G_h(s) = 2/|A| Σ_{a,s'} min(p, p'), computed once a pair;
  of a pair    min(μ, μ') is at least the mass that moves along min(p, p'), so 2H minus the least total G which any
               policy can collect there, by backward induction, bounds every policy at once.
Only what these leave above the best value found so far is evaluated in full. Both hold exactly, so the result is that
of going over everything. The policy bound runs in float32 with a margin for rounding unless values are tiny.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from e3rl.dreem.distributions import Models, Policies, advance
from e3rl.types import UserError

SLAB = 512
"""Policies whose occupancies are held at once, fewer where they would take more than this:"""
SLAB_BYTES = 2**29
BLOCK_BYTES = 2**20
"""Of the temporary minima, so that they stay in the second-level cache."""
BATCH = 256
"""Combinations evaluated in full at once."""
MAX_PAIR_BYTES = 2**30
TIE = 1e-12
ZERO = 1e-13
"""Bounds below this are rounding."""
SEED_PAIRS, SEED_POLICIES, SEED_BEST = 512, 32, 8


class Exploration(NamedTuple):
    policy: int
    """The first policy that attains the maximum (within 1e-12, so that rounding decides nothing)."""
    value: float
    """v_explore(π_explore, M_t) = max_π max_{M,M'} Σ_h D(π, M, M', h)."""
    pair: tuple[int, int]
    """The models that disagree most under it."""
    evaluated: int
    """(pair, policy) combinations that the bounds left to evaluate."""


def best_policy(transitions: Models, start: Float[np.ndarray, " S"], policies: Policies) -> Exploration:
    """The policy under which some two models disagree most."""
    if len(transitions) == 1:
        return Exploration(0, 0.0, (0, 0), 0)
    return _Search(transitions, start, policies).run()


def total_disagreement(
    transitions: Models,
    start: Float[np.ndarray, " S"],
    policies: Policies,
    first: Int[np.ndarray, " C"],
    second: Int[np.ndarray, " C"],
    policy: Int[np.ndarray, " C"],
) -> Float[np.ndarray, " C"]:
    """Σ_h D(π, M, M', h) of each combination (M, M', π) given by its indices."""
    horizon, states, actions, _ = transitions.shape[1:]
    values = np.empty(len(policy))
    for low in range(0, len(policy), BATCH):
        at = slice(low, low + BATCH)
        size = len(policy[at])
        mine = theirs = np.broadcast_to(start, (size, states))
        total = np.zeros(size)
        for h in range(horizon):
            joint = mine[:, :, None, None] * transitions[first[at], h]
            other = theirs[:, :, None, None] * transitions[second[at], h]
            if h < horizon - 1:
                taken = policies[policy[at], h].astype(np.intp)[:, :, None, None]
                mine = np.take_along_axis(joint, taken, axis=2)[:, :, 0].sum(axis=1)
                theirs = np.take_along_axis(other, taken, axis=2)[:, :, 0].sum(axis=1)
            joint -= other
            total += np.abs(joint, out=joint).reshape(size, -1).sum(axis=1)
        values[at] = total / actions
    return values


class _Slab(NamedTuple):
    """The occupancies P_M^{π,h}, h = 1 … H−1, of some policies in all models."""

    chosen: Int[np.ndarray, " P"]
    exact: Float[np.ndarray, "M P h S"]
    packed: Float[np.ndarray, "M K P"]
    """The same with (h, s) in one axis and policies last, in the precision of the bounds."""
    margin: float
    """How far off rounding may put a bound."""


class _Search:
    def __init__(self, transitions: Models, start: Float[np.ndarray, " S"], policies: Policies):
        self.transitions, self.start = transitions, start
        models, self.horizon, self.states, self.actions, _ = transitions.shape
        # The last action is uniform: policies that agree before it are one.
        _, self.distinct = np.unique(
            policies[:, : self.horizon - 1].reshape(len(policies), -1), axis=0, return_index=True
        )
        self.policies = policies
        self.stationary = transitions.strides[1] == 0
        steps = 1 if self.stationary else self.horizon
        pairs = models * (models - 1) // 2
        bytes_needed = pairs * (steps * self.states + 1) * 8
        if bytes_needed > MAX_PAIR_BYTES:
            fits = int((2 * MAX_PAIR_BYTES / ((steps * self.states + 1) * 8)) ** 0.5)
            raise UserError(
                f"{models} models make {pairs} pairs, whose bounds take {bytes_needed / 2**30:.1f} GiB; "
                f"at most {fits} models fit in {MAX_PAIR_BYTES / 2**30:.0f} GiB"
            )
        self.agreement = np.empty((pairs, steps, self.states))
        self.pair_bound = np.empty(pairs)
        self.lock, self.local = threading.Lock(), threading.local()
        self.best = 0.0
        self.ties: list[tuple[int, float, int, int]] = [(0, 0.0, 1, 0)]
        """(policy, value, M, M') of combinations as good as the best."""
        self.evaluated = 0

    def run(self) -> Exploration:
        models = len(self.transitions)
        with ThreadPoolExecutor(_threads()) as pool:
            list(pool.map(self._bound_pairs, range(models)))
            self._seed()
            each = (
                16 * models * max(1, self.horizon - 1) * self.states
            )  # bytes a policy takes, twice in float64
            size = min(SLAB, max(1, SLAB_BYTES // each))
            for low in range(0, len(self.distinct), size):
                slab = self._occupancies(self.distinct[low : low + size])
                # Later models have more pairs, so the long tasks come first.
                list(pool.map(lambda i, slab=slab: self._search(i, slab), reversed(range(1, models))))
        policy, _, first, second = min(self.ties)
        return Exploration(policy, self.best, (first, second), self.evaluated)

    def _rows(self, i: int) -> slice:
        """Where the pairs (i, 0) … (i, i − 1) are."""
        return slice(i * (i - 1) // 2, i * (i + 1) // 2)

    def _bound_pairs(self, i: int) -> None:
        """G and the bound by backward induction of every pair (i, j), j < i."""
        common = np.minimum(self.transitions[:i, :1], self.transitions[i, :1])
        future = np.zeros((i, self.states))
        for h in reversed(range(self.horizon)):
            if not self.stationary:
                common = np.minimum(self.transitions[:i, h : h + 1], self.transitions[i, h : h + 1])
            step = 0 if self.stationary else h
            agreement = common[:, 0].sum(axis=3).mean(axis=2) * 2.0
            self.agreement[self._rows(i), step] = agreement
            flat = common.reshape(i, self.states * self.actions, self.states)
            moved = (flat @ future[:, :, None]).reshape(i, self.states, self.actions)
            future = agreement + moved.min(axis=2)
        self.pair_bound[self._rows(i)] = 2.0 * self.horizon - future @ self.start

    def _seed(self) -> None:
        """A good value to prune against: promising pairs with a few policies, the best of those with all."""
        limit = min(SEED_PAIRS, 1 + len(self.pair_bound) // 64)
        promising = np.argsort(-self.pair_bound, kind="stable")[:limit]
        first = ((1 + np.sqrt(1 + 8 * promising)) / 2).astype(int)
        second = promising - first * (first - 1) // 2
        few = self.distinct[:: max(1, len(self.distinct) // SEED_POLICIES)]
        values = self._evaluate_anywhere(
            first.repeat(len(few)), second.repeat(len(few)), np.tile(few, len(first))
        )
        tops = np.argsort(-values.reshape(len(first), -1).max(axis=1), kind="stable")[:SEED_BEST]
        everyone = len(self.distinct)
        for top in tops:
            self._evaluate_anywhere(
                np.full(everyone, first[top]), np.full(everyone, second[top]), self.distinct
            )

    def _evaluate_anywhere(
        self, first: Int[np.ndarray, " C"], second: Int[np.ndarray, " C"], policy: Int[np.ndarray, " C"]
    ) -> Float[np.ndarray, " C"]:
        values = total_disagreement(self.transitions, self.start, self.policies, first, second, policy)
        self._record(values, first, second, policy)
        return values

    def _occupancies(self, chosen: Int[np.ndarray, " P"]) -> _Slab:
        models, policies = len(self.transitions), self.policies[chosen]
        exact = np.empty((models, len(chosen), self.horizon - 1, self.states))
        occupancy = np.broadcast_to(self.start, (models, len(chosen), self.states))
        for h in range(self.horizon - 1):
            occupancy = exact[:, :, h] = advance(self.transitions[:, h], occupancy, policies[:, h])
        rounding = 4.0 * self.horizon * (self.horizon * self.states + 8)
        small = self.best < 1e3 * rounding * float(np.finfo(np.float32).eps)
        dtype: type[np.floating] = np.float64 if small else np.float32
        packed = exact.reshape(models, len(chosen), -1).transpose(0, 2, 1).astype(dtype, order="C")
        return _Slab(chosen, exact, packed, rounding * float(np.finfo(dtype).eps))

    def _search(self, i: int, slab: _Slab) -> None:
        """Evaluate the combinations of model i, an earlier model and a policy of the slab that the bounds leave."""
        packed, margin = slab.packed, slab.margin
        rows = self._rows(i)
        # Equal models have the bound 0, up to rounding, and nothing to say.
        bound = self.pair_bound[rows]
        open_ = (bound >= self.best - margin) & (bound > ZERO)
        block = max(1, BLOCK_BYTES // max(1, packed[0].nbytes))
        minima = self._buffer((block, *packed.shape[1:]), packed.dtype)
        found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        for low in range(0, i, block):
            js = low + np.flatnonzero(open_[low : low + block])
            if len(js) == 0:
                continue
            if 2 * len(js) > js[-1] - js[0]:  # a slice is cheaper than a copy of most of it
                js = np.arange(js[0], js[-1] + 1)
                others = packed[js[0] : js[-1] + 1]
            else:
                others = np.take(packed, js, axis=0, out=minima[: len(js)], mode="clip")
            agreement = self.agreement[rows][js]
            at_start = agreement[:, 0] @ self.start
            later = agreement.repeat(self.horizon - 1, axis=1) if self.stationary else agreement[:, 1:]
            np.minimum(others, packed[i], out=minima[: len(js)])
            weights = later.reshape(len(js), 1, -1).astype(packed.dtype)
            shared = np.matmul(weights, minima[: len(js)])[:, 0]
            # bound = 2H − at_start − shared, so this is bound ≥ best − margin
            limit = 2.0 * self.horizon - self.best + margin - at_start
            limit[~open_[js]] = -1.0
            hit = shared <= limit[:, None].astype(packed.dtype)
            if hit.any():
                which, policy = np.nonzero(hit)
                found.append((js[which], policy, 2.0 * self.horizon - at_start[which] - shared[hit]))
        if found:
            self._evaluate_best_first(i, slab, *map(np.concatenate, zip(*found, strict=True)))

    def _buffer(self, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        """One per thread: fresh pages for every task would cost more than the work on them."""
        held = getattr(self.local, "buffer", None)
        if held is None or held.shape != shape or held.dtype != dtype:
            held = self.local.buffer = np.empty(shape, dtype)
        return held

    def _evaluate_best_first(
        self,
        i: int,
        slab: _Slab,
        js: Int[np.ndarray, " C"],
        policy: Int[np.ndarray, " C"],
        bound: Float[np.ndarray, " C"],
    ) -> None:
        order = np.argsort(-bound, kind="stable")
        for low in range(0, len(order), BATCH):
            at = order[low : low + BATCH]
            at = at[bound[at] >= self.best - slab.margin]
            if len(at) == 0:
                return
            values = self._evaluate(i, js[at], policy[at], slab)
            self._record(values, np.full(len(at), i), js[at], slab.chosen[policy[at]])

    def _evaluate(
        self, i: int, js: Int[np.ndarray, " C"], policy: Int[np.ndarray, " C"], slab: _Slab
    ) -> Float[np.ndarray, " C"]:
        """`total_disagreement` from the slab's occupancies; at time 0 they are equal, and D is 2 − Σ_s start G."""
        pairs = self._rows(i).start + js
        total = np.zeros(len(js))
        mine, theirs = slab.exact[i, policy], slab.exact[js, policy]
        shape = (len(js), self.states, self.actions * self.states)
        for h in range(1, self.horizon):
            if h == 1 or not self.stationary:
                table = self.transitions[i, h].reshape(shape[1:])
                tables = self.transitions[js, h].reshape(shape)
            gap = mine[:, h - 1, :, None] * table
            gap -= theirs[:, h - 1, :, None] * tables
            total += np.abs(gap, out=gap).reshape(len(js), -1).sum(axis=1)
        return 2.0 - self.agreement[pairs, 0] @ self.start + total / self.actions

    def _record(
        self,
        values: Float[np.ndarray, " C"],
        first: Int[np.ndarray, " C"],
        second: Int[np.ndarray, " C"],
        policy: Int[np.ndarray, " C"],
    ) -> None:
        """Keep the best value and, of the combinations that tie with it, those with the smallest policy."""
        with self.lock:
            self.evaluated += len(values)
            self.best = max(self.best, float(values.max()))
            tied = np.flatnonzero(values >= self.best - TIE)
            if len(tied) == 0:
                return
            kept = {int(values.argmax()), int(tied[np.argmin(policy[tied])])}
            self.ties = [tie for tie in self.ties if tie[1] >= self.best - TIE]
            self.ties += [(int(policy[c]), float(values[c]), int(first[c]), int(second[c])) for c in kept]


def _threads() -> int:
    """CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
