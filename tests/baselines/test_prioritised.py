"""The sum tree against a running sum over a list, and the replay buffer's chances and weights by hand."""

import bisect
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e3rl.baselines.prioritised import FANOUT, SMALLEST_ERROR, PrioritisedReplay, SumTree
from e3rl.replay import Transitions

CAPACITY = 11
# Eighths, whose sums are exact: the oracle and the tree then agree to the last bit.
priorities = st.lists(st.integers(0, 40), min_size=CAPACITY, max_size=CAPACITY).filter(any)
writes = st.lists(st.tuples(st.integers(0, CAPACITY - 1), st.integers(0, 40)), max_size=8)

update = jax.jit(SumTree.update)
find = jax.jit(SumTree.find)
draw = jax.jit(SumTree.sample, static_argnums=2)
append = jax.jit(PrioritisedReplay.append)
sample = jax.jit(PrioritisedReplay.sample, static_argnums=2)
prioritise = jax.jit(PrioritisedReplay.prioritise, static_argnums=3)


def as_tree(leaves):
    index = jnp.arange(CAPACITY, dtype=jnp.int32)
    return update(SumTree.empty(CAPACITY), index, jnp.array(leaves, jnp.float32) / 8)


def oracle_find(leaves, mass):
    """The first leaf whose running sum exceeds the mass."""
    return bisect.bisect_right(list(itertools.accumulate(leaves)), mass)


@settings(max_examples=50, deadline=None)
@given(priorities, writes)
def test_every_node_is_the_sum_of_its_leaves(leaves, writes):
    tree = as_tree(leaves)
    for index, priority in writes:
        leaves[index] = priority
        tree = update(tree, jnp.array([index], jnp.int32), jnp.array([priority / 8], jnp.float32))
    padded = np.zeros(len(tree.levels[-1]))
    padded[:CAPACITY] = np.array(leaves) / 8
    np.testing.assert_array_equal(tree.levels[-1], padded)
    for above, below in itertools.pairwise(tree.levels):
        sums = np.asarray(below).reshape(-1, FANOUT).sum(axis=1)
        np.testing.assert_array_equal(above, np.pad(sums, (0, len(above) - len(sums))))
    assert float(tree.total) == sum(leaves) / 8


@settings(max_examples=50, deadline=None)
@given(priorities)
def test_a_mass_is_found_where_the_running_sum_passes_it(leaves):
    masses = np.arange(sum(leaves)) + 0.5
    wanted = [oracle_find(leaves, mass) for mass in masses]
    # Padded to one shape, so that one program serves all examples.
    padded = np.resize(masses, 40 * CAPACITY).astype(np.float32) / 8
    found = np.asarray(find(as_tree(leaves), jnp.array(padded)))
    np.testing.assert_array_equal(found[: len(masses)], wanted)
    bounds = [oracle_find(leaves, mass) for mass in range(sum(leaves))]
    padded = np.resize(np.arange(sum(leaves)), 40 * CAPACITY).astype(np.float32) / 8
    np.testing.assert_array_equal(np.asarray(find(as_tree(leaves), jnp.array(padded)))[: len(bounds)], bounds)


@settings(max_examples=20, deadline=None)
@given(priorities, st.integers(0, 2**31 - 1))
def test_strata_make_frequencies_exact_to_two_draws(leaves, seed):
    """Each leaf's share of a stratified batch is its priority's share, give or take a draw at either edge."""
    batch = 512
    found = np.asarray(draw(as_tree(leaves), jax.random.key(seed), batch))
    counts = np.bincount(found, minlength=CAPACITY)
    wanted = batch * np.array(leaves) / sum(leaves)
    assert np.abs(counts - wanted).max() < 2.0
    assert not counts[np.array(leaves) == 0].any()


def test_a_mass_at_the_very_end_finds_a_leaf_with_priority():
    tree = as_tree([3, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0])
    found = find(tree, jnp.array([1.0, 1.5, 0.374, 0.375]))
    np.testing.assert_array_equal(found, [2, 2, 0, 2])


def test_an_index_given_twice_leaves_a_sound_tree():
    tree = update(as_tree([1] * CAPACITY), jnp.array([4, 4, 0], jnp.int32), jnp.array([2.0, 2.0, 3.0]))
    assert float(tree.total) == pytest.approx(9 / 8 + 2.0 + 3.0)


@pytest.mark.parametrize("capacity", [1, 2, 3, 64, 65])
def test_any_capacity_fits(capacity):
    tree = update(
        SumTree.empty(capacity), jnp.arange(capacity, dtype=jnp.int32), jnp.ones(capacity, jnp.float32)
    )
    found = find(tree, jnp.arange(capacity, dtype=jnp.float32) + 0.5)
    np.testing.assert_array_equal(found, np.arange(capacity))


def rows(*numbers):
    """Transitions that can be told apart."""
    values = jnp.array(numbers, jnp.float32)
    count = values.astype(jnp.int32)
    obs = jnp.stack([values, -values], axis=1)
    return Transitions(obs, count, jnp.zeros_like(count), values, obs + 0.5, values > 100)


def test_weights_worked_by_hand():
    """Errors 1, 2, 4 at α = 1 have the chances 1/7, 2/7, 4/7; at β = ½ the weights 1, 2^−½, 4^−½ of the largest."""
    replay = append(PrioritisedReplay.empty(4, (2,)), rows(10, 20, 30))
    index = jnp.arange(3, dtype=jnp.int32)
    replay = prioritise(replay, index, jnp.array([1.0, -2.0, 4.0]), 1.0)
    drawn, where, weights = sample(replay, jax.random.key(0), 700, jnp.array(0.5))
    counts = np.bincount(where, minlength=4)
    assert np.abs(counts - [100, 200, 400, 0]).max() <= 2
    by_hand = np.array([1.0, 2**-0.5, 4**-0.5])
    np.testing.assert_allclose(weights, by_hand[np.asarray(where)], rtol=1e-4)
    np.testing.assert_array_equal(drawn.reward, np.array([10.0, 20.0, 30.0])[np.asarray(where)])
    np.testing.assert_array_equal(drawn.next_obs[:, 0], drawn.reward + 0.5)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.01, 50.0), min_size=6, max_size=6),
    st.sampled_from([0.0, 0.4, 1.0]),
    st.integers(0, 99),
)
def test_weights_against_a_plain_list(errors, beta, seed):
    replay = append(PrioritisedReplay.empty(8, (2,)), rows(*range(6)))
    replay = prioritise(replay, jnp.arange(6, dtype=jnp.int32), jnp.array(errors, jnp.float32), 0.6)
    _, where, weights = sample(replay, jax.random.key(seed), 32, jnp.array(beta))
    powers = [(error + SMALLEST_ERROR) ** 0.6 for error in errors]
    wanted = [(6 * powers[i] / sum(powers)) ** -beta for i in np.asarray(where)]
    np.testing.assert_allclose(weights, np.array(wanted) / max(wanted), rtol=1e-3)


def test_new_rows_have_the_highest_priority_so_far_and_replace_the_oldest():
    replay = append(PrioritisedReplay.empty(4, (2,)), rows(1, 2, 3))
    np.testing.assert_allclose(replay.tree.leaves(jnp.arange(4)), [1.0, 1.0, 1.0, 0.0])
    replay = prioritise(replay, jnp.array([1, 2, 0], jnp.int32), jnp.array([9.0, 0.25, 0.0]), 0.5)
    assert float(replay.ceiling) == pytest.approx(3.0)
    replay = append(replay, rows(4, 5, 6))
    np.testing.assert_array_equal(replay.rows.reward, [5.0, 6.0, 3.0, 4.0])
    np.testing.assert_allclose(replay.tree.leaves(jnp.arange(4)), [3.0, 3.0, 0.5, 3.0], rtol=1e-4)
    assert (int(replay.position), int(replay.size)) == (2, 4)


def test_without_priorities_everything_is_drawn_alike():
    replay = append(PrioritisedReplay.empty(4, (2,)), rows(1, 2, 3))
    replay = prioritise(replay, jnp.array([0, 1, 2], jnp.int32), jnp.array([7.0, 0.0, 0.1]), 0.0)
    _, where, weights = sample(replay, jax.random.key(1), 700, jnp.array(0.5))
    assert np.bincount(where, minlength=4)[:3].min() >= 232
    np.testing.assert_allclose(weights, 1.0, rtol=1e-5)
