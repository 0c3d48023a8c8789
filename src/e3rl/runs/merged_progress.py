"""What is told of seeds that are trained apart from each other, as one run's progress."""

import math
import time
from collections.abc import Iterable

from e3rl.runs.progress import FITTING, Progress

COMPILING = "compiling"
FIRST, LAST = (COMPILING, FITTING, "explore", "train"), "exploit"
"""Phases before and after those that take turns, of practice and fitting."""


class MergedProgress:
    """One for some seeds: takes what each of them tells, gives what is new in all of it."""

    def __init__(self, seeds: int):
        self._seeds = seeds
        self._latest: dict[int, Progress] = {}
        self._explored: dict[int, tuple[int, int]] = {}
        """Episodes of a seed's exploration, and how many there will be."""
        self._done: set[int] = set()
        self._told: Progress | None = None
        self._began = time.perf_counter()

    def end(self, seed: int) -> None:
        """This one is done."""
        self._done.add(seed)

    def take(self, seed: int, progress: Progress) -> Progress | None:
        """What there is to tell now; None where nobody would see a difference."""
        self._latest[seed] = progress
        if _stage(progress) == 0:
            self._explored[seed] = progress.episode, progress.episodes
        else:  # it may have needed fewer
            explored, _ = self._explored.get(seed, (progress.episode, 0))
            self._explored[seed] = explored, explored
        merged = self._merged()
        if merged is None or (
            self._told is not None and merged == self._told._replace(seconds=merged.seconds)
        ):
            return None
        self._told = merged
        return merged

    def _merged(self) -> Progress | None:
        """The numbers of the seeds that are furthest back, since the others will wait for them."""
        under_way = [each for seed, each in self._latest.items() if seed not in self._done]
        told = [each for each in under_way if each.phase != COMPILING]
        if not told and self._told is not None:  # later seeds have their programs already
            return None
        first = min(told or under_way, key=lambda each: (_stage(each), each.episode))
        alike = [each for each in under_way if each.phase == first.phase]
        if _stage(first) == 0:
            episode, episodes = map(sum, zip(*self._explored.values(), strict=True))
            episodes += (self._seeds - len(self._explored)) * max(each.episodes for each in alike)
        else:
            episode = sum(each.episode for each in self._latest.values())
            episodes = episode + sum(max(each.episodes - each.episode, 0) for each in told)
        return Progress(
            first.phase,
            episode,
            episodes,
            _mean(each.mean_return for each in alike),
            _mean(each.disagreement for each in alike),
            time.perf_counter() - self._began,
            first.what,
            any(each.at_most for each in alike),
            max((each.epsilon_hat for each in alike if not math.isnan(each.epsilon_hat)), default=math.nan),
            self._seeds,
            len(self._done),
        )


def _stage(progress: Progress) -> int:
    return 0 if progress.phase in FIRST else 2 if progress.phase == LAST else 1


def _mean(values: Iterable[float]) -> float:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan
