"""Draws whose bits belong together, against what was seen."""

import jax
import jax.numpy as jnp
import numpy as np

from e3rl.models.base import Prediction
from e3rl.models.bernoulli import BernoulliDynamics
from e3rl.models.ensemble import make_ensemble
from e3rl.replay import Replay
from e3rl.types import Trajectory
from e3rl.values.joint import together, uniform_together

BITS = 4


def world(count, seed=0):
    """Of the first two bits one is 1, of which it is the first nine times in ten; the third is a coin; the fourth 0."""
    generator = np.random.default_rng(seed)
    first = generator.random((count, 1)) < 0.9
    after = np.stack([first, ~first, generator.random((count, 1)) < 0.5, np.zeros((count, 1))], axis=2)
    obs = np.zeros((count, 1, BITS))
    yes = np.ones((count, 1), bool)
    return Trajectory(
        jnp.asarray(obs, jnp.int8), jnp.zeros((count, 1), jnp.int32), jnp.zeros((count, 1)),
        jnp.asarray(after, jnp.int8), jnp.asarray(yes), jnp.asarray(~yes), jnp.asarray(yes),
    )  # fmt: skip


class Knowing(BernoulliDynamics):
    """Says the chances as they are."""

    def __call__(self, obs, action, time):
        return Prediction(jnp.array([0.9, 0.1, 0.5, 0.0]), jnp.array(0.0), jnp.array(0.0))


def root():
    replay = Replay.empty(2_000, jnp.zeros(BITS, jnp.int8)).append(world(2_000))
    members = make_ensemble(lambda key: Knowing(BITS, 1, 1, 4, key=key), 2, jax.random.key(0))
    return together(members, replay)


def test_the_correlation_is_that_of_the_residuals():
    found = np.asarray(root())
    correlation = found @ found.T
    np.testing.assert_allclose(np.diagonal(correlation), 1.0, atol=1e-5)
    assert correlation[0, 1] < -0.99
    assert abs(correlation[0, 2]) < 0.1
    np.testing.assert_array_equal(correlation[3, :3], 0.0)  # never wrong, so it goes with none


def test_bits_that_exclude_each_other_do_and_keep_their_chances():
    uniform = np.asarray(uniform_together(jax.random.key(1), (20_000,), root()))
    drawn = uniform < np.array([0.9, 0.1, 0.5, 0.0])
    np.testing.assert_allclose(drawn.mean(axis=0), [0.9, 0.1, 0.5, 0.0], atol=0.01)
    assert np.mean(drawn[:, 0] == drawn[:, 1]) < 0.02  # 0.18 if drawn one by one
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 2])[0, 1]) < 0.1


def test_without_correlation_they_are_uniform_numbers():
    uniform = np.asarray(uniform_together(jax.random.key(2), (4_000, 2), jnp.eye(3)))
    np.testing.assert_allclose(np.quantile(uniform, [0.1, 0.5, 0.9]), [0.1, 0.5, 0.9], atol=0.02)
