"""Offline double DQN: its targets by hand, and a two-state chain worth 0.9."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tables import numpy_network

from e3rl.replay import Replay, Transitions
from e3rl.values.double_dqn import DqnFit, double_q_targets, fit_dqn
from e3rl.values.update import make_q_state

PLAIN = DqnFit(learning_rate=1e-2, target_period=20, batch=16, discount=0.9, hidden=16)
CLIPPED = DqnFit(
    learning_rate=1e-2, target_period=20, batch=16, discount=0.9, hidden=16, heads=False, clipped=True,
    ending_share=0.2,
)  # fmt: skip
UPDATES = 20

fit = eqx.filter_jit(fit_dqn)


def constant(bias):
    """A network that is its last layer's bias, one row a time step."""
    zeros = jax.tree.map(jnp.zeros_like, numpy_network(2))
    return eqx.tree_at(lambda q: q.head_bias, zeros, jnp.array(bias))


def test_targets_worked_by_hand():
    """The online network chooses, the target network values; nothing follows an end or the last step."""
    online = constant([[0.0, 0.0], [1.0, 2.0], [7.0, 3.0]])
    target = constant([[0.0, 0.0], [10.0, -3.0], [0.5, 50.0]])
    state = make_q_state(online, PLAIN.step())._replace(target=target)
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
    state = make_q_state(online, PLAIN.step())._replace(target=target)
    obs, nothing = jnp.zeros((2, 2), jnp.int8), jnp.zeros(2)
    rows = Transitions(
        obs, jnp.zeros(2, jnp.int32), jnp.array([0, 1], jnp.int32), nothing, obs, jnp.zeros(2, bool)
    )
    plain, clipped = jax.jit(
        lambda state: (double_q_targets(state, rows, 1.0), double_q_targets(state, rows, 1.0, clipped=True))
    )(state)
    np.testing.assert_allclose(plain, [9.0, 0.5])
    np.testing.assert_allclose(clipped, [2.0, 0.5])


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
    ends = jnp.array([1, 2, 3, *[0] * 5], jnp.int32)
    size, ended = jnp.array(len(rows), jnp.int32), jnp.array(3, jnp.int32)
    return blank._replace(rows=transitions, size=size, endings=ends, ended=ended)


@pytest.mark.parametrize("settings", [PLAIN, CLIPPED], ids=["plain", "clipped"])
def test_training_clips_its_targets_where_told(settings):
    """The target network promises 10 everywhere, the online one nothing: clipped, there is nothing to learn from it."""
    zeros = jax.tree.map(jnp.zeros_like, numpy_network(16, settings.heads))
    hopeful = eqx.tree_at(lambda q: q.head_bias, zeros, jnp.full_like(zeros.head_bias, 10.0))
    state = make_q_state(zeros, settings.step())._replace(target=hopeful)
    _, loss = fit(state, chain(), jax.random.key(1), settings, UPDATES)
    if settings.clipped:
        assert float(loss) <= 0.5  # at most the reward of 1
    else:
        assert float(loss) >= 0.5 + 8.0 / 16  # rows that are promised 0.9 · 10


@pytest.mark.parametrize("settings", [PLAIN, CLIPPED], ids=["plain", "clipped"])
def test_a_chain_worth_nine_tenths(settings):
    state = make_q_state(numpy_network(16, settings.heads, deviation=0.3), settings.step())
    for key in jax.random.split(jax.random.key(1), 20):
        state, loss = fit(state, chain(), key, settings, UPDATES)
    q = jax.jit(jax.vmap(state.online))
    first, second = q(jnp.array([[1, 0], [0, 1]]), jnp.array([0, 1]))
    assert float(first[1]) == pytest.approx(0.9, abs=0.05)
    assert float(second[1]) == pytest.approx(1.0, abs=0.05)
    np.testing.assert_allclose([first[0], second[0]], 0.0, atol=0.05)
    assert float(loss) < 1e-2
    assert int(state.updates) == 20 * UPDATES


def test_rows_are_drawn_by_the_settings_batch_and_share_of_endings():
    asked, sample = [], Replay.sample

    def recorded(replay, key, batch, recent_share=0.0, ending_share=0.0):
        asked.append((batch, recent_share, ending_share))
        return sample(replay, key, batch, recent_share, ending_share)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Replay, "sample", recorded)
        state = make_q_state(numpy_network(16, heads=False), CLIPPED.step())
        jax.eval_shape(lambda state: fit_dqn(state, chain(), jax.random.key(0), CLIPPED, 1), state)
    assert set(asked) == {(16, 0.0, 0.2)}
