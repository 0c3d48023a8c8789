"""Model and policy classes: what they hold, and every way to get them wrong."""

import itertools

import numpy as np
import pytest

from e3rl.dreem import model_class, policies
from e3rl.dreem.model_class import ModelClass
from e3rl.dreem.policies import (
    listed_policies,
    optimal_policies,
    policy_values,
    require_optimal,
    stationary_policies,
    time_dependent_policies,
)
from e3rl.envs.tabular import TabularMDP, random_mdp
from e3rl.types import UserError


def tables(models=3, states=2, actions=2):
    return np.random.default_rng(0).dirichlet(np.ones(states), size=(models, states, actions))


def some_models(count=3):
    return ModelClass(tables(count), [0.0, 1.0], [0.5, 0.5], 3)


def test_of_mdps_round_trips():
    mdp = random_mdp(seed=3)
    models = ModelClass.of([mdp, mdp])
    assert models.transitions.shape == (2, 4, 5, 2, 5)
    assert models.transitions.strides[1] == 0  # stationary tables are not copied per step
    np.testing.assert_array_equal(models.environment(1).transitions_per_step, mdp.transitions_per_step)
    np.testing.assert_array_equal(models.subset(np.array([1]))[0], mdp.transitions_per_step)


def test_time_dependent_and_stationary_tables_may_meet():
    fixed = random_mdp(seed=0, horizon=2)
    moving = TabularMDP(np.array(fixed.transitions_per_step), fixed.rewards, fixed.start, 2)
    np.testing.assert_array_equal(*ModelClass.of([fixed, moving]).transitions)


def test_rows_that_miss_one_by_a_little_are_mended():
    loose = tables() * (1 + 5e-10)
    models = ModelClass(loose, [0, 1], [0.5, 0.5], 3)
    np.testing.assert_allclose(models.transitions.sum(axis=-1), 1.0, rtol=0, atol=1e-15)


def bad_row():
    wrong = tables()
    wrong[1, 0, 1] = [0.5, 0.4]
    return wrong


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((bad_row(), [0, 1], [0.5, 0.5], 3), r"models\[1, 0, 1\] sums to 0\.9"),
        ((-tables(), [0, 1], [0.5, 0.5], 3), r"models\[0, 0, 0\] holds an entry that is not a probability"),
        ((tables() * np.nan, [0, 1], [0.5, 0.5], 3), "not a probability"),
        ((tables(), [0, 1.5], [0.5, 0.5], 3), r"rewards\[1\] must lie in \[0, 1\], got 1\.5"),
        ((tables(), [0, np.nan], [0.5, 0.5], 3), r"rewards\[1\] must lie"),
        ((tables(), [0, 1], [0.5, 0.6], 3), "start sums to 1.1"),
        ((tables(), [0, 1, 1], [0.5, 0.5], 3), r"rewards must have shape \[2\]"),
        ((tables()[:0], [0, 1], [0.5, 0.5], 3), "model class is empty"),
        ((tables()[0], [0, 1], [0.5, 0.5], 3), "must have shape"),
        ((np.repeat(tables()[:, None], 2, 1), [0, 1], [0.5, 0.5], 3), "hold 2 time steps, the horizon is 3"),
        ((tables(), [0, 1], [0.5, 0.5], 0), "horizon must be at least 1"),
        ((["a"], [0, 1], [0.5, 0.5], 3), "array of numbers"),
    ],
)
def test_bad_models(arguments, words):
    with pytest.raises(UserError, match=words) as caught:
        ModelClass(*arguments)
    assert "\n" not in str(caught.value)


def test_mdps_that_do_not_belong_together():
    with pytest.raises(UserError, match="empty"):
        ModelClass.of([])
    with pytest.raises(UserError, match="differ in rewards or start"):
        ModelClass.of([random_mdp(seed=0), random_mdp(seed=1)])
    with pytest.raises(UserError, match="differ in states"):
        ModelClass.of([random_mdp(seed=0), random_mdp(num_states=3)])


def test_a_class_too_big_says_how_big_and_what_would_fit(monkeypatch):
    monkeypatch.setattr(model_class, "MAX_BYTES", 2 * 64)
    with pytest.raises(UserError, match=r"3 models take .* GiB; at most 2 of this size fit"):
        some_models()


def test_all_policies_of_a_kind():
    every = time_dependent_policies(2, 3, 2)
    assert every.shape == (81, 2, 2)
    expected = list(itertools.product(range(3), repeat=4))
    assert every.reshape(81, 4).tolist() == [list(row) for row in expected]
    fixed = stationary_policies(3, 2, 4)
    assert fixed.shape == (8, 4, 3)
    assert np.all(fixed == fixed[:, :1])
    assert len(np.unique(fixed[:, 0], axis=0)) == 8


def test_too_many_policies_say_how_big_and_what_would_fit():
    with pytest.raises(
        UserError, match=r"2\^40 time-dependent policies take .* GiB; at most \d+ of this size fit"
    ):
        time_dependent_policies(10, 2, 4)
    with pytest.raises(UserError, match=r"4\^62 stationary"):
        stationary_policies(62, 4, 20)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (np.zeros((0, 3, 2), int), "policy class is empty"),
        (np.zeros((4, 3, 2)), "action numbers"),
        (np.zeros((4, 2, 2), int), r"shape \[P, 3, 2\]"),
        (np.full((4, 3, 2), 2), "actions from 0 to 1, got 2 to 2"),
    ],
)
def test_bad_policies(given, words):
    with pytest.raises(UserError, match=words):
        listed_policies(given, some_models())


def test_a_list_of_stationary_policies_is_repeated_over_time():
    listed = listed_policies([[0, 1], [1, 1]], some_models())
    np.testing.assert_array_equal(listed, [[[0, 1]] * 3, [[1, 1]] * 3])


def test_optimal_policies_are_the_best_of_all():
    models = some_models(5)
    every = time_dependent_policies(2, 2, 3)
    values = policy_values(models, np.arange(5), every)
    best, optimal = optimal_policies(models.transitions, models.rewards)
    np.testing.assert_allclose(values.max(axis=1), optimal @ models.start, atol=1e-14)
    np.testing.assert_allclose(
        np.diag(policy_values(models, np.arange(5), best)), values.max(axis=1), atol=1e-14
    )
    for k in range(5):
        assert models.environment(k).optimal_return == pytest.approx(values[k].max(), abs=1e-14)


def test_values_in_chunks_are_the_same(monkeypatch):
    models, every = some_models(5), stationary_policies(2, 2, 3)
    whole = policy_values(models, np.arange(5), every)
    monkeypatch.setattr(policies, "CHUNK", 1)
    np.testing.assert_array_equal(policy_values(models, np.arange(5), every), whole)


def test_a_policy_class_without_the_needed_policies():
    models = some_models(5)
    require_optimal(models, time_dependent_policies(2, 2, 3))
    best, _ = optimal_policies(models.transitions, models.rewards)
    require_optimal(models, best)
    with pytest.raises(UserError, match=r"lacks optimal policies for \d of 5 models \(model \d: its best is"):
        require_optimal(models, (1 - best[:1]))
