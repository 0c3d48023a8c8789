"""Origin-centred minimum-volume enclosing ellipsoids: the potential function in the proof of Lemma 3."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import gammaln

SHRINKAGE = 3.0 / 5.0
"""Lemma 3: a round that does not terminate leaves at most this share of the volume."""
REFRESH = 64
"""Rank-one updates between two exact inversions."""


class Ellipsoid(NamedTuple):
    """{B y : yᵀ Q⁻¹ y ≤ 1}, with B an orthonormal basis of the span of what it encloses."""

    basis: Float[np.ndarray, "D R"]
    shape: Float[np.ndarray, "R R"]
    """Q: its eigenvalues are the squared half-axes."""

    @property
    def dimension(self) -> int:
        return self.shape.shape[0]

    @property
    def log_volume(self) -> float:
        """Of the R-dimensional body; R < D means that the volume in D dimensions is zero."""
        r = self.dimension
        ball = 0.5 * r * np.log(np.pi) - gammaln(0.5 * r + 1.0)
        return float(ball + 0.5 * np.linalg.slogdet(self.shape)[1])

    def gauge(self, points: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
        """√(yᵀ Q⁻¹ y): at most 1 inside, infinite outside the span."""
        inner = points @ self.basis
        outside = np.linalg.norm(points - inner @ self.basis.T, axis=1)
        squared = np.einsum("nr,nr->n", inner @ np.linalg.inv(self.shape), inner)
        scale = np.maximum(1.0, np.linalg.norm(points, axis=1))
        return np.where(outside > 1e-9 * scale, np.inf, np.sqrt(np.maximum(squared, 0.0)))


def ball(radius: float, dimension: int) -> Ellipsoid:
    return Ellipsoid(np.eye(dimension), radius**2 * np.eye(dimension))


def volume_ratio(after: Ellipsoid, before: Ellipsoid) -> float:
    """vol(after) / vol(before); zero where `after` has fewer dimensions."""
    if after.dimension < before.dimension:
        return 0.0
    return float(np.exp(after.log_volume - before.log_volume))


def enclosing_ellipsoid(
    points: Float[np.ndarray, "N D"], tolerance: float = 1e-9, max_iterations: int = 100_000
) -> Ellipsoid:
    """The smallest ellipsoid around the origin that holds all points, by Khachiyan's algorithm with away steps.

    Maximises log det X over X = Σ u_i v_i v_iᵀ with u in the simplex. At the optimum v_iᵀ X⁻¹ v_i ≤ R for all i, with
    equality where u_i > 0; it stops when both hold up to the factor 1 ± `tolerance`, so that the volume is within
    (1 + tolerance)^(R/2) of the smallest. Points that span fewer than D dimensions get an ellipsoid of their span.
    """
    basis = _span(points)
    inner = points @ basis
    r = inner.shape[1]
    if r == 0:
        return Ellipsoid(basis, np.zeros((0, 0)))
    weights = np.zeros(len(inner))
    weights[_spread(inner)] = 1.0 / r
    inverse, kappa = _whiten(inner, weights)
    for iteration in range(max_iterations):
        if iteration % REFRESH == REFRESH - 1:
            inverse, kappa = _whiten(inner, weights)
        farthest = int(np.argmax(kappa))
        held = np.flatnonzero(weights)
        nearest = int(held[np.argmin(kappa[held])])
        above, below = kappa[farthest] / r - 1.0, 1.0 - kappa[nearest] / r
        if max(above, below) <= tolerance:
            break
        j = farthest if above >= below else nearest
        # The best step along the edge towards point j; a negative one moves away, at most until its weight is gone.
        drop = -weights[j] / (1.0 - weights[j]) if weights[j] < 1.0 else -np.inf
        step = (kappa[j] - r) / (r * (kappa[j] - 1.0)) if kappa[j] > 1.0 else drop
        dropped = step <= drop
        step = max(step, drop)
        ratio = step / (1.0 - step)
        along = inverse @ inner[j]
        pull = ratio / (1.0 + ratio * kappa[j])
        kappa = (kappa - pull * (inner @ along) ** 2) / (1.0 - step)
        inverse = (inverse - pull * np.outer(along, along)) / (1.0 - step)
        weights *= 1.0 - step
        weights[j] = 0.0 if dropped else weights[j] + step
    _, kappa = _whiten(inner, weights)
    # Scaled so that every point is inside, whatever is left of the optimality gap.
    return Ellipsoid(basis, kappa.max() * (inner.T * weights) @ inner)


def cut(body: Ellipsoid, normal: Float[np.ndarray, " D"], width: float) -> Ellipsoid:
    """The smallest origin-centred ellipsoid around {v in `body` : |normal · v| ≤ width}, in closed form.

    In the coordinates where the body is the unit ball the cut is |y_1| ≤ g. The points (g, √(1−g²)) have to be inside;
    minimising the volume under that constraint gives the half-axes² R g² along the normal and (1−g²) R/(R−1) across.
    For g ≥ 1/√R the ball itself is the smallest.
    """
    r = body.dimension
    if r == 0:
        return body
    root = np.linalg.cholesky(body.shape)
    direction = root.T @ (body.basis.T @ normal)
    length = float(np.linalg.norm(direction))
    if length == 0.0 or width >= length / np.sqrt(r):
        return body
    g, unit = width / length, direction / length
    along = r * g**2
    across = (1.0 - g**2) * r / (r - 1) if r > 1 else 1.0
    squared = across * np.eye(r) + (along - across) * np.outer(unit, unit)
    return Ellipsoid(body.basis, root @ squared @ root.T)


class Shrinkage(NamedTuple):
    """One round of Lemma 3's argument at the step h_t where the explored misfit was largest."""

    before: Ellipsoid
    """O_t, around the embeddings of the models that were left."""
    sliced: Ellipsoid
    """O_{t,+}, around what the slab |U(π)ᵀ v| ≤ 2φ leaves of O_t."""
    after: Ellipsoid
    """O_{t+1}, around the embeddings of the models in the slab."""
    applies: bool
    """Whether a model with U(π)ᵀ V(M) ≥ 6√d φ was left, the premise of the 3/5."""

    @property
    def ratio(self) -> float:
        return volume_ratio(self.after, self.before)

    @property
    def sliced_ratio(self) -> float:
        return volume_ratio(self.sliced, self.before)


def shrinkage(
    embeddings: Float[np.ndarray, "M D"],
    left: Bool[np.ndarray, " M"],
    policy: Float[np.ndarray, " D"],
    phi: float,
) -> tuple[Shrinkage, Bool[np.ndarray, " M"]]:
    """Lemma 3's step for the models `left`: its ellipsoids, and the models whose misfit is at most 2φ.

    The paper slices by U(π)ᵀ v ≤ 2φ; an origin-centred ellipsoid around that half of a symmetric body is the body
    itself. Misfits are not negative, so the two-sided slab holds the same models, and it is what the 3/5 needs.
    """
    misfits = embeddings @ policy
    inside = left & (misfits <= 2.0 * phi)
    # The true model's embedding is zero but for rounding, and must not count as a dimension.
    sizes = np.linalg.norm(embeddings, axis=1, keepdims=True)
    points = np.where(sizes <= 1e-12 * sizes.max(initial=0.0), 0.0, embeddings)
    before = enclosing_ellipsoid(points[left])
    after = enclosing_ellipsoid(points[inside])
    applies = bool(misfits[left].max(initial=0.0) >= 6.0 * np.sqrt(embeddings.shape[1]) * phi)
    return Shrinkage(before, cut(before, policy, 2.0 * phi), after, applies), inside


def _span(points: Float[np.ndarray, "N D"]) -> Float[np.ndarray, "D R"]:
    if not len(points):
        return np.zeros((points.shape[1], 0))
    _, scales, directions = np.linalg.svd(points, full_matrices=False)
    return np.ascontiguousarray(directions[scales > 1e-10 * max(scales[0], 1e-300)].T)


def _spread(points: Float[np.ndarray, "N R"]) -> list[int]:
    """R points that span the space: each the farthest from the span of those before it."""
    rest, chosen = points.copy(), []
    for _ in range(points.shape[1]):
        j = int(np.argmax(np.einsum("nr,nr->n", rest, rest)))
        unit = rest[j] / np.linalg.norm(rest[j])
        rest -= np.outer(rest @ unit, unit)
        chosen.append(j)
    return chosen


def _whiten(
    points: Float[np.ndarray, "N R"], weights: Float[np.ndarray, " N"]
) -> tuple[Float[np.ndarray, "R R"], Float[np.ndarray, " N"]]:
    inverse = np.linalg.inv((points.T * weights) @ points)
    return inverse, np.einsum("nr,nr->n", points @ inverse, points)
