"""The table by hand: counts, ends, growth, how much is unknown, how far members are apart."""

import math

import numpy as np
import pytest

from e3rl.tabular import posterior
from e3rl.tabular.posterior import DIGEST, END, NOTHING, VISITS, Table, TableFull, digest, falling


def at(place):
    """What is seen there."""
    return np.array([place, 0.5], np.float32)


def new_table(actions=2, capacity=1000, seed=0):
    return Table(actions, 5, seed, capacity)


def ring(table, places, rounds, jump=1):
    """Every action in every place, so many times: action a leads `jump` + a places on."""
    for _ in range(rounds):
        for place in range(places):
            for action in range(table.actions):
                table.observe(table.find(at(place)), action, 0.0, at((place + jump + action) % places), False)


def test_what_was_seen_is_counted():
    table = new_table()
    home = table.find(at(0))
    assert (home, table.states, table.find(at(0))) == (0, 1, 0)
    there, news = table.observe(home, 1, 2.0, at(1), False)
    assert (there, news.state, news.outcome) == (1, True, True)
    assert table.observe(home, 1, 4.0, at(1), False) == (1, (False, False))
    back, news = table.observe(there, 0, -1.0, at(0), False)
    assert (back, news.state, news.outcome) == (0, False, True)
    end, news = table.observe(there, 1, 0.5, at(7), True)
    assert (end, bool(news)) == (END, True)
    assert table.states == 2  # where an episode has ended is no place to be
    np.testing.assert_array_equal(table.tried, [[0, 2], [1, 1]])
    np.testing.assert_array_equal(table.successor[:2, :, 0], [[NOTHING, 1], [0, END]])
    np.testing.assert_allclose(table.mean_reward(), [[0.0, 3.0], [-1.0, 0.5]])
    assert table.reward_squared[0, 1].sum() == 4.0 + 16.0
    assert (table.lowest, table.highest) == (-1.0, 4.0)


def test_it_grows_with_the_states():
    table = new_table()
    table.episode = 4
    rows = [table.find(at(place)) for place in range(70)]
    assert rows == [table.find(at(place)) for place in range(70)] == list(range(70))
    assert table.states == 70 <= len(table.keys) == len(table.count) == 128
    assert table.keys[69].tobytes() == digest(at(69))
    assert (table.disagreement == 2.0).all()
    assert (table.successor == NOTHING).all()
    assert not table.tried.any()
    assert table.discovered_in(4)
    assert not table.discovered_in(5)


def test_it_widens_with_the_outcomes():
    table = new_table()
    home = table.find(at(0))
    for times in (1, 2):
        for place in range(times, 6):
            table.observe(home, 1, 0.0, at(place), False)
    table.observe(home, 1, 0.0, at(9), True)
    assert table.successor.shape[-1] == 8
    assert table.successor[home, 1].tolist() == [1, 2, 3, 4, 5, END, NOTHING, NOTHING]
    assert table.count[home, 1].tolist() == [1, 2, 2, 2, 2, 1, 0, 0]
    assert (table.successor[home, 0] == NOTHING).all()


def test_ends_that_are_paid_differently_are_different_outcomes(monkeypatch):
    table = new_table()
    home = table.find(at(0))
    for reward in (0.0, 1.0, 0.0, 5.0):
        table.observe(home, 1, reward, at(7), True)
    assert table.successor[home, 1, :3].tolist() == [END, END - 1, END - 2]
    assert table.count[home, 1, :3].tolist() == [2, 1, 1]
    np.testing.assert_allclose(table.reward[home, 1, :3], [0.0, 1.0, 5.0])
    monkeypatch.setattr(posterior, "KINDS_OF_END", 3)
    for reward in (6.0, 7.0):
        assert table.observe(home, 1, reward, at(7), True)[0] == END - 2  # beyond those it tells apart


def plain_falling(some, of):
    """Pool adjacent violators."""
    blocks = []
    for one, all_ in zip(some, of, strict=True):
        blocks.append([one, all_, 1])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] < blocks[-1][0] / blocks[-1][1]:
            last = blocks.pop()
            blocks[-1] = [x + y for x, y in zip(blocks[-1], last, strict=True)]
    return np.concatenate([[one / all_] * size for one, all_, size in blocks])


@pytest.mark.parametrize("seed", range(5))
def test_rates_that_never_grow_against_pooling_by_hand(seed):
    rng = np.random.default_rng(seed)
    of = rng.uniform(1.0, 30.0, 20)
    some = rng.uniform(0.0, 1.0, 20) * of / np.arange(1, 21)
    np.testing.assert_allclose(falling(some, of), plain_falling(some, of))


def test_what_is_missing_comes_from_all_visits_together():
    """(news + 1/(n + 1)) / (visits + 1); where that would grow with n, from all those n together."""
    table = new_table()
    np.testing.assert_allclose(table.missing_mass(), 1.0 / (np.arange(VISITS) + 1.0))
    home = table.find(at(0))
    there, _ = table.observe(home, 0, 0.0, at(1), False)  # three first visits, all news; two new states
    table.observe(home, 1, 0.0, at(2), False)
    table.observe(there, 0, 0.0, at(0), False)
    table.observe(home, 0, 0.0, at(1), False)  # three second visits, one of them with a new outcome
    table.observe(home, 1, 0.0, at(1), False)
    table.observe(there, 0, 0.0, at(0), False)
    missing, leaps = table.missing_mass(), table.leap_mass()
    second = (1 + 1 / 2) / (3 + 1)
    np.testing.assert_allclose(missing[:4], [1.0, second, 1 / 3, 1 / 4])
    np.testing.assert_allclose(leaps[:4], [(2 + 1) / (3 + 1), (0 + 1 / 2) / (3 + 1), 1 / 8, 1 / 8], rtol=1e-5)
    np.testing.assert_allclose(table.unknown()[:2], [[1 / 3, 1 / 3], [1 / 3, 1.0]], rtol=1e-5)
    np.testing.assert_allclose(table.leaps()[:2], [[1 / 8, 1 / 8], [1 / 8, 3 / 4]], rtol=1e-5)


def test_visits_beyond_the_last_are_counted_there():
    table = new_table()
    home = table.find(at(0))
    for _ in range(VISITS + 10):
        table.observe(home, 0, 0.0, at(0), False)
    assert table.novelty[0].tolist() == [1.0] * (VISITS - 1) + [11.0]
    assert table.unknown()[0, 0] == table.missing_mass()[-1]


def test_first_tries_go_by_the_action_that_discovered_the_state():
    """Along a line, action 1 leads on where it had led to, action 0 back; then an episode ends."""
    table = new_table()
    for place in range(4):
        table.observe(table.find(at(place)), 1, 0.0, at(place + 1), False)
        table.observe(table.find(at(place)), 0, 0.0, at(max(place - 1, 0)), False)
    table.observe(table.find(at(4)), 0, 0.0, at(0), True)
    new, end = table.first_tries()
    assert table.arrival[:5].tolist() == [2, 1, 1, 1, 1]  # an episode began in the first
    common = (4 + 0.5) / (9 + 1)
    begun = [(0 + 2 * common) / (1 + 2), (1 + 2 * common) / (1 + 2)]
    moved = [(0 + 2 * common) / (4 + 2), (3 + 2 * common) / (3 + 2)]
    np.testing.assert_allclose(new, [begun, *[moved] * 4])
    assert end == pytest.approx((1 + 0.5) / (9 + 10))


def wander(table, rng, steps):
    """A noisy walk among 90 places, which sometimes ends."""
    state = table.find(at(0))
    for _ in range(steps):
        action, place = int(rng.integers(2)), int(rng.integers(90))
        state, _ = table.observe(state, action, float(rng.normal()), at(place), bool(rng.random() < 0.1))
        state = table.find(at(0)) if state <= END else state


def test_restored_it_goes_on_as_if_nothing_had_happened():
    rng, twin = np.random.default_rng(1), np.random.default_rng(1)
    table, whole = new_table(seed=7), new_table(seed=7)
    wander(table, rng, 60)
    wander(whole, twin, 60)
    again = new_table(seed=7)
    kept = table.arrays()
    again.restore(kept)
    wander(table, np.random.default_rng(5), 50)  # what is held is a copy
    wander(again, rng, 200)
    wander(whole, twin, 200)
    assert again.states == whole.states > 64
    for name, array in whole.arrays().items():
        np.testing.assert_array_equal(again.arrays()[name], array, err_msg=name)
    assert again.index == whole.index


def test_a_full_table_says_so():
    table = new_table(capacity=3)
    for place in range(3):
        table.find(at(place))
    with pytest.raises(TableFull, match="more than 3 different observations"):
        table.observe(0, 1, 0.0, at(3), False)


def test_members_agree_about_what_repeats():
    """2 before the first try; then less with every visit, until one visit tells everything."""
    table = new_table()
    home = table.find(at(60))
    assert table.disagreement[home].tolist() == [2.0, 2.0]
    after = []
    for _ in range(6):
        table.observe(home, 0, 1.0, at(60), False)
        after.append(float(table.disagreement[home, 0]))
    assert after == sorted(after, reverse=True)
    assert after[0] > 2 * after[-1] > 0.0
    assert table.disagreement[home, 1] == 2.0
    ring(table, 40, 2)
    table.observe(home, 0, 1.0, at(60), False)
    assert table.disagreement[home, 0] < 0.05
    fresh = table.find(at(50))
    table.observe(fresh, 0, 0.0, at(60), False)
    assert table.disagreement[fresh, 0] < 0.05


def test_members_go_on_disagreeing_about_noise():
    """Half and half: much after four visits, less after two hundred, but not nothing."""
    table, after = new_table(), []
    home = table.find(at(0))
    for i in range(200):
        table.observe(home, 0, 0.0, at(i % 2), False)
        after.append(float(table.disagreement[home, 0]))
    assert 0.02 < after[-1] < 0.5 * after[3]
    assert max(after) <= 2.0


def test_members_disagree_about_rewards_too():
    """Two actions that lead to the same place, one of which pays now and then."""
    table = new_table()
    home = table.find(at(0))
    for i in range(10):
        table.observe(home, 0, 1.0, at(0), False)
        table.observe(home, 1, float(i % 2), at(0), False)
    assert table.disagreement[home, 1] > table.disagreement[home, 0] + 0.1


def test_seeds_draw_other_members():
    first, second = new_table(seed=1), new_table(seed=2)
    for table in (first, second):
        for i in range(6):
            table.observe(table.find(at(0)), 0, 0.0, at(i % 2), False)
    assert first.disagreement[0, 0] != second.disagreement[0, 0]


def test_observations_are_known_by_their_values():
    assert len(digest(at(1))) == DIGEST
    assert digest(at(1)) == digest(at(1).copy()) != digest(at(2))
    assert digest(np.float32([0.0, 1.0])) == digest(np.float32([-0.0, 1.0]))
    sliced = np.arange(8, dtype=np.float32).reshape(4, 2)[:, 0]
    assert digest(sliced) == digest(sliced.copy())


def test_long_observations_are_told_apart_by_what_is_not_zero():
    size = posterior.LONG
    ones = np.zeros((4, size), np.float32)
    ones[0, 3], ones[1, 4], ones[2, 3], ones[3, 3] = 1.0, 1.0, 2.0, 1.0
    ones[3, 9] = -0.0
    keys = [digest(row) for row in ones]
    assert len(set(keys)) == 3
    assert keys[3] == keys[0]


def test_the_worst_is_what_episodes_still_brought_from_any_step_on():
    table = Table(2, 2, 0, 10)
    assert table.worst == -math.inf  # not known before one has ended
    table.ended([1.0, 2.0])
    assert table.worst == 0.0
    table.ended([-1.0, 3.0, -2.0, -0.5, 1.0])
    assert table.worst == -1.5
    table.ended([-1.0, -0.25])
    assert table.worst == -1.5
    again = Table(2, 2, 0, 10)
    again.restore(table.arrays())
    assert again.worst == -1.5
    older = table.arrays()
    again.restore({**older, "about": older["about"][:3]})
    assert again.worst == -math.inf
