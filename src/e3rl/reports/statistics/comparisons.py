"""Methods side by side over several tasks, as in Agarwal et al. (2021)."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from e3rl.reports.statistics.intervals import Interval, Scores, stratified_bootstrap


def probability_of_improvement(ours: Scores, theirs: Scores) -> float:
    """The chance that a seed of ours is above one of theirs, equal ones counted half; the mean over tasks."""
    by_task = [np.sign(x[:, None] - y[None]) for x, y in zip(ours, theirs, strict=True)]
    return float(np.mean([(1 + signs.mean()) / 2 for signs in by_task]))


def improvement(ours: Scores, theirs: Scores) -> Interval:
    return stratified_bootstrap(probability_of_improvement, ours, theirs)


def performance_profile(scores: Scores, marks: Sequence[float]) -> Float[np.ndarray, " marks"]:
    """The share of all runs above each mark."""
    return np.mean(np.concatenate(scores)[:, None] > np.asarray(marks, float), axis=0)
