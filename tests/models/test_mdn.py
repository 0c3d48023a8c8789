"""The mixture density network: its density by hand, its draws, and a car whose engine fails at random."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import drawn_by_numpy

from e3rl.envs.mountain_car import FORCE, HIGH, LOW, MountainCar
from e3rl.envs.playing.rollout import rollout
from e3rl.models.base import Prediction
from e3rl.models.ensemble import make_ensemble
from e3rl.models.fit import Fit, make_model_set, update_model_set
from e3rl.models.layers import CHANGE
from e3rl.models.mdn import MdnDynamics, Mixture
from e3rl.replay import Replay

WEIGHT = np.array([0.3, 0.7], np.float32)
MEAN = np.array([[0.2, 0.4], [0.8, 0.5]], np.float32)
DEVIATION = np.array([[0.01, 0.02], [0.03, 0.01]], np.float32)


def by_hand():
    mixture = Mixture(jnp.log(WEIGHT), jnp.array(MEAN), jnp.log(DEVIATION))
    return Prediction(jnp.array(WEIGHT @ MEAN), jnp.array(0.0), jnp.array(0.0), mixture)


def make():
    return drawn_by_numpy(lambda key: MdnDynamics(2, 3, 2, 8, key=key))


def test_density_worked_by_hand():
    model, seen = make(), np.array([0.21, 0.41])
    density = sum(
        w * np.prod(np.exp(-0.5 * ((seen - m) / s) ** 2) / (s / CHANGE))
        for w, m, s in zip(WEIGHT, MEAN, DEVIATION, strict=True)
    )
    fast = model.log_likelihood(by_hand(), jnp.array(seen, jnp.float32))
    assert float(fast) == pytest.approx(np.log(density), rel=1e-4)


def test_draws_have_the_mixture_s_weights_means_and_deviations():
    uniform = jax.random.uniform(jax.random.key(1), (20_000, 3))
    drawn = np.asarray(jax.jit(jax.vmap(make().draw, in_axes=(None, 0)))(by_hand(), uniform))
    second = drawn[:, 0] > 0.5
    assert second.mean() == pytest.approx(0.7, abs=0.015)
    for side, mean, deviation in ((~second, MEAN[0], DEVIATION[0]), (second, MEAN[1], DEVIATION[1])):
        np.testing.assert_allclose(drawn[side].mean(axis=0), mean, atol=0.001)
        np.testing.assert_allclose(drawn[side].std(axis=0), deviation, rtol=0.05)
    np.testing.assert_allclose(make().most_likely(by_hand()), MEAN[1])
    assert np.all(np.isfinite(make().draw(by_hand(), jnp.array([0.0, 0.0, 1.0]))))


@pytest.mark.slow
def test_a_failing_engine_needs_two_modes():
    """Where the engine fails with chance 0.3 the next velocity takes one of two values. The mixture puts mass at both
    and little between; held out, it is more likely than a single Gaussian by more than 0.3 nats a step."""
    env = MountainCar(push_failure=0.3)

    def pump(key, obs, t):
        along = jnp.where(obs[1] >= 0.0, 2, 0)
        return jnp.where(jax.random.bernoulli(key, 0.3), jax.random.randint(key, (), 0, 3), along)

    @jax.jit
    def play(key):
        return jax.vmap(lambda key: rollout(env, pump, key))(jax.random.split(key, 30))

    train, held_out = (
        Replay.empty(6000, jnp.zeros(2), LOW, HIGH).append(play(jax.random.key(seed))) for seed in (0, 1)
    )
    settings = Fit(updates=6000, batch=128, learning_rate=2e-3, prior_weight=0.0)
    rows = held_out.take(jnp.arange(0, int(held_out.size), 5))

    def fitted(components):
        start = make_ensemble(lambda key: MdnDynamics(2, 3, components, key=key), 1, jax.random.key(2))
        models, _ = eqx.filter_jit(update_model_set)(
            make_model_set(start, settings), train, jax.random.key(3), settings
        )
        model = jax.tree.map(lambda leaf: leaf[0], models.members)
        predicted = jax.jit(jax.vmap(model))(rows.obs, rows.action, rows.time)
        return model, predicted, np.asarray(jax.vmap(model.log_likelihood)(predicted, rows.next_obs))

    _, _, single = fitted(1)
    model, predicted, mixture = fitted(3)
    assert mixture.mean() > single.mean() + 0.3

    # Velocity after a push and after none, where neither the speed limit nor the wall interferes.
    position, velocity = np.asarray(rows.obs * (HIGH - LOW) + LOW).T
    push = FORCE * (np.asarray(rows.action) - 1)
    idle = velocity - 0.0025 * np.cos(3 * position)
    free = (push != 0) & (np.abs(idle) < 0.05) & (position > -1.0) & (position < 0.4)
    uniform = jax.random.uniform(jax.random.key(4), (len(free), 500, 3))
    drawn = jax.jit(jax.vmap(jax.vmap(model.draw, in_axes=(None, 0))))(predicted, uniform)
    drawn = np.asarray(drawn)[..., 1] * (HIGH[1] - LOW[1]) + LOW[1]
    share = (drawn - idle[:, None])[free] / push[free, None]  # 0: the engine failed, 1: it worked
    failed, worked, between = (np.mean(np.abs(share - at) < 0.25) for at in (0.0, 1.0, 0.5))
    assert 0.15 < failed < 0.45
    assert 0.4 < worked < 0.85
    assert between < 0.75 * failed
