"""Dice inferred from their throws: known dice come out, worlds without any are left alone."""

import itertools

import numpy as np
import pytest

from e3rl.tabular.dice import MOST_FACES, _fits, _marginal, infer_dice

UNIFORM, LOADED = np.array([1, 1, 1, 0, 0]) / 3, np.array([8, 1, 1, 0, 0]) / 10


def throw(rng, shapes, pairs, tries):
    """Counts of pairs that throw these dice in turn, faces in random order; and the chances behind them."""
    chance = np.stack([rng.permutation(shapes[i % len(shapes)]) for i in range(pairs)])
    count = np.stack([rng.multinomial(tries, row) for row in chance]).astype(float)
    return count, chance


def flat_prior(count, alike=2.0):
    return np.full_like(count, alike / count.shape[1])


def own_mean(count, prior):
    return (count + prior) / (count + prior).sum(axis=1, keepdims=True)


def test_two_dice_are_told_apart_and_known_better_than_by_their_own_throws():
    count, chance = throw(np.random.default_rng(0), [UNIFORM, LOADED], 60, 30)
    prior = flat_prior(count)
    dice = infer_dice(count, prior)
    found = np.sort(dice.throws / dice.throws.sum(axis=1, keepdims=True), axis=1)[:, ::-1]
    for shape in (UNIFORM, LOADED):
        assert np.abs(found - np.sort(shape)[::-1]).max(axis=1).min() < 0.06
    own = own_mean(count, prior)
    error, before = (np.abs(each - chance).mean() for each in (dice.mean(own), own))
    assert error < 0.4 * before
    np.testing.assert_allclose(dice.mean(own).sum(axis=1), 1.0)


def test_samples_are_about_the_mean():
    rng = np.random.default_rng(1)
    count, _ = throw(rng, [UNIFORM], 30, 15)
    prior = flat_prior(count)
    dice, draws = infer_dice(count, prior), []
    for _ in range(400):
        own = rng.standard_gamma(count + prior + 1e-9)
        draws.append(dice.sample(own / own.sum(axis=1, keepdims=True), rng))
        np.testing.assert_allclose(draws[-1].sum(axis=1), 1.0)
    np.testing.assert_allclose(np.mean(draws, axis=0), dice.mean(own_mean(count, prior)), atol=0.08)


def test_where_everybody_throws_another_die_it_is_known_by_its_own_throws():
    rng = np.random.default_rng(2)
    chance = rng.dirichlet(np.ones(5), 40)
    count = np.stack([rng.multinomial(200, row) for row in chance]).astype(float)
    prior = flat_prior(count, 5.0)
    dice = infer_dice(count, prior)
    own = own_mean(count, prior)
    assert np.abs(dice.mean(own) - own).mean() < 0.02


@pytest.mark.parametrize(("pairs", "faces"), [(5, 3), (40, MOST_FACES + 1), (40, 0)])
def test_nothing_is_inferred_from_too_few_pairs_or_too_many_faces(pairs, faces):
    assert infer_dice(np.ones((pairs, faces)), np.ones((pairs, faces))) is None


def test_likelihoods_against_throw_by_throw():
    """Of Pólya's urn, throw after throw."""
    rng = np.random.default_rng(3)
    dice, thrown = rng.uniform(0.1, 4.0, (2, 3, 4)), rng.integers(0, 4, (3, 4)).astype(float)
    ways = np.array(list(itertools.permutations(range(4))))
    fits = _fits(dice, thrown, ways)
    for t, n, p in itertools.product(range(2), range(3), range(24)):
        urn, log = dice[t, n].copy(), 0.0
        for face, outcome in enumerate(ways[p]):
            for _ in range(int(thrown[n, outcome])):
                log += np.log(urn[face] / urn.sum())
                urn[face] += 1
        assert fits[t, n, p] == pytest.approx(log)
    single = _marginal(dice[0], thrown)
    np.testing.assert_allclose(single, fits[0, :, 0])
