"""Members repelled where there is no data: the kernel and its slope against loops, and what fitting makes of it."""

import dataclasses
import itertools
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from tables import CertainTables, drawn_by_numpy, everywhere, some_tables

from e3rl.models.bernoulli import BernoulliDynamics
from e3rl.models.ensemble import make_ensemble
from e3rl.models.fit import Fit, make_model_set, update_model_set
from e3rl.models.repulsion import closeness, foretell_all, strangers
from e3rl.replay import Replay, Transitions

RNG = np.random.default_rng(0)
OWN, OTHERS = RNG.normal(size=(4, 3)).astype(np.float32), RNG.normal(size=(5, 4, 3)).astype(np.float32)


def slow_closeness(own, others):
    pairs = list(itertools.product(range(len(others)), range(len(own))))
    return sum(math.exp(-sum((others[e][b] - own[b]) ** 2)) for e, b in pairs) / len(pairs)


def test_closeness_and_its_slope_against_loops():
    own = OWN.astype(float)
    assert np.isclose(
        float(closeness(jnp.array(OWN), jnp.array(OTHERS))),
        slow_closeness(own, OTHERS.astype(float)),
        rtol=1e-5,
    )
    slope, step = np.zeros_like(own), 1e-5
    for at in np.ndindex(*own.shape):
        shift = np.zeros_like(own)
        shift[at] = step
        up, down = (slow_closeness(own + sign * shift, OTHERS.astype(float)) for sign in (1, -1))
        slope[at] = (up - down) / (2 * step)
    np.testing.assert_allclose(
        jax.grad(closeness)(jnp.array(OWN), jnp.array(OTHERS)), slope, rtol=1e-3, atol=1e-5
    )


def test_going_down_the_slope_leads_away_from_the_others():
    own, other = jnp.array([[0.5, 0.1]]), jnp.array([[[0.3, 0.1]]])
    assert jax.grad(closeness)(own, other)[0, 0] < 0.0
    assert not np.any(jax.grad(closeness)(own, own[None]))  # nobody is repelled by themselves


def test_strangers_are_recombined():
    """States stay where they are; times and actions are the same ones in another order."""
    rows = everywhere().take(jnp.arange(12))
    rows = rows._replace(action=jnp.arange(12, dtype=jnp.int32))
    unseen = strangers(rows, jax.random.key(0))
    np.testing.assert_array_equal(unseen.obs, rows.obs)
    for new, old in ((unseen.action, rows.action), (unseen.time, rows.time)):
        assert sorted(new.tolist()) == sorted(old.tolist())
        assert new.tolist() != old.tolist()


def test_entries_that_do_not_count_are_not_told_apart():
    members, rows = some_tables(CertainTables), everywhere().take(jnp.arange(12))
    said = foretell_all(members, rows, jnp.array([1.0, 0.0]))
    assert said.shape == (2, 12, 3)
    assert not np.any(said[..., 1])
    np.testing.assert_array_equal(said[:, 3, 2], members.reward[:, 0, 3, 0])


def test_fitted_members_are_further_apart_where_there_is_no_data_and_no_worse_where_there_is():
    """Two actions were tried, each at its own time; what the other does there is anybody's guess."""
    first, time = (np.array(each) for each in zip(*itertools.product([0, 1], [0, 1]), strict=True))
    obs, at = jnp.array(first[:, None], jnp.int8), jnp.array(time, jnp.int32)
    rows = Transitions(obs, at, at, jnp.zeros(4), obs, jnp.zeros(4, bool))
    replay = Replay.empty(4, obs[0])._replace(rows=rows, size=jnp.array(4, jnp.int32))
    unseen = rows._replace(obs=obs.astype(jnp.float32), action=1 - at)
    members = drawn_by_numpy(
        lambda key: make_ensemble(lambda key: BernoulliDynamics(1, 2, 2, 16, key=key), 3, key), deviation=0.2
    )
    plain = Fit(updates=200, batch=16, learning_rate=1e-2, prior_weight=0.0)
    apart, losses = [], []
    for settings in (plain, dataclasses.replace(plain, repulsion=4.0)):
        fit = eqx.filter_jit(update_model_set)
        models, loss = fit(make_model_set(members, settings), replay, jax.random.key(1), settings)
        said = foretell_all(models.members, unseen)
        apart.append(float(jnp.mean(jnp.sum((said[:, None] - said[None]) ** 2, axis=-1))))
        losses.append(float(loss))
    assert apart[1] > 2.0 * apart[0]
    assert losses[1] < losses[0] + 0.1
