"""A softmax for every place: chances, draws and loss against loops, the same rule everywhere, one rule learned."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import drawn_by_numpy

from e3rl.models.ensemble import make_ensemble
from e3rl.models.fit import Fit, make_model_set, update_model_set
from e3rl.models.tiles import TileDynamics
from e3rl.replay import Replay, Transitions

SHAPE, ACTIONS, CATEGORIES, UNIT = (4, 5, 2), 3, 4, 1 / 255
TIME = jnp.array(0, jnp.int32)
PLACES = list(itertools.product(*map(range, SHAPE)))


def model_of(shape=SHAPE):
    return drawn_by_numpy(
        lambda key: TileDynamics(shape, ACTIONS, CATEGORIES, UNIT, maps=4, width=6, key=key)
    )


@pytest.fixture(scope="module")
def model():
    return model_of()


@pytest.fixture(scope="module")
def ids():
    return np.random.default_rng(1).integers(CATEGORIES, size=SHAPE)


@pytest.fixture(scope="module")
def predicted(model, ids):
    return eqx.filter_jit(model)(jnp.asarray(ids * UNIT, jnp.float32), jnp.array(1), TIME)


def test_chances_of_every_place_add_up_to_one(predicted):
    chances = np.asarray(predicted.obs)
    assert chances.shape == (*SHAPE, CATEGORIES)
    assert np.all(chances > 0.0)
    np.testing.assert_allclose(chances.sum(axis=-1), 1.0, rtol=1e-5)
    assert 0.0 < float(predicted.termination) < 1.0


def test_draws_are_the_inverse_of_the_distribution_function(model, predicted):
    """The first category whose chance, with those before it, exceeds the noise."""
    uniform = np.random.default_rng(2).random(SHAPE).astype(np.float32)
    chances = np.asarray(predicted.obs, np.float64)
    wanted = np.zeros(SHAPE)
    for place in PLACES:
        total, k = 0.0, 0
        for k in range(CATEGORIES):
            total += chances[place][k]
            if uniform[place] < total:
                break
        wanted[place] = k * UNIT
    drawn = model.draw(predicted, jnp.asarray(uniform))
    np.testing.assert_allclose(drawn, wanted, atol=1e-6)
    assert len(np.unique(drawn)) == CATEGORIES
    np.testing.assert_allclose(model.most_likely(predicted), chances.argmax(axis=-1) * UNIT, atol=1e-6)
    assert np.all(model.draw(predicted, jnp.zeros(SHAPE)) == 0.0)
    assert model.noise_shape == SHAPE


@pytest.mark.parametrize(("reward", "ends"), [(0.0, False), (0.5, True)])
def test_the_loss_is_the_surprise_at_every_place_and_at_what_was_paid(model, ids, predicted, reward, ends):
    """A reward of nothing says that none was paid, and nothing about its size."""
    obs = jnp.asarray(ids * UNIT, jnp.float32)
    after = np.random.default_rng(3).integers(CATEGORIES, size=SHAPE)
    row = Transitions(
        obs, jnp.array(1), TIME, jnp.array(reward), jnp.asarray(after * UNIT, jnp.float32), jnp.array(ends)
    )
    loss, mean = eqx.filter_jit(model.loss)(obs, row, jax.random.key(0))
    chances = np.asarray(predicted.obs, np.float64)
    wanted = -sum(np.log(chances[place][after[place]]) for place in PLACES)
    out = model._outputs(obs, jnp.array(1))
    size, paid, ending = (float(value) for value in (out.size, out.paid, out.ending))
    for logit, flag in ((paid, reward != 0.0), (ending, ends)):
        chance = 1 / (1 + np.exp(-logit))
        wanted -= np.log(chance if flag else 1 - chance)
    if reward != 0.0:
        wanted += (size - reward) ** 2
    np.testing.assert_allclose(loss, wanted, rtol=1e-4)
    np.testing.assert_allclose(mean, UNIT * chances @ np.arange(CATEGORIES), atol=1e-6)
    np.testing.assert_allclose(predicted.reward, size / (1 + np.exp(-paid)), rtol=1e-4)


def test_the_rule_is_the_same_everywhere():
    """Away from the border: what is around a patch moves with it, and reward and end stay."""
    side, reach = 11, 2
    model = model_of((side, side, 1))
    patch = np.random.default_rng(1).integers(1, CATEGORIES, size=(2, 2, 1))
    corners = ((4, 4), (5, 4), (4, 5))
    images = np.zeros((3, side, side, 1), np.float32)
    for image, (row, column) in zip(images, corners, strict=True):
        image[row : row + 2, column : column + 2] = patch * UNIT
    predicted = jax.jit(jax.vmap(lambda image: model(image, jnp.array(2), TIME)))(images)
    around = [
        np.asarray(chances)[row - reach : row + 2 + reach, column - reach : column + 2 + reach]
        for chances, (row, column) in zip(predicted.obs, corners, strict=True)
    ]
    for each in around[1:]:
        np.testing.assert_allclose(each, around[0], rtol=1e-4)
    np.testing.assert_allclose(predicted.reward, predicted.reward[0], rtol=1e-4)
    np.testing.assert_allclose(predicted.termination, predicted.termination[0], rtol=1e-4)
    assert not np.allclose(predicted.obs[0], predicted.obs[1])


def test_values_beyond_the_categories_are_the_last(model, ids):
    obs = jnp.asarray(ids * UNIT, jnp.float32)
    assert np.all(model._category(obs) == ids)
    assert np.all(model._category(obs + 9 * UNIT) == CATEGORIES - 1)
    np.testing.assert_array_equal(model._category(obs + 0.3 * UNIT), ids)


def corridor():
    """Every move of a token in three rows of four places: action 1 goes right, action 0 waits; whoever comes to the
    last place is paid a half and is done."""
    rows = []
    for row, column, action in itertools.product(range(3), range(3), range(2)):
        before, after = np.zeros((2, 3, 4, 1), np.float32)
        before[row, column], after[row, column + action] = 2 * UNIT, 2 * UNIT
        there = column + action == 3
        rows.append((before, np.int32(action), np.int32(0), np.float32(0.5 * there), after, np.bool_(there)))
    columns = Transitions(*(jnp.asarray(np.stack(column)) for column in zip(*rows, strict=True)))
    size = jnp.array(len(rows), jnp.int32)
    return Replay.empty(len(rows), columns.obs[0])._replace(rows=columns, size=size)


def test_learns_a_rule():
    replay, settings = corridor(), Fit(updates=300, batch=16, learning_rate=1e-2, prior_weight=0.0)

    def make(key):
        return TileDynamics((3, 4, 1), 2, 3, UNIT, maps=8, width=8, key=key)

    made = eqx.filter_jit(lambda key: make_ensemble(make, 1, key))(jax.random.key(0))
    models = make_model_set(made, settings)
    models, _ = eqx.filter_jit(update_model_set)(models, replay, jax.random.key(1), settings)
    model, rows = jax.tree.map(lambda leaf: leaf[0], models.members), replay.rows
    predicted = jax.jit(jax.vmap(model))(rows.obs, rows.action, rows.time)
    np.testing.assert_allclose(jax.vmap(model.most_likely)(predicted), rows.next_obs, atol=1e-6)
    np.testing.assert_allclose(predicted.reward, rows.reward, atol=0.1)
    np.testing.assert_array_equal(predicted.termination > 0.5, rows.terminated)
