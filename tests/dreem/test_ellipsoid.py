"""The enclosing ellipsoid against answers known by hand, its optimality conditions, and the closed form of the cut."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from e3rl.dreem.ellipsoid import (
    SHRINKAGE,
    Ellipsoid,
    ball,
    cut,
    enclosing_ellipsoid,
    shrinkage,
    volume_ratio,
)


def full_shape(body):
    return body.basis @ body.shape @ body.basis.T


def cloud(seed, dimension, count=30):
    return np.random.default_rng(seed).normal(size=(count, dimension))


def test_axis_points_give_the_axes():
    body = enclosing_ellipsoid(np.diag([1.0, 2.0, 3.0]))
    np.testing.assert_allclose(full_shape(body), np.diag([1.0, 4.0, 9.0]), atol=1e-8)
    assert body.log_volume == pytest.approx(np.log(4 / 3 * np.pi * 6), abs=1e-8)


def test_square_and_cube_give_the_ball_around_them():
    for dimension in (2, 3, 4):
        corners = np.stack(np.meshgrid(*[[-1.0, 1.0]] * dimension), -1).reshape(-1, dimension)
        body = enclosing_ellipsoid(corners)
        np.testing.assert_allclose(full_shape(body), dimension * np.eye(dimension), atol=1e-7)


def test_points_within_change_nothing():
    corners = np.array([[1.0, 0.0], [0.0, 1.0]])
    inner = np.concatenate([corners, 0.3 * corners, [[0.5, -0.5]]])
    np.testing.assert_allclose(full_shape(enclosing_ellipsoid(inner)), np.eye(2), atol=1e-8)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), dimension=st.integers(1, 5))
def test_optimality_conditions(seed, dimension):
    """John's conditions: all points inside, and the identity a positive combination of the contact points' v vᵀ."""
    points = cloud(seed, dimension)
    body = enclosing_ellipsoid(points)
    gauge = body.gauge(points)
    assert gauge.max() <= 1.0 + 1e-9
    touching = points[gauge > 1.0 - 1e-5] @ body.basis
    white = np.linalg.solve(np.linalg.cholesky(body.shape), touching.T).T
    products = np.einsum("ni,nj->nij", white, white).reshape(len(white), -1).T
    _, residual = nnls(products, np.eye(dimension).ravel())
    assert residual < 1e-3


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), dimension=st.integers(2, 4))
def test_linear_maps_carry_the_ellipsoid_along(seed, dimension):
    points = cloud(seed, dimension)
    change = np.random.default_rng(seed + 1).normal(size=(dimension, dimension)) + 3 * np.eye(dimension)
    here, there = enclosing_ellipsoid(points), enclosing_ellipsoid(points @ change.T)
    np.testing.assert_allclose(full_shape(there), change @ full_shape(here) @ change.T, rtol=1e-5, atol=1e-6)


def test_flat_points_get_an_ellipsoid_of_their_span():
    body = enclosing_ellipsoid(np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0]]))
    assert body.dimension == 1
    assert np.exp(body.log_volume) == pytest.approx(2 * np.sqrt(8))
    assert body.gauge(np.array([[0.0, 0.0, 1.0]]))[0] == np.inf
    assert volume_ratio(body, ball(1.0, 3)) == 0.0


def test_nothing_but_the_origin():
    assert enclosing_ellipsoid(np.zeros((2, 3))).dimension == 0
    assert enclosing_ellipsoid(np.zeros((0, 3))).dimension == 0


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000), dimension=st.integers(1, 3), width=st.floats(0.05, 1.5))
def test_cut_equals_the_ellipsoid_of_many_points_of_the_slice(seed, dimension, width):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(dimension, dimension)) + 2 * np.eye(dimension)
    body = Ellipsoid(np.eye(dimension), root @ root.T)
    normal = rng.normal(size=dimension)
    white = root.T @ normal
    g = width / np.linalg.norm(white)
    # The extreme points of the slice: the sphere's two circles at ± g, and the sphere between them.
    sphere = rng.normal(size=(4000, dimension))
    unit = white / np.linalg.norm(white)
    heights = np.where(rng.random(4000) < 0.9, min(g, 1.0), rng.uniform(0, min(g, 1.0), 4000))
    across = sphere - np.outer(sphere @ unit, unit)
    lengths = np.linalg.norm(across, axis=1, keepdims=True)
    across = across / np.maximum(lengths, 1e-12) * np.sqrt(1 - heights[:, None] ** 2)
    ends = (heights[:, None] * unit + (across if dimension > 1 else 0.0)) @ root.T
    if dimension == 1 or g >= 1:
        ends = np.concatenate([ends, min(g, 1.0) * unit[None] @ root.T])
    around = enclosing_ellipsoid(ends, tolerance=1e-6)
    sliced = cut(body, normal, width)
    assert sliced.gauge(ends).max() <= 1 + 1e-9
    assert volume_ratio(around, sliced) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("dimension", [1, 2, 3, 10, 100])
def test_lemma_3_ratio_at_its_premise(dimension):
    """A slab of a third over √d: the constant of the proof is below 3/5 in every dimension."""
    normal = np.eye(dimension)[0]
    sliced = cut(ball(1.0, dimension), normal, 1 / (3 * np.sqrt(dimension)))
    assert volume_ratio(sliced, ball(1.0, dimension)) <= np.exp(0.5) / 3 < SHRINKAGE


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), dimension=st.integers(1, 4), phi=st.floats(0.001, 0.2))
def test_a_round_shrinks_as_lemma_3_says(seed, dimension, phi):
    rng = np.random.default_rng(seed)
    embeddings = np.concatenate([rng.random((60, dimension)), np.zeros((1, dimension))])
    left, policy = np.ones(61, bool), rng.random(dimension)
    row, inside = shrinkage(embeddings, left, policy, phi)
    assert row.ratio <= row.sliced_ratio * (1 + 1e-6)
    if row.applies:
        assert row.sliced_ratio <= SHRINKAGE
    assert inside[-1]


def test_a_half_space_would_not_shrink_anything():
    """Why the slab has two sides: the origin-centred ellipsoid around half a ball is the ball."""
    sphere = cloud(0, 2, 5000)
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    half = enclosing_ellipsoid(sphere[sphere[:, 0] <= 0.05], tolerance=1e-6)
    assert volume_ratio(half, ball(1.0, 2)) == pytest.approx(1.0, abs=1e-3)
