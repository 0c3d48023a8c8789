"""Offline double DQN: its targets by hand, and a two-state chain worth 0.9."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.values.double_dqn import DqnSettings, double_q_targets, fit_dqn
from e3rl.values.network import QNetwork, QSettings, make_q_state
from e3rl.replay import Replay, Transitions

ACTIONS, HORIZON = 2, 3
Q = QSettings(1e-2, 10.0, target_rate=0.0, target_period=20)


def network(width, heads=True):
    """A network with weights from numpy, which costs no compilation."""
    rng = np.random.default_rng(0)
    shapes = eqx.filter_eval_shape(QNetwork, (2,), ACTIONS, HORIZON, width, heads, key=jax.random.key(0))
    return jax.tree.map(lambda leaf: jnp.array(rng.normal(0.0, 0.3, leaf.shape), jnp.float32), shapes)


def constant(bias):
    """A network that is its last layer's bias, one row a time step."""
    zeros = jax.tree.map(jnp.zeros_like, network(2))
    return eqx.tree_at(lambda q: q.head_bias, zeros, jnp.array(bias))


def test_targets_worked_by_hand():
    """The online network chooses, the target network values; nothing follows an end or the last step."""
    online = constant([[0.0, 0.0], [1.0, 2.0], [7.0, 3.0]])
    target = constant([[0.0, 0.0], [10.0, -3.0], [0.5, 50.0]])
    state = make_q_state(online, Q)._replace(target=target)
    obs = jnp.zeros((4, 2), jnp.int8)
    rows = Transitions(
        obs,
        jnp.array([0, 1, 0, 1], jnp.int32),
        jnp.array([0, 1, 0, 2], jnp.int32),
        jnp.array([1.0, 0.25, -2.0, 4.0]),
        obs,
        jnp.array([False, False, True, False]),
    )
    np.testing.assert_allclose(
        eqx.filter_jit(double_q_targets)(state, rows, 0.5),
        [
            1.0 + 0.5 * -3.0,  # at step 1 the online network prefers action 1
            0.25 + 0.5 * 0.5,  # at step 2 it prefers action 0
            -2.0,  # terminated
            4.0,  # past the horizon
        ],
    )


def test_clipped_targets_take_the_lesser_value_of_the_action_chosen():
    online = constant([[0.0, 0.0], [1.0, 2.0], [7.0, 3.0]])
    target = constant([[0.0, 0.0], [-5.0, 9.0], [0.5, 50.0]])
    state = make_q_state(online, Q)._replace(target=target)
    obs, nothing = jnp.zeros((2, 2), jnp.int8), jnp.zeros(2)
    rows = Transitions(
        obs, jnp.zeros(2, jnp.int32), jnp.array([0, 1], jnp.int32), nothing, obs, jnp.zeros(2, bool)
    )
    np.testing.assert_allclose(double_q_targets(state, rows, 1.0), [9.0, 0.5])
    np.testing.assert_allclose(double_q_targets(state, rows, 1.0, clipped=True), [2.0, 0.5])


def chain():
    """Action 1 leads from s0 to s1 and from there out with reward 1; action 0 gives up for nothing."""
    s0, s1, out = [1, 0], [0, 1], [0, 0]
    rows = [
        (s0, 1, 0, 0.0, s1, False),
        (s1, 1, 1, 1.0, out, True),
        (s0, 0, 0, 0.0, out, True),
        (s1, 0, 1, 0.0, out, True),
    ]
    obs, action, time, reward, after, terminated = zip(*rows, strict=True)
    spare = 4  # rows that were never filled: their reward would spoil everything

    def padded(column, dtype, filler):
        filled = jnp.array(column, dtype)
        return jnp.concatenate([filled, jnp.full((spare, *filled.shape[1:]), filler, dtype)])

    transitions = Transitions(
        padded(obs, jnp.int8, 0),
        padded(action, jnp.int32, 0),
        padded(time, jnp.int32, 0),
        padded(reward, jnp.float32, 99.0),
        padded(after, jnp.int8, 0),
        padded(terminated, bool, False),
    )
    blank = Replay.empty(len(rows) + spare, jnp.zeros(2, jnp.int8))
    return blank._replace(rows=transitions, size=jnp.array(len(rows), jnp.int32))


def test_training_clips_its_targets_where_told():
    """The target network promises 10 everywhere, the online one nothing: clipped, there is nothing to learn from it."""
    zeros = jax.tree.map(jnp.zeros_like, network(16, False))
    hopeful = eqx.tree_at(lambda q: q.head_bias, zeros, jnp.full_like(zeros.head_bias, 10.0))
    state = make_q_state(zeros, Q)._replace(target=hopeful)
    settings = DqnSettings(1, 16, 0.9, 0.0, False, Q)
    _, loss = eqx.filter_jit(fit_dqn)(state, chain(), jax.random.key(1), settings)
    _, clipped = eqx.filter_jit(fit_dqn)(state, chain(), jax.random.key(1), settings._replace(clipped=True))
    assert float(clipped) <= 0.5  # at most the reward of 1
    assert float(loss) >= float(clipped) + 8.5 / 16  # a row that is promised 0.9 · 10


@pytest.mark.parametrize("heads", [True, False])
def test_a_chain_worth_nine_tenths(heads):
    settings = DqnSettings(400, 16, 0.9, 0.0, False, Q)
    state = make_q_state(network(16, heads), settings.q)
    state, loss = eqx.filter_jit(fit_dqn)(state, chain(), jax.random.key(1), settings)
    q = jax.jit(lambda obs, time: state.online(obs, time))
    first, second = q(jnp.array([1, 0]), jnp.array(0)), q(jnp.array([0, 1]), jnp.array(1))
    assert float(first[1]) == pytest.approx(0.9, abs=0.05)
    assert float(second[1]) == pytest.approx(1.0, abs=0.05)
    np.testing.assert_allclose([first[0], second[0]], 0.0, atol=0.05)
    assert float(loss) < 1e-2
    assert int(state.updates) == 400
