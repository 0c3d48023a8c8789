"""Counts drawn level by level are distributed as those of trajectories played one by one."""

import itertools

import numpy as np
import pytest
from scipy import stats

from e3rl.dreem.distributions import per_step
from e3rl.dreem.misfit import roll_in_distributions
from e3rl.dreem.sampling import sample_counts
from e3rl.types import UserError

HORIZON, STATES, ACTIONS = 3, 2, 2


@pytest.fixture
def problem():
    rng = np.random.default_rng(7)
    model = per_step(rng.dirichlet(np.ones(STATES), size=(1, STATES, ACTIONS)), HORIZON)[0]
    return model, np.array([0.3, 0.7]), rng.integers(ACTIONS, size=(HORIZON, STATES))


def play(rng, model, start, policy, n):
    """The oracle: n trajectories for each h, step by step."""
    counts = np.zeros(model.shape, int)
    for h in range(HORIZON):
        for _ in range(n):
            s = rng.choice(STATES, p=start)
            for k in range(h):
                s = rng.choice(STATES, p=model[k, s, policy[k, s]])
            a = rng.integers(ACTIONS)
            counts[h, s, a, rng.choice(STATES, p=model[h, s, a])] += 1
    return counts


def test_same_joint_distribution_as_playing(problem):
    """Chi-square of homogeneity over the whole outcome at n = 2, for each h."""
    rng = np.random.default_rng(0)
    ours = [sample_counts(rng, *problem, 2) for _ in range(2000)]
    theirs = [play(rng, *problem, 2) for _ in range(2000)]
    for h in range(HORIZON):
        seen = [[counts[h].tobytes() for counts in drawn] for drawn in (ours, theirs)]
        outcomes = sorted(set(itertools.chain(*seen)))
        table = np.array([[side.count(outcome) for outcome in outcomes] for side in seen])
        common = table.sum(axis=0) >= 20
        table = np.column_stack([table[:, common], table[:, ~common].sum(axis=1)])
        table = table[:, table.sum(axis=0) > 0]
        assert stats.chi2_contingency(table).pvalue > 1e-3


def test_steps_are_independent_of_each_other(problem):
    rng = np.random.default_rng(1)
    drawn = np.array([sample_counts(rng, *problem, 50)[:, 0].sum(axis=(1, 2)) for _ in range(1000)])
    correlation = np.corrcoef(drawn.T)
    assert np.abs(correlation - np.eye(HORIZON)).max() < 0.13


@pytest.mark.parametrize("n", [1, 1000, 10**9, 10**16, 2**62])
def test_totals_are_exact_and_means_right_at_any_n(problem, n):
    model, start, policy = problem
    counts = sample_counts(np.random.default_rng(2), model, start, policy, n)
    assert counts.dtype == np.int64
    assert all(sum(map(int, counts[h].ravel())) == n for h in range(HORIZON))
    if n >= 1000:
        reached = roll_in_distributions(model, start, policy[None])[0]
        expected = reached[:, :, None, None] / ACTIONS * model
        spread = np.sqrt(expected * (1 - expected) / n)
        assert np.abs((counts / n - expected) / spread).max() < 5.5


def test_variance_at_ten_to_the_sixteen(problem):
    model, start, policy = problem
    rng, n = np.random.default_rng(3), 10**16
    drawn = np.array([sample_counts(rng, model, start, policy, n)[0] / n for _ in range(1000)])
    expected = start[:, None, None] / ACTIONS * model[0]
    ratio = drawn.var(axis=0) / (expected * (1 - expected) / n)
    assert np.abs(ratio - 1).max() < 0.25


def test_nothing_lands_where_there_is_no_chance():
    model = np.zeros((2, 3, 1, 3))
    model[:, :, 0, :2] = [1 / 3, 2 / 3]
    counts = sample_counts(
        np.random.default_rng(0), model, np.array([1.0, 0, 0]), np.zeros((2, 3), int), 10**15
    )
    assert counts[..., 2].sum() == 0
    assert counts[0, 1:].sum() == 0


@pytest.mark.parametrize("n", [0, -1, 2**62 + 1])
def test_refuses_counts_that_do_not_fit(problem, n):
    with pytest.raises(UserError, match="n must be"):
        sample_counts(np.random.default_rng(0), *problem, n)
