"""Members that carry their own states against loops in plain Python, and against the one step that all share."""

import itertools

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
    bits_of,
    everywhere,
    numpy_network,
    plain_utility,
    some_tables,
    tables,
)

from e3rl.models.base import within_bounds
from e3rl.models.ensemble import predict
from e3rl.planners.utility import Marginal, Mean
from e3rl.values import imagined
from e3rl.values.imagined import ValueFit, fit_value
from e3rl.values.propagated import backup
from e3rl.values.update import make_q_state

DISCOUNT = 0.9
UTILITY = Mean(reward_scale=0.5)
CASES = list(itertools.product(range(HORIZON), range(STATES), range(ACTIONS), range(MEMBERS)))


@eqx.filter_jit
def worth(network, members, noise, utility=UTILITY):
    """`backup` of every time, state, action and leader, each with dice of its own."""
    time, state, action, leader = jnp.array(CASES, jnp.int32).T
    obs = jnp.array([bits_of(s) for s in range(STATES)], jnp.int8)[state]

    def one(obs, time, action, leader, noise):
        predicted = predict(members, obs, action, time)
        gain = utility.explore(predicted)
        return backup(
            network, members, predicted, gain, time, leader, noise, utility.explore, discount=DISCOUNT
        )

    return jax.vmap(one)(obs, time, action, leader, noise)


def slow_worth(q, members, time, state, action, leader, noise, utility=UTILITY):
    """Every member in a list of its own."""
    obs, reward, end = (np.asarray(leaf, float) for leaf in jax.tree.leaves(members))
    states, total, weight = [state] * MEMBERS, 0.0, 1.0
    for dice in noise:
        if time == HORIZON:
            return total
        at = [(e, time, states[e], action) for e in range(MEMBERS)]
        total += weight * plain_utility(utility, False, [obs[i] for i in at], [reward[i] for i in at])
        weight *= DISCOUNT * (1.0 - end[at[leader]])
        sure = isinstance(members, CertainTables)
        drawn = [obs[i] if sure else dice < obs[i] for i in at]
        states = [sum(int(bit) << i for i, bit in enumerate(bits)) for bits in drawn]
        time += 1
        action = int(np.argmax(q[time, states[leader]]))
    return total + weight * q[time, states[leader]].max()


def values_of(network):
    """Q[t, s, a]; zero past the end."""
    rows = everywhere().rows
    q = np.zeros((HORIZON + 1, STATES, ACTIONS))
    q[:HORIZON] = np.asarray(jax.vmap(network)(rows.obs, rows.time)).reshape(HORIZON, STATES, ACTIONS)
    return q


@pytest.mark.parametrize("steps", [1, 2, HORIZON + 1])
@pytest.mark.parametrize("kind", [TableDynamics, CertainTables])
def test_a_path_is_worth_what_loops_say(kind, steps):
    """Paths longer than the episode too."""
    network, members = numpy_network(8), some_tables(kind)
    shape = (len(CASES), steps, *members.noise_shape)
    noise = np.random.default_rng(3).random(shape, np.float32)
    fast = worth(network, members, jnp.array(noise))
    q = values_of(network)
    slow = [slow_worth(q, members, *case, dice) for case, dice in zip(CASES, noise, strict=True)]
    np.testing.assert_allclose(fast, slow, atol=1e-5)


def test_members_that_parted_go_on_disagreeing():
    """They disagree about the first step, and then agree that nothing changes any more. Asked about one state they
    disagree once; in states of their own, at every step."""
    obs = np.zeros((MEMBERS, HORIZON, STATES, ACTIONS, BITS))
    for state in range(STATES):
        obs[:, 1:, state] = bits_of(state)
    obs[1, 0] = bits_of(1)  # the other says 0
    nothing = np.zeros(obs.shape[:-1])
    members = tables(obs, nothing, nothing, CertainTables)
    blank = jax.tree.map(jnp.zeros_like, numpy_network(8))
    start = [i for i, (time, *_) in enumerate(CASES) if time == 0]
    for steps, expected in (
        (1, 2.0),
        (2, 2.0 + 2.0 * DISCOUNT),
        (3, 2.0 + 2.0 * DISCOUNT + 2.0 * DISCOUNT**2),
    ):
        found = worth(blank, members, jnp.zeros((len(CASES), steps, 0)), Marginal())
        np.testing.assert_allclose(found[jnp.array(start)], expected, rtol=1e-6)


def test_with_one_step_a_value_is_fitted_bit_by_bit_as_from_a_shared_state(monkeypatch):
    """The target before there was a choice, written out."""
    settings = ValueFit(updates=20, batch=8, discount=DISCOUNT, hidden=8)

    def shared(value, ensemble, predicted, gain, time, chosen, noise, utility, discount):
        (noise,) = noise
        member, own = jax.tree.map(lambda leaf: leaf[chosen], (ensemble, predicted))
        next_obs = within_bounds(member.draw(own, noise))
        alive = 1.0 - own.termination
        return gain + alive * discount * jnp.max(value(next_obs, time + 1))

    def fitted():
        start = make_q_state(numpy_network(settings.hidden), settings.step())
        given = (start, some_tables(), everywhere(), jax.random.key(1), UTILITY.explore)
        return jax.jit(lambda: fit_value(*given, settings, settings.updates, ACTIONS))()

    by_default = fitted()
    monkeypatch.setattr(imagined, "backup", shared)
    jax.tree.map(np.testing.assert_array_equal, by_default, fitted())
