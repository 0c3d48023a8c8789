"""Factored dynamics: draws and loss by hand, and a table with every kind of entry learned."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import drawn_by_numpy

from e3rl.envs.encoding import Part
from e3rl.models.base import RARELY_ENDS, Prediction
from e3rl.models.ensemble import make_ensemble
from e3rl.models.factored import FactoredDynamics
from e3rl.models.fit import Fit, make_model_set, update_model_set
from e3rl.models.layers import CHANGE
from e3rl.replay import Replay, Transitions

PARTS = (Part("binary", 0, 2), Part("categorical", 2, 5), Part("continuous", 5, 6))
CHANCE = jnp.array([0.2, 0.9, 0.5, 0.1, 0.4, 0.33])
BELIEF = Prediction(CHANCE, jnp.array(0.0), jnp.array(0.0))


def make(parts=PARTS, actions=2, width=8):
    return drawn_by_numpy(lambda key: FactoredDynamics(parts, actions, width, key=key))


def test_draws_have_the_predicted_frequencies():
    model, count = make(), 20_000
    assert model.noise_shape == (3,)
    uniform = jax.random.uniform(jax.random.key(1), (count, 3))
    drawn = np.asarray(jax.jit(jax.vmap(model.draw, in_axes=(None, 0)))(BELIEF, uniform))
    assert np.all(drawn[:, 2:5].sum(axis=1) == 1.0)  # one-hot
    assert set(np.unique(drawn[:, :5])) == {0.0, 1.0}
    np.testing.assert_allclose(drawn.mean(axis=0), CHANCE, atol=0.015)
    assert np.all(drawn[:, 5] == np.float32(0.33))
    assert np.abs(np.corrcoef(drawn[:, :3].T) - np.eye(3)).max() < 0.04


def test_extreme_noise_draws_the_first_and_the_last_category():
    model = make()
    assert np.asarray(model.draw(BELIEF, jnp.zeros(3)))[2:5].tolist() == [1.0, 0.0, 0.0]
    assert np.asarray(model.draw(BELIEF, jnp.full(3, 1.0)))[2:5].tolist() == [0.0, 0.0, 1.0]


def test_most_likely_rounds_and_takes_the_likeliest_category():
    np.testing.assert_allclose(make().most_likely(BELIEF), [0, 1, 1, 0, 0, 0.33])


def test_loss_worked_by_hand():
    """All weights zero but the output's biases: chances ½, softmax of (0, 0, log 2), no change, reward ¼, end ½."""
    model = jax.tree.map(jnp.zeros_like, make())
    bias = jnp.array([0.0, 0.0, 0.0, 0.0, np.log(2), 0.0, 0.25, -RARELY_ENDS])
    model = eqx.tree_at(lambda m: m.network.head_bias, model, bias)
    obs, seen = jnp.array([0.0, 1.0, 0.0, 1.0, 0.0, 0.5]), jnp.array([1.0, 1.0, 0.0, 0.0, 1.0, 0.5 + CHANGE])
    row = Transitions(obs, jnp.array(1), jnp.array(0), jnp.array(1.25), seen, jnp.array(False))
    loss, mean = eqx.filter_jit(model.loss)(obs, row, jax.random.key(0))
    assert float(loss) == pytest.approx(2 * np.log(2) + np.log(2) + 1.0 + 1.0 + np.log(2), rel=1e-5)
    np.testing.assert_allclose(mean, [0.5, 0.5, 0.25, 0.25, 0.5, 0.5], rtol=1e-5)


@pytest.mark.parametrize("states", [3, 30])
def test_every_part_has_the_same_say_however_many_entries_it_has(states):
    """Weights of the first layer are drawn with variance 12/D: each of P parts adds 1/P to what a unit sees."""
    parts = (
        Part("categorical", 0, states),
        Part("categorical", states, states + 2),
        Part("continuous", states + 2, states + 6),
    )
    entries, rng = states + 6, np.random.default_rng(0)
    obs = np.zeros((entries, 2000), np.float32)
    obs[rng.integers(states, size=2000), np.arange(2000)] = 1.0
    obs[states + rng.integers(2, size=2000), np.arange(2000)] = 1.0
    obs[states + 2 :] = rng.random((4, 2000))
    seen = np.asarray(make(parts)._inputs(jnp.array(obs)))
    for part in parts:
        added = 12 / entries * np.sum(seen[part.start : part.stop] ** 2, axis=0)
        assert np.mean(added) == pytest.approx(1 / 3, rel=0.02)


@pytest.mark.slow
def test_a_large_table_is_learned_exactly():
    """A walk on a ring of 30 one-hot states: as many inputs, each with as much of a say as in a ring of 3."""
    states = 30
    state, action = (grid.ravel() for grid in np.meshgrid(np.arange(states), [0, 1]))
    target = (state + 2 * action - 1) % states
    rows = Transitions(
        jnp.eye(states)[state], jnp.array(action, jnp.int32), jnp.zeros(60, jnp.int32),
        jnp.array(target == 7, jnp.float32), jnp.eye(states)[target], jnp.array(target == 7),
    )  # fmt: skip
    replay = Replay.empty(60, rows.obs[0])._replace(rows=rows, size=jnp.array(60, jnp.int32))
    parts = (Part("categorical", 0, states),)
    start = eqx.filter_jit(
        lambda key: make_ensemble(lambda key: FactoredDynamics(parts, 2, 32, key=key), 2, key)
    )(jax.random.key(0))
    settings = Fit(updates=600, batch=32, learning_rate=1e-2, prior_weight=0.0)
    models, _ = eqx.filter_jit(update_model_set)(
        make_model_set(start, settings), replay, jax.random.key(1), settings
    )
    for e in range(2):
        model = jax.tree.map(lambda leaf: leaf[e], models.members)  # noqa: B023
        predicted = jax.jit(jax.vmap(model))(rows.obs, rows.action, rows.time)
        np.testing.assert_array_equal(np.argmax(predicted.obs, axis=1), target)
        np.testing.assert_allclose(predicted.reward, rows.reward, atol=0.2)
        np.testing.assert_array_equal(predicted.termination > 0.5, rows.terminated)
