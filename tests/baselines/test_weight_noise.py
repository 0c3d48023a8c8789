"""Parameter space noise: slow oracles of the perturbation, of how far it moves a policy, and of one adaptation."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.baselines.weight_noise import (
    FACTOR,
    WeightNoise,
    adapted,
    allowed,
    divergence,
    first_noise,
    perturbed,
)
from e3rl.values.network import QNetwork

KEY = jax.random.key(5)
OBS = jnp.linspace(0.0, 1.0, 12).reshape(6, 2)


@pytest.fixture(scope="module")
def network():
    return QNetwork((2,), 3, None, 4, key=jax.random.key(1))


def arrays(network):
    """By the names of its fields."""
    return {name: np.array(value) for name, value in vars(network).items() if eqx.is_array(value)}


def policies(network):
    """The softmax of every observation's values, one after the other."""
    for obs in OBS:
        values = [float(value) for value in network(obs, jnp.array(0))]
        total = sum(map(math.exp, values))
        yield [math.exp(value) / total for value in values]


def slow_divergence(network, other):
    pairs = zip(policies(network), policies(other), strict=True)
    return sum(p * math.log(p / q) for ps, qs in pairs for p, q in zip(ps, qs, strict=True)) / len(OBS)


def test_noise_is_as_large_as_the_array(network):
    """A number at a time, in the order of the fields."""
    sigma = 0.3
    before, after = arrays(network), arrays(eqx.filter_jit(perturbed)(network, jnp.array(sigma), KEY))
    keys = jax.random.split(KEY, len(before))
    for (name, array), key in zip(before.items(), keys, strict=True):
        size = math.sqrt(sum(float(x) ** 2 for x in array.flat) / array.size)
        drawn = np.array(jax.random.normal(key, array.shape))
        expected = [float(x) + sigma * size * float(z) for x, z in zip(array.flat, drawn.flat, strict=True)]
        np.testing.assert_allclose(after[name].ravel(), expected, rtol=1e-5, atol=1e-6, err_msg=name)
    np.testing.assert_array_equal(after["hidden_bias"], 0.0)  # as it was


def test_noise_spreads_as_it_says():
    wide = QNetwork((2,), 3, None, 100, key=jax.random.key(1))
    moved = perturbed(wide, jnp.array(0.5), KEY).hidden - wide.hidden
    assert float(jnp.std(moved)) == pytest.approx(0.5 * float(jnp.sqrt(jnp.mean(wide.hidden**2))), rel=0.03)
    assert float(jnp.mean(moved)) == pytest.approx(0.0, abs=0.005)


def test_what_is_no_weight_is_left_alone(network):
    heeding = eqx.tree_at(lambda q: q.heeds, network, jnp.array([True, False]), is_leaf=lambda x: x is None)
    other = perturbed(heeding, jnp.array(1.0), KEY)
    np.testing.assert_array_equal(other.heeds, [True, False])
    assert (other.stride, other.kernel, other.clock) == (1, None, None)


def test_divergence_by_hand(network):
    other = perturbed(network, jnp.array(2.0), KEY)
    assert float(divergence(network, other, OBS)) == pytest.approx(slow_divergence(network, other), rel=1e-4)
    assert float(divergence(network, network, OBS)) == 0.0


@pytest.mark.parametrize(("epsilon", "actions"), [(1.0, 3), (0.02, 3), (0.1, 18), (0.0, 2)])
def test_what_is_allowed_is_the_divergence_of_epsilon_greedy_play(epsilon, actions):
    """From a policy that is sure of its action; a term for each action."""
    sure = [1.0] + [0.0] * (actions - 1)
    explores = [(1.0 - epsilon) * p + epsilon / actions for p in sure]
    expected = sum(p * math.log(p / q) for p, q in zip(sure, explores, strict=True) if p)
    assert float(allowed(jnp.array(epsilon), actions)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("sigma", [0.01, 20.0])
def test_one_adaptation(network, sigma, ended):
    """Little noise is raised and much is lowered; the one that was measured acts where an episode has ended."""
    acting = perturbed(network, jnp.array(1.0), jax.random.key(9))
    fresh = perturbed(network, jnp.array(sigma), KEY)
    epsilon = 0.3
    raised = slow_divergence(network, fresh) < -math.log(1.0 - epsilon + epsilon / 3)
    assert raised == (sigma < 1.0)
    noise = WeightNoise(acting, jnp.array(sigma))
    after = eqx.filter_jit(adapted)(noise, network, OBS, jnp.array(epsilon), jnp.array(ended), KEY)
    assert float(after.sigma) == pytest.approx(sigma * FACTOR if raised else sigma / FACTOR, rel=1e-6)
    for name, array in arrays(after.acting).items():
        expected = arrays(fresh if ended else acting)[name]
        np.testing.assert_allclose(array, expected, rtol=1e-5, atol=1e-6, err_msg=name)


def test_the_first_noise_is_small(network):
    noise = first_noise(network, KEY)
    assert float(noise.sigma) == pytest.approx(0.01)
    np.testing.assert_array_equal(noise.acting.head, perturbed(network, noise.sigma, KEY).head)
