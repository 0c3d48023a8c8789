"""Planning by value against backward induction over every state of a small imagined problem."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from e3rl.models.base import AbstractDynamics, Prediction
from e3rl.values.network import QNetwork, QSettings, make_q_state
from e3rl.planners.value import ValueSettings, fit_value, greedy, imagine, imagined_return, start_value
from e3rl.replay import Replay, Transitions

BITS, ACTIONS, HORIZON, MEMBERS = 2, 2, 3, 2
STATES = 2**BITS
DISCOUNT, SCALE, CAUTION = 0.9, 0.5, 0.3
SETTINGS = ValueSettings(
    2000, 48, DISCOUNT, "mean", SCALE, CAUTION, QSettings(3e-3, 10.0, target_rate=0.02, target_period=0)
)


fit = eqx.filter_jit(fit_value)


class TableDynamics(AbstractDynamics):
    """Predictions looked up by (time, state, action); a state is its bits read as a number, lowest first."""

    obs: Float[Array, "H S A D"]
    reward: Float[Array, "H S A"]
    termination: Float[Array, "H S A"]
    noise_shape: tuple[int, ...] = eqx.field(static=True, default=(BITS,))

    def __call__(self, obs, action, time):
        state = jnp.sum(obs.astype(jnp.int32) * 2 ** jnp.arange(BITS, dtype=jnp.int32))
        at = (time, state, action)
        return Prediction(self.obs[at], self.reward[at], self.termination[at])

    def draw(self, prediction, uniform):
        return (uniform < prediction.obs).astype(jnp.float32)

    def loss(self, obs, row, key):
        raise NotImplementedError

    def prior_deviation(self):
        raise NotImplementedError


def bits_of(state):
    return [(state >> i) & 1 for i in range(BITS)]


@pytest.fixture(scope="module")
def ensemble():
    rng = np.random.default_rng(4)
    shape = (MEMBERS, HORIZON, STATES, ACTIONS)
    return TableDynamics(
        jnp.array(rng.uniform(size=(*shape, BITS)), jnp.float32),
        jnp.array(rng.uniform(-0.5, 0.5, shape), jnp.float32),
        jnp.array(rng.choice([0.0, 0.5], shape), jnp.float32),
    )


@pytest.fixture(scope="module")
def everywhere():
    """A replay buffer with every state at every time step; what happened there is no business of the planner's."""
    cases = list(itertools.product(range(HORIZON), range(STATES)))
    n = len(cases)
    nothing = jnp.zeros(n, jnp.int32)
    obs = jnp.array([bits_of(s) for _, s in cases], jnp.int8)
    rows = Transitions(
        obs, nothing, jnp.array([t for t, _ in cases]), jnp.full(n, 99.0), 1 - obs, jnp.ones(n, bool)
    )
    return Replay.empty(n, obs[0])._replace(rows=rows, size=jnp.array(n, jnp.int32))


def backward_induction(ensemble, mode):
    """Q[t, s, a] = u + γ E_e[(1 − end_e) Σ_s' P_e(s') max_a' Q[t+1, s', a']]."""
    obs, reward, end = (np.asarray(leaf, float) for leaf in jax.tree.leaves(ensemble))
    q = np.zeros((HORIZON + 1, STATES, ACTIONS))
    for t in reversed(range(HORIZON)):
        for s, a in itertools.product(range(STATES), range(ACTIONS)):
            gaps = [
                (
                    np.abs(obs[e, t, s, a] - obs[f, t, s, a]).sum()
                    + SCALE * abs(reward[e, t, s, a] - reward[f, t, s, a])
                )
                / (BITS + 1)
                for e in range(MEMBERS)
                for f in range(MEMBERS)
            ]
            utility = max(gaps) if mode == "explore" else reward[:, t, s, a].mean() - CAUTION * max(gaps)
            after = 0.0
            for e, other in itertools.product(range(MEMBERS), range(STATES)):
                p = obs[e, t, s, a]
                chance = np.prod([c if x else 1 - c for c, x in zip(p, bits_of(other), strict=True)])
                after += (1 - end[e, t, s, a]) * chance * q[t + 1, other].max() / MEMBERS
            q[t, s, a] = utility + DISCOUNT * after
    return q


def fresh(settings=SETTINGS):
    """A value with weights from numpy, which costs no compilation."""
    rng = np.random.default_rng(0)
    shapes = eqx.filter_eval_shape(QNetwork, (BITS,), ACTIONS, HORIZON, 32, True, key=jax.random.key(0))
    network = jax.tree.map(lambda leaf: jnp.array(rng.normal(0.0, 0.25, leaf.shape), jnp.float32), shapes)
    return make_q_state(network, settings.q)


@pytest.fixture(scope="module", params=["explore", "exploit"])
def fitted(request, ensemble, everywhere):
    value, loss = fit(fresh(), ensemble, everywhere, jax.random.key(1), request.param, SETTINGS, ACTIONS)
    return value, float(loss), backward_induction(ensemble, request.param)


@eqx.filter_jit
def values(network, replay):
    return jax.vmap(network)(replay.rows.obs, replay.rows.time)


def test_fitted_value_is_that_of_backward_induction(fitted, everywhere):
    value, loss, exact = fitted
    learned = np.asarray(values(value.target, everywhere)).reshape(HORIZON, STATES, ACTIONS)
    np.testing.assert_allclose(learned, exact[:HORIZON], atol=0.03)
    assert np.abs(exact).max() > 0.5  # the tolerance means something
    assert loss < 0.05
    assert int(value.updates) == SETTINGS.updates


def test_greedy_takes_the_best_action_where_it_is_clearly_best(fitted, everywhere):
    value, _, exact = fitted
    q = exact[:HORIZON].reshape(-1, ACTIONS)
    clear = np.abs(q[:, 0] - q[:, 1]) > 0.15
    assert clear.sum() >= 3
    actions = jax.jit(lambda rows: jax.vmap(lambda obs, time: greedy(value, obs, time))(rows.obs, rows.time))
    np.testing.assert_array_equal(np.asarray(actions(everywhere.rows))[clear], q.argmax(axis=1)[clear])


def test_start_value_is_the_best_at_the_newest_episodes_start(fitted, everywhere):
    value, _, _ = fitted
    newest = everywhere._replace(recent=jnp.array(2, jnp.int32))  # the row of state 2 at time 0
    expected = np.max(value.online(jnp.array(bits_of(2)), jnp.array(0)))
    assert float(start_value(value, newest)) == pytest.approx(float(expected), rel=1e-5)


def test_start_value_is_unbounded_before_the_first_episode():
    nothing = Replay.empty(4, jnp.zeros(BITS, jnp.int8))
    assert float(start_value(fresh(), nothing)) == np.inf


def test_members_that_agree_leave_nothing_to_explore(ensemble, everywhere):
    """Every utility is zero, so every target is what the values past the end say: zero."""
    alike = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), ensemble)
    value, _ = fit(fresh(), alike, everywhere, jax.random.key(1), "explore", SETTINGS, ACTIONS)
    np.testing.assert_allclose(values(value.target, everywhere), 0.0, atol=0.02)


class Certain(TableDynamics):
    """The same tables, whose predictions are taken as they are: deterministic dynamics."""

    noise_shape: tuple[int, ...] = eqx.field(static=True, default=(0,))

    def draw(self, prediction, uniform):
        return prediction.obs


def certain(kind, ensemble):
    rounded = jnp.round(ensemble.obs)  # next states that can be looked up again
    return kind(rounded, ensemble.reward, ensemble.termination)


@pytest.mark.parametrize("mode", ["explore", "exploit"])
def test_the_table_says_what_the_members_predict(ensemble, everywhere, mode):
    members = certain(Certain, ensemble)
    table = eqx.filter_jit(imagine)(members, everywhere, mode, SETTINGS, ACTIONS)
    shape = (HORIZON, STATES, ACTIONS)
    next_obs = np.asarray(table.next_obs).reshape(*shape, MEMBERS, BITS)
    np.testing.assert_array_equal(next_obs, np.moveaxis(np.asarray(members.obs), 0, 3))
    alive = np.asarray(table.alive).reshape(*shape, MEMBERS)
    np.testing.assert_array_equal(alive, 1.0 - np.moveaxis(np.asarray(members.termination), 0, 3))
    last = backward_induction(members, mode)[HORIZON - 1]  # at the last step a value is its utility
    np.testing.assert_allclose(np.asarray(table.utility).reshape(shape)[-1], last, atol=1e-5)


@pytest.mark.parametrize("mode", ["explore", "exploit"])
def test_deterministic_members_are_fitted_by_table_to_the_same_value(ensemble, everywhere, mode):
    """Directly and by table the same fixed point, that of backward induction."""
    members = certain(Certain, ensemble)
    imagined = eqx.filter_jit(imagine)(members, everywhere, mode, SETTINGS, ACTIONS)
    assert imagined is not None
    direct, table = (
        fit(fresh(), members, everywhere, jax.random.key(1), mode, SETTINGS, ACTIONS, given)[0]
        for given in (None, imagined)
    )
    exact = backward_induction(certain(Certain, ensemble), mode)[:HORIZON]
    for value in (direct, table):
        learned = np.asarray(values(value.target, everywhere)).reshape(exact.shape)
        np.testing.assert_allclose(learned, exact, atol=0.04)


def test_stochastic_members_have_no_table(ensemble, everywhere):
    assert imagine(ensemble, everywhere, "explore", SETTINGS, ACTIONS) is None


def test_imagined_return_follows_the_greedy_policy_through_every_member(ensemble):
    """Step by step in plain Python: reward weighted by the chance to be still under way, the mean over members."""
    members, network = certain(Certain, ensemble), fresh().online
    starts = jnp.array([bits_of(0), bits_of(3)], jnp.float32)
    returns = []
    for e in range(MEMBERS):
        for start in starts:
            obs, alive, total = start, 1.0, 0.0
            for t in range(HORIZON):
                state = int(obs[0] + 2 * obs[1])
                action = int(jnp.argmax(network(obs, jnp.array(t, jnp.int32))))
                total += alive * float(members.reward[e, t, state, action])
                alive *= 1.0 - float(members.termination[e, t, state, action])
                obs = members.obs[e, t, state, action]
            returns.append(total)
    found = imagined_return(network, members, starts, HORIZON, jax.random.key(0))
    assert float(found) == pytest.approx(np.mean(returns), abs=1e-5)
