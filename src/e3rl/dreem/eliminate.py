"""UpdateModelSet by elimination (Algorithm 2): a model stays if its empirical misfit is at most φ at every step."""

import numpy as np
from jaxtyping import Bool, Float, Int

from e3rl.dreem.distributions import Models
from e3rl.dreem.misfit import empirical_misfits, residuals
from e3rl.types import UserError


def consistent(misfits: Float[np.ndarray, "M H"], phi: float) -> Bool[np.ndarray, " M"]:
    """Line 2 of Algorithm 2: W̃(π_explore, M, h) ≤ φ for all h."""
    return np.all(misfits <= phi, axis=1)


def misfits_around(
    transitions: Models, counts: Int[np.ndarray, "H S A S"], phi: float
) -> Float[np.ndarray, "M H"]:
    """`empirical_misfits` as far as Algorithm 2 needs them: each entry is at most W̃ and on the same side of φ.

    W̃ lies between its maximum over M's own test functions ± sign(P_M − P_M'), |M| of the |M|², and the L1 norm of
    the residual, the maximum over all |f| ≤ 1. Only models for which φ lies between the two need all of F.
    """
    models, horizon = transitions.shape[:2]
    above, below = np.zeros((2, models, horizon))
    stationary = transitions.strides[1] == 0
    for h in range(1 if stationary else horizon):
        steps = slice(None) if stationary else slice(h, h + 1)
        tables = np.ascontiguousarray(transitions[:, h]).reshape(models, -1)
        for k in range(models):
            rest = residuals(transitions[k : k + 1, steps], counts[steps])[0]
            above[k, steps] = np.abs(rest).sum(axis=1)
            below[k, steps] = np.abs(rest @ np.sign(tables[k] - tables).T).max(axis=1)
    gone = (below > phi).any(axis=1)
    open_ = np.flatnonzero(((above > phi) & (below <= phi)).any(axis=1) & ~gone)
    if len(open_):
        below[open_] = empirical_misfits(transitions, counts, open_)
    return below


def update_model_set(
    kept: Int[np.ndarray, " m"],
    transitions: Models,
    counts: Int[np.ndarray, "H S A S"],
    phi: float,
) -> tuple[Int[np.ndarray, " k"], Float[np.ndarray, "M H"]]:
    """Algorithm 2 on the models with indices `kept`, whose tables are `transitions`: those left, and the misfits."""
    misfits = misfits_around(transitions, counts, phi)
    left = kept[consistent(misfits, phi)]
    if len(left) == 0:
        order = np.argsort(misfits.max(axis=1))[:5]
        shown = ", ".join(f"model {kept[k]}: {misfits[k].max():.3g}" for k in order)
        raise RealizabilityError(
            f"every model was eliminated, so realizability failed: either the true model is not in the class or n "
            f"is too small for φ = {phi:.3g}; smallest of the last misfits: {shown}"
        )
    return left, misfits


class RealizabilityError(UserError):
    """No model agrees with the experience."""
