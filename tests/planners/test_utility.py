"""Disagreement of product distributions against double loops and against the joint distributions written out."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e3rl.models.base import Prediction
from e3rl.planners.utility import max_disagreement, mean_reward, total_variation

MEMBERS, BITS = 3, 4
DISTANCES = ["marginal", "mean", "hellinger"]
fast = jax.jit(max_disagreement, static_argnums=(1, 2))

chance = st.floats(0.0, 1.0, width=32)
predictions = st.tuples(
    st.lists(st.lists(chance, min_size=BITS, max_size=BITS), min_size=MEMBERS, max_size=MEMBERS),
    st.lists(st.floats(-5.0, 5.0, width=32), min_size=MEMBERS, max_size=MEMBERS),
)


def prediction(obs, reward):
    obs, reward = jnp.array(obs, jnp.float32), jnp.array(reward, jnp.float32)
    return Prediction(obs, reward, jnp.zeros_like(reward))


def bit_by_bit(p, q, r, s, distance, scale):
    """δ of two members in plain Python."""
    gap = abs(r - s) * scale
    total = sum(abs(a - b) for a, b in zip(p, q, strict=True))
    if distance == "marginal":
        # TV without the ½ of (p, 1−p) and (q, 1−q), added up.
        return sum(abs(a - b) + abs((1 - a) - (1 - b)) for a, b in zip(p, q, strict=True)) + gap
    if distance == "mean":
        return (total + gap) / (len(p) + 1)
    affinity = math.exp(-(gap**2))
    for a, b in zip(p, q, strict=True):
        affinity *= math.sqrt(a * b) + math.sqrt((1 - a) * (1 - b))
    return 1 - affinity


@pytest.mark.parametrize("distance", DISTANCES)
@settings(deadline=None, max_examples=50)
@given(predictions, st.sampled_from([0.0, 0.4]))
def test_max_disagreement_is_the_largest_over_all_pairs(distance, drawn, scale):
    obs, reward = drawn
    slow = max(
        bit_by_bit(obs[i], obs[j], reward[i], reward[j], distance, scale)
        for i in range(MEMBERS)
        for j in range(MEMBERS)
    )
    assert float(fast(prediction(obs, reward), distance, scale)) == pytest.approx(slow, abs=2e-5)


@pytest.mark.parametrize("distance", DISTANCES)
def test_members_that_agree_do_not_disagree(distance):
    obs = jnp.broadcast_to(jax.random.uniform(jax.random.key(0), (BITS,)), (MEMBERS, BITS))
    value = float(fast(prediction(obs, [1.5] * MEMBERS), distance, 0.4))
    assert value == pytest.approx(0.0, abs=1e-6)


def test_total_variation_has_no_half():
    assert float(total_variation(jnp.array([1.0, 0.0]), jnp.array([0.0, 1.0]))) == 2.0
    assert float(total_variation(jnp.array([0.5, 0.3, 0.2]), jnp.array([0.2, 0.3, 0.5]))) == pytest.approx(
        0.6
    )
    batch = total_variation(jnp.eye(3), jnp.array([[0.0, 0.5, 0.5]] * 3))
    np.testing.assert_allclose(batch, [2.0, 1.0, 1.0])


def test_total_variation_is_the_supremum_over_functions_bounded_by_one():
    p, q = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.4, 0.1, 0.25, 0.25])
    best = max(np.dot(f, p - q) for f in itertools.product([-1.0, 1.0], repeat=4))
    assert float(total_variation(jnp.array(p), jnp.array(q))) == pytest.approx(best)


def joint(p):
    """The product distribution over all 2^D observations."""
    outcomes = itertools.product([0, 1], repeat=len(p))
    return np.array([math.prod(c if x else 1 - c for c, x in zip(p, bits, strict=True)) for bits in outcomes])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(chance, min_size=BITS, max_size=BITS), min_size=2, max_size=2))
def test_hellinger_is_that_of_the_joint_distributions_and_bounds_their_tv(pair):
    p, q = joint(pair[0]), joint(pair[1])
    squared = float(fast(prediction(pair, [0.0, 0.0]), "hellinger", 0.4))
    assert squared == pytest.approx(0.5 * np.sum((np.sqrt(p) - np.sqrt(q)) ** 2), abs=1e-5)
    tv = float(total_variation(jnp.array(p), jnp.array(q)))
    assert tv**2 / 8 - 1e-5 <= squared <= tv / 2 + 1e-5


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(chance, min_size=BITS, max_size=BITS), min_size=2, max_size=2))
def test_marginal_bounds_the_joint_tv_from_above(pair):
    """The TV of products is at most the sum of the factors' TVs."""
    tv = np.sum(np.abs(joint(pair[0]) - joint(pair[1])))
    assert tv <= float(fast(prediction(pair, [0.0, 0.0]), "marginal", 0.4)) + 1e-5


def test_exploiting_averages_the_predicted_reward():
    assert float(mean_reward(prediction(np.zeros((3, 2)), [1.0, 2.0, 6.0]))) == pytest.approx(3.0)
