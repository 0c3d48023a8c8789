"""Model misfit matrices and their rank: section 3.2's measure of how hard an environment is."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from e3rl.dreem.distributions import Models, Policies
from e3rl.dreem.ellipsoid import enclosing_ellipsoid
from e3rl.dreem.misfit import misfits, roll_in_distributions
from e3rl.types import UserError

TrueModel = Float[np.ndarray, "H S A S"]


class Factorisation(NamedTuple):
    """A = U Vᵀ: row π of U embeds a policy, row M of V a model."""

    left: Float[np.ndarray, "P K"]
    right: Float[np.ndarray, "M K"]

    @property
    def rank(self) -> int:
        return self.left.shape[1]

    @property
    def beta(self) -> float:
        """max ‖u_i‖ · max ‖v_j‖, the β of rank(A, β)."""
        if self.rank == 0:
            return 0.0
        return float(np.linalg.norm(self.left, axis=1).max() * np.linalg.norm(self.right, axis=1).max())


def misfit_matrices(
    transitions: Models, true_model: TrueModel, start: Float[np.ndarray, " S"], policies: Policies
) -> Float[np.ndarray, "H P M"]:
    """A_h(π, M) = W(π, M, h)."""
    return np.moveaxis(misfits(transitions, true_model, start, policies), 2, 0)


def factored_misfit_matrices(
    transitions: Models,
    true_model: TrueModel,
    start: Float[np.ndarray, " S"],
    policies: Policies,
    values: int,
    factors: int,
) -> Float[np.ndarray, "H P M"]:
    """The misfit of S = O^d with a distance per factor, Σ_i ‖P_M(s'_i = ·|s,a) − P_{M*}(s'_i = ·|s,a)‖_TV.

    For independent factors it is at least the distance of the joint distributions and at most d times it. Factor i
    contributes a function of its own parents' values only, so these matrices obey Proposition 3 by construction;
    those of the joint distance need not.
    """
    if values**factors != transitions.shape[-1]:
        raise UserError(f"{values}^{factors} states expected, got {transitions.shape[-1]}")
    gap = (transitions - true_model).reshape(*transitions.shape[:-1], *(values,) * factors)
    lead = transitions.ndim - 1
    errors = np.zeros(transitions.shape[:-2])
    for i in range(factors):
        others = tuple(lead + j for j in range(factors) if j != i)
        errors += np.abs(gap.sum(axis=others)).sum(axis=-1).mean(axis=-1)
    roll_ins = roll_in_distributions(true_model, start, policies)
    return np.einsum("phs,mhs->hpm", roll_ins, errors, optimize=True)


def numerical_rank(matrix: Float[np.ndarray, "P M"], tolerance: float | None = None) -> int:
    """Singular values above `tolerance` times the largest; by default what rounding alone can leave."""
    scales = np.linalg.svd(matrix, compute_uv=False)
    relative = max(matrix.shape) * np.finfo(float).eps if tolerance is None else tolerance
    return int(np.sum(scales > relative * scales.max(initial=0.0)))


def factorise(matrix: Float[np.ndarray, "P M"], tolerance: float | None = None) -> Factorisation:
    """Balanced singular vectors: each side takes the square root of the singular values."""
    rank = numerical_rank(matrix, tolerance)
    left, scales, right = np.linalg.svd(matrix, full_matrices=False)
    root = np.sqrt(scales[:rank])
    return Factorisation(left[:, :rank] * root, right[:rank].T * root)


def rounded(factors: Factorisation) -> Factorisation:
    """The same product in the coordinates where the models' enclosing ellipsoid is the unit ball.

    By John's theorem the ball shrunk by √d lies in the convex hull of the ± v_j, so ‖u_i‖ ≤ √d max_j |u_i · v_j|:
    β ≤ √d · max |A| for every matrix of rank d. Misfits are at most 2, so β = 2√d always serves in Lemma 3.
    """
    if factors.rank == 0:
        return factors
    body = enclosing_ellipsoid(factors.right)
    root = body.basis @ np.linalg.cholesky(body.shape)
    return Factorisation(factors.left @ root, np.linalg.solve(root, factors.right.T).T)


def generalised_rank(matrix: Float[np.ndarray, "P M"], beta: float) -> tuple[int, float]:
    """Lower and upper bound on rank(A, β), the footnote of section 3.2; the upper one is infinite if none was found.

    |A_ij| ≤ ‖u_i‖‖v_j‖, so nothing factors below β = max |A|. From there on the factorisations tried are the balanced
    one, the rounded one, and A = A·I = I·A, whose inner dimension is larger but whose norms are those of rows of A.
    """
    rank = numerical_rank(matrix)
    if beta < np.abs(matrix).max(initial=0.0):
        return rank, np.inf
    balanced = factorise(matrix)
    if min(balanced.beta, rounded(balanced).beta) <= beta * (1.0 + 1e-9):
        return rank, float(rank)
    rows, columns = matrix.shape
    trivial = {columns: np.linalg.norm(matrix, axis=1).max(), rows: np.linalg.norm(matrix, axis=0).max()}
    return rank, min((float(size) for size, norm in trivial.items() if norm <= beta), default=np.inf)
