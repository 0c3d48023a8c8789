"""Random network distillation: its statistics against NumPy, its reward for what is new."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e3rl.baselines.normalise import Moments, ReturnScale
from e3rl.baselines.rnd import RandomDistillation

N = 4


def distillation(share=1.0):
    return RandomDistillation(
        embedding=8, width=16, maps=4, copies=N, discount=0.9, obs_clip=5.0, share=share
    )


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 2**16))
def test_moments_are_those_of_all_batches_at_once(sizes, seed):
    rng = np.random.default_rng(seed)
    batches = [rng.normal(3.0, 2.0, (size, 2, 3)).astype(np.float32) for size in sizes]
    moments = Moments.empty((3,))
    for batch in batches:
        moments = moments.update(jnp.asarray(batch))
    rows = np.concatenate([batch.reshape(-1, 3) for batch in batches])
    assert moments.seen.item() == len(rows)
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(moments.variance, rows.var(axis=0), rtol=1e-3, atol=1e-4)


def test_normalised_observations_are_clipped():
    moments = Moments.empty((2,)).update(jnp.array([[0.0, 1.0], [2.0, 1.0]]))
    normal = moments.normalise(jnp.array([[3.0, 1.0], [100.0, 9.0], [-100.0, 1.0]]), 5.0)
    np.testing.assert_allclose(normal, [[2.0, 0.0], [5.0, 5.0], [-5.0, 0.0]], atol=1e-5)


def test_rewards_are_divided_by_the_deviation_of_their_discounted_sum():
    rng = np.random.default_rng(0)
    rewards = rng.uniform(0.0, 2.0, (2, 5, N)).astype(np.float32)
    scale = ReturnScale.empty(N)
    running, sums = np.zeros(N), []
    for part in rewards:
        scale = scale.update(jnp.asarray(part), 0.9)
        for row in part:
            running = 0.9 * running + row
            sums.append(running)
    np.testing.assert_allclose(scale.running, running, rtol=1e-5)
    np.testing.assert_allclose(scale.normalise(jnp.asarray(part)), part / np.std(sums), rtol=1e-4)


def test_only_the_predictor_learns_and_what_it_saw_pays_less():
    rnd = distillation()
    predictor, novelty = rnd.init(jax.random.key(0), (6,))
    familiar = jnp.eye(6)[jnp.zeros((8, N), jnp.int32)] + 0.1 * jax.random.normal(
        jax.random.key(1), (8, N, 6)
    )
    first, novelty = rnd.reward(predictor, novelty, familiar)
    assert first.shape == (8, N)
    assert bool(jnp.all(first > 0))
    flat = familiar.reshape(-1, 6)
    trainable, rest = eqx.partition(predictor, eqx.is_array)

    def step(weights, key):
        gradient = jax.grad(lambda w: rnd.loss(eqx.combine(w, rest), novelty, flat, key))(weights)
        return jax.tree.map(lambda w, g: w - 0.05 * g, weights, gradient), None

    trained = eqx.combine(jax.lax.scan(step, trainable, jax.random.split(jax.random.key(2), 300))[0], rest)
    old, new = (jnp.mean(rnd.error(trained, novelty, jnp.eye(6)[jnp.full(4, i)])) for i in (0, 3))
    assert float(new) > 3 * float(old)


def test_gradients_do_not_reach_the_target():
    rnd = distillation()
    predictor, novelty = rnd.init(jax.random.key(0), (6,))
    obs = jax.random.normal(jax.random.key(1), (5, 6))
    gradient = eqx.filter_grad(lambda n: rnd.loss(predictor, n, obs, jax.random.key(2)))(novelty)
    assert all(not np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(gradient.target))


def test_a_share_of_the_samples_trains_the_predictor():
    obs = jax.random.normal(jax.random.key(1), (5, 6))
    predictor, novelty = distillation().init(jax.random.key(0), (6,))
    errors = distillation().error(predictor, novelty, obs)
    whole = distillation().loss(predictor, novelty, obs, jax.random.key(2))
    assert whole.item() == pytest.approx(float(jnp.mean(errors)))
    key = jax.random.key(3)
    chosen = jax.random.bernoulli(key, 0.5, (5,))
    assert 0 < int(jnp.sum(chosen)) < 5
    half = distillation(share=0.5).loss(predictor, novelty, obs, key)
    assert half.item() == pytest.approx(float(jnp.mean(errors[chosen])))
    assert distillation(share=0.0).loss(predictor, novelty, obs, key).item() == 0.0


def test_images_have_novelty_too():
    rnd = distillation()
    predictor, novelty = rnd.init(jax.random.key(0), (7, 5, 3))
    frames = jax.random.uniform(jax.random.key(1), (2, N, 7, 5, 3))
    bonus, novelty = rnd.reward(predictor, novelty, frames)
    assert bonus.shape == (2, N)
    assert novelty.obs.mean.shape == (7, 5, 3)
    assert bool(jnp.all(jnp.isfinite(bonus)))
