"""The misfit W(π, M, h) of section 3 and its estimate from counts by integral probability metrics (appendix A.1)."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from e3rl.dreem.distributions import Models, Policies, advance
from e3rl.planners.utility import total_variation

PAIR_BLOCK = 2048
"""Test functions evaluated in one matrix product."""
RESIDUAL_BYTES = 2**28
Counts = Int[np.ndarray, "H S A S"] | Float[np.ndarray, "H S A S"]
"""How often (s_{h−1}, a_{h−1}, s_h) occurred, or expected counts."""


def misfit_by_state(
    transitions: Models, true_model: Float[np.ndarray, "H S A S"]
) -> Float[np.ndarray, "M H S"]:
    """V_h(M, s) = E_{a ~ U(A)} ‖P_M(·|s,a) − P_M*(·|s,a)‖_TV, the right factor of Proposition 1."""
    return total_variation(transitions, np.broadcast_to(true_model, transitions.shape)).mean(axis=-1)


def roll_in_distributions(
    true_model: Float[np.ndarray, "H S A S"], start: Float[np.ndarray, " S"], policies: Policies
) -> Float[np.ndarray, "P H S"]:
    """U_h(π, s) = P_M*^{π,h−1}(s) for h = 1 … H, the left factor of Proposition 1."""
    horizon, states = true_model.shape[:2]
    occupancy = np.empty((len(policies), horizon, states))
    occupancy[:, 0] = start
    for h in range(1, horizon):
        occupancy[:, h] = advance(true_model[None, h - 1], occupancy[None, :, h - 1], policies[:, h - 1])[0]
    return occupancy


def misfits(
    transitions: Models,
    true_model: Float[np.ndarray, "H S A S"],
    start: Float[np.ndarray, " S"],
    policies: Policies,
) -> Float[np.ndarray, "P M H"]:
    """W(π, M, h) for h = 1 … H: the entries A_h(π, M) of the model misfit matrices, [:, :, h − 1] for A_h."""
    errors = misfit_by_state(transitions, true_model)
    roll_ins = roll_in_distributions(true_model, start, policies)
    return np.einsum("phs,mhs->pmh", roll_ins, errors, optimize=True)


def residuals(transitions: Models, counts: Counts) -> Float[np.ndarray, "M H S*A*S"]:
    """(n(s,a) P_M(s'|s,a) − n(s,a,s')) / n: the empirical misfit of M for a test function f is its product with f."""
    models, horizon = transitions.shape[:2]
    visits = counts.sum(axis=-1)
    total = visits.sum(axis=(1, 2)).astype(np.float64)[:, None, None]
    predicted = transitions * (visits / total)[..., None]
    predicted -= counts / total[..., None]
    return predicted.reshape(models, horizon, -1)


def empirical_misfits(
    transitions: Models, counts: Counts, which: Int[np.ndarray, " m"] | None = None
) -> Float[np.ndarray, "m H"]:
    """W̃(π, M, h) for h = 1 … H: the largest mean of E_M[f] − f(s,a,s') over the test functions F (appendix A.1).

    The paper's f_{π,M,h} is the sign of P_M − P_M*, which needs the true model. While that is in the class, the
    computable F = {± sign(P_M − P_M') : pairs of the given models} contains them all, so the maximum over F of
    the expectation is W; F has up to |M|² members, which `theory.constants` carries into n. `which` picks the
    models whose misfits are wanted; F comes from all that are given.
    """
    which = np.arange(len(transitions)) if which is None else which
    models, horizon = transitions.shape[:2]
    stationary = transitions.strides[1] == 0
    found = np.zeros((len(which), horizon))
    group = max(1, RESIDUAL_BYTES // max(1, transitions[0].size * transitions.itemsize))
    for low in range(0, len(which), group):
        rest = residuals(transitions[which[low : low + group]], counts)
        for h in range(1 if stationary else horizon):
            steps = slice(None) if stationary else slice(h, h + 1)
            tables = np.ascontiguousarray(transitions[:, h]).reshape(models, -1)
            sums = rest[:, steps].reshape(-1, tables.shape[1])
            best = np.zeros(len(sums))
            for signs in _test_functions(tables):
                products = sums @ signs.T
                np.maximum(
                    best, np.abs(products, out=products).max(axis=1), out=best
                )  # both signs of f at once
            found[low : low + group, steps] = best.reshape(len(rest), -1)
    return found


def _test_functions(tables: Float[np.ndarray, "M E"]) -> Iterator[Float[np.ndarray, "F E"]]:
    """sign(P_M − P_M') over all pairs, in blocks."""
    held: list[np.ndarray] = []
    for i in range(1, len(tables)):
        held.append(np.sign(tables[:i] - tables[i]))
        if sum(map(len, held)) >= PAIR_BLOCK or i == len(tables) - 1:
            yield np.concatenate(held)
            held = []
