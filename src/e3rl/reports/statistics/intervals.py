"""Numbers with their 95% intervals, none of which leaves what is possible.

Definitions of the interquartile mean and of the stratified bootstrap are those of Agarwal et al., "Deep Reinforcement
Learning at the Edge of the Statistical Precipice" (2021); tests hold them to the numbers of its own library.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import stats

LEVEL = 0.95
DRAWS = 2_000
"""Of a bootstrap."""

Scores = Sequence[Float[np.ndarray, " _"]]
"""Of every task those of its seeds."""


class Interval(NamedTuple):
    """A measured number and where the true one may lie."""

    value: float
    low: float
    high: float

    def text(self, form: str = ".2f") -> str:
        return f"{self.value:{form}} [{self.low:{form}}, {self.high:{form}}]"


class Share(NamedTuple):
    """How many of how many."""

    hits: int
    total: int

    @property
    def interval(self) -> Interval:
        """Clopper and Pearson's, which holds its level for every chance."""
        if not self.total:
            return Interval(math.nan, 0.0, 1.0)
        found = stats.binomtest(self.hits, self.total).proportion_ci(LEVEL, "exact")
        return Interval(self.hits / self.total, float(found.low), float(found.high))

    @property
    def is_most(self) -> bool:
        return 2 * self.hits > self.total

    @property
    def is_all(self) -> bool:
        return self.hits == self.total > 0

    def __str__(self) -> str:
        _, low, high = self.interval
        return f"{self.hits} of {self.total} [{_percent(low)}, {_percent(high)}]"


def _percent(share: float) -> str:
    """Whole percents, where those do not claim certainty."""
    return f"{share:.0%}" if share in (0.0, 1.0) or 0.005 < share < 0.995 else f"{share:.1%}"


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Median and range, as the paper draws them."""
    return f"{np.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def mean_within(values: Sequence[float], least: float = -math.inf, most: float = math.inf) -> Interval:
    """The mean by Student's t. What cannot be is cut off, which costs no coverage: the truth is not there."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Interval(mean, least, most)
    margin = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1) * stats.sem(values))
    return Interval(mean, max(least, mean - margin), min(most, mean + margin))


def interquartile_mean(scores: Scores) -> float:
    """The mean of the middle half of all runs, whichever task they belong to. SciPy's `trim_mean` mostly looks at its
    arguments, which a bootstrap has too many of."""
    every = np.sort(np.concatenate(scores))
    cut = len(every) // 4
    return float(np.mean(every[cut : len(every) - cut]))


def stratified_bootstrap(
    statistic: Callable[..., float], *groups: Scores, draws: int = DRAWS, seed: int = 0
) -> Interval:
    """A statistic of one or more groups of scores, seeds drawn anew within each task; the interval has percentiles of
    what that gives, so that a mean stays within the scores."""
    rng = np.random.default_rng(seed)
    drawn = [statistic(*([_again(task, rng) for task in group] for group in groups)) for _ in range(draws)]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(statistic(*groups), float(low), float(high))


def _again(scores: Float[np.ndarray, " seeds"], rng: np.random.Generator) -> Float[np.ndarray, " seeds"]:
    return scores[rng.integers(len(scores), size=len(scores))]
