"""The multi-step loss of appendix B.1: against plain Python, against differences, and within episodes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.models.ensemble import make_ensemble
from e3rl.models.fit import FitSettings, make_model_set, unrolled_loss, update_model_set
from e3rl.models.mlp import CHANGE, SLOPE, MlpDynamics
from e3rl.models.vae import VaeDynamics
from e3rl.replay import Replay, Transitions
from e3rl.types import Trajectory

ENTRIES, ACTIONS, WIDTH, BATCH, LENGTH = 2, 3, 5, 4, 6
KEY = jax.random.key(0)
RARELY_ENDS = -5.0


def model(seed=0):
    return eqx.filter_jit(lambda key: MlpDynamics(ENTRIES, ACTIONS, WIDTH, key=key))(jax.random.key(seed))


def segments(seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    size = (BATCH, LENGTH)
    rows = Transitions(
        jnp.array(rng.random((*size, ENTRIES)), dtype),
        jnp.array(rng.integers(0, ACTIONS, size), jnp.int32),
        jnp.zeros(size, jnp.int32),
        jnp.array(rng.normal(size=size), dtype),
        jnp.array(rng.random((*size, ENTRIES)), dtype),
        jnp.array(rng.random(size) < 0.2),
    )
    inside = np.array([6, 3, 1, 5])
    return rows, jnp.array(np.arange(LENGTH) < inside[:, None])


def slow_loss(weights, rows, valid):
    """Appendix B.1 with lists and loops: the first state is seen, the others are the model's own."""
    w = {name: np.asarray(leaf, float) for name, leaf in vars(weights).items()}
    total = 0.0
    for b in range(BATCH):
        state = np.asarray(rows.obs[b, 0], float)
        for k in range(LENGTH):
            if not valid[b, k]:
                break
            x = w["observe"] @ (state - 0.5) + w["bias"]
            x = np.where(x > 0, x, SLOPE * x) * w["gate"][int(rows.action[b, k])]
            x = w["hidden"] @ x + w["hidden_bias"]
            out = w["head"] @ np.where(x > 0, x, SLOPE * x) + w["head_bias"]
            state = state + CHANGE * out[:-2]
            chance = 1 / (1 + np.exp(-(out[-1] + RARELY_ENDS)))
            total += np.sum(((state - np.asarray(rows.next_obs[b, k])) / CHANGE) ** 2)
            total += (out[-2] - float(rows.reward[b, k])) ** 2
            total -= np.log(chance if rows.terminated[b, k] else 1 - chance)
    return total / (BATCH * LENGTH)


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_loss_written_out(seed):
    rows, valid = segments(seed)
    fast = eqx.filter_jit(unrolled_loss)(model(seed), rows, valid, KEY)
    assert float(fast) == pytest.approx(slow_loss(model(seed).network, rows, valid), rel=1e-4)


def test_gradient_through_the_unroll_against_differences():
    with jax.enable_x64(True):
        member = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf), jnp.float64), model())
        rows, valid = segments(dtype=np.float64)
        flat, unravel = jax.flatten_util.ravel_pytree(member)
        loss = jax.jit(lambda flat: unrolled_loss(unravel(flat), rows, valid, KEY))
        step = 1e-6
        shifts = step * jnp.eye(flat.size, dtype=jnp.float64)
        up, down = (jax.lax.map(loss, flat + sign * shifts) for sign in (1.0, -1.0))
        gradient = jax.grad(loss)(flat)
        np.testing.assert_allclose(gradient, (up - down) / (2 * step), rtol=1e-5, atol=1e-5)
        # The gradient that stops at each step's input would be another one.
        once = jax.grad(lambda flat: unrolled_loss(unravel(flat), rows, valid.at[:, 1:].set(False), KEY))(
            flat
        )
        assert np.abs(gradient - once).max() > 1e-2


def test_what_lies_past_the_end_changes_nothing():
    rows, valid = segments()
    loss = eqx.filter_jit(eqx.filter_value_and_grad(unrolled_loss))
    wild = jax.tree.map(
        lambda leaf: jnp.where(
            valid.reshape(*valid.shape, *[1] * (leaf.ndim - 2)), leaf, jnp.zeros_like(leaf)
        ),
        rows,
    )
    before, after = loss(model(), rows, valid, KEY), loss(model(), wild, valid, KEY)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), before, after)


def numbered(lengths):
    """Episodes whose observations count the steps of all episodes, so that a row is known by its observation."""
    horizon, start, columns = max(lengths), 0, []
    for length in lengths:
        step = np.arange(horizon)
        columns.append((start + step, step < length, step == length - 1))
        start += length
    count, valid, last = (np.stack(parts) for parts in zip(*columns, strict=True))
    obs = jnp.array(np.stack([count, count], axis=-1), jnp.float32)
    nothing = jnp.zeros(count.shape)
    return Trajectory(
        obs,
        nothing.astype(jnp.int32),
        nothing,
        obs + 1.0,
        jnp.array(last),
        jnp.zeros(count.shape, bool),
        jnp.array(valid),
    )


def test_segments_never_cross_the_end_of_an_episode():
    lengths = [5, 2, 7, 1, 4]
    replay = Replay.empty(30, jnp.zeros(2)).append(numbered(lengths[:3])).append(numbered(lengths[3:]))
    rows, valid = jax.jit(lambda key: replay.sample_segments(key, 300, 4, 0.5))(KEY)
    start = np.concatenate([[0], np.cumsum(lengths)])
    time = np.asarray(rows.time)
    for b in range(300):
        inside = np.asarray(valid[b])
        assert inside[0]
        assert not np.any(inside[1:] & ~inside[:-1])  # once outside, outside for good
        assert not np.any(np.asarray(rows.terminated[b])[:-1] & inside[:-1] & inside[1:])
        np.testing.assert_array_equal(time[b][inside], time[b, 0] + np.arange(inside.sum()))
    assert int(replay.size) == start[-1]
    assert 0.3 < np.mean(np.all(valid, axis=1)) < 0.9


def oscillator(episodes=6, horizon=30):
    """A rotation about the middle of the square, sped up or not by the action: exact to unroll."""
    rng = np.random.default_rng(0)
    obs = np.zeros((episodes, horizon + 1, 2), np.float32)
    action = rng.integers(0, ACTIONS, (episodes, horizon)).astype(np.int32)
    obs[:, 0] = 0.5 + 0.3 * rng.normal(size=(episodes, 2))
    for t in range(horizon):
        angle = 0.05 + 0.03 * action[:, t]
        x, y = (obs[:, t] - 0.5).T
        turned = np.stack(
            [np.cos(angle) * x - np.sin(angle) * y, np.sin(angle) * x + np.cos(angle) * y], axis=1
        )
        obs[:, t + 1] = 0.5 + turned
    no = jnp.zeros((episodes, horizon), bool)
    trajectory = Trajectory(
        jnp.array(obs[:, :-1]),
        jnp.array(action),
        jnp.array(obs[:, :-1, 0]),
        jnp.array(obs[:, 1:]),
        no,
        no,
        ~no,
    )
    return Replay.empty(episodes * horizon, trajectory.obs[0, 0]).append(trajectory)


def test_unrolled_training_predicts_many_steps_ahead():
    replay = oscillator()
    settings = FitSettings(400, 8, 3e-3, 10.0, 0.0, 0.5, unroll=8)
    make = eqx.filter_jit(lambda key: make_ensemble(lambda key: MlpDynamics(2, ACTIONS, 32, key=key), 2, key))
    start = make_model_set(make(KEY), settings)
    fitted, loss = eqx.filter_jit(update_model_set)(start, replay, KEY, settings)
    rows, valid = replay.sample_segments(jax.random.key(1), 32, 8)
    score = eqx.filter_jit(eqx.filter_vmap(lambda m: unrolled_loss(m, rows, valid, KEY)))
    before, after = score(start.members), score(fitted.members)
    assert np.all(np.asarray(after) < np.asarray(before) / 20)
    assert float(loss) == pytest.approx(float(np.mean(after)), rel=1.0)


def test_noise_of_a_vae_differs_by_step_and_sequence():
    rows, valid = segments()
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1, :1], leaf.shape), rows)
    vae = eqx.filter_jit(lambda key: VaeDynamics((ENTRIES,), ACTIONS, 2, WIDTH, key=key))(KEY)
    loss = eqx.filter_jit(unrolled_loss)
    assert float(loss(vae, same, valid, KEY)) != float(loss(vae, same, valid, jax.random.key(1)))


def test_gradient_with_noise_is_that_of_the_unroll_step_by_step():
    """A VAE draws noise in every step: the gradient over all steps at once has to see the same."""
    rows, valid = segments()
    vae = eqx.filter_jit(lambda key: VaeDynamics((ENTRIES,), ACTIONS, 2, WIDTH, key=key))(KEY)

    def slow(member):
        total, imagined = 0.0, rows.obs[:, 0]
        for k, key in enumerate(jax.random.split(KEY, LENGTH)):
            row = jax.tree.map(lambda leaf: leaf[:, k], rows)  # noqa: B023
            start = jnp.where(valid[:, k, None], imagined, row.obs)
            losses, imagined = jax.vmap(member.loss)(start, row, jax.random.split(key, BATCH))
            total += jnp.sum(jnp.where(valid[:, k], losses, 0.0))
        return total / (BATCH * LENGTH)

    expected = eqx.filter_jit(eqx.filter_value_and_grad(slow))(vae)
    found = eqx.filter_jit(eqx.filter_value_and_grad(unrolled_loss))(vae, rows, valid, KEY)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-2), found, expected)
