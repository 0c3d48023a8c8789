"""The multi-step loss of appendix B.1: against plain Python, against differences, and within episodes."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import drawn_by_numpy

from e3rl.models.base import RARELY_ENDS
from e3rl.models.ensemble import make_ensemble
from e3rl.models.fit import Fit, make_model_set, unrolled_loss, update_model_set
from e3rl.models.layers import CHANGE, SLOPE
from e3rl.models.mlp import MlpDynamics
from e3rl.models.vae import VaeDynamics
from e3rl.replay import Replay, Transitions

ENTRIES, ACTIONS, WIDTH, BATCH, LENGTH = 2, 3, 12, 4, 4
KEY = jax.random.key(0)


def model(seed=0):
    return drawn_by_numpy(lambda key: MlpDynamics(ENTRIES, ACTIONS, WIDTH, key=key), 0.8, seed)


def segments(seed=0):
    rng = np.random.default_rng(seed)
    size = (BATCH, LENGTH)
    rows = Transitions(
        jnp.array(rng.random((*size, ENTRIES)), jnp.float32),
        jnp.array(rng.integers(0, ACTIONS, size), jnp.int32),
        jnp.zeros(size, jnp.int32),
        jnp.array(rng.normal(size=size), jnp.float32),
        jnp.array(rng.random((*size, ENTRIES)), jnp.float32),
        jnp.array(rng.random(size) < 0.2),
    )
    inside = np.array([4, 3, 1, 2])
    return rows, jnp.array(np.arange(LENGTH) < inside[:, None])


def weights_of(member):
    return {name: np.asarray(leaf, float) for name, leaf in vars(member.network).items()}


def slow_loss(w, rows, valid):
    """Appendix B.1 with lists and loops: the first state is seen, the others are the model's own."""
    rows, valid = jax.tree.map(np.asarray, (rows, valid))
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


loss_and_gradient = eqx.filter_jit(eqx.filter_value_and_grad(unrolled_loss))


@pytest.mark.parametrize("seed", range(3))
def test_equals_the_loss_written_out(seed):
    rows, valid = segments(seed)
    fast, _ = loss_and_gradient(model(seed), rows, valid, KEY)
    assert float(fast) == pytest.approx(slow_loss(weights_of(model(seed)), rows, valid), rel=1e-4)


def test_gradient_through_the_unroll_against_differences():
    """Of the loss written out, in double precision, weight by weight."""
    rows, valid = segments()
    _, found = loss_and_gradient(model(), rows, valid, KEY)
    weights, step = weights_of(model()), 1e-6
    for name, gradient in vars(found.network).items():
        slope = np.zeros(gradient.shape)
        for index in np.ndindex(gradient.shape):
            sides = []
            for by in (step, -step):
                moved = weights[name].copy()
                moved[index] += by
                sides.append(slow_loss({**weights, name: moved}, rows, valid))
            slope[index] = (sides[0] - sides[1]) / (2 * step)
        np.testing.assert_allclose(gradient, slope, rtol=2e-3, atol=1e-4 * np.abs(slope).max())
    # A gradient that stops at each step's input would be another one.
    _, once = loss_and_gradient(model(), rows, valid.at[:, 1:].set(False), KEY)
    assert np.abs(found.network.hidden - once.network.hidden).max() > 1e-2


def test_what_lies_past_the_end_changes_nothing():
    rows, valid = segments()
    wild = jax.tree.map(
        lambda leaf: jnp.where(
            valid.reshape(*valid.shape, *[1] * (leaf.ndim - 2)), leaf, jnp.zeros_like(leaf)
        ),
        rows,
    )
    before, after = (loss_and_gradient(model(), each, valid, KEY) for each in (rows, wild))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), before, after)


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
    rows = Transitions(
        *(
            jnp.array(column.reshape(episodes * horizon, *column.shape[2:]))
            for column in (
                obs[:, :-1],
                action,
                np.broadcast_to(np.arange(horizon, dtype=np.int32), action.shape),
                obs[:, :-1, 0],
                obs[:, 1:],
                np.zeros(action.shape, bool),
            )
        )
    )
    size = jnp.array(episodes * horizon, jnp.int32)
    return Replay.empty(episodes * horizon, rows.obs[0])._replace(rows=rows, size=size)


def test_unrolled_training_predicts_many_steps_ahead():
    replay = oscillator()
    settings = Fit(updates=400, batch=8, unroll=LENGTH, learning_rate=3e-3, prior_weight=0.0)
    members = drawn_by_numpy(
        lambda key: make_ensemble(lambda key: MlpDynamics(2, ACTIONS, WIDTH, key=key), 2, key)
    )
    start = make_model_set(members, settings)
    fitted, loss = eqx.filter_jit(update_model_set)(start, replay, KEY, settings)
    rows = replay.take(jnp.array([[0], [40], [70], [100]]) + jnp.arange(LENGTH))
    whole = jnp.ones((BATCH, LENGTH), bool)

    def score(members, e):
        member = jax.tree.map(lambda leaf: leaf[e], members)
        return float(loss_and_gradient(member, rows, whole, KEY)[0])

    before, after = ([score(members, e) for e in range(2)] for members in (start.members, fitted.members))
    assert np.all(np.array(after) < np.array(before) / 20)
    assert float(loss) == pytest.approx(np.mean(after), rel=2.0)


def test_gradient_with_noise_is_that_of_the_unroll_step_by_step():
    """A VAE draws noise in every step and sequence: the gradient over all steps at once has to see the same."""
    rows, valid = segments()
    vae = drawn_by_numpy(lambda key: VaeDynamics((ENTRIES,), ACTIONS, 2, WIDTH, key=key), 0.3)

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def slow(member):
        def step(imagined, inputs):
            row, counts, key = inputs
            start = jnp.where(counts[:, None], imagined, row.obs)
            losses, imagined = jax.vmap(member.loss)(start, row, jax.random.split(key, BATCH))
            return imagined, jnp.sum(jnp.where(counts, losses, 0.0))

        steps = jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0), (rows, valid))
        _, totals = jax.lax.scan(step, rows.obs[:, 0], (*steps, jax.random.split(KEY, LENGTH)))
        return jnp.sum(totals) / (BATCH * LENGTH)

    found = loss_and_gradient(vae, rows, valid, KEY)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-2), found, slow(vae))
    other, _ = loss_and_gradient(vae, rows, valid, jax.random.key(1))
    assert float(other) != float(found[0])
