"""Backward induction on padded tables against loops over lists."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e3rl.tabular import planning
from e3rl.tabular.planning import backward_induction, padded, policy_value
from e3rl.tabular.posterior import END, NOTHING, Table

ACTIONS, OUTCOMES, KEEP, ROWS = 4, 2, 12, 3
"""One shape for all examples: nothing is compiled twice, and test_minds.py has the same."""


def scalars(steps, *numbers):
    return jnp.array(steps, jnp.int32), *(jnp.array(number, jnp.float32) for number in numbers)


def table_of(states):
    table = Table(ACTIONS, 2, 0, 1000)
    table.states = states
    return table


def drawn(seed, states, outcomes=OUTCOMES):
    """A random table: (successors, chances, gains, leaps), as the planner is to see it."""
    rng = np.random.default_rng(seed)
    seen = rng.choice([NOTHING, END, *range(states)], (states, ACTIONS, outcomes)).astype(np.int32)
    chance = rng.dirichlet(
        np.ones(outcomes + 1), (states, ACTIONS)
    )  # what is missing is worth nothing, or `leap`
    gain = np.where(rng.random((states, ACTIONS)) < 0.3, -np.inf, rng.normal(size=(states, ACTIONS)))
    return seen, chance[..., :-1], gain, 0.5 * chance[..., -1]


def plain_q(table, value, left, worth):
    """Q[s][a] with `left` steps after this one."""
    seen, chance, gain, leap = table
    states = len(seen)

    def q(s, a):
        following = sum(
            p * value[other] for p, other in zip(chance[s, a], seen[s, a], strict=True) if other >= 0
        )
        return gain[s, a] + following + leap[s, a] * worth * left

    return [[q(s, a) for a in range(ACTIONS)] for s in range(states)]


def plain_induction(table, steps, worth, floor):
    """The values with `steps` steps to go, and the Q of every time step, the first first."""
    value, every = [0.0] * len(table[0]), []
    for left in range(steps):
        every.insert(0, plain_q(table, value, left, worth))
        value = [max(q) if max(q) > -np.inf else floor * (left + 1) for q in every[0]]
    return value, every


def plain_policy_value(table, policy, steps, floor):
    value = [0.0] * len(table[0])
    for left in range(steps):
        row = policy[min(steps - 1 - left, len(policy) - 1)]
        q = plain_q(table, value, left, 0.0)
        value = [q[s][row[s]] if q[s][row[s]] > -np.inf else floor * (left + 1) for s in range(len(table[0]))]
    return value


cases = {
    "seed": st.integers(0, 2**31 - 1),
    "states": st.integers(1, 6),
    "steps": st.integers(1, KEEP + 3),
    "floor": st.sampled_from([0.0, -1.5]),
}


def model_of(table, states):
    seen, chance, gain, leap = table
    return padded(table_of(states), chance, gain, leap, seen)


@given(**cases, worth=st.sampled_from([0.0, 2.0]))
@settings(max_examples=25, deadline=None)
def test_backward_induction_is_a_loop_over_lists(seed, states, steps, floor, worth):
    table = drawn(seed, states)
    planned = backward_induction(model_of(table, states), *scalars(steps, worth, floor), keep=KEEP)
    value, every = plain_induction(table, steps, worth, floor)
    np.testing.assert_allclose(planned.value[:states], value, rtol=1e-4, atol=1e-4)
    assert planned.policy.shape == (KEEP, 64)
    for q, row in zip(every[:KEEP], np.asarray(planned.policy), strict=False):
        taken = [q[s][row[s]] for s in range(states)]
        np.testing.assert_allclose(taken, np.max(q, axis=1), rtol=1e-4, atol=1e-4)
    assert not np.asarray(planned.value[states:]).any()  # padding


@given(**cases)
@settings(max_examples=25, deadline=None)
def test_the_value_of_a_policy_is_a_loop_over_lists(seed, states, steps, floor):
    table = drawn(seed, states)
    policy = np.random.default_rng(seed).integers(ACTIONS, size=(ROWS, 64)).astype(np.int16)
    value = policy_value(model_of(table, states), jnp.asarray(policy), *scalars(steps, floor))
    wanted = plain_policy_value(table, policy, steps, floor)
    np.testing.assert_allclose(value[:states], wanted, rtol=1e-4, atol=1e-4)


def test_padding_changes_nothing(monkeypatch):
    """Five states with two outcomes, in 64 rows and in 8."""
    table = drawn(5, 5)
    large = backward_induction(model_of(table, 5), *scalars(7, 2.0, -1.0), keep=KEEP)
    monkeypatch.setattr(planning, "LEAST_ROWS", 1)
    model = model_of(table, 5)
    assert model.gain.shape == (8, ACTIONS)
    small = backward_induction(model, *scalars(7, 2.0, -1.0), keep=KEEP)
    np.testing.assert_allclose(small.value[:5], large.value[:5], rtol=1e-6)
    np.testing.assert_array_equal(small.policy[:, :5], large.policy[:, :5])


@pytest.mark.parametrize(
    ("states", "outcomes", "shape"), [(1, 1, (64, 1)), (64, 2, (64, 2)), (65, 3, (128, 4))]
)
def test_tables_are_padded_to_powers_of_two(states, outcomes, shape):
    """Slots without an outcome, and ends, lead past the last row, where nothing is worth anything."""
    seen, chance, gain, leap = drawn(1, states, outcomes)
    model = padded(table_of(states), chance, gain, leap, seen)
    rows, width = shape
    assert model.successor.shape == model.chance.shape == (rows, ACTIONS, width)
    successor = np.asarray(model.successor)
    np.testing.assert_array_equal(successor[:states, :, :outcomes], np.where(seen < 0, rows, seen))
    assert (successor[states:] == rows).all()
    assert (successor[:, :, outcomes:] == rows).all()
    assert float(model.chance.sum()) == pytest.approx(chance.sum(), rel=1e-4)
    assert not np.asarray(model.gain[states:]).any()


def test_where_nothing_may_be_done_every_step_costs_the_floor():
    """State 0 pays 1 and leads to state 1, in which nothing may be done: 1 − 2 · 2 in three steps."""
    seen = np.full((2, ACTIONS, OUTCOMES), NOTHING, np.int32)
    seen[0, 1, 0] = 1
    chance = np.where(seen >= 0, 1.0, 0.0)
    gain = np.full((2, ACTIONS), -np.inf)
    gain[0, 1] = 1.0
    model = padded(table_of(2), chance, gain, np.zeros((2, ACTIONS)), seen)
    planned = backward_induction(model, *scalars(3, 0.0, -2.0), keep=KEEP)
    np.testing.assert_allclose(planned.value[:2], [-3.0, -6.0])
    assert planned.policy[0, 0] == 1
    always = jnp.ones((ROWS, 64), jnp.int16)
    np.testing.assert_allclose(policy_value(model, always, *scalars(3, -2.0))[:2], [-3.0, -6.0])


@pytest.mark.parametrize("seed", range(4))
def test_sweeps_end_where_nothing_changes_any_more(seed):
    """A table that loses a third at every step has forgotten its end long before 200 of them."""
    states, steps = 5, 200
    table = drawn(seed, states)
    table[2][:, 0] = 1.0  # something can be done everywhere
    model = model_of(table, states)
    found = backward_induction(model, *scalars(steps, 0.0, -1.5), KEEP)
    value, every = plain_induction(table, steps, 0.0, -1.5)
    np.testing.assert_allclose(found.value[:states], value, rtol=1e-5, atol=1e-5)
    best = np.argmax(every[:KEEP], axis=-1)
    np.testing.assert_array_equal(found.policy[:, :states], best)
    changing = np.random.default_rng(seed).integers(ACTIONS, size=(KEEP, model.gain.shape[0]))
    changing[:ROWS] = changing[0]
    for policy in (changing, np.broadcast_to(changing[0], changing.shape), changing[ROWS:]):
        worth = policy_value(model, jnp.asarray(policy, jnp.int16), *scalars(steps, -1.5))
        np.testing.assert_allclose(
            worth[:states], plain_policy_value(table, policy, steps, -1.5), rtol=1e-5, atol=1e-4
        )


@pytest.mark.parametrize("worst", [-4.0, -1e9])
def test_a_state_in_which_nothing_may_be_done_is_worth_no_less_than_the_worst(worst):
    """A floor for every step that is left adds up to more than any episode ever cost."""
    states, steps, floor = 4, 9, -1.5
    seen, chance, gain, leap = drawn(0, states)
    gain[1] = -np.inf
    model = model_of((seen, chance, gain, leap), states)
    found = backward_induction(model, *scalars(steps, 0.0, floor), KEEP, jnp.array(worst, jnp.float32))
    assert float(found.value[1]) == max(floor * steps, worst)
    policy = jnp.ones((1, model.gain.shape[0]), jnp.int16)
    followed = policy_value(model, policy, *scalars(steps, floor), jnp.array(worst, jnp.float32))
    assert float(followed[1]) == max(floor * steps, worst)
