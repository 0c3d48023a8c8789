"""The value network against numpy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import drawn_by_numpy

from e3rl.values.network import QNetwork

INPUTS, ACTIONS, HORIZON, WIDTH = 3, 2, 4, 6


def numpy_weights(shape=(INPUTS,), horizon=HORIZON, heads=True, seed=0):
    return drawn_by_numpy(lambda key: QNetwork(shape, ACTIONS, horizon, WIDTH, heads, key=key), seed=seed)


@eqx.filter_jit
def at_each(q, obs, times):
    return jax.vmap(q, in_axes=(None, 0))(obs, times)


@pytest.mark.parametrize("heads", [True, False])
def test_values_are_those_of_the_network_written_out(heads):
    """Past the horizon they are zero."""
    q, obs = numpy_weights(heads=heads), np.array([1, 0, 1])
    times = jnp.array([*range(HORIZON), HORIZON, HORIZON + 3])
    values = at_each(q, jnp.array(obs, jnp.int8), times)
    w = jax.tree.map(np.asarray, q)
    for t in range(HORIZON):
        x = np.maximum(w.observe @ (obs - 0.5) + w.clock[t], 0)
        x = np.maximum(w.hidden @ x + w.hidden_bias, 0)
        head = t if heads else 0
        np.testing.assert_allclose(values[t], w.head[head] @ x + w.head_bias[head], atol=1e-6)
    assert w.head.shape[0] == (HORIZON if heads else 1)
    assert len(np.unique(values[:HORIZON])) == HORIZON * ACTIONS
    np.testing.assert_array_equal(values[HORIZON:], 0.0)


def test_seeds_start_from_different_networks_worth_their_optimism():
    """Before any training every action is worth about that."""
    build = eqx.filter_jit(
        lambda key: [
            QNetwork((INPUTS,), ACTIONS, HORIZON, WIDTH, True, optimism=optimism, key=key)
            for optimism in (0.0, 5.0)
        ]
    )
    (first, hopeful), (second, _) = build(jax.random.key(0)), build(jax.random.key(1))
    for name in ("observe", "clock", "hidden", "head"):
        assert not np.any(np.isclose(getattr(first, name), getattr(second, name)))
    obs, times = jnp.array([0.1, 0.9, 0.4]), jnp.arange(HORIZON)
    plain = np.asarray(at_each(first, obs, times))
    np.testing.assert_allclose(at_each(hopeful, obs, times), plain + 5.0, rtol=1e-5)
    assert np.abs(plain).max() < 1.0


def test_without_a_horizon_time_does_not_matter():
    q, obs = numpy_weights(horizon=None), np.array([0.2, 0.9, 0.4], np.float32)
    values = at_each(q, jnp.asarray(obs), jnp.array([0, 5, 10_000]))
    w = jax.tree.map(np.asarray, q)
    assert w.clock is None
    assert w.head.shape[0] == 1  # heads were asked for, but they need a horizon
    x = np.maximum(w.observe @ (obs - 0.5) + w.bias, 0)
    x = np.maximum(w.hidden @ x + w.hidden_bias, 0)
    for row in values:
        np.testing.assert_allclose(row, w.head[0] @ x + w.head_bias[0], atol=1e-5)


def slow_convolution(image, kernel, stride):
    """3×3 places around every `stride`-th pixel, zeros beyond the edge, as SAME padding lays them."""
    height, breadth, _ = image.shape
    rows, columns = -(-height // stride), -(-breadth // stride)
    top = max((rows - 1) * stride + 3 - height, 0) // 2
    left = max((columns - 1) * stride + 3 - breadth, 0) // 2
    padded = np.pad(image, ((top, 3), (left, 3), (0, 0)))
    found = np.zeros((rows, columns, kernel.shape[-1]))
    for i in range(rows):
        for j in range(columns):
            patch = padded[i * stride : i * stride + 3, j * stride : j * stride + 3]
            found[i, j] = np.tensordot(patch, kernel, 3)
    return found


@pytest.mark.parametrize("shape", [(5, 4, 3), (33, 2, 1)])
def test_images_pass_a_convolution_first(shape):
    q = numpy_weights(shape, None)
    image = np.random.default_rng(1).uniform(size=shape).astype(np.float32)
    w = jax.tree.map(np.asarray, q)
    assert q.stride == (2 if max(shape) > 32 else 1)
    features = np.maximum(slow_convolution(image - 0.5, w.kernel, q.stride), 0).reshape(-1)
    x = np.maximum(w.observe @ features + w.bias, 0)
    x = np.maximum(w.hidden @ x + w.hidden_bias, 0)
    expected = w.head[0] @ x + w.head_bias[0]
    np.testing.assert_allclose(
        eqx.filter_jit(q)(jnp.asarray(image), jnp.array(3)), expected, rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(("shape", "horizon"), [((INPUTS,), HORIZON), ((INPUTS,), None), ((5, 4, 3), None)])
def test_columns_are_single_observations_side_by_side(shape, horizon):
    q = numpy_weights(shape, horizon)
    obs = jnp.asarray(np.random.default_rng(2).uniform(size=(*shape, 7)), jnp.float32)

    @jax.jit
    def both(time):
        return q.columns(obs, time), jax.lax.map(lambda o: q(o, time), jnp.moveaxis(obs, -1, 0)).T

    for time in (0, HORIZON - 1, HORIZON):
        together, each = both(jnp.array(time))
        assert each.shape == (ACTIONS, 7)
        np.testing.assert_allclose(together, each, rtol=1e-5, atol=1e-5)
