"""Propositions 1 to 3 on random instances, and the generalised rank's norms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e3rl.dreem.distributions import per_step
from e3rl.dreem.rank import (
    factored_misfit_matrices,
    factorise,
    generalised_rank,
    misfit_matrices,
    numerical_rank,
    rounded,
)
from e3rl.envs.tabular import low_rank_mdp, random_mdp
from e3rl.experiments.dreem_rank import HORIZON, RankSetting, factored_tables, measure, random_rows
from e3rl.types import UserError


def instance(seed, states=4, actions=2, horizon=3, models=12, policies=15, truth=None):
    rng = np.random.default_rng(seed)
    tables = random_rows(rng, models, states, actions, states)
    if truth is not None:
        tables[0] = truth
    rules = rng.integers(0, actions, (policies, horizon, states))
    return per_step(tables, horizon), random_rows(rng, states), rules


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_entries_are_the_misfits_of_the_definition(seed):
    tables, start, rules = instance(seed)
    matrices = misfit_matrices(tables, tables[0], start, rules)
    for p, m in [(0, 1), (7, 5), (14, 11)]:
        reached = start
        for h in range(rules.shape[1]):
            expected = 0.0
            for s, a in np.ndindex(4, 2):
                gap = sum(abs(tables[m, h, s, a, t] - tables[0, h, s, a, t]) for t in range(4))
                expected += reached[s] / 2 * gap
            assert matrices[h, p, m] == pytest.approx(expected, abs=1e-12)
            reached = sum(reached[s] * tables[0, h, s, rules[p, h, s]] for s in range(4))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), states=st.integers(2, 6))
def test_proposition_1(seed, states):
    truth = random_mdp(states, 2, 3, seed).transitions
    tables, start, rules = instance(seed, states, truth=truth, models=30, policies=30)
    for matrix in misfit_matrices(tables, tables[0], start, rules):
        assert numerical_rank(matrix) <= states


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), rank=st.integers(1, 3))
def test_proposition_2_whatever_the_other_models_are(seed, rank):
    truth = low_rank_mdp(9, 2, 3, rank, seed).transitions
    tables, start, rules = instance(seed, 9, truth=truth, models=30, policies=30)
    first, *later = misfit_matrices(tables, tables[0], start, rules)
    assert numerical_rank(first) == 1  # all policies start alike
    for matrix in later:
        assert numerical_rank(matrix) <= rank


@pytest.mark.parametrize(
    ("factors", "parents", "per_factor"), [(3, 1, 1 + 3), (4, 1, 1 + 4), (4, 2, 1 + 4 + 4)]
)
def test_the_joint_distance_needs_every_state_and_the_one_per_factor_what_its_parents_say(
    factors, parents, per_factor
):
    """Few factors have more entries than states: there Proposition 3 follows from Proposition 1. The ranks themselves
    do not: a distance per factor adds functions of its parents, the constant, each bit, each pair of neighbours."""
    row = measure(RankSetting("factored", factors, parents, models=60, policies=60))
    assert row["states"] == 2**factors < row["bound"]
    assert row["ranks"] == [1, *[2**factors] * (HORIZON - 1)]  # all policies start alike
    assert row["ranks_per_factor"] == [1, *[per_factor] * (HORIZON - 1)]
    assert row["smallest_counted"] > 1e-12


def test_proposition_3_fails_for_the_joint_distance_and_holds_per_factor():
    """Six binary factors with a parent each: L = 48 entries, and rank 64 of the matrices as the paper defines them."""
    setting = RankSetting("factored", 6, 1, models=100, policies=100)
    row = measure(setting)
    assert row["bound"] == 48
    assert row["ranks"][1:] == [64] * (HORIZON - 1)
    assert row["smallest_counted"] > 1e-12  # a thousand times what rounding leaves
    # Each factor adds a function of one bit: the constant and one dimension each.
    assert row["ranks_per_factor"][1:] == [7] * (HORIZON - 1)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_per_factor_misfit_lies_between_the_joint_one_and_d_times_it(seed):
    rng = np.random.default_rng(seed)
    parents = np.array([[1], [2], [0]])
    tables = per_step(factored_tables(random_rows(rng, 10, 3, 2, 2, 2), parents), 3)
    start, rules = random_rows(rng, 8), rng.integers(0, 2, (10, 3, 8))
    joint = misfit_matrices(tables, tables[0], start, rules)
    each = factored_misfit_matrices(tables, tables[0], start, rules, values=2, factors=3)
    assert np.all(joint <= each + 1e-12)
    assert np.all(each <= 3 * joint + 1e-12)


def test_factored_tables_are_products_of_their_factors():
    rng = np.random.default_rng(0)
    local, parents = random_rows(rng, 1, 2, 2, 2, 2), np.array([[1], [0]])
    table = factored_tables(local, parents)[0]
    for s, a, t in np.ndindex(4, 2, 4):
        bits, after = (s // 2, s % 2), (t // 2, t % 2)
        expected = local[0, 0, a, bits[1], after[0]] * local[0, 1, a, bits[0], after[1]]
        assert table[s, a, t] == pytest.approx(expected, abs=1e-15)


def test_wrong_number_of_factors_is_one_clear_error():
    tables, start, rules = instance(0)
    with pytest.raises(UserError, match=r"2\^3 states expected, got 4"):
        factored_misfit_matrices(tables, tables[0], start, rules, values=2, factors=3)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), rank=st.integers(1, 4))
def test_factorisations_multiply_back_and_keep_johns_bound(seed, rank):
    rng = np.random.default_rng(seed)
    matrix = rng.random((12, rank)) @ rng.random((rank, 9))
    balanced = factorise(matrix)
    assert balanced.rank == rank
    for factors in (balanced, rounded(balanced)):
        np.testing.assert_allclose(factors.left @ factors.right.T, matrix, atol=1e-8)
        assert factors.beta >= matrix.max() - 1e-9
    assert rounded(balanced).beta <= np.sqrt(rank) * matrix.max() * (1 + 1e-6)


def test_generalised_rank_by_hand():
    assert generalised_rank(np.eye(3), 1.0) == (3, 3)
    assert generalised_rank(np.eye(3), 0.9) == (3, np.inf)  # an entry of 1 needs norms of 1
    assert generalised_rank(np.ones((4, 5)), 1.0) == (1, 1)
    assert generalised_rank(np.zeros((2, 2)), 0.0) == (0, 0)
