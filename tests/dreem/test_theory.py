"""The constants of Theorem 1, by hand and as properties."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e3rl.dreem.theory import constants, deviation, phi
from e3rl.types import UserError

sizes = st.tuples(
    st.integers(1, 50), st.integers(1, 20), st.integers(1, 100), st.floats(0.001, 1.0), st.floats(0.001, 1.0),
    st.integers(1, 10**6), st.integers(1, 10**9),
)  # fmt: skip


def test_by_hand():
    found = constants(horizon=2, actions=2, rank=4, epsilon=0.5, delta=0.1, models=10, policies=16)
    assert found.phi == 0.5 / (24 * 4 * 4 * 2)
    assert found.rounds == pytest.approx(8 * math.log(4 / (2 * found.phi)) / math.log(5 / 3))
    log = math.log(2 * found.rounds * 2 * 10 * 100 / 0.1)
    assert found.n == math.ceil(36864 * 16 * 16 * 4 * log / 0.25)
    paper_log = math.log(4 * found.rounds * 2 * 10 * 16 / 0.1)
    assert found.paper_n == math.ceil(36864 * 16 * 16 * 4 * paper_log / 0.25)
    assert found.test_functions == 100
    assert found.total == found.n * math.floor(found.rounds) * 2
    assert found.paper_total == found.paper_n * math.floor(found.rounds)
    assert found.dominant == "36864"


@given(sizes)
def test_n_makes_the_deviation_at_most_phi_and_one_percent_less_does_not(size):
    found = constants(*size)
    assert deviation(found.n, found.terms["log"]) <= found.phi * (1 + 1e-9)
    assert deviation(max(1, int(found.n * 0.99)), found.terms["log"]) > found.phi
    assert math.prod(found.terms.values()) == pytest.approx(found.n, rel=1e-4)  # n is rounded up
    # What Hoeffding's inequality asks for z in [−2, 2] is less.
    assert math.sqrt(8 * found.terms["log"] / found.n) <= found.phi


def test_the_term_that_dominates_changes_with_the_problem():
    assert constants(100, 2, 2, 0.5, 0.1, 10, 10).dominant == "H^4"
    assert constants(2, 2, 2, 0.001, 0.1, 10, 10).dominant == "1/epsilon^2"
    assert constants(2, 20, 2, 0.5, 0.1, 10, 10).dominant == "|A|^4"


def test_phi_shrinks_with_everything_but_epsilon():
    assert phi(4, 2, 9, 0.2) == pytest.approx(0.2 / (24 * 16 * 4 * 3))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"epsilon": 0.0}, "epsilon must lie in"),
        ({"epsilon": 1.5}, "epsilon must lie in"),
        ({"epsilon": math.nan}, "epsilon must lie in"),
        ({"delta": -0.1}, "delta must lie in"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"models": 0}, "models must be at least 1"),
        ({"beta": 0.0}, "beta must be above"),
    ],
)
def test_bad_input(change, words):
    good = {"horizon": 3, "actions": 2, "rank": 3, "epsilon": 0.1, "delta": 0.1, "models": 5, "policies": 5}
    with pytest.raises(UserError, match=words):
        constants(**(good | change))
