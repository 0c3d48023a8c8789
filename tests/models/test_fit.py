"""UpdateModelSet on a table small enough to know everything about."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tables import drawn_by_numpy

from e3rl.models.bernoulli import BernoulliDynamics
from e3rl.models.ensemble import make_ensemble
from e3rl.models.fit import Fit, _distance_to_anchor, make_model_set, update_model_set
from e3rl.replay import Replay, Transitions

BITS, ACTIONS, HORIZON, MEMBERS = 2, 2, 2, 3
PLAIN = Fit(updates=300, batch=16, learning_rate=1e-2, prior_weight=0.0)
HELD = dataclasses.replace(PLAIN, prior_weight=1e6)

fit = eqx.filter_jit(update_model_set)


def table():
    """Every (observation, action, time) once: action 1 flips the first bit, the second becomes the old first;
    the reward is the old second bit, the last step ends the episode."""
    cases = np.array(list(itertools.product([0, 1], [0, 1], range(ACTIONS), range(HORIZON))))
    first, second, action, time = cases.T
    return Transitions(
        jnp.array(cases[:, :2], jnp.int8),
        jnp.array(action, jnp.int32),
        jnp.array(time, jnp.int32),
        jnp.array(second, jnp.float32),
        jnp.array(np.stack([first ^ action, first], axis=1), jnp.int8),
        jnp.array(time == HORIZON - 1),
    )


def buffer(rows):
    size = jnp.array(rows.action.shape[0], jnp.int32)
    empty = Replay.empty(rows.action.shape[0], rows.obs[0])
    return empty._replace(rows=rows, size=size)


def ensemble(seed=0, conditioning="gate"):
    return drawn_by_numpy(
        lambda key: make_ensemble(
            lambda key: BernoulliDynamics(BITS, ACTIONS, HORIZON, 16, conditioning, key=key), MEMBERS, key
        ),
        seed=seed,
    )


def mean_loss(member, rows):
    return jnp.mean(jax.vmap(lambda row: member.loss(row.obs, row, jax.random.key(0))[0])(rows))


@eqx.filter_jit
def losses(members, rows):
    return eqx.filter_vmap(lambda member: mean_loss(member, rows))(members)


@eqx.filter_jit
def predictions(members, rows):
    return eqx.filter_vmap(lambda member: jax.vmap(member)(rows.obs, rows.action, rows.time))(members)


def flat(tree):
    """The weights of each member as one row."""
    return np.concatenate([np.reshape(leaf, (MEMBERS, -1)) for leaf in jax.tree.leaves(tree)], axis=1)


@pytest.mark.parametrize("conditioning", [pytest.param("input", marks=pytest.mark.slow), "gate"])
def test_learns_a_deterministic_table(conditioning):
    rows, start = table(), ensemble(conditioning=conditioning)
    models, loss = fit(make_model_set(start, PLAIN), buffer(rows), jax.random.key(1), PLAIN)
    before, after = np.asarray(losses(start, rows)), np.asarray(losses(models.members, rows))
    assert np.all(after < 0.1)
    assert np.all(after < before / 10)
    assert float(loss) == pytest.approx(after.mean(), abs=0.1)
    predicted = predictions(models.members, rows)
    for e in range(MEMBERS):
        np.testing.assert_array_equal(np.round(predicted.obs[e]), rows.next_obs)
        np.testing.assert_allclose(predicted.reward[e], rows.reward, atol=0.25)
        np.testing.assert_array_equal(predicted.termination[e] > 0.5, rows.terminated)


def test_the_anchor_is_the_start_and_does_not_move():
    start = ensemble()
    models, _ = fit(make_model_set(start, PLAIN), buffer(table()), jax.random.key(1), PLAIN)
    np.testing.assert_array_equal(flat(models.anchor), flat(start))
    assert np.abs(flat(models.members) - flat(start)).max() > 0.1


def test_members_see_different_minibatches():
    """Members that start as one part ways over a table, and stay one where every minibatch is the same row."""
    one = ensemble()
    same = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[:1], leaf.shape), one)
    rows = table()
    apart, _ = fit(make_model_set(same, PLAIN), buffer(rows), jax.random.key(2), PLAIN)
    weights = flat(apart.members)
    assert min(np.abs(weights[i] - weights[j]).max() for i, j in [(0, 1), (0, 2), (1, 2)]) > 1e-3
    repeated = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[3:4], leaf.shape), rows)
    together, _ = fit(make_model_set(same, PLAIN), buffer(repeated), jax.random.key(2), PLAIN)
    weights = flat(together.members)
    np.testing.assert_allclose(weights, np.broadcast_to(weights[:1], weights.shape), atol=1e-6)
    assert np.abs(weights - flat(same)).max() > 1e-3


def test_a_huge_prior_weight_holds_members_at_their_anchor():
    """Adam's steps are 0.01 whatever the gradient: a held member jitters by a few of them, a free one walks off."""
    start = ensemble()
    held, _ = fit(make_model_set(start, HELD), buffer(table()), jax.random.key(3), HELD)
    free, _ = fit(make_model_set(start, PLAIN), buffer(table()), jax.random.key(3), PLAIN)
    assert np.abs(flat(held.members) - flat(start)).max() < 0.05
    assert np.abs(flat(free.members) - flat(start)).max() > 0.3


def test_a_huge_prior_weight_brings_a_displaced_member_back():
    start = ensemble()
    displaced = jax.tree.map(lambda leaf: leaf + 0.5, start)
    models = make_model_set(start, HELD)._replace(members=displaced)
    back, _ = fit(models, buffer(table()), jax.random.key(3), HELD)
    assert np.abs(flat(back.members) - flat(start)).max() < 0.1


def test_the_gradient_is_that_of_likelihood_and_prior():
    """∇ (nll + w·terms/N · distance), with N the examples held: read off Adam's first moment after one update."""
    weight, terms, e = 2.0, 3, 1
    rows = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[5:6], leaf.shape), table())
    settings = dataclasses.replace(PLAIN, updates=1, prior_weight=weight, gradient_clip=1e9)
    start = ensemble(seed=2, conditioning="input")
    models = make_model_set(ensemble(conditioning="input"), settings)._replace(members=start)
    after, loss = fit(models, buffer(rows), jax.random.key(4), settings, terms)
    member, anchor = (jax.tree.map(lambda leaf: leaf[e], tree) for tree in (start, models.anchor))

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(member):
        nll = mean_loss(member, rows)
        return nll + weight * terms / rows.action.shape[0] * _distance_to_anchor(member, anchor)

    moments = optax.tree_utils.tree_get(after.optimiser, "mu")
    for expected, moment in zip(jax.tree.leaves(gradient(member)), jax.tree.leaves(moments), strict=True):
        np.testing.assert_allclose(moment[e] / 0.1, expected, rtol=1e-3, atol=1e-4)
    assert float(loss) == pytest.approx(
        float(np.mean(losses(start, rows))), rel=1e-4
    )  # without the prior's term


def test_distance_to_anchor_and_its_gradient_against_differences():
    member, anchor = (jax.tree.map(lambda leaf: leaf[0], ensemble(seed)) for seed in (1, 2))
    deviation = anchor.prior_deviation()
    slow = 0.0
    for w, w0, sd in zip(
        *(map(np.asarray, jax.tree.leaves(t)) for t in (member, anchor, deviation)), strict=True
    ):
        for index in np.ndindex(w.shape):
            slow += 0.5 * ((float(w[index]) - float(w0[index])) / float(sd[index])) ** 2
    assert float(_distance_to_anchor(member, anchor)) == pytest.approx(slow, rel=1e-5)
    assert float(_distance_to_anchor(anchor, anchor)) == 0.0

    weights, unravel = jax.flatten_util.ravel_pytree(member)
    step = 0.1  # the distance is quadratic, so central differences are exact at any step
    some = np.random.default_rng(0).choice(weights.size, 100, replace=False)
    shifts = step * np.eye(weights.size, dtype=np.float32)[some]

    @jax.jit
    def both(weights):
        def distance(flat):
            return _distance_to_anchor(unravel(flat), anchor)

        up, down = jax.vmap(distance)(weights + shifts), jax.vmap(distance)(weights - shifts)
        return jax.grad(distance)(weights)[some], (up - down) / (2 * step)

    np.testing.assert_allclose(*both(weights), rtol=1e-2, atol=1e-2)


def test_settings_say_how_examples_are_drawn(monkeypatch):
    """One by one where nothing is unrolled, otherwise in segments; nothing is compiled to see it."""
    asked, draw = [], Replay.draw

    def drawn(replay, key, *given):
        asked.append(given)
        return draw(replay, key, *given)

    monkeypatch.setattr(Replay, "draw", drawn)
    for unroll, expected in ((1, (16, 1, 0.25, 0.5)), (4, (16, 4, 0.25, 0.5))):
        asked.clear()
        settings = dataclasses.replace(PLAIN, updates=1, unroll=unroll, recent_share=0.25, ending_share=0.5)
        models = make_model_set(ensemble(), settings)
        eqx.filter_eval_shape(update_model_set, models, buffer(table()), jax.random.key(0), settings)
        assert set(asked) == {expected}


def test_smoothed_members_are_the_average_of_the_last_updates():
    """Asked by the average; trained on from where the last update left them. Of one row every minibatch is the same, so
    what each update leaves is known."""
    row = buffer(jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[3:4], leaf.shape), table()))
    start = ensemble()

    def after(updates, smoothing=0.0):
        settings = dataclasses.replace(PLAIN, updates=updates, smoothing=smoothing)
        return fit(make_model_set(start, settings), row, jax.random.key(4), settings)[0]

    second, third = flat(after(2).members), flat(after(3).members)
    smoothed = after(3, smoothing=2 / 3)
    np.testing.assert_allclose(flat(smoothed.unsmoothed), third, atol=1e-6)
    np.testing.assert_allclose(flat(smoothed.members), (second + third) / 2, atol=1e-6)
    assert np.abs(second - third).max() > 1e-3
