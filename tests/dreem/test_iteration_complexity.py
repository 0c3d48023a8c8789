"""Lemma 3's argument replayed: nested sets, the 3/5 where its premise holds, and the ball that no body loses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e3rl.dreem.ellipsoid import SHRINKAGE
from e3rl.dreem.iteration_complexity import embeddings, replay


def random_matrices(seed, rank=2):
    rng = np.random.default_rng(seed)
    left, right = rng.dirichlet(np.ones(rank), size=(3, 8)), 2 * rng.random((3, 40, rank)) ** 3
    right[:, 0] = 0.0  # the true model
    return left @ np.swapaxes(right, 1, 2)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), rank=st.integers(1, 3), phi=st.floats(0.005, 0.1))
def test_each_round_follows_the_proof(seed, rank, phi):
    matrices = random_matrices(seed, rank)
    explored = np.random.default_rng(seed).permutation(8)[:4].tolist()
    rounds, factors = replay(matrices, explored, phi)
    for policy, row in zip(explored, rounds, strict=True):
        misfits = matrices[row.step - 1, policy]
        np.testing.assert_array_equal(row.kept, row.left & (misfits <= 2 * phi))
        assert row.kept[0]
        assert row.largest_misfit == pytest.approx(matrices[:, policy][:, row.left].max())
        if row.volumes.applies:
            assert row.volumes.sliced_ratio <= SHRINKAGE
            assert row.body_ratio <= SHRINKAGE
        # The body holds the models left, and the ball that bounds the number of rounds.
        embedded = factors[row.step - 1]
        assert row.body.gauge(embedded.right[row.kept]).max() <= 1 + 1e-6
        radius = 2 * phi / np.linalg.norm(embedded.left, axis=1).max()
        assert np.linalg.eigvalsh(row.body.shape)[0] >= radius**2 * (1 - 1e-9)


def test_embeddings_multiply_back():
    matrix = random_matrices(3)[0]
    found = embeddings(matrix)
    np.testing.assert_allclose(found.left @ found.right.T, matrix, atol=1e-9)
    assert matrix.max() <= found.beta <= np.sqrt(2) * matrix.max() * (1 + 1e-6)


def test_a_step_without_any_misfit_does_not_disturb_the_others():
    matrices = np.concatenate([np.zeros((1, 8, 40)), random_matrices(0)])
    rounds, factors = replay(matrices, [0, 1], 0.05)
    assert factors[0].rank == 0
    assert all(row.step > 1 for row in rounds)
