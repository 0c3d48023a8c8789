"""Returns episode by episode, in a form that is kept: the means of a hundred stretches."""

from collections.abc import Sequence

import numpy as np

POINTS = 100


def stretches(returns: Sequence[float]) -> list[tuple[int, float]]:
    """The last episode of every stretch, counted from 1, and the mean return of the stretch; a point per episode where
    there are not more."""
    parts = np.array_split(np.arange(len(returns)), min(POINTS, len(returns))) if len(returns) else []
    return [(int(part[-1]) + 1, round(float(np.mean([returns[i] for i in part])), 5)) for part in parts]
