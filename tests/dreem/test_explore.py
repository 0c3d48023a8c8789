"""The pruned argmax against going over all pairs and policies."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e3rl.dreem import explore
from e3rl.dreem.distributions import per_step, v_explore
from e3rl.dreem.explore import best_policy, total_disagreement
from e3rl.types import UserError


def draw(seed, models, policies, horizon, states, actions, stationary, spread):
    """Candidates around a common table, `spread` apart; some of them twice."""
    rng = np.random.default_rng(seed)
    shape = (models, states, actions) if stationary else (models, horizon, states, actions)
    base = rng.dirichlet(np.full(states, 0.5), size=shape[1:])
    tables = (1 - spread) * base + spread * rng.dirichlet(np.full(states, 0.5), size=shape)
    tables[-1] = tables[0]
    chosen = rng.integers(actions, size=(policies, horizon, states)).astype(np.int8)
    return per_step(tables, horizon), rng.dirichlet(np.ones(states)), chosen


problems = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**16),
        "models": st.integers(2, 12),
        "policies": st.integers(1, 40),
        "horizon": st.integers(1, 4),
        "states": st.integers(1, 5),
        "actions": st.integers(1, 3),
        "stationary": st.booleans(),
        "spread": st.sampled_from([1.0, 0.1, 1e-3, 1e-7, 0.0]),
    }
)


@given(problems)
@settings(max_examples=150, deadline=None)
def test_equals_brute_force(problem):
    models, start, policies = draw(**problem)
    values = v_explore(models, start, policies)
    found = best_policy(models, start, policies)
    assert found.value == pytest.approx(values.max(), abs=1e-12)
    assert found.policy == np.flatnonzero(values >= values.max() - 1e-12)[0]
    i, j = found.pair
    attained = total_disagreement(
        models, start, policies, np.array([i]), np.array([j]), np.array([found.policy])
    )
    assert attained[0] == pytest.approx(found.value, abs=1e-11)


@given(problems)
@settings(max_examples=50, deadline=None)
def test_slabs_and_blocks_change_nothing(problem):
    models, start, policies = draw(**problem)
    whole = best_policy(models, start, policies)
    with pytest.MonkeyPatch.context() as patch:
        for name, size in {"SLAB": 3, "BLOCK_BYTES": 1, "BATCH": 2, "SEED_PAIRS": 1, "SEED_BEST": 0}.items():
            patch.setattr(explore, name, size)
        parts = best_policy(models, start, policies)
    assert parts.policy == whole.policy
    assert parts.value == pytest.approx(whole.value, abs=1e-13)


def test_prunes_most_combinations():
    models, start, policies = draw(0, 60, 512, 4, 8, 2, True, 1.0)
    found = best_policy(models, start, policies)
    assert found.evaluated < 0.05 * len(policies) * 60 * 59 / 2
    again = best_policy(models, start, policies)
    assert again[:3] == found[:3]


@given(problems)
@settings(max_examples=50, deadline=None)
def test_pair_bounds_hold_for_every_policy(problem):
    models, start, policies = draw(**problem)
    search = explore._Search(models, start, policies)
    for i in range(1, len(models)):
        search._bound_pairs(i)
    first, second = np.tril_indices(len(models), -1)
    for p in range(len(policies)):
        values = total_disagreement(models, start, policies, first, second, np.full(len(first), p))
        assert np.all(values <= search.pair_bound + 1e-12)


def test_one_model_disagrees_with_nobody():
    models, start, policies = draw(0, 2, 3, 2, 2, 2, True, 1.0)
    assert best_policy(models[:1], start, policies)[:2] == (0, 0.0)


def test_too_many_pairs_say_how_many_would_fit(monkeypatch):
    models, start, policies = draw(0, 12, 3, 2, 3, 2, True, 1.0)
    monkeypatch.setattr(explore, "MAX_PAIR_BYTES", 1000)
    with pytest.raises(UserError, match=r"12 models make 66 pairs.*at most 7 models fit"):
        best_policy(models, start, policies)


def test_the_benchmark_plays_a_round(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    benchmark = importlib.import_module("dreem")
    row = benchmark.one_round(*benchmark.classes(12, 32))
    assert row["models_left"] == 1
    assert row["ours_s"] == pytest.approx(row["explore_s"] + row["eliminate_s"])
