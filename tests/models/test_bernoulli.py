"""The Bernoulli dynamics against numbers worked by hand and against a forward pass in numpy."""

import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import drawn_by_numpy

from e3rl.models.base import RARELY_ENDS, Prediction
from e3rl.models.bernoulli import BernoulliDynamics, Weights
from e3rl.models.ensemble import predict
from e3rl.replay import Transitions

BITS, ACTIONS, HORIZON, WIDTH = 3, 2, 4, 8
KEY = jax.random.key(0)
LOG2, LOG3 = math.log(2), math.log(3)


def make(conditioning="gate", seed=0, **options):
    return drawn_by_numpy(
        lambda key: BernoulliDynamics(BITS, ACTIONS, HORIZON, WIDTH, conditioning, **options, key=key),
        0.7,
        seed,
    )


def row(obs, action, time, reward, next_obs, terminated):
    return Transitions(
        jnp.array(obs, jnp.int8),
        jnp.array(action),
        jnp.array(time),
        jnp.array(reward, jnp.float32),
        jnp.array(next_obs, jnp.int8),
        jnp.array(terminated),
    )


def numpy_outputs(w: Weights, obs, action, time):
    """The same network over the whole concatenated input, one-hot blocks and all."""
    centred = np.array(obs) - 0.5
    if w.gate is None:
        matrix = np.concatenate([w.observe, np.asarray(w.act).T, np.asarray(w.clock).T], axis=1)
        inputs = np.concatenate([centred, np.eye(ACTIONS)[action], np.eye(HORIZON)[time]])
        x = np.maximum(matrix @ inputs + w.bias, 0)
    else:
        x = np.maximum(w.observe @ centred + w.bias, 0) * np.asarray(w.gate)[time, action]
    x = np.maximum(w.hidden @ x + w.hidden_bias, 0)
    out = np.array(w.head @ x + w.head_bias)
    out[-1] += RARELY_ENDS
    return out


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize("conditioning", ["input", "gate"])
def test_prediction_is_that_of_the_network_written_out(conditioning):
    model = make(conditioning)
    weights = jax.tree.map(np.asarray, model.weights)
    inputs = list(itertools.product([(0, 0, 0), (1, 0, 1)], range(ACTIONS), range(HORIZON)))
    obs, action, time = (jnp.array(column, jnp.int32) for column in zip(*inputs, strict=True))
    predicted = jax.jit(jax.vmap(model))(obs, action, time)
    slow = np.array([numpy_outputs(weights, *each) for each in inputs])
    np.testing.assert_allclose(predicted.obs, sigmoid(slow[:, :-2]), atol=1e-5)
    np.testing.assert_allclose(predicted.reward, slow[:, -2], atol=1e-5)
    np.testing.assert_allclose(predicted.termination, sigmoid(slow[:, -1]), atol=1e-5)
    assert len(np.unique(np.round(slow, 4), axis=0)) == len(inputs)  # every input has a say


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # −log ½, −log ¼ and −log ⅔ for the bits, ½·1² for the reward, −log ½ for going on.
        ({}, LOG2 + 2 * LOG2 + (LOG3 - LOG2) + 0.5 + LOG2),
        ({"mean_over_bits": True}, (LOG2 + 2 * LOG2 + (LOG3 - LOG2)) / 3 + 0.5 + LOG2),
        ({"reward_weight": 1.0}, LOG2 + 2 * LOG2 + (LOG3 - LOG2) + 1.0 + LOG2),
    ],
)
def test_loss_worked_by_hand(options, expected):
    model = make(**options)
    zeros = jax.tree.map(jnp.zeros_like, model.weights)
    # Logits of ½, ¾ and ⅓; reward ½; the chance to end ½.
    bias = jnp.array([0.0, LOG3, -LOG2, 0.5, -RARELY_ENDS])
    model = eqx.tree_at(lambda m: m.weights, model, eqx.tree_at(lambda w: w.head_bias, zeros, bias))
    seen = row((1, 1, 0), 1, 2, 1.5, (1, 0, 0), False)
    loss, mean = eqx.filter_jit(model.loss)(seen.obs, seen, KEY)
    assert float(loss) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(mean, [1 / 2, 3 / 4, 1 / 3], rtol=1e-6)


@pytest.mark.parametrize("conditioning", ["input", "gate"])
def test_loss_is_minus_the_log_of_the_product_distribution(conditioning):
    """exp(−loss) over all next observations and endings is the predicted joint distribution, and sums to one."""
    model = make(conditioning, seed=3)
    obs, action, time = jnp.array([1, 0, 1], jnp.int8), jnp.array(1), jnp.array(2)
    predicted = eqx.filter_jit(model)(obs, action, time)
    p, end = np.asarray(predicted.obs, float), float(predicted.termination)
    outcomes = list(itertools.product(*[[0, 1]] * BITS, [False, True]))
    count = len(outcomes)
    rows = Transitions(
        jnp.broadcast_to(obs, (count, BITS)),
        jnp.broadcast_to(action, count),
        jnp.broadcast_to(time, count),
        jnp.broadcast_to(predicted.reward, count),
        jnp.array([each[:-1] for each in outcomes], jnp.int8),
        jnp.array([each[-1] for each in outcomes]),
    )
    losses, _ = jax.jit(jax.vmap(lambda row: model.loss(row.obs, row, KEY)))(rows)
    joint = [
        math.prod(c if x else 1 - c for c, x in zip(p, each[:-1], strict=True))
        * (end if each[-1] else 1 - end)
        for each in outcomes
    ]
    np.testing.assert_allclose(losses, -np.log(joint), rtol=1e-4)
    assert np.sum(np.exp(-losses)) == pytest.approx(1.0, abs=1e-5)


def test_one_transition_trains_one_gate():
    """What was never tried keeps its random gate, so members go on disagreeing about it."""
    seen = row((1, 0, 1), 1, 2, 0.0, (0, 1, 1), False)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda m: m.loss(seen.obs, seen, KEY)[0]))(make())
    touched = np.any(np.asarray(gradient.weights.gate) != 0, axis=-1)
    expected = np.zeros((HORIZON, ACTIONS), bool)
    expected[2, 1] = True
    np.testing.assert_array_equal(touched, expected)


def test_draws_have_the_predicted_frequencies():
    chance = jnp.array([0.0, 0.1, 0.5, 0.93, 1.0])
    prediction = Prediction(chance, jnp.array(0.0), jnp.array(0.0))
    uniform = jax.random.uniform(jax.random.key(0), (20_000, 5))
    drawn = np.asarray(jax.vmap(make().draw, in_axes=(None, 0))(prediction, uniform))
    assert set(np.unique(drawn)) == {0.0, 1.0}
    error = np.abs(drawn.mean(axis=0) - np.asarray(chance))
    assert np.all(error <= 4 * np.sqrt(np.asarray(chance * (1 - chance)) / 20_000))
    assert np.abs(np.corrcoef(drawn[:, 1:4].T) - np.eye(3)).max() < 0.04  # bits are independent


def test_shared_noise_draws_the_same_from_equal_beliefs():
    uniform = jax.random.uniform(jax.random.key(1), (1000, 1))
    draw = jax.vmap(make().draw, in_axes=(None, 0))
    low, high = (
        np.asarray(draw(Prediction(jnp.array([p]), jnp.array(0.0), jnp.array(0.0)), uniform))
        for p in (0.4, 0.45)
    )
    assert np.all(low <= high)
    assert np.mean(high - low) == pytest.approx(0.05, abs=0.02)


def test_an_ensemble_predicts_member_by_member():
    one = make()
    ensemble = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf, -leaf]), one)
    predicted = eqx.filter_jit(predict)(ensemble, jnp.array([1, 0, 0]), jnp.array(0), jnp.array(1))
    assert predicted.obs.shape == (3, BITS)
    for e, factor in enumerate((1.0, 0.5, -1.0)):
        weights = jax.tree.map(lambda leaf: factor * np.asarray(leaf), one.weights)  # noqa: B023
        slow = numpy_outputs(weights, (1, 0, 0), 0, 1)
        np.testing.assert_allclose(predicted.obs[e], sigmoid(slow[:-2]), rtol=1e-4)
        np.testing.assert_allclose(predicted.reward[e], slow[-2], rtol=1e-4)
