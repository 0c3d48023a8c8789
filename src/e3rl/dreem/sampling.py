"""Counts of n trajectories drawn at once, equal in distribution to playing them one by one.

The misfit of step h sees only how often each (s_{h−1}, a_{h−1}, s_h) occurred. Trajectories are independent and the
process is Markov, so the number in each state at time k + 1, given those at time k, is a sum of multinomials: sampling
them level by level costs the same for 10 trajectories and for 10^16. The uniform last action takes a trajectory off the
policy, so every h needs n trajectories of its own: n·H in a round.
"""

import numpy as np
from jaxtyping import Float, Int

from e3rl.types import UserError

MAX_TRAJECTORIES = 2**62
"""Counts are int64. NumPy draws a binomial in double precision: beyond 2^53 single counts are rounded, which is far
below their standard deviation of about 2^26."""


def check_trajectories(n: int) -> int:
    if not 1 <= n <= MAX_TRAJECTORIES:
        raise UserError(f"n must be from 1 to 2^62 = {MAX_TRAJECTORIES:.3g} trajectories, got {n}")
    return int(n)


def sample_counts(
    rng: np.random.Generator,
    model: Float[np.ndarray, "H S A S"],
    start: Float[np.ndarray, " S"],
    policy: Int[np.ndarray, "H S"],
    n: int,
) -> Int[np.ndarray, "H S A S"]:
    """For each h = 1 … H, counts of (s_{h−1}, a_{h−1}, s_h) in n trajectories of their own.

    s_{h−1} is reached with the policy, a_{h−1} is uniform, s_h follows the model.
    """
    horizon, states, actions, _ = model.shape
    check_trajectories(n)
    # One row of `level` per h; row h is done once its states at time h are known.
    level = rng.multinomial(n, _chances(start), size=horizon)
    uniform = np.full(actions, 1.0 / actions)
    counts = np.empty((horizon, states, actions, states), np.int64)
    for h in range(horizon):
        taken = rng.multinomial(level[h], uniform)
        counts[h] = rng.multinomial(taken, _chances(model[h]))
        followed = _chances(model[h, np.arange(states), policy[h]])
        level[h + 1 :] = rng.multinomial(level[h + 1 :], followed).sum(axis=1)
    return counts


def _chances(rows: Float[np.ndarray, "*b S"]) -> Float[np.ndarray, "*b S"]:
    """Rows may miss 1 by rounding; NumPy gives what is left to the last entry, even where that has no chance."""
    return rows / rows.sum(axis=-1, keepdims=True)
