"""The value network and its training step against numpy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.values.network import QNetwork, QSettings, make_q_state, update_q

INPUTS, ACTIONS, HORIZON, WIDTH = 3, 2, 4, 6
HARD = QSettings(0.1, 10.0, 0.0, 3)

step = eqx.filter_jit(update_q)


def make(heads=True, seed=0):
    """A network with weights from numpy, which costs no compilation."""
    rng = np.random.default_rng(seed)
    shapes = eqx.filter_eval_shape(QNetwork, (INPUTS,), ACTIONS, HORIZON, WIDTH, heads, key=jax.random.key(0))
    return jax.tree.map(lambda leaf: jnp.array(rng.normal(0.0, 0.5, leaf.shape), jnp.float32), shapes)


def constant(bias):
    """A network that is its last layer's bias, one row a time step."""
    zeros = jax.tree.map(jnp.zeros_like, make())
    return eqx.tree_at(lambda q: q.head_bias, zeros, jnp.array(bias))


@pytest.mark.parametrize("heads", [True, False])
def test_values_are_those_of_the_network_written_out(heads):
    q = make(heads)
    values = jax.jit(jax.vmap(q, in_axes=(None, 0)))(jnp.array([1, 0, 1], jnp.int8), jnp.arange(HORIZON))
    w = jax.tree.map(np.asarray, q)
    for t in range(HORIZON):
        x = np.maximum(w.observe @ (np.array([1, 0, 1]) - 0.5) + w.clock[t], 0)
        x = np.maximum(w.hidden @ x + w.hidden_bias, 0)
        head = t if heads else 0
        np.testing.assert_allclose(values[t], w.head[head] @ x + w.head_bias[head], atol=1e-6)
    assert w.head.shape[0] == (HORIZON if heads else 1)
    assert len(np.unique(values)) == values.size


@pytest.mark.parametrize("heads", [True, False])
@pytest.mark.parametrize("time", [HORIZON, HORIZON + 3])
def test_values_past_the_horizon_are_zero(heads, time):
    q = eqx.tree_at(lambda q: q.head_bias, make(heads), replace_fn=lambda bias: bias + 7.0)
    assert float(q(jnp.ones(INPUTS), jnp.array(HORIZON - 1))[0]) > 5.0
    np.testing.assert_array_equal(q(jnp.ones(INPUTS), jnp.array(time)), 0.0)


def test_seeds_start_from_different_networks():
    build = jax.jit(lambda key: QNetwork((INPUTS,), ACTIONS, HORIZON, WIDTH, True, key=key))
    first, second = build(jax.random.key(0)), build(jax.random.key(1))
    for name in ("observe", "clock", "hidden", "head"):
        assert not np.any(np.isclose(getattr(first, name), getattr(second, name)))


def huber(error):
    size = np.abs(error)
    return np.where(size <= 1, 0.5 * size**2, size - 0.5)


class NumpyAdam:
    """Adam with its gradient clipped by norm, the plain way."""

    def __init__(self, rate, clip):
        self.rate, self.clip, self.t, self.m, self.v = rate, clip, 0, 0.0, 0.0

    def __call__(self, weights, gradient):
        norm = np.linalg.norm(gradient)
        gradient = gradient * min(1.0, self.clip / norm)
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * gradient
        self.v = 0.999 * self.v + 0.001 * gradient**2
        m, v = self.m / (1 - 0.9**self.t), self.v / (1 - 0.999**self.t)
        return weights - self.rate * m / (np.sqrt(v) + 1e-8)


@pytest.mark.parametrize("clip", [10.0, 0.2])
def test_update_is_a_huber_step_of_adam(clip):
    """On a network that is only its bias the gradient is known: the errors cut to ±1, weighted, averaged."""
    settings = HARD._replace(clip=clip, target_period=1000)
    state = make_q_state(constant(np.zeros((HORIZON, ACTIONS))), settings)
    obs = jnp.array([[1, 0, 0], [0, 1, 0], [1, 1, 1]], jnp.int8)
    time = np.array([0, 0, 2])
    targets = np.array([[2.0, 0.3], [0.5, -9.0], [-0.2, 0.1]])
    weights = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 2.0]])
    bias, adam = np.zeros((HORIZON, ACTIONS)), NumpyAdam(0.1, clip)
    for turn in range(4):
        error = bias[time] - targets
        expected = np.sum(weights * huber(error)) / np.sum(weights)
        gradient = np.zeros_like(bias)
        np.add.at(gradient, time, weights * np.clip(error, -1, 1) / np.sum(weights))
        bias = adam(bias, gradient)
        state, loss = step(state, obs, jnp.array(time), jnp.array(targets), jnp.array(weights), settings)
        assert float(loss) == pytest.approx(expected, rel=1e-5)
        if turn == 0:  # by hand: (1.5 + 0.045 + 0.125 + 2 · 0.005) / 5
            assert float(loss) == pytest.approx(0.336, rel=1e-5)
        np.testing.assert_allclose(state.online.head_bias, bias, atol=1e-5)
    np.testing.assert_array_equal(state.online.head_bias[1], 0.0)  # a time step that was not in the batch
    assert int(state.updates) == 4


@pytest.fixture(scope="module")
def batch():
    key = jax.random.key(8)
    obs = jax.random.bernoulli(key, shape=(5, INPUTS)).astype(jnp.int8)
    targets = jax.random.normal(key, (5, ACTIONS))
    return obs, jnp.arange(5, dtype=jnp.int32) % HORIZON, targets, jnp.ones_like(targets)


def same(a, b):
    return all(bool(jnp.all(x == y)) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_hard_copies_happen_every_period_and_only_then(batch):
    state = make_q_state(make(), HARD)
    assert same(state.online, state.target)
    copied = state.online
    for update in range(1, 8):
        state, _ = step(state, *batch, HARD)
        assert not same(state.online, copied)
        if update % 3 == 0:
            copied = state.online
        assert same(state.target, copied)


def test_polyak_moves_the_target_a_share_of_the_way(batch):
    settings = HARD._replace(target_rate=0.25)
    state = make_q_state(make(), settings)
    for _ in range(4):
        old = state.target
        state, _ = step(state, *batch, settings)
        for before, after, online in zip(
            *map(jax.tree.leaves, (old, state.target, state.online)), strict=True
        ):
            np.testing.assert_allclose(after, 0.75 * before + 0.25 * online, atol=1e-6)
    assert not same(state.online, state.target)


def stationary(shape=(INPUTS,), seed=0):
    """A network without a clock, weights from numpy."""
    rng = np.random.default_rng(seed)
    shapes = eqx.filter_eval_shape(QNetwork, shape, ACTIONS, None, WIDTH, key=jax.random.key(0))
    return jax.tree.map(lambda leaf: jnp.array(rng.normal(0.0, 0.5, leaf.shape), jnp.float32), shapes)


def test_without_a_horizon_time_does_not_matter():
    q, obs = stationary(), np.array([0.2, 0.9, 0.4], np.float32)
    values = jax.jit(jax.vmap(q, in_axes=(None, 0)))(jnp.asarray(obs), jnp.array([0, 5, 10_000]))
    w = jax.tree.map(np.asarray, q)
    assert w.clock is None
    assert w.head.shape[0] == 1
    x = np.maximum(w.observe @ (obs - 0.5) + w.bias, 0)
    x = np.maximum(w.hidden @ x + w.hidden_bias, 0)
    for row in values:
        np.testing.assert_allclose(row, w.head[0] @ x + w.head_bias[0], atol=1e-5)


def test_optimism_is_what_actions_are_worth_at_first():
    plain, hopeful = (QNetwork((3,), 4, None, 8, optimism=o, key=jax.random.key(0)) for o in (0.0, 5.0))
    obs, start = jnp.array([0.1, 0.9, 0.4]), jnp.array(0)
    np.testing.assert_allclose(hopeful(obs, start), plain(obs, start) + 5.0, rtol=1e-5)
    assert np.abs(np.asarray(plain(obs, start))).max() < 1.0


def test_heads_need_a_horizon():
    """Asked for without one, there is a single head."""
    q = eqx.filter_eval_shape(QNetwork, (INPUTS,), ACTIONS, None, WIDTH, True, key=jax.random.key(0))
    assert q.head.shape == (1, ACTIONS, WIDTH)


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
    q = stationary(shape)
    image = np.random.default_rng(1).uniform(size=shape).astype(np.float32)
    w = jax.tree.map(np.asarray, q)
    assert q.stride == (2 if max(shape) > 32 else 1)
    features = np.maximum(slow_convolution(image - 0.5, w.kernel, q.stride), 0).reshape(-1)
    x = np.maximum(w.observe @ features + w.bias, 0)
    x = np.maximum(w.hidden @ x + w.hidden_bias, 0)
    expected = w.head[0] @ x + w.head_bias[0]
    np.testing.assert_allclose(q(jnp.asarray(image), jnp.array(3)), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make_one", [make, stationary, lambda: stationary((4, 3, 2))])
def test_columns_are_single_observations_side_by_side(make_one):
    q = make_one()
    shape = (4, 3, 2) if q.kernel is not None else (INPUTS,)
    obs = jnp.asarray(np.random.default_rng(2).uniform(size=(*shape, 7)), jnp.float32)
    for time in (0, HORIZON - 1, HORIZON):
        each = jax.vmap(q, in_axes=(-1, None), out_axes=-1)(obs, jnp.array(time))
        assert each.shape == (ACTIONS, 7)
        np.testing.assert_allclose(q.columns(obs, jnp.array(time)), each, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("left", [0.1, 0.0])
def test_the_learning_rate_falls_to_a_share_of_itself_and_stays_there(left):
    """With the same gradient at every update Adam moves by just the learning rate."""
    settings = HARD._replace(learning_rate=1e-3, decay=10, left=left)
    state = make_q_state(constant(np.zeros((HORIZON, ACTIONS))), settings)
    far = jnp.full((1, ACTIONS), 1e3)  # beyond the Huber threshold: a gradient that does not change
    once = jax.jit(
        lambda s: step(s, jnp.zeros((1, INPUTS)), jnp.array([0]), far, jnp.ones_like(far), settings)
    )
    moves = []
    for _ in range(14):
        before = state.online.head_bias[0, 0]
        state, _ = once(state)
        moves.append(float(state.online.head_bias[0, 0] - before))
    expected = [1e-3 * (1 - (1 - left) * min(i, 10) / 10) for i in range(14)]
    np.testing.assert_allclose(moves, expected, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("threshold", [0.5, 4.0])
def test_errors_beyond_the_huber_threshold_count_linearly(threshold):
    settings = HARD._replace(huber=threshold)
    state = make_q_state(constant(np.zeros((HORIZON, ACTIONS))), settings)
    targets = jnp.array([[3.0, 0.25]])
    _, loss = step(state, jnp.zeros((1, INPUTS)), jnp.array([0]), targets, jnp.ones_like(targets), settings)
    expected = [0.5 * e**2 if e <= threshold else threshold * (e - 0.5 * threshold) for e in (3.0, 0.25)]
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-5)
