"""Lemma 3 replayed on a finished run: how far each round shrinks the ellipsoids around the models that are left."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from e3rl.dreem.ellipsoid import Ellipsoid, Shrinkage, ball, cut, shrinkage, volume_ratio
from e3rl.dreem.rank import Factorisation, factorise, rounded


class ReplayedRound(NamedTuple):
    step: int
    """h_t, counted from 1: where the explored policy's largest misfit among the models left is."""
    policy: Float[np.ndarray, " D"]
    """U_{h_t}(π_t)."""
    left: Bool[np.ndarray, " M"]
    """The set M̃_t of the technical lemma, before the round."""
    kept: Bool[np.ndarray, " M"]
    """M̃_{t+1}: misfit at most 2φ at h_t."""
    largest_misfit: float
    volumes: Shrinkage
    """Of the ellipsoids around the models' embeddings, as in the paper's proof."""
    body: Ellipsoid
    """Around all vectors, of models or not, that the slabs of the rounds so far leave of a ball. It holds the models
    left and, unlike O_t, always the ball of radius 2φ/Φ that bounds the number of rounds."""
    body_ratio: float


def embeddings(matrix: Float[np.ndarray, "P M"]) -> Factorisation:
    """A_h = U Vᵀ in the coordinates with the smaller β of the two factorisations at hand."""
    balanced = factorise(matrix)
    return min(balanced, rounded(balanced), key=lambda factors: factors.beta)


def replay(
    matrices: Float[np.ndarray, "H P M"], explored: Sequence[int], phi: float
) -> tuple[list[ReplayedRound], list[Factorisation]]:
    """The rounds of a run that explored these policies with threshold φ, and the embeddings per step.

    The paper bounds the rounds by the volume of O_t, the ellipsoid around the embeddings of the models left, and says
    that O_t contains the ball of radius 2φ/Φ. Around finitely many models it does not: they may span less than d
    dimensions, down to the single point V(M*) = 0. The bodies, which start from a ball of radius Ψ and are cut by the
    same slabs, do contain it, hold the models left by induction, and shrink by the same factor; the lemma's count of
    rounds is theirs.
    """
    factors = [embeddings(matrix) for matrix in matrices]
    bodies = [ball(float(np.linalg.norm(each.right, axis=1).max(initial=0.0)), each.rank) for each in factors]
    left = np.ones(matrices.shape[2], bool)
    rounds = []
    for policy in explored:
        misfits = matrices[:, policy][:, left].max(axis=1)
        h = int(np.argmax(misfits))
        embedded = factors[h].left[policy]
        volumes, kept = shrinkage(factors[h].right, left, embedded, phi)
        body = cut(bodies[h], embedded, 2.0 * phi)
        ratio = volume_ratio(body, bodies[h])
        rounds.append(ReplayedRound(h + 1, embedded, left, kept, float(misfits[h]), volumes, body, ratio))
        bodies[h], left = body, kept
    return rounds, factors
