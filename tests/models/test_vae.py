"""The conditional variational autoencoder: its loss by hand, and a maze whose floor is slippery."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import drawn_by_numpy

from e3rl.envs.maze import MOVES, Maze
from e3rl.envs.playing.rollout import rollout, uniform_policy
from e3rl.models.conv import ConvDynamics
from e3rl.models.ensemble import make_ensemble
from e3rl.models.fit import Fit, make_model_set, update_model_set
from e3rl.models.vae import VaeDynamics
from e3rl.replay import Replay, Transitions


def test_loss_worked_by_hand():
    """All weights zero but the encoder's last biases, so that q = N(μ, σ²) and the decoder predicts no change."""
    model = drawn_by_numpy(lambda key: VaeDynamics((2,), 3, 2, 8, key=key), deviation=0.0)
    mean, log_variance = np.array([0.5, -1.0]), np.array([np.log(4.0), 0.0])
    bias = jnp.array(np.concatenate([mean, log_variance]), jnp.float32)
    model = eqx.tree_at(lambda m: m.encoder.network.head_bias, model, bias)
    obs, seen = jnp.array([0.5, 0.5]), jnp.array([0.5 + 2 * model.deviation, 0.5])
    row = Transitions(obs, jnp.array(0), jnp.array(0), jnp.array(1.0), seen, jnp.array(False))
    loss, decoded = eqx.filter_jit(model.loss)(obs, row, jax.random.key(0))
    divergence = 0.5 * np.sum(np.exp(log_variance) + mean**2 - 1 - log_variance)
    wanted = 0.5 * 2.0**2 + divergence + 1.0 + np.log1p(np.exp(-5.0))
    assert float(loss) == pytest.approx(wanted, rel=1e-3)
    np.testing.assert_allclose(decoded, obs)


def test_equal_noise_draws_equally_and_the_middle_is_the_most_likely():
    model = drawn_by_numpy(lambda key: VaeDynamics((3,), 2, 2, 8, key=key))

    @jax.jit
    def drawn(uniform):
        predicted = model(jnp.array([0.1, 0.5, 0.9]), jnp.array(1), jnp.array(0))
        return jax.vmap(lambda u: model.draw(predicted, u))(uniform), model.most_likely(predicted)

    found, likeliest = drawn(jnp.array([[0.5, 0.5], [0.1, 0.9], [0.9, 0.1], [0.0, 1.0]]))
    np.testing.assert_allclose(found[0], likeliest, atol=1e-6)
    assert not np.allclose(found[1], found[2])
    assert np.all(np.isfinite(found))


def test_one_point_decodes_the_middle_alone():
    model = drawn_by_numpy(lambda key: VaeDynamics((3,), 2, 2, 8, points=1, key=key))

    @jax.jit
    def both():
        predicted = model(jnp.array([0.1, 0.5, 0.9]), jnp.array(1), jnp.array(0))
        return predicted.obs, model.most_likely(predicted)

    np.testing.assert_allclose(*both(), atol=1e-6)


def possible_frames(frame):
    """What the four moves of a frame lead to."""
    agent = np.argwhere(frame[:, :, 1])[0]
    frames = []
    for ahead in agent + MOVES:
        place = agent if frame[ahead[0], ahead[1], 0] else ahead
        moved = frame.copy()
        moved[:, :, 1] = 0.0
        moved[place[0], place[1], 1] = 1.0
        frames.append(moved)
    return np.stack(frames)


@pytest.mark.slow
def test_on_a_slippery_floor_draws_are_real_frames_where_one_prediction_blurs():
    size, draws = 5, 16
    env = Maze(size, slip=0.8)

    @jax.jit
    def play(key):
        return jax.vmap(lambda key: rollout(env, uniform_policy(4), key))(jax.random.split(key, 50))

    train, held_out = (
        Replay.empty(5000, jnp.zeros((size, size, 3))).append(play(jax.random.key(seed))) for seed in (0, 1)
    )
    rows = held_out.take(jnp.arange(200))
    possible = np.stack([possible_frames(np.asarray(frame)) for frame in rows.obs])
    settings = Fit(updates=3000, batch=32, learning_rate=2e-3, prior_weight=0.0)

    def distances(make):
        """Squared distance of draws [row, draw] to each possible frame."""
        start = make_model_set(make_ensemble(make, 1, jax.random.key(2)), settings)
        models, _ = eqx.filter_jit(update_model_set)(start, train, jax.random.key(3), settings)
        model = jax.tree.map(lambda leaf: leaf[0], models.members)
        predicted = jax.jit(jax.vmap(model))(rows.obs, rows.action, rows.time)
        uniform = jax.random.uniform(jax.random.key(4), (200, draws, *model.noise_shape))
        drawn = jax.jit(jax.vmap(jax.vmap(model.draw, in_axes=(None, 0))))(predicted, uniform)
        return np.sum((np.asarray(drawn)[:, :, None] - possible[:, None]) ** 2, axis=(3, 4, 5))

    blurred = distances(lambda key: ConvDynamics((size, size, 3), 4, reward_head="pooled", key=key))
    drawn = distances(lambda key: VaeDynamics((size, size, 3), 4, key=key))
    nearest = drawn.min(axis=-1)
    assert np.median(nearest) < 0.3 * np.median(blurred.min(axis=-1))

    real = nearest < 0.3
    assert real.mean() > 0.6
    reached = [
        {possible[i, j].tobytes() for j in drawn[i].argmin(axis=-1)[real[i]]} for i in range(len(possible))
    ]
    reachable = [{frame.tobytes() for frame in frames} for frames in possible]
    assert sum(map(len, reached)) > 0.75 * sum(map(len, reachable))
