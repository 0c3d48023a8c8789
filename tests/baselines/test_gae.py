"""Advantages against a sum written out term by term."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e3rl.baselines.gae import advantages, continuing_values


def written_out(reward, value, next_value, terminated, truncated, discount, decay):
    """For every step, the sum of later errors of its episode: O(n²)."""
    error = [
        r + (0.0 if end else discount * after) - v
        for r, v, after, end in zip(reward, value, next_value, terminated, strict=True)
    ]
    sums = []
    for t in range(len(reward)):
        total, weight = 0.0, 1.0
        for k in range(t, len(reward)):
            total += weight * error[k]
            if terminated[k] or truncated[k]:
                break
            weight *= discount * decay
        sums.append(total)
    return sums


STEPS = 9
numbers = st.lists(st.floats(-3, 3, width=32), min_size=STEPS, max_size=STEPS)
flags = st.lists(st.booleans(), min_size=STEPS, max_size=STEPS)
shares = st.sampled_from([(0.0, 0.5), (0.9, 0.75), (0.99, 0.0), (1.0, 1.0)])
compiled = jax.jit(advantages, static_argnums=(5, 6))


@settings(max_examples=60, deadline=None)
@given(numbers, numbers, numbers, flags, flags, shares)
def test_agrees_with_the_sum_written_out(reward, value, next_value, terminated, truncated, shares):
    discount, decay = shares
    floats = [jnp.array(x, jnp.float32) for x in (reward, value, next_value)]
    ours = compiled(*floats, jnp.array(terminated), jnp.array(truncated), discount, decay)
    oracle = written_out(reward, value, next_value, terminated, truncated, discount, decay)
    np.testing.assert_allclose(ours, oracle, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("terminated", "worth"), [(True, 1.0), (False, 1.0 + 0.5 * 4.0)])
def test_only_a_truncation_looks_past_the_end(terminated, worth):
    """One step that pays 1 and leads to something worth 4, at γ = ½."""
    end = jnp.array([terminated])
    one = advantages(jnp.ones(1), jnp.zeros(1), jnp.full(1, 4.0), end, ~end, 0.5, 0.9)
    assert one.item() == pytest.approx(worth)


def test_by_hand():
    """γ = λ = ½: errors 1 + ½·2 − 1 = 1 and 0 + ½·4 − 2 = 0, then 3 − 4 at the end."""
    ours = advantages(
        jnp.array([1.0, 0.0, 3.0]),
        jnp.array([1.0, 2.0, 4.0]),
        jnp.array([2.0, 4.0, 9.0]),
        jnp.array([False, False, True]),
        jnp.zeros(3, bool),
        0.5,
        0.5,
    )
    np.testing.assert_allclose(ours, [1 - 1 / 16, -1 / 4, -1.0], rtol=1e-6)


def test_environments_side_by_side_do_not_mix():
    values = jnp.arange(12.0).reshape(4, 3)
    ended = jnp.array([[False, True, False]] * 4)
    together = advantages(values, -values, 2 * values, ended, ~ended, 0.9, 0.8)
    for i in range(3):
        alone = advantages(values[:, i], -values[:, i], 2 * values[:, i], ended[:, i], ~ended[:, i], 0.9, 0.8)
        np.testing.assert_allclose(together[:, i], alone, rtol=1e-6)


def test_without_episodes_the_next_row_follows_whatever_ended():
    value = jnp.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    next_value = value + 100.0
    start = jnp.array([[True, False], [False, True], [False, False]])
    ended = jnp.array([[False, True], [False, False], [True, False]])
    after = continuing_values(value, next_value, start, ended)
    beginning = (1.0 + 20.0) / 2
    np.testing.assert_allclose(after, [[2.0, 20.0], [3.0, 30.0], [beginning, 130.0]])


def test_without_a_beginning_to_go_by_the_last_observation_stands_in():
    value, ended = jnp.ones((2, 1)), jnp.array([[False], [True]])
    after = continuing_values(value, 7.0 * value, jnp.zeros((2, 1), bool), ended)
    np.testing.assert_allclose(after, [[1.0], [7.0]])
