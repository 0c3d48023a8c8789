"""Disagreement of predictions against double loops and against the joint distributions written out."""

import itertools
import math
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import plain_disagreement, plain_utility

from e3rl.models.base import Prediction
from e3rl.planners import UTILITIES
from e3rl.planners.utility import (
    Hellinger,
    Joint,
    Marginal,
    Mean,
    Squared,
    empirical_total_variation,
    mean_reward,
    total_variation,
)

MEMBERS, BITS = 3, 4
CAUTION = 0.3
EVERY = [
    kind(reward_scale=scale, caution=caution)
    for kind in (Marginal, Mean, Hellinger, Joint, Squared)
    for scale, caution in ((0.0, 0.0), (0.4, CAUTION))
]

chance = st.floats(0.0, 1.0, width=32)
predictions = st.tuples(
    st.lists(st.lists(chance, min_size=BITS, max_size=BITS), min_size=MEMBERS, max_size=MEMBERS),
    st.lists(st.floats(-5.0, 5.0, width=32), min_size=MEMBERS, max_size=MEMBERS),
)


def prediction(obs, reward):
    obs, reward = jnp.array(obs, jnp.float32), jnp.array(reward, jnp.float32)
    return Prediction(obs, reward, jnp.zeros_like(reward))


@jax.jit
def fast(predicted):
    """(disagreement, explore, exploit) of every utility."""
    return [(u.disagreement(predicted), u.explore(predicted), u.exploit(predicted)) for u in EVERY]


@settings(deadline=None, max_examples=100)
@given(predictions)
def test_every_utility_is_the_largest_disagreement_over_all_pairs(drawn):
    obs, reward = drawn
    for utility, (apart, explore, exploit) in zip(EVERY, fast(prediction(obs, reward)), strict=True):
        assert float(apart) == pytest.approx(plain_disagreement(utility, obs, reward), abs=5e-5)
        assert float(explore) == float(apart)
        assert float(exploit) == pytest.approx(plain_utility(utility, True, obs, reward), abs=5e-5)


def test_members_that_agree_do_not_disagree():
    obs = np.tile(np.random.default_rng(0).random(BITS), (MEMBERS, 1))
    for apart, _, exploit in fast(prediction(obs, [1.5] * MEMBERS)):
        assert float(apart) == pytest.approx(0.0, abs=1e-6)
        assert float(exploit) == pytest.approx(1.5, abs=1e-6)


def test_images_are_compared_entry_by_entry():
    obs = jnp.array([[[0.0], [0.0]], [[1.0], [2.0]], [[0.5], [0.0]]])
    predicted = Prediction(obs, jnp.array([1.0, 0.0, 4.0]), jnp.zeros(3))
    assert float(Squared(reward_scale=0.0).disagreement(predicted)) == pytest.approx(5.0)  # members 0 and 1
    assert float(Squared(reward_scale=1.0).disagreement(predicted)) == pytest.approx(4.25 + 16.0)  # 1 and 2


def test_only_distances_of_distributions_need_chances():
    needs = {
        name: kind.of_probabilities for name, kind in UTILITIES.items() if kind.__module__.startswith("e3rl.")
    }
    assert needs == {"marginal": False, "mean": True, "hellinger": True, "joint": True, "squared": False}


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
    assert float(total_variation(p, q)) == pytest.approx(best)


def joint(p):
    """The product distribution over all 2^D observations."""
    outcomes = itertools.product([0, 1], repeat=len(p))
    return np.array([math.prod(c if x else 1 - c for c, x in zip(p, bits, strict=True)) for bits in outcomes])


@settings(deadline=None, max_examples=50)
@given(st.lists(st.lists(chance, min_size=BITS, max_size=BITS), min_size=2, max_size=2))
def test_distances_are_those_of_the_joint_distributions_or_bound_them(pair):
    """Hellinger is that of the products and bounds their TV from both sides; what same dice make of them bounds it from
    above, and the sum of the factors' TVs bounds that."""
    found = fast(prediction([*pair, pair[1]], [0.0] * MEMBERS))
    marginal, hellinger, alike = float(found[0][0]), float(found[4][0]), float(found[6][0])
    p, q = joint(pair[0]), joint(pair[1])
    assert hellinger == pytest.approx(0.5 * np.sum((np.sqrt(p) - np.sqrt(q)) ** 2), abs=1e-5)
    tv = total_variation(p, q)
    assert tv**2 / 8 - 1e-5 <= hellinger <= tv / 2 + 1e-5
    assert tv - 1e-5 <= alike <= marginal + 1e-5


fast_empirical = jax.jit(empirical_total_variation)
particles = st.lists(st.integers(0, 2**9 - 1), min_size=3 * 6, max_size=3 * 6)
few_particles = st.lists(st.integers(0, 2), min_size=3 * 6, max_size=3 * 6)


@settings(deadline=None, max_examples=100)
@given(particles | few_particles, st.sampled_from([np.int8, np.float32]))
def test_particles_are_compared_whole_as_a_dictionary_counts_them(drawn, dtype):
    """Of nine bits, which are more than a byte."""
    whole = np.array(drawn).reshape(3, 6)
    bits = np.moveaxis(whole[..., None] >> np.arange(9) & 1, -1, 1).astype(dtype)
    counts = [Counter(member) for member in whole.tolist()]
    slow = [[sum(abs(p[x] - q[x]) for x in p | q) / 6 for q in counts] for p in counts]
    np.testing.assert_allclose(fast_empirical(jnp.array(bits)), slow, atol=1e-6)


def test_particles_with_the_same_marginals_may_differ_as_a_whole():
    """Two bits that are always equal, and two that never are: bit by bit members agree."""
    drawn = jnp.array([[[0, 1], [0, 1]], [[0, 1], [1, 0]]], jnp.int8)
    rewards = jnp.array([0.0, 0.5])
    predicted = Prediction(jnp.mean(drawn, axis=-1), rewards, jnp.zeros(2), particles=drawn)
    assert float(Marginal(reward_scale=0.0).explore(predicted)) == 0.0
    assert float(Joint(reward_scale=0.0).explore(predicted)) == 2.0
    assert float(Joint(reward_scale=0.4).explore(predicted)) == pytest.approx(2.2)
    images = predicted._replace(particles=drawn.reshape(2, 1, 2, 1, 2))
    assert float(Joint(reward_scale=0.0).explore(images)) == 2.0
    assert float(Joint(reward_scale=0.0).explore(predicted._replace(particles=None))) == 0.0


def test_exploiting_averages_the_predicted_reward():
    assert float(mean_reward(prediction(np.zeros((3, 2)), [1.0, 2.0, 6.0]))) == pytest.approx(3.0)
