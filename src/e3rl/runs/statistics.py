"""Summaries of returns."""

import math

import numpy as np
from jaxtyping import Float


def mean_interval(values: Float[np.ndarray, " n"]) -> tuple[float, float, float]:
    """The mean and its 95% normal interval."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, math.nan, math.nan
    margin = 1.96 * float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return mean, mean - margin, mean + margin
