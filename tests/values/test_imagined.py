"""Values fitted in imagination against backward induction over every state of a small problem."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import (
    ACTIONS,
    BITS,
    HORIZON,
    MEMBERS,
    STATES,
    CertainTables,
    TableDynamics,
    backward_induction,
    bits_of,
    everywhere,
    numpy_network,
    one_of,
    some_tables,
)

from e3rl.planners.utility import Mean
from e3rl.values import imagined
from e3rl.values.imagined import (
    REUSED,
    TOO_OFTEN,
    ValueFit,
    best_snapshot,
    fit_value,
    imagine,
    imagined_return,
)
from e3rl.values.update import greedy, make_q_state

SETTINGS = ValueFit(updates=2000, batch=48, discount=0.9, learning_rate=3e-3, target_rate=0.02, hidden=32)
UTILITY = Mean(reward_scale=0.5, caution=0.3)
BOTH = [UTILITY.explore, UTILITY.exploit]


@eqx.filter_jit
def fit(ensemble, which, table=None, updates=SETTINGS.updates):
    start = make_q_state(numpy_network(SETTINGS.hidden), SETTINGS.step())
    return fit_value(
        start,
        ensemble,
        everywhere(),
        jax.random.key(1),
        one_of(which, BOTH),
        SETTINGS,
        updates,
        ACTIONS,
        table,
    )


DRAWS = SETTINGS.updates * SETTINGS.batch


@eqx.filter_jit
def table_of(members, which, draws=DRAWS):
    return imagine(members, everywhere(), one_of(which, BOTH), ACTIONS, draws, jax.random.key(2))


values_of = jax.jit(lambda network, rows: jax.vmap(network)(rows.obs, rows.time))


@pytest.fixture(scope="module", params=[False, True], ids=["explore", "exploit"])
def exploits(request):
    return request.param


@pytest.fixture(scope="module")
def fitted(exploits):
    value, loss = fit(some_tables(), jnp.array(int(exploits)))
    return value, float(loss), backward_induction(some_tables(), UTILITY, exploits, SETTINGS.discount)


def assert_learned(value, exact, atol=0.03):
    learned = np.asarray(values_of(value.target, everywhere().rows)).reshape(HORIZON, STATES, ACTIONS)
    np.testing.assert_allclose(learned, exact[:HORIZON], atol=atol)


def test_fitted_value_is_that_of_backward_induction(fitted):
    value, loss, exact = fitted
    assert_learned(value, exact)
    assert np.abs(exact).max() > 0.5  # the tolerance means something
    assert loss < 0.05
    assert int(value.updates) == SETTINGS.updates


def test_greedy_takes_the_best_action_where_it_is_clearly_best(fitted):
    value, _, exact = fitted
    q = exact[:HORIZON].reshape(-1, ACTIONS)
    clear = np.abs(q[:, 0] - q[:, 1]) > 0.15
    assert clear.sum() >= 3
    actions = jax.jit(jax.vmap(greedy, in_axes=(None, 0, 0)))
    rows = everywhere().rows
    np.testing.assert_array_equal(
        np.asarray(actions(value, rows.obs, rows.time))[clear], q.argmax(axis=1)[clear]
    )


def test_members_that_agree_leave_nothing_to_explore():
    """Every utility is zero, so every target is what the values past the end say: zero."""
    alike = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), some_tables())
    value, _ = fit(alike, jnp.array(0))
    np.testing.assert_allclose(values_of(value.target, everywhere().rows), 0.0, atol=0.02)


def test_deterministic_members_are_asked_once_and_fitted_to_the_same_value(exploits):
    """The table says what they predict, and by it the value is that of backward induction too."""
    members, which = some_tables(CertainTables), jnp.array(int(exploits))
    table = table_of(members, which)
    shape = (HORIZON, STATES, ACTIONS)
    next_obs = np.asarray(table.predicted.obs).reshape(*shape, MEMBERS, BITS)
    np.testing.assert_array_equal(next_obs, np.moveaxis(np.asarray(members.obs), 0, 3))
    ends = np.asarray(table.predicted.termination).reshape(*shape, MEMBERS)
    np.testing.assert_array_equal(ends, np.moveaxis(np.asarray(members.termination), 0, 3))
    exact = backward_induction(members, UTILITY, exploits, SETTINGS.discount)
    last = exact[HORIZON - 1]  # at the last step a value is its utility
    np.testing.assert_allclose(np.asarray(table.utility).reshape(shape)[-1], last, atol=1e-5)

    def never(member, obs, action, time):
        raise AssertionError("asked again")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(CertainTables, "__call__", never)
        assert_learned(fit(members, which, table)[0], exact, atol=0.04)


def test_by_a_table_of_the_buffer_a_value_is_fitted_as_by_asking(exploits):
    """The same states, members and dice."""
    members, which = some_tables(), jnp.array(int(exploits))
    table = table_of(members, which)
    assert table.is_whole(everywhere())
    asked, looked_up = (fit(members, which, each, updates=30)[0] for each in (None, table))
    for one, other in zip(jax.tree.leaves(asked), jax.tree.leaves(looked_up), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_where_the_buffer_is_large_some_of_its_states_are_asked_about(exploits):
    members, which = some_tables(), jnp.array(int(exploits))
    everybody, few = table_of(members, which), 7
    table = table_of(members, which, draws=few * REUSED)
    assert len(table.rows) == few < everywhere().capacity == len(everybody.rows)
    for one, other in zip(
        jax.tree.leaves((table.predicted, table.utility)),
        jax.tree.leaves((everybody.predicted, everybody.utility)),
        strict=True,
    ):
        np.testing.assert_allclose(one, other[table.rows], rtol=1e-5, atol=1e-6)
    drawn = np.asarray(table.draw(everywhere(), jax.random.key(3), 1_000))
    assert set(drawn.tolist()) == set(range(few))


def test_a_table_stays_within_its_memory(monkeypatch):
    def rows(draws, kind):
        table = imagine(some_tables(kind), everywhere(), UTILITY.explore, ACTIONS, draws, jax.random.key(0))
        return None if table is None else len(table.rows)

    state = ACTIONS * (MEMBERS * (BITS + 2) + 1)
    capacity = everywhere().capacity
    for kind in (TableDynamics, CertainTables):
        monkeypatch.setattr(imagined, "LARGEST_TABLE", capacity * state)
        assert rows(capacity * REUSED, kind) == capacity
        monkeypatch.setattr(imagined, "LARGEST_TABLE", 5 * state)
        assert rows(5 * TOO_OFTEN, kind) == 5
        assert rows(5 * TOO_OFTEN + 1, kind) is None  # the others would be missed


def test_imagined_return_follows_the_greedy_policy_through_every_member():
    """Step by step in plain Python: reward weighted by the chance to be still under way, the mean over members."""
    members, network = some_tables(CertainTables), numpy_network(32)
    rows = everywhere().rows
    best = np.argmax(values_of(network, rows), axis=1).reshape(HORIZON, STATES)
    returns = []
    for e in range(MEMBERS):
        for state in (0, 3):
            alive, total = 1.0, 0.0
            for t in range(HORIZON):
                action = best[t, state]
                total += alive * float(members.reward[e, t, state, action])
                alive *= 1.0 - float(members.termination[e, t, state, action])
                state = int(members.obs[e, t, state, action] @ jnp.array([1.0, 2.0]))
            returns.append(total)
    starts = jnp.array([bits_of(0), bits_of(3)], jnp.float32)
    found = eqx.filter_jit(imagined_return)(network, members, starts, HORIZON, jax.random.key(0))
    assert float(found) == pytest.approx(np.mean(returns), abs=1e-5)


def test_of_several_snapshots_the_one_is_kept_that_collects_most_in_imagination(monkeypatch):
    """Every stretch of training adds 1 to a weight, and the imagined return is the higher the closer it is to
    `wanted`."""
    members, replay = some_tables(), everywhere()
    value = make_q_state(numpy_network(4), SETTINGS.step())
    begun = value.online.hidden_bias[0]

    @jax.jit
    def trained(wanted):
        def fit(value, key):
            more = eqx.tree_at(lambda q: q.hidden_bias, value.online, value.online.hidden_bias + 1.0)
            return value._replace(online=more, updates=value.updates + 1)

        def judged(network, judges, starts, horizon, key):
            assert judges is members
            assert (starts.shape, horizon) == ((imagined.JUDGED_STARTS, BITS), HORIZON)
            return -jnp.abs(network.hidden_bias[0] - begun - wanted)

        monkeypatch.setattr(imagined, "imagined_return", judged)
        return best_snapshot(fit, value, members, replay, HORIZON, jax.random.key(0), 3)

    for wanted, best in ((2.0, 2.0), (9.0, 3.0), (-1.0, 1.0)):
        kept = trained(jnp.array(wanted))
        assert float(kept.online.hidden_bias[0] - begun) == pytest.approx(best)
        assert int(kept.updates) == best  # all of it is that snapshot's


@pytest.mark.parametrize(
    ("scores", "wait", "looked_at", "best"),
    [
        ([1, 3, 2, 2, 4, 0], 0, 6, 5),
        ([1, 3, 2, 2, 4, 0], 2, 4, 2),
        ([1, 3, 2, 2, 4, 0], 3, 6, 5),
        ([1, 1, 1, 1, 1, 1], 2, 3, 3),  # of equals the later one, though none is an improvement
        ([6, 5, 4, 3, 2, 1], 1, 2, 1),
    ],
)
def test_snapshots_without_a_better_one_end_the_updates(monkeypatch, scores, wait, looked_at, best):
    members, replay = some_tables(), everywhere()
    value = make_q_state(numpy_network(4), SETTINGS.step())
    calls = []

    def judged(network, judges, starts, horizon, key):
        calls.append(len(calls))
        return jnp.array(scores, jnp.float32)[network.hidden_bias[0].astype(jnp.int32) - 1]

    monkeypatch.setattr(imagined, "imagined_return", judged)
    zero = eqx.tree_at(lambda q: q.hidden_bias, value.online, jnp.zeros_like(value.online.hidden_bias))

    def fit(value, key):
        more = eqx.tree_at(lambda q: q.hidden_bias, value.online, value.online.hidden_bias + 1.0)
        return value._replace(online=more, updates=value.updates + 1)

    with jax.disable_jit():
        kept = best_snapshot(
            fit, value._replace(online=zero), members, replay, HORIZON, jax.random.key(0), len(scores), wait
        )
    assert int(kept.updates) == best
    assert len(calls) == looked_at
