"""The replay buffer against a plain Python list."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from e3rl.replay import Replay, bounded_entries
from e3rl.types import Trajectory

EPISODES, HORIZON, CAPACITY, DRAWN = 2, 3, 12, 10_000

append = jax.jit(Replay.append)
sample = jax.jit(Replay.sample, static_argnums=(2, 3, 4))
take = jax.jit(Replay.take)


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


def empty(*bounds):
    return Replay.empty(CAPACITY, jnp.zeros(2), *bounds)


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
    replay = append(append(empty(), first), second)
    return replay, listed(first) + listed(second)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_sample_draws_rows_in_the_asked_proportions(two_epochs, share):
    replay, kept = two_epochs
    drawn = rows_of(sample(replay, jax.random.key(3), DRAWN, share), DRAWN)
    counts = np.array([drawn.count(row) for row in kept])
    assert counts.sum() == DRAWN  # whole rows, and nothing past the end
    chance = np.array([(1 - share) / 6] * 6 + [share / 4] * 4) if share else np.full(10, 0.1)
    assert stats.chisquare(counts, DRAWN * chance).pvalue > 1e-3


def test_sample_stays_inside_a_full_buffer_whose_last_epoch_was_dropped():
    first, second = make_epoch([3, 3], 0), make_epoch([3, 3], 1)
    replay = append(append(append(empty(), first), second), make_epoch([2, 2], 2))
    assert int(replay.size) == int(replay.recent) == CAPACITY
    drawn = set(rows_of(sample(replay, jax.random.key(0), DRAWN, 0.3), DRAWN))
    assert drawn <= set(listed(first) + listed(second))


# The scale in which rows are drawn.


def test_observations_within_zero_and_one_are_drawn_as_they_are():
    """Bit by bit, whether the bounds are given or taken for granted, in float32 and in bytes."""
    frames = jnp.array(np.random.default_rng(0).random((EPISODES, HORIZON, 2)), jnp.float32)
    epoch = make_epoch([HORIZON, 0], 0)._replace(obs=frames, next_obs=1.0 - frames)
    unit = np.zeros(2, np.float32), np.ones(2, np.float32)
    for bounds in ((), unit):
        rows = take(append(empty(*bounds), epoch), jnp.arange(HORIZON))
        np.testing.assert_array_equal(rows.obs, frames[0])
        np.testing.assert_array_equal(rows.next_obs, 1.0 - frames[0])
    bits = epoch._replace(obs=(frames > 0.5).astype(jnp.int8), next_obs=(frames < 0.5).astype(jnp.int8))
    rows = take(append(Replay.empty(CAPACITY, jnp.zeros(2, jnp.int8)), bits), jnp.arange(HORIZON))
    assert rows.obs.dtype == jnp.float32
    np.testing.assert_array_equal(rows.obs, bits.obs[0])


def test_bounds_set_the_scale_and_where_there_are_none_the_data_do():
    low, high = np.array([-2.0, -np.inf], np.float32), np.array([6.0, np.inf], np.float32)
    replay = empty(low, high)
    assert replay.bounded.tolist() == [True, False]
    padding = [99.0, 1e9]
    obs = jnp.array([[[0.0, 11.0], [2.0, -4.0], padding], [padding] * 3])
    after = jnp.array([[[2.0, -4.0], [6.0, 16.0], padding], [padding] * 3])
    epoch = make_epoch([2, 0], 0)._replace(obs=obs, next_obs=after)
    replay = append(replay, epoch)
    np.testing.assert_array_equal(replay.scale.low, [-2.0, -4.0])
    np.testing.assert_array_equal(replay.scale.high, [6.0, 16.0])
    rows = sample(replay, jax.random.key(0), DRAWN, 0.0)
    assert set(map(tuple, np.asarray(rows.obs).tolist())) == {(0.25, 0.75), (0.5, 0.0)}
    assert set(map(tuple, np.asarray(rows.next_obs).tolist())) == {(0.5, 0.0), (1.0, 1.0)}
    np.testing.assert_array_equal(replay.rows.obs[:2], obs[0, :2])  # kept as observed
    wider = append(replay, epoch._replace(obs=3.0 * obs))
    np.testing.assert_array_equal(wider.scale.high, [6.0, 33.0])
    np.testing.assert_array_equal(wider.scale.low, [-2.0, -12.0])


def test_an_entry_that_never_changes_is_drawn_as_zero():
    replay = empty(np.full(2, -np.inf, np.float32), np.ones(2, np.float32))
    frames = make_epoch([HORIZON, 0], 0).obs.at[..., 1].set(7.0)
    replay = append(replay, make_epoch([HORIZON, 0], 0)._replace(obs=frames, next_obs=frames))
    rows = take(replay, jnp.arange(HORIZON))
    np.testing.assert_array_equal(rows.obs[:, 1], 0.0)
    np.testing.assert_allclose(rows.obs[:, 0], [0.0, 0.5, 1.0])


def test_enormous_bounds_are_none():
    low, high = np.array([-3.4e38, -1.0], np.float32), np.array([3.4e38, 1.0], np.float32)
    assert bounded_entries(low, high).tolist() == [False, True]


# Segments.

LENGTH, LONGEST, SOME = 4, 6, 500


@partial(jax.jit, static_argnums=(2, 3, 4, 5))
def segments(replay, key, batch, length, *shares):
    return replay.segments(replay.draw(key, batch, length, *shares), length)


def make_episodes(lengths, ends, tag):
    """Three episodes of those lengths; obs is the number of the step over all episodes, action that of the episode."""
    shape = (len(lengths), LONGEST)
    t = np.broadcast_to(np.arange(LONGEST), shape)
    lengths = np.array(lengths)[:, None]
    number = 100 * tag + 10 * np.arange(len(lengths))[:, None] + t
    return Trajectory(
        obs=jnp.asarray(number[..., None], jnp.float32),
        action=jnp.asarray(number // 10, jnp.int32),
        reward=jnp.zeros(shape),
        next_obs=jnp.asarray(number[..., None] + 1, jnp.float32),
        terminated=jnp.asarray((t == lengths - 1) & np.array(ends)[:, None]),
        truncated=jnp.asarray((t == lengths - 1) & ~np.array(ends)[:, None]),
        valid=jnp.asarray(t < lengths),
    )


def filled(*epochs):
    """A buffer with those epochs in it, and what it should hold: (episode, step, terminated)."""
    replay, kept = Replay.empty(30, jnp.zeros(1)), []
    for epoch in epochs:
        replay = append(replay, epoch)
        e = jax.tree.map(np.asarray, epoch)
        kept += [(int(e.action[i, t]), t, bool(e.terminated[i, t])) for i, t in np.argwhere(e.valid).tolist()]
    return replay, kept[:30]


@pytest.fixture(scope="module")
def episodes():
    """Lengths 1 to 6 in two epochs, some terminated, and room behind them."""
    return filled(
        make_episodes([6, 1, 3], [True, True, False], 0), make_episodes([4, 2, 0], [False, True, False], 1)
    )


def oracle(kept, start):
    """The rows from `start` on that belong to its episode, at most LENGTH."""
    own = [row for row in kept[start : start + LENGTH] if row[0] == kept[start][0]]
    return own, [True] * len(own) + [False] * (LENGTH - len(own))


def starts_of(rows, kept):
    """Which row of the buffer each segment began with."""
    places = {(episode, t): i for i, (episode, t, _) in enumerate(kept)}
    return [places[int(a), int(t)] for a, t in zip(rows.action[:, 0], rows.time[:, 0], strict=True)]


@pytest.mark.parametrize(("recent", "ending"), [(0.0, 0.0), (0.3, 0.0), (0.3, 0.3)])
def test_segments_stay_within_their_episode(episodes, recent, ending):
    replay, kept = episodes
    rows, mask = segments(replay, jax.random.key(1), SOME, LENGTH, recent, ending)
    rows, mask = jax.tree.map(np.asarray, (rows, mask))
    seen = starts_of(rows, kept)
    if ending == 0.0:
        assert set(seen) == set(range(len(kept)))  # every row begins some segment, the last one too
    for i, start in enumerate(seen):
        own, expected = oracle(kept, start)
        assert mask[i].tolist() == expected
        found = [
            (int(rows.action[i, k]), int(rows.time[i, k]), bool(rows.terminated[i, k]))
            for k in range(len(own))
        ]
        assert found == own


def test_recent_share_of_segments(episodes):
    replay, kept = episodes
    late = []
    for seed in range(10):
        rows, _ = segments(replay, jax.random.key(seed), SOME, LENGTH, 0.3, 0.0)
        late += [
            start >= int(replay.recent) == 10 for start in starts_of(jax.tree.map(np.asarray, rows), kept)
        ]
    assert np.mean(late) == pytest.approx(0.3, abs=0.025)


def test_the_rows_on_which_episodes_terminated_are_known(episodes):
    replay, kept = episodes
    expected = [i for i, (_, _, ended) in enumerate(kept) if ended]
    assert int(replay.ended) == 3
    assert replay.endings[:3].tolist() == expected == [5, 6, 15]


def test_ending_share_draws_endings(episodes):
    replay, kept = episodes
    rows = sample(replay, jax.random.key(3), DRAWN, 0.0, 0.4)
    chance = 0.4 + 0.6 * 3 / len(kept)
    assert float(jnp.mean(rows.terminated)) == pytest.approx(chance, abs=0.02)
    assert len(set(rows.action[rows.terminated].tolist())) == 3  # all of them


def test_ending_share_of_segments_puts_the_ending_on_any_step(episodes):
    replay, _ = episodes
    rows, mask = segments(replay, jax.random.key(4), SOME, LENGTH, 0.0, 1.0)
    ended = np.asarray(rows.terminated & mask)
    assert np.all(ended.sum(axis=1) == 1)
    place = ended.argmax(axis=1)
    long = np.asarray(rows.action[:, 0]) == 0  # six steps: room for the ending everywhere
    assert set(place[long]) == set(range(LENGTH))
    assert set(place[~long]) == {0, 1}  # episodes of one and two steps


def test_ending_share_changes_nothing_where_nothing_has_ended():
    replay, _ = filled(make_episodes([4, 3, 0], [False, False, False], 0))
    assert int(replay.ended) == 0
    plain = segments(replay, jax.random.key(5), SOME, LENGTH, 0.0, 0.0)
    asked = segments(replay, jax.random.key(5), SOME, LENGTH, 0.0, 1.0)
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(asked), strict=True):
        np.testing.assert_array_equal(one, other)


def test_endings_that_no_longer_fit_are_not_listed():
    every = [True, True, True]
    replay, kept = filled(make_episodes([6, 6, 6], every, 0), make_episodes([4, 6, 6], every, 1))
    assert int(replay.size) == 30 == len(kept)
    assert int(replay.ended) == 5
    assert replay.endings[:5].tolist() == [i for i, (_, _, ended) in enumerate(kept) if ended]


starts = jax.jit(Replay.starts, static_argnums=1)


def test_starts_are_the_first_observations_of_the_first_episodes(episodes):
    """Over again where there were fewer; numbers of steps scaled as they are seen."""
    replay, _ = episodes
    assert starts(replay, 4)[:, 0].tolist() == [0.0, 10.0, 20.0, 100.0]
    two, _ = filled(make_episodes([4, 3, 0], [False, False, False], 0))
    assert starts(two, 4)[:, 0].tolist() == [0.0, 10.0, 0.0, 10.0]
    assert starts(Replay.empty(30, jnp.zeros(1)), 4).shape == (4, 1)


part = jax.jit(lambda replay, episodes, first, same: replay.append(episodes, first, same))


@pytest.mark.parametrize("every", [1, 2])
def test_an_episode_in_parts_is_the_episode(every):
    """Rows, endings and where the newest epoch begins; parts in which nothing happened add nothing."""
    whole, parts = empty(), empty()
    for tag, length in enumerate((3, 1, 2)):
        episode = make_epoch([length], tag)
        whole = append(whole, episode)
        for begin in range(0, HORIZON, every):
            cut = jax.tree.map(lambda leaf, begin=begin: leaf[:, begin : begin + every], episode)
            steps = jnp.full(1, min(begin, length), jnp.int32)
            parts = part(parts, cut, steps, jnp.array(begin > 0))
    for ours, own in zip(jax.tree.leaves(parts), jax.tree.leaves(whole), strict=True):
        np.testing.assert_array_equal(ours, own)


@pytest.mark.parametrize("in_units", [False, True])
def test_rewards_are_drawn_in_units_of_the_largest_so_far(in_units):
    replay = Replay.empty(CAPACITY, jnp.zeros(2), reward_units=in_units)
    assert float(replay.reward_unit) == 1.0
    paid = []
    for rewards in ([0.0, 0.0, 0.0], [0.5, -4.0, 0.0], [1.0, 2.0, 3.0]):
        episode = make_epoch([HORIZON], 0)._replace(reward=jnp.array([rewards]))
        replay, paid = append(replay, episode), paid + rewards
        unit = (max(map(abs, paid)) or 1.0) if in_units else 1.0
        assert float(replay.reward_unit) == unit
        np.testing.assert_array_equal(replay.rows.reward[: len(paid)], paid)  # kept as they were paid
        drawn = take(replay, jnp.arange(len(paid), dtype=jnp.int32))
        np.testing.assert_allclose(drawn.reward, np.array(paid) / unit)


def test_padding_is_no_reward():
    """What an episode's arrays hold after its end is not the largest reward."""
    episode = make_epoch([1], 0)._replace(reward=jnp.array([[0.25, 99.0, 99.0]]))
    replay = append(Replay.empty(CAPACITY, jnp.zeros(2), reward_units=True), episode)
    assert float(replay.reward_unit) == 0.25
