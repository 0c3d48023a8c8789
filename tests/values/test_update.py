"""One training step of an action value against numpy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import ACTIONS, HORIZON, PROBLEM, numpy_network

from e3rl.models.base import Problem
from e3rl.values.double_dqn import DqnFit
from e3rl.values.imagined import ValueFit
from e3rl.values.update import QStep, make_q_state, update_q_rows

STEPS = {
    "plain": QStep(learning_rate=0.1, gradient_clip=10.0, target_period=3),
    "clipped and falling": QStep(
        learning_rate=0.1, gradient_clip=0.2, target_rate=0.25, huber=0.5, decay=4, left=0.3
    ),
    "falling to nothing": QStep(
        learning_rate=0.1, gradient_clip=10.0, target_period=1000, huber=4.0, decay=6, left=0.0
    ),
}
UPDATES = 8
OBS = jnp.array([[1, 0], [0, 1], [1, 1]], jnp.int8)
TIME = np.array([0, 0, 2])
TARGETS = np.array([[2.0, 0.3], [0.5, -9.0], [-0.2, 0.1]])
WEIGHTS = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 2.0]])


@eqx.filter_jit
def update(state, step, importance):
    """(state, loss, values before) by the rows above."""
    rows = jnp.array(TIME), jnp.array(TARGETS), jnp.array(WEIGHTS)
    return update_q_rows(state, OBS, *rows, step, importance)


EQUALLY = jnp.ones(3)


def huber(error, threshold):
    size = np.abs(error)
    return np.where(size <= threshold, 0.5 * size**2, threshold * (size - 0.5 * threshold))


class NumpyAdam:
    """Adam with its gradient clipped by norm and a learning rate that falls, the plain way."""

    def __init__(self, step):
        self.step, self.t, self.m, self.v = step, 0, 0.0, 0.0

    def __call__(self, weights, gradient):
        norm = np.linalg.norm(gradient)
        gradient = gradient * min(1.0, self.step.gradient_clip / norm)
        fallen = min(self.t / self.step.decay, 1.0) if self.step.decay else 0.0
        rate = self.step.learning_rate * (1 - fallen * (1 - self.step.left))
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * gradient
        self.v = 0.999 * self.v + 0.001 * gradient**2
        m, v = self.m / (1 - 0.9**self.t), self.v / (1 - 0.999**self.t)
        return weights - rate * m / (np.sqrt(v) + 1e-8)


@pytest.mark.parametrize("name", STEPS)
def test_update_is_a_huber_step_of_adam(name):
    """On a network that is only its bias the gradient is known: the errors cut to the threshold, weighted, averaged."""
    step, importance = STEPS[name], np.array([1.0, 0.5, 2.0]) if name == "plain" else np.ones(3)
    state = make_q_state(jax.tree.map(jnp.zeros_like, numpy_network(4)), step)
    bias, adam = np.zeros((HORIZON, ACTIONS)), NumpyAdam(step)
    counted = WEIGHTS * importance[:, None]
    for _ in range(UPDATES):
        error = bias[TIME] - TARGETS
        gradient = np.zeros_like(bias)
        slope = counted * np.clip(error, -step.huber, step.huber) / np.sum(WEIGHTS)
        np.add.at(gradient, TIME, slope)
        state, loss, before = update(state, step, jnp.array(importance))
        assert float(loss) == pytest.approx(
            np.sum(counted * huber(error, step.huber)) / np.sum(WEIGHTS), rel=1e-5
        )
        np.testing.assert_allclose(before, bias[TIME], atol=1e-5)
        bias = adam(bias, gradient)
        np.testing.assert_allclose(state.online.head_bias, bias, atol=1e-5)
    np.testing.assert_array_equal(state.online.head_bias[1], 0.0)  # a time step that was not in the batch
    assert int(state.updates) == UPDATES


def test_loss_by_hand():
    """(1.5 + 0.045 + 0.125 + 2 · 0.005) / 5."""
    step = STEPS["plain"]
    state = make_q_state(jax.tree.map(jnp.zeros_like, numpy_network(4)), step)
    assert float(update(state, step, EQUALLY)[1]) == pytest.approx(0.336, rel=1e-5)


def same(a, b):
    return all(bool(jnp.all(x == y)) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))


def test_hard_copies_happen_every_period_and_only_then():
    step = STEPS["plain"]
    state = make_q_state(numpy_network(4), step)
    assert same(state.online, state.target)
    copied = state.online
    for count in range(1, 8):
        state, _, _ = update(state, step, EQUALLY)
        assert not same(state.online, copied)
        if count % 3 == 0:
            copied = state.online
        assert same(state.target, copied)


def test_polyak_moves_the_target_a_share_of_the_way():
    step = STEPS["clipped and falling"]
    state = make_q_state(numpy_network(4), step)
    for _ in range(4):
        old = state.target
        state, _, _ = update(state, step, EQUALLY)
        for before, after, online in zip(
            *map(jax.tree.leaves, (old, state.target, state.online)), strict=True
        ):
            np.testing.assert_allclose(after, 0.75 * before + 0.25 * online, atol=1e-6)
    assert not same(state.online, state.target)


@pytest.mark.parametrize("fit", [ValueFit, DqnFit])
@pytest.mark.parametrize(("clock", "heads"), [(True, True), (True, False), (False, True)])
def test_a_fresh_value_sees_the_clock_where_there_is_one(fit, clock, heads):
    problem = Problem(PROBLEM.spec, clock)
    fresh = eqx.filter_eval_shape(fit(hidden=5, heads=heads).fresh, problem, jax.random.key(0))
    assert fresh.online.observe.shape == (5, problem.entries)
    assert fresh.online.head.shape == (HORIZON if clock and heads else 1, ACTIONS, 5)
    assert (fresh.online.clock is not None) == clock
    assert jax.tree.structure(fresh.online) == jax.tree.structure(fresh.target)


@pytest.mark.parametrize("fit", [ValueFit, DqnFit])
def test_how_a_step_is_taken_follows_from_the_settings(fit):
    shared = {"learning_rate": 0.02, "gradient_clip": 3.0, "huber": 2.0, "updates": 70}
    follows = {"target_rate": 0.3} if fit is ValueFit else {"target_period": 40}
    for decay in (True, False):
        step = fit(**shared, **follows, decay=decay).step()
        expected = {**follows, "learning_rate": 0.02, "gradient_clip": 3.0, "huber": 2.0}
        assert step == QStep(**expected, decay=70 if decay else 0)
