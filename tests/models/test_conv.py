"""Convolutional dynamics: the convolution against XLA's own, and one maze learned exactly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import drawn_by_numpy

from e3rl.envs.maze import Maze, MazeState
from e3rl.models import conv
from e3rl.models.conv import ConvDynamics, convolve
from e3rl.models.ensemble import make_ensemble
from e3rl.models.fit import Fit, make_model_set, update_model_set
from e3rl.replay import Replay, Transitions


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("channels", "backend"), [(3, "cpu"), (3, "gpu"), (4, "gpu")])
def test_convolution_equals_xla_s(stride, channels, backend, monkeypatch):
    rng = np.random.default_rng(0)
    image = jnp.array(rng.normal(size=(5, 6, channels)), jnp.float32)
    kernel = jnp.array(rng.normal(size=(3, 3, channels, 4)), jnp.float32)
    wanted = jax.lax.conv_general_dilated(
        image[None], kernel, (stride, stride), ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )[0]
    asked, products_first = [], conv.multiply_and_shift

    def watched(*given):
        asked.append(given)
        return products_first(*given)

    monkeypatch.setattr(conv, "multiply_and_shift", watched)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    ours = convolve(image, kernel.reshape(9 * channels, 4), stride)
    assert bool(asked) == (channels == 4 and stride == 1)
    np.testing.assert_allclose(ours, wanted, rtol=1e-4, atol=1e-4)


def test_a_pooled_head_judges_a_shifted_image_alike():
    """Away from the border: three layers see three pixels beyond the patch, and two into the padding."""
    model = drawn_by_numpy(lambda key: ConvDynamics((13, 13, 2), 2, 4, 8, "pooled", key=key))
    patch = np.random.default_rng(1).random((2, 2, 2))
    images = np.full((3, 13, 13, 2), 0.5, np.float32)
    for image, (row, column) in zip(images, ((5, 5), (6, 5), (5, 6)), strict=True):
        image[row : row + 2, column : column + 2] = patch
    judged = jax.jit(jax.vmap(lambda image: model(image, jnp.array(1), jnp.array(0)).reward))
    rewards = np.asarray(judged(images))
    np.testing.assert_allclose(rewards, rewards[0], rtol=1e-5)


def whole_maze():
    """Every move from every open cell but the goal of one 5 × 5 maze."""
    env = Maze(5)
    start, _ = jax.jit(env.reset)(jax.random.key(3))
    cells = [cell for cell in np.argwhere(~np.asarray(start.walls)) if not np.array_equal(cell, start.goal)]
    agents = jnp.array([cell for cell in cells for _ in range(4)], jnp.int32)
    action = jnp.array(list(range(4)) * len(cells), jnp.int32)

    @jax.jit
    @jax.vmap
    def step(agent, action):
        state = MazeState(start.walls, agent, start.goal, jnp.int32(0))
        _, next_obs, reward, terminated, _ = env.step(jax.random.key(0), state, action)
        return Transitions(env._observe(state), action, jnp.int32(0), reward, next_obs, terminated)

    rows = step(agents, action)
    size = jnp.array(len(action), jnp.int32)
    return Replay.empty(len(action), rows.obs[0])._replace(rows=rows, size=size)


@pytest.mark.slow
@pytest.mark.parametrize("head", ["dense", "pooled"])
def test_learns_one_maze_exactly(head):
    replay = whole_maze()
    rows = replay.rows
    settings = Fit(updates=1500, batch=16, learning_rate=3e-3, prior_weight=0.0)
    make = eqx.filter_jit(
        lambda key: make_ensemble(lambda key: ConvDynamics((5, 5, 3), 4, 16, 32, head, key=key), 1, key)
    )
    models, _ = eqx.filter_jit(update_model_set)(
        make_model_set(make(jax.random.key(0)), settings), replay, jax.random.key(1), settings
    )
    model = jax.tree.map(lambda leaf: leaf[0], models.members)
    predicted = jax.jit(jax.vmap(model))(rows.obs, rows.action, rows.time)
    np.testing.assert_array_equal(np.round(predicted.obs), rows.next_obs)
    np.testing.assert_allclose(predicted.reward, rows.reward, atol=0.1)
    np.testing.assert_array_equal(predicted.termination > 0.5, rows.terminated)
    assert np.any(rows.terminated)
