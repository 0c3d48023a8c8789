"""The exact worth of a small finite problem, by backward induction over its tables."""

import numpy as np
from jaxtyping import Float


def best_values(
    chance: Float[np.ndarray, "S A S"], gain: Float[np.ndarray, "S A"], horizon: int
) -> Float[np.ndarray, " S"]:
    """The best expected sum of gain(s, a) over `horizon` steps, from every state. An end is a state that stays where it
    is and gains nothing."""
    value = np.zeros(len(gain))
    for _ in range(horizon):
        value = np.max(gain + chance @ value, axis=1)
    return value
