"""DREEM in the lock's product class against enumeration of its models and policies."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from e3rl.dreem import distributions
from e3rl.dreem.lock.lock_class import (
    UNPAID,
    eliminate,
    lock_class,
    misfits,
    models_left,
    roll_ins,
    sample_counts,
)
from e3rl.dreem.lock.planner import exploit, explore, value
from e3rl.dreem.lock.run import dreem_on_lock, safe_threshold
from e3rl.dreem.misfit import misfits as exact_misfits
from e3rl.envs.lock import DEAD, CombinationLock
from e3rl.types import UserError


def full_tables(candidates, model):
    """P[h, s, a, s'] of one model of the class, dead states included."""
    states = len(candidates.start)
    tables = np.zeros((candidates.horizon, states, 4, states))
    for h, level in enumerate(candidates.levels):
        last = h == candidates.horizon - 1
        tables[h, :2, :, : level.rows.shape[1]] = level.tables[model[h]]
        tables[h, 2:, :, UNPAID if last else DEAD] = 1.0
    return tables


def enumerated(candidates, survivors):
    return [np.array(model) for model in product(*[np.argwhere(mask) for mask in survivors])]


def all_policies(candidates):
    """Actions of the good states at every level but the last, whose action explores nothing."""
    horizon, states = candidates.horizon, len(candidates.start)
    rules = np.array(list(product(range(4), repeat=2 * (horizon - 1)))).reshape(-1, horizon - 1, 2)
    policies = np.zeros((len(rules), horizon, states), int)
    policies[:, :-1, :2] = rules
    return policies


def random_survivors(candidates, rng, most):
    """Few pairs per level, half of the time such that only the order of the two good outcomes is in doubt."""
    survivors = []
    for level in candidates.levels:
        count = len(level.outcomes)
        choice = range(count)
        if count == 12 and rng.random() < 0.5:
            dead = level.outcomes[rng.integers(count)] == DEAD
            choice = [k for k in range(count) if np.array_equal(level.outcomes[k] == DEAD, dead)]
        mask = np.zeros((count, count), bool)
        for _ in range(rng.integers(1, most + 1)):
            mask[rng.choice(choice), rng.choice(choice)] = True
        survivors.append(mask)
    return survivors


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), antishaped=st.booleans())
def test_exploration_argmax_equals_enumeration(seed, antishaped):
    rng = np.random.default_rng(seed)
    horizon = int(rng.integers(2, 4))
    candidates = lock_class(
        CombinationLock(horizon, antishaped, switch=float(rng.choice([0.1, 0.3])), seed=seed)
    )
    survivors = random_survivors(candidates, rng, most=3)
    plan = explore(candidates, survivors)
    tables = np.stack([full_tables(candidates, model) for model in enumerated(candidates, survivors)])
    assert len(tables) == models_left(survivors)
    values = distributions.v_explore(tables, candidates.start, all_policies(candidates))
    assert plan.value == pytest.approx(values.max(), abs=1e-9)
    # The policy returned has that value, and so has the pair of models named beside it.
    policy = np.zeros((1, horizon, len(candidates.start)), int)
    policy[0, :, :2] = plan.policy
    pair = np.stack([full_tables(candidates, plan.pair[:, m]) for m in (0, 1)])
    assert distributions.v_explore(tables, candidates.start, policy)[0] == pytest.approx(plan.value)
    assert distributions.v_explore(pair, candidates.start, policy)[0] == pytest.approx(plan.value)


def test_the_search_goes_on_where_the_bound_is_not_attained():
    """Known keys but for the order of the good outcomes: both models live on, and overlap."""
    candidates = lock_class(CombinationLock(6, switch=0.3, seed=0))
    survivors = []
    for level, truth in zip(candidates.levels, candidates.truth, strict=True):
        count = len(level.outcomes)
        same = [
            [k for k in range(count) if np.array_equal(level.outcomes[k] == DEAD, level.outcomes[t] == DEAD)]
            for t in truth
        ]
        mask = np.zeros((count, count), bool)
        if count == 12:
            mask[np.ix_(*same)] = True
        else:
            mask[tuple(truth)] = True
        survivors.append(mask)
    assert explore(candidates, survivors).nodes > candidates.horizon
    with pytest.raises(UserError, match="passed 7 nodes"):
        explore(candidates, survivors, max_nodes=7)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_empirical_misfit_is_a_sum_over_the_good_states(seed):
    """Against the definition: the maximum over all sign functions of pairs of joint arrangements."""
    rng = np.random.default_rng(seed)
    level = lock_class(CombinationLock(2, seed=seed)).levels[0]
    shares = rng.dirichlet(np.full(24, 0.3)).reshape(2, 4, 3)
    chosen = rng.choice(12, 5, replace=False)
    level = level._replace(outcomes=level.outcomes[chosen])
    first, second = misfits(level, shares)
    joint = np.stack([level.tables[list(pair)] for pair in np.ndindex(5, 5)])  # [25, 2, A, T]
    tests = np.sign(joint[:, None] - joint[None]).reshape(-1, 24)
    visited = shares.sum(axis=-1, keepdims=True)
    expected = ((visited * joint - shares).reshape(25, 24) @ tests.T).max(axis=1)
    np.testing.assert_allclose((first[:, None] + second[None]).ravel(), expected, atol=1e-12)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), antishaped=st.booleans())
def test_misfit_of_exact_shares_is_the_exact_misfit(seed, antishaped):
    rng = np.random.default_rng(seed)
    candidates = lock_class(CombinationLock(3, antishaped, seed=seed))
    policy = rng.integers(0, 4, (3, 2))
    model = np.array([rng.integers(0, len(level.outcomes), 2) for level in candidates.levels])
    rules = np.zeros((1, 3, len(candidates.start)), int)
    rules[0, :, :2] = policy
    tables = full_tables(candidates, model)[None]
    truth = full_tables(candidates, candidates.truth)
    expected = exact_misfits(tables, truth, candidates.start, rules)[0, 0]
    for h, (level, mass) in enumerate(zip(candidates.levels, roll_ins(candidates, policy), strict=True)):
        shares = mass[:2, None, None] * level.tables[candidates.truth[h]] / 4
        first, second = misfits(level, shares)
        assert first[model[h, 0]] + second[model[h, 1]] == pytest.approx(expected[h], abs=1e-12)


def test_counts_are_distributed_as_simulated_trajectories():
    candidates = lock_class(CombinationLock(3, seed=1))
    rng, n, repeats = np.random.default_rng(0), 3, 3000
    policy = exploit(candidates, candidates.truth)
    tables = full_tables(candidates, candidates.truth)
    drawn, simulated = np.zeros(n + 1), np.zeros(n + 1)
    h, (s, a, t) = 2, (0, int(policy[2, 0]), 0)  # the paid action of good 1
    for _ in range(repeats):
        drawn[sample_counts(candidates, policy, n, rng)[h][s, a, t]] += 1
        seen = 0
        for _ in range(n):
            state = int(rng.random() < 0.5)
            for k in range(h):
                action = policy[k, state] if state < 2 else 0
                state = rng.choice(3, p=tables[k, state, action])
            action = rng.integers(4)
            seen += state == s and action == a and rng.choice(3, p=tables[h, state, action]) == t
        simulated[seen] += 1
    assert stats.chi2_contingency(np.stack([drawn, simulated])[:, :3]).pvalue > 1e-3


@pytest.mark.parametrize("antishaped", [False, True])
@pytest.mark.parametrize("rewarded_actions", [1, 2])
def test_the_class_holds_the_lock_itself(antishaped, rewarded_actions):
    lock = CombinationLock(7, antishaped, rewarded_actions=rewarded_actions, seed=4)
    candidates = lock_class(lock)
    assert models_left(candidates.everything()) == 12**12 * (4 if rewarded_actions == 1 else 6) ** 2
    best = exploit(candidates, candidates.truth)
    assert value(candidates, candidates.truth, best) == pytest.approx(lock.optimal_return, abs=1e-12)
    # The flow of the best policy agrees with the environment's own table.
    chance, _ = lock.transition_table()
    mass = np.array([0.5, 0.5, 0.0])
    for h, expected in enumerate(roll_ins(candidates, best)):
        np.testing.assert_allclose([*expected[:2], expected[2:].sum()], mass, atol=1e-12)
        mass = sum(mass[s] * chance[h, s, best[h, s] if s < 2 else 0] for s in range(3))


@pytest.mark.parametrize("antishaped", [False, True])
def test_dreem_opens_the_lock(antishaped):
    lock = CombinationLock(6, antishaped, seed=3)
    run = dreem_on_lock(lock, n=200, phi=0.3)
    assert run.finished
    assert run.true_model_kept
    assert run.value == pytest.approx(run.optimal_value)
    assert run.episodes == 200 * 6 * len(run.rounds)
    left = [row.models_before for row in run.rounds] + [run.models_left]
    assert all(after < before for before, after in pairwise(left))
    assert left[0] == 12**10 * 16
    assert run.v_explore <= 0.05 / 4


def test_elimination_keeps_the_truth_at_its_safe_threshold():
    candidates = lock_class(CombinationLock(4, seed=2))
    rng, n = np.random.default_rng(0), 500
    phi = safe_threshold(n, 4, rounds=20, delta=0.1)
    for _ in range(20):
        policy = rng.integers(0, 4, (4, 2))
        kept, _ = eliminate(
            candidates, candidates.everything(), sample_counts(candidates, policy, n, rng), n, phi
        )
        assert all(mask[tuple(t)] for mask, t in zip(kept, candidates.truth, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 0}, "n must be from 1"),
        ({"phi": 0.0}, "phi must be positive"),
        ({"epsilon": 1.5}, r"epsilon must lie in \(0, 1\]"),
        ({"n": 20, "phi": 1e-4}, "eliminated every model"),
    ],
)
def test_bad_input_is_one_clear_error(change, message):
    with pytest.raises(UserError, match=message):
        dreem_on_lock(CombinationLock(3), **{"n": 100, "phi": 0.3, **change})
