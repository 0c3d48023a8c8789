"""W by its definition, its IPM form, its estimate from counts, and Lemmas 1 and 2."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e3rl.dreem.distributions import pairwise_disagreement, per_step, state_distributions, v_exploit
from e3rl.dreem.eliminate import RealizabilityError, consistent, misfits_around, update_model_set
from e3rl.dreem.misfit import empirical_misfits, misfit_by_state, misfits, residuals, roll_in_distributions
from e3rl.dreem.sampling import sample_counts

seeds = st.integers(0, 2**16)


def draw(seed, models=4, policies=3, horizon=3, states=3, actions=2, stationary=True, spread=1.0):
    rng = np.random.default_rng(seed)
    shape = (models, states, actions) if stationary else (models, horizon, states, actions)
    tables = (1 - spread) * rng.dirichlet(np.ones(states), size=shape[1:]) + spread * rng.dirichlet(
        np.full(states, 0.5), size=shape
    )
    chosen = rng.integers(actions, size=(policies, horizon, states))
    return per_step(tables, horizon), rng.dirichlet(np.ones(states)), chosen


@given(seeds, st.booleans())
@settings(max_examples=25, deadline=None)
def test_misfits_are_their_definition(seed, stationary):
    models, start, policies = draw(seed, stationary=stationary)
    truth = models[0]
    found = misfits(models, truth, start, policies)
    occupancy = state_distributions(models[:1], start, policies)[0]
    for p, m, h in np.ndindex(found.shape):
        expected = sum(
            occupancy[p, h, s] / 2 * np.abs(models[m, h, s, a] - truth[h, s, a]).sum()
            for s, a in itertools.product(range(3), range(2))
        )
        assert found[p, m, h] == pytest.approx(expected, abs=1e-12)
    assert np.all(found[:, 0] == 0.0)
    np.testing.assert_allclose(roll_in_distributions(truth, start, policies), occupancy[:, :3], atol=1e-15)


@given(seeds)
@settings(max_examples=25, deadline=None)
def test_the_ipm_form_over_pairs_equals_the_l1_form(seed):
    """With the expected counts of the truth in place of counts, the maximum over F of technical lemma 1 is W."""
    models, start, policies = draw(seed)
    truth = models[1]
    exact = misfits(models, truth, start, policies[:1])[0]
    reached = roll_in_distributions(truth, start, policies[:1])[0]
    joint = reached[:, :, None, None] / 2 * truth
    # Counts may be any non-negative weights; as float they make the estimate the expectation.
    found = empirical_misfits(models, joint)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-12)


@given(seeds, st.booleans(), st.integers(1, 200))
@settings(max_examples=25, deadline=None)
def test_empirical_misfit_is_the_mean_over_trajectories_and_the_maximum_over_test_functions(
    seed, stationary, n
):
    models, start, policies = draw(seed, stationary=stationary)
    counts = sample_counts(np.random.default_rng(seed), models[2], start, policies[0], n)
    found = empirical_misfits(models, counts)
    for m, h in np.ndindex(found.shape):
        best = 0.0
        for i, j in itertools.permutations(range(len(models)), 2):
            f = np.sign(models[i, h] - models[j, h])
            total = 0.0
            for s, a, t in zip(*np.nonzero(counts[h]), strict=True):
                total += counts[h, s, a, t] * (models[m, h, s, a] @ f[s, a] - f[s, a, t])
            best = max(best, total / n)
        assert found[m, h] == pytest.approx(best, abs=1e-12)


@given(seeds, st.sampled_from([3, 30, 1000]), st.floats(0.01, 1.0), st.booleans())
@settings(max_examples=25, deadline=None)
def test_screening_decides_as_the_full_misfits_do(seed, n, phi, stationary):
    models, start, policies = draw(seed, models=6, stationary=stationary, spread=0.3)
    counts = sample_counts(np.random.default_rng(seed), models[2], start, policies[0], n)
    full, screened = empirical_misfits(models, counts), misfits_around(models, counts, phi)
    assert np.all(screened <= full + 1e-12)
    np.testing.assert_array_equal(consistent(screened, phi), consistent(full, phi))
    assert np.all(full <= np.abs(residuals(models, counts)).sum(axis=2) + 1e-12)


@given(seeds, st.sampled_from([0.05, 0.3, 1.0]))
@settings(max_examples=25, deadline=None)
def test_lemma_1_disagreement_means_misfit(seed, spread):
    """D(π, M, M', h) > α gives some h' ≤ h with a misfit above α / (4 |A| H) of M or M'."""
    models, start, policies = draw(seed, spread=spread)
    horizon, _, actions, _ = models.shape[1:]
    found = misfits(models, models[0], start, policies)  # any model may be the true one
    pairs = pairwise_disagreement(models, state_distributions(models, start, policies))
    for i, j, p, h in np.ndindex(pairs.shape):
        either = np.maximum(found[p, i, : h + 1], found[p, j, : h + 1]).max()
        assert pairs[i, j, p, h] <= 4 * actions * horizon * either + 1e-12


@given(seeds, st.sampled_from([0.01, 0.1, 1.0]), st.floats(0.05, 1.0))
@settings(max_examples=25, deadline=None)
def test_lemma_2_explore_or_exploit(seed, spread, epsilon):
    """Either π_explore shows a misfit above ε / (4 H² |A|²), or exploiting any model is ε-optimal."""
    models, start, _ = draw(seed, spread=spread)
    horizon, states, actions, _ = models.shape[1:]
    policies = np.array(list(itertools.product(range(actions), repeat=2 * states)), int).reshape(
        -1, 2, states
    )
    models, horizon = models[:, :2], 2
    occupancy = state_distributions(models, start, policies)
    explore = pairwise_disagreement(models, occupancy).sum(axis=3).max(axis=(0, 1))
    best = int(explore.argmax())
    if explore[best] > epsilon / actions:
        shown = misfits(models, models[0], start, policies[best : best + 1])
        assert shown.max() > epsilon / (4 * horizon**2 * actions**2)
    else:
        values = v_exploit(occupancy, np.linspace(0.0, 1.0, states))
        for m in range(len(models)):
            assert values[0, values[m].argmax()] >= values[0].max() - epsilon


def test_misfit_by_state_is_the_right_factor_of_proposition_1():
    models, start, policies = draw(5)
    product = np.einsum(
        "phs,mhs->pmh",
        roll_in_distributions(models[0], start, policies),
        misfit_by_state(models, models[0]),
    )
    np.testing.assert_allclose(product, misfits(models, models[0], start, policies), atol=1e-15)


def test_update_keeps_the_consistent_and_reports_indices_of_the_class():
    models, start, policies = draw(1, models=4)
    counts = sample_counts(np.random.default_rng(0), models[2], start, policies[0], 10**12)
    left, shown = update_model_set(np.array([10, 11, 12, 13]), models, counts, 1e-3)
    assert left.tolist() == [12]
    assert shown.shape == (4, 3)


def test_when_every_model_goes_the_error_says_so_and_shows_misfits():
    models, start, policies = draw(1, models=4)
    counts = sample_counts(np.random.default_rng(0), models[2], start, policies[0], 10**12)
    kept = np.array([0, 1, 3])
    with pytest.raises(RealizabilityError, match=r"realizability failed.*model [013]: 0\.") as caught:
        update_model_set(kept, models[kept], counts, 1e-3)
    assert "\n" not in str(caught.value)
