"""Random network distillation: its statistics against NumPy, its reward for what is new."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e3rl.baselines.normalise import Moments, ReturnScale
from e3rl.baselines.rnd import Novelty, RandomDistillation, Rnd

N = 4
update = jax.jit(Moments.update)
error = eqx.filter_jit(RandomDistillation.error)
reward = eqx.filter_jit(RandomDistillation.reward)
loss = eqx.filter_jit(RandomDistillation.loss)


def distillation(share=1.0):
    return RandomDistillation(
        Rnd(embedding=8, discount=0.9, predictor_share=share), width=16, maps=4, copies=N
    )


def drawn(rnd, shape):
    """Predictor and the rest as they begin, but with weights that are quicker to draw than orthogonal ones."""
    rng = np.random.default_rng(0)
    predictor, novelty = eqx.filter_eval_shape(rnd.init, jax.random.key(0), shape)
    predictor, target = jax.tree.map(
        lambda leaf: jnp.asarray(rng.normal(0.0, 0.5, leaf.shape), leaf.dtype), (predictor, novelty.target)
    )
    return predictor, Novelty(target, Moments.empty(shape), ReturnScale.empty(N), jnp.ones(N, bool))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(0, 2**16))
def test_moments_are_those_of_all_batches_at_once(sizes, seed):
    rng = np.random.default_rng(seed)
    batches = [rng.normal(3.0, 2.0, (size, 2, 3)).astype(np.float32) for size in sizes]
    moments = Moments.empty((3,))
    for batch in batches:
        moments = update(moments, jnp.asarray(batch))
    rows = np.concatenate([batch.reshape(-1, 3) for batch in batches])
    assert moments.seen.item() == len(rows)
    np.testing.assert_allclose(moments.mean, rows.mean(axis=0), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(moments.variance, rows.var(axis=0), rtol=1e-3, atol=1e-4)


def test_normalised_observations_are_clipped():
    moments = update(Moments.empty((2,)), jnp.array([[0.0, 1.0], [2.0, 1.0]]))
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
    predictor, novelty = drawn(rnd, (6,))
    noise = jax.random.normal(jax.random.key(1), (8, N, 6))
    familiar = jnp.eye(6)[jnp.zeros((8, N), jnp.int32)] + 0.1 * noise
    first, novelty = reward(rnd, predictor, novelty, familiar)
    assert first.shape == (8, N)
    assert bool(jnp.all(first > 0))

    @eqx.filter_jit
    def train(predictor, keys):
        weights, rest = eqx.partition(predictor, eqx.is_array)

        def step(weights, key):
            def own(w):
                return rnd.loss(eqx.combine(w, rest), novelty, familiar.reshape(-1, 6), key)

            return jax.tree.map(lambda w, g: w - 0.05 * g, weights, jax.grad(own)(weights)), None

        return eqx.combine(jax.lax.scan(step, weights, keys)[0], rest)

    trained = train(predictor, jax.random.split(jax.random.key(2), 300))
    old, new = (jnp.mean(error(rnd, trained, novelty, jnp.eye(6)[jnp.full(4, i)])) for i in (0, 3))
    assert float(new) > 3 * float(old)


def test_gradients_do_not_reach_the_target():
    rnd = distillation()
    predictor, novelty = drawn(rnd, (6,))
    obs, key = jax.random.normal(jax.random.key(1), (5, 6)), jax.random.key(2)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda n: rnd.loss(predictor, n, obs, key)))(novelty)
    assert all(not np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(gradient.target))


def test_a_share_of_the_samples_trains_the_predictor():
    obs = jax.random.normal(jax.random.key(1), (5, 6))
    predictor, novelty = drawn(distillation(), (6,))
    errors = error(distillation(), predictor, novelty, obs)
    whole = loss(distillation(), predictor, novelty, obs, jax.random.key(2))
    assert whole.item() == pytest.approx(float(jnp.mean(errors)))
    key = jax.random.key(3)
    chosen = jax.random.bernoulli(key, 0.5, (5,))
    assert 0 < int(jnp.sum(chosen)) < 5
    half = loss(distillation(share=0.5), predictor, novelty, obs, key)
    assert half.item() == pytest.approx(float(jnp.mean(errors[chosen])))
    assert loss(distillation(share=0.0), predictor, novelty, obs, key).item() == 0.0


def test_images_have_novelty_too():
    rnd = distillation()
    predictor, novelty = drawn(rnd, (7, 5, 3))
    frames = jax.random.uniform(jax.random.key(1), (2, N, 7, 5, 3))
    bonus, novelty = reward(rnd, predictor, novelty, frames)
    assert bonus.shape == (2, N)
    assert novelty.obs.mean.shape == (7, 5, 3)
    assert bool(jnp.all(jnp.isfinite(bonus)))


def test_the_stream_of_the_settings():
    stream = Rnd(coefficient=0.5, discount=0.9).stream(width=16, maps=4, copies=N)
    assert (stream.coefficient, stream.discount, stream.copies) == (0.5, 0.9, N)
