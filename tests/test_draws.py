"""Draws for many steps at once against draws inside of the loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl import draws
from e3rl.draws import normals


@pytest.mark.parametrize("count", [1, 7, 12, 35])
def test_what_is_drawn_together_is_what_would_be_drawn_step_by_step(count, monkeypatch):
    """Fewer than a block, several blocks, and a number that no block divides."""
    monkeypatch.setattr(draws, "BLOCK", 6)
    drawn_together = []

    def draw(given):
        key, weight = given
        return weight * jax.random.randint(key, (3,), 0, 100)

    def step(total, drawn):
        total = 2 * total % 1_000 + jnp.sum(drawn)
        return total, drawn

    def watched(given):
        drawn_together.append(given[1].shape)
        return draw(given)

    inputs = jax.random.split(jax.random.key(0), count), jnp.arange(count)
    start = jnp.array(1)
    wanted = jax.lax.scan(lambda total, given: step(total, draw(given)), start, inputs)
    found = draws.scan_drawn(step, watched, start, inputs)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    assert drawn_together == [()]


def test_no_more_than_a_block_is_drawn_together(monkeypatch):
    monkeypatch.setattr(draws, "BLOCK", 6)
    inputs = jnp.arange(12)
    text = str(jax.make_jaxpr(lambda x: draws.scan_drawn(lambda c, d: (c, d), jnp.sin, 0, x))(inputs))
    assert "f32[6] = sin" in text
    assert "f32[12] = sin" not in text


def test_normals_are_those_drawn_one_by_one():
    shapes = {"a": (3, 4), "b": (7,), "c": (2, 3, 5), "none": (0,)}
    keys = dict(zip(shapes, jax.random.split(jax.random.key(0), len(shapes)), strict=True))
    drawn = normals(keys, shapes)
    for name, shape in shapes.items():
        assert drawn[name].shape == shape
        np.testing.assert_allclose(drawn[name], jax.random.normal(keys[name], shape), rtol=1e-6)
