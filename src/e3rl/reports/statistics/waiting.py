"""How long something took, where some runs ended before it happened."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from e3rl.reports.statistics.intervals import LEVEL, Interval, Share


class Waiting(NamedTuple):
    """Episodes until something happened in each run, and how long was waited."""

    happened: tuple[int, ...]
    """In the runs in which it did."""
    gave_up: tuple[int, ...]
    """How long the other runs were."""

    @classmethod
    def of(cls, when: Sequence[int | None], budgets: Sequence[int]) -> "Waiting":
        """None where it did not happen within the budget."""
        pairs = list(zip(when, budgets, strict=True))
        return cls(
            tuple(at for at, _ in pairs if at is not None), tuple(most for at, most in pairs if at is None)
        )

    @property
    def share(self) -> Share:
        return Share(len(self.happened), len(self.happened) + len(self.gave_up))

    @property
    def median(self) -> Interval:
        """Kaplan and Meier's, with the ends of their band (by log(−log)); infinite where too few of the runs
        got there."""
        if not self.happened:
            return Interval(math.inf, float(min(self.gave_up, default=0)), math.inf)
        found = stats.ecdf(stats.CensoredData.right_censored([*self.happened, *self.gave_up], self._lost)).sf
        with np.errstate(divide="ignore", invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # where all or none are left there is no band
            band = found.confidence_interval(LEVEL, method="log-log")
        low, middle, high = (
            _crossing(found.quantiles, np.nan_to_num(curve.probabilities, nan=last))
            for curve, last in ((band.low, 0.0), (found, 0.0), (band.high, 1.0))
        )
        return Interval(middle, low, high)

    @property
    def _lost(self) -> list[bool]:
        return [False] * len(self.happened) + [True] * len(self.gave_up)

    def __str__(self) -> str:
        """Such as "3 of 5 [15%, 95%], median 2,174" or "0 of 5 [0%, 52%], median > 5,000"."""
        middle, least = self.median.value, min(self.gave_up, default=0)
        return f"{self.share}, median {f'> {least:,.0f}' if math.isinf(middle) else f'{middle:,.0f}'}"


def _crossing(times: np.ndarray, left: np.ndarray) -> float:
    """When at most half are left, the rounding of sums aside."""
    below = np.flatnonzero(left <= 0.5 + 1e-12)
    return float(times[below[0]]) if len(below) else math.inf


class Chosen(NamedTuple):
    """A budget that solved every one of some seeds, and what it does for the others."""

    budget: int | None
    """None where no budget solved them all."""
    chosen_on: tuple[int, ...]
    checked_on: tuple[int, ...]
    solved: Share
    """Of those it was not chosen on."""


def smallest_budget(solved: Mapping[int, Mapping[int, bool]]) -> Chosen:
    """The smallest budget from which on every second seed is solved, checked on the seeds between: on those that it was
    chosen for, it looks better than it is."""
    seeds = sorted({seed for by_seed in solved.values() for seed in by_seed})
    ours, others = tuple(seeds[::2]), tuple(seeds[1::2])
    best = None
    for budget in sorted(solved, reverse=True):
        if not all(solved[budget].get(seed, False) for seed in ours):
            break
        best = budget
    hits = 0 if best is None else sum(solved[best].get(seed, False) for seed in others)
    return Chosen(best, ours, others, Share(hits, 0 if best is None else len(others)))
