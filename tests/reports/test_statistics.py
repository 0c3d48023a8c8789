"""Statistics against definitions in plain Python and against numbers of rliable 1.2, which is not installed here."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from e3rl.reports.statistics.comparisons import (
    improvement,
    performance_profile,
    probability_of_improvement,
)
from e3rl.reports.statistics.intervals import (
    Share,
    interquartile_mean,
    mean_within,
    spread,
    stratified_bootstrap,
)
from e3rl.reports.statistics.waiting import Waiting, smallest_budget

OURS = np.array(
    [[0.66, 0.69, 0.52], [0.33, 0.46, 0.3], [0.62, 1.0, 0.45], [0.41, 0.75, 0.71], [0.63, 0.32, 0.59]]
)
THEIRS = np.array(
    [[0.66, 0.05, 0.31], [-0.12, 0.06, -0.1], [0.38, 0.07, 0.53], [0.5, 0.39, -0.31], [0.29, 0.44, 0.48],
     [-0.01, 0.31, 0.16], [0.21, 0.77, 0.21]]
)  # fmt: skip
"""Runs by tasks, as rliable has them; the numbers below are what it said about these."""


def test_the_numbers_of_rliable():
    assert interquartile_mean(list(OURS.T)) == pytest.approx(0.5588888888888888)
    assert interquartile_mean(list(THEIRS.T)) == pytest.approx(0.25727272727272726)
    for count in range(1, 30):
        scores = np.random.default_rng(count).normal(size=count)
        assert interquartile_mean([scores]) == pytest.approx(stats.trim_mean(scores, 0.25))
    assert probability_of_improvement(list(OURS.T), list(THEIRS.T)) == pytest.approx(0.8142857142857144)
    profile = performance_profile(list(OURS.T), [0.0, 0.25, 0.5, 0.6, 1.0])
    assert profile == pytest.approx([1.0, 1.0, 0.6, 0.4666666666666667, 0.0])


def test_bootstrap_intervals_of_rliable():
    """20,000 draws there, with other dice."""
    middle = stratified_bootstrap(interquartile_mean, list(OURS.T))
    assert (middle.low, middle.high) == pytest.approx((0.44444444, 0.65), abs=0.02)
    better = improvement(list(OURS.T), list(THEIRS.T))
    assert (better.low, better.high) == pytest.approx((0.65714286, 0.94285714), abs=0.02)
    assert stratified_bootstrap(interquartile_mean, list(OURS.T)) == middle


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=5), st.lists(st.integers(0, 3), min_size=1, max_size=5)
)
def test_improvement_counts_pairs(ours, theirs):
    pairs = [1.0 if x > y else 0.5 if x == y else 0.0 for x, y in itertools.product(ours, theirs)]
    found = probability_of_improvement([np.array(ours, float)], [np.array(theirs, float)])
    assert found == pytest.approx(sum(pairs) / len(pairs))


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [(0, 5, 0.0, 0.5218), (5, 5, 0.4782, 1.0), (4, 5, 0.2836, 0.9949), (0, 200, 0.0, 0.01828)],
)
def test_clopper_and_pearson(hits, count, low, high):
    """From their tables; 0 of n ends at 1 − 0.025^(1/n)."""
    found = Share(hits, count).interval
    assert (found.low, found.high) == pytest.approx((low, high), abs=5e-5)
    assert (found.value, Share(hits, count).is_most) == (hits / count, hits > count / 2)


def test_shares_in_words():
    assert str(Share(4, 5)) == "4 of 5 [28%, 99%]"
    assert Share(5, 5).is_all
    assert not Share(0, 0).is_all
    assert Share(0, 0).interval[1:] == (0.0, 1.0)
    assert spread([3.0, 1.0, 2.0]) == "2.00 (1.00 to 3.00)"


def test_intervals_stay_within_what_is_possible():
    """Five runs of CartPole whose interval by Student's t would end at 631."""
    returns = [500.0, 500.0, 500.0, 286.0, 101.0]
    free, held = mean_within(returns), mean_within(returns, 0.0, 500.0)
    assert free.high > 600
    assert held == (free.value, free.low, 500.0)
    assert mean_within([3.0], 0.0, 5.0) == (3.0, 0.0, 5.0)
    margin = 2.7764451 * np.std(returns, ddof=1) / math.sqrt(5)
    assert free.low == pytest.approx(free.value - margin)


def test_waiting_without_any_that_gave_up_is_the_plain_median():
    assert Waiting.of([5, 9, 7], [10, 10, 10]).median.value == 7
    assert str(Waiting.of([5, 9, 7], [10, 10, 10])) == "3 of 3 [29%, 100%], median 7"


def test_runs_that_gave_up_are_not_forgotten():
    """By hand: one of five at 957, of four at 1,621, of three at 2,174: 0.4 are left. A run of 1,000 episodes leaves
    the count without having got there: 4/5 · 2/3 · 1/2."""
    assert Waiting.of([957, 1621, 2174, None, None], [5000] * 5).median.value == 2174
    early = Waiting.of([957, None, 1621, 2174, None], [5000, 1000, 5000, 5000, 5000])
    assert early.median.value == 2174
    assert early.share == (3, 5)
    few = Waiting.of([957, None, None], [5000, 4000, 5000])
    assert math.isinf(few.median.value)
    assert str(few) == "1 of 3 [1%, 91%], median > 4,000"
    never = Waiting.of([None, None], [9, 9])
    assert never.median == (math.inf, 9, math.inf)


@given(st.lists(st.tuples(st.integers(1, 50), st.booleans()), min_size=1, max_size=9))
def test_kaplan_and_meier_by_the_product(runs):
    left, middle = 1.0, math.inf
    for time in sorted({at for at, _ in runs}):
        at_risk = sum(at >= time for at, _ in runs)
        left *= 1 - sum(at == time and happened for at, happened in runs) / at_risk
        if left <= 0.5 + 1e-12:
            middle = time
            break
    when = [at if happened else None for at, happened in runs]
    found = Waiting.of(when, [at for at, _ in runs]).median
    assert found.value == middle
    assert found.low <= found.value <= found.high


def test_a_budget_is_checked_on_seeds_it_was_not_chosen_on():
    solved = {
        10: {0: True, 1: False, 2: False, 3: True, 4: True},
        20: {0: True, 1: False, 2: True, 3: True, 4: True},
        30: {0: True, 1: True, 2: True, 3: True, 4: True},
    }
    chosen = smallest_budget(solved)
    assert (chosen.budget, chosen.chosen_on, chosen.checked_on) == (20, (0, 2, 4), (1, 3))
    assert chosen.solved == (1, 2)
    gap = {10: {0: True}, 20: {0: False}, 30: {0: True}}  # solved by luck at 10
    assert smallest_budget(gap).budget == 30
    assert smallest_budget({10: {0: False, 1: True}}) == (None, (0,), (1,), (0, 0))
