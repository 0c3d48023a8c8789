"""The replay buffer against a plain Python list."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from e3rl.replay import Replay
from e3rl.types import Trajectory

EPISODES, HORIZON, CAPACITY = 2, 3, 10

append = jax.jit(Replay.append)
sample = jax.jit(Replay.sample, static_argnums=(2, 3))


def make_epoch(lengths, tag):
    """Episodes of the given lengths; every entry, padding included, is a number that occurs nowhere else."""
    shape = (len(lengths), HORIZON)
    number = jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(shape) + 100.0 * tag
    valid = jnp.arange(HORIZON) < jnp.array(lengths, jnp.int32)[:, None]
    return Trajectory(
        obs=jnp.stack([number, -number], axis=-1),
        action=number.astype(jnp.int32),
        reward=number / 8.0,
        next_obs=jnp.stack([number + 0.5, -number], axis=-1),
        terminated=number.astype(jnp.int32) % 2 == 0,
        truncated=jnp.zeros(shape, bool),
        valid=valid,
    )


def listed(epoch):
    """The steps that happened, as a list of tuples in the buffer's order of fields."""
    n, horizon = epoch.valid.shape
    e = jax.tree.map(np.asarray, epoch)
    return [
        (
            tuple(e.obs[i, t]),
            e.action[i, t],
            t,
            e.reward[i, t],
            tuple(e.next_obs[i, t]),
            e.terminated[i, t],
        )
        for i in range(n)
        for t in range(horizon)
        if e.valid[i, t]
    ]


def rows_of(transitions, count):
    rows = jax.tree.map(np.asarray, transitions)
    return [
        (
            tuple(rows.obs[i]),
            rows.action[i],
            rows.time[i],
            rows.reward[i],
            tuple(rows.next_obs[i]),
            rows.terminated[i],
        )
        for i in range(count)
    ]


def empty(capacity=CAPACITY):
    return Replay.empty(capacity, jnp.zeros(2))


@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.lists(st.integers(0, HORIZON), min_size=EPISODES, max_size=EPISODES), min_size=1, max_size=5)
)
def test_append_is_a_list_that_stops_growing_at_its_capacity(epochs):
    replay, kept, before = empty(), [], 0
    for tag, lengths in enumerate(epochs):
        epoch = make_epoch(lengths, tag)
        before = len(kept)
        kept = (kept + listed(epoch))[:CAPACITY]
        replay = append(replay, epoch)
    assert int(replay.size) == len(kept)
    assert int(replay.recent) == before
    assert rows_of(replay.rows, len(kept)) == kept


def test_an_empty_buffer_has_the_observations_shape_and_type():
    replay = Replay.empty(4, jnp.zeros((2, 3), jnp.int8))
    assert replay.rows.obs.shape == replay.rows.next_obs.shape == (4, 2, 3)
    assert replay.rows.obs.dtype == jnp.int8
    assert int(replay.size) == int(replay.recent) == 0


@pytest.fixture(scope="module")
def two_epochs():
    """Six older transitions, four of the last epoch, and room that nobody may draw from."""
    first, second = make_epoch([3, 3], 0), make_epoch([1, 3], 1)
    replay = append(append(empty(20), first), second)
    return replay, listed(first) + listed(second)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_sample_draws_rows_in_the_asked_proportions(two_epochs, share):
    replay, kept = two_epochs
    drawn = rows_of(sample(replay, jax.random.key(3), 10_000, share), 10_000)
    counts = np.array([drawn.count(row) for row in kept])
    assert counts.sum() == 10_000  # whole rows, and nothing past the end
    chance = np.array([(1 - share) / 6] * 6 + [share / 4] * 4) if share else np.full(10, 0.1)
    np.testing.assert_array_equal(counts[chance == 0], 0)
    likely = chance > 0
    assert stats.chisquare(counts[likely], 10_000 * chance[likely]).pvalue > 1e-3


def test_sample_stays_inside_a_full_buffer_whose_last_epoch_was_dropped():
    replay = empty(6)
    first = make_epoch([3, 3], 0)
    replay = append(append(replay, first), make_epoch([2, 2], 1))
    assert int(replay.size) == int(replay.recent) == 6
    assert set(rows_of(sample(replay, jax.random.key(0), 50, 0.5), 50)) <= set(listed(first))
