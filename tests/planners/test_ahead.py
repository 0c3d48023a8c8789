"""A search that asks ahead grows the tree of one that does not."""

import dataclasses
import types
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import ACTIONS, BITS, HORIZON, MEMBERS, STATES, bits_of, numpy_network, tables

from e3rl.models import bernoulli_steps
from e3rl.models.bernoulli import BernoulliDynamics
from e3rl.models.bernoulli_steps import BernoulliSteps
from e3rl.models.ensemble import make_ensemble
from e3rl.planners import ahead, mcts
from e3rl.planners.mcts import TreeSearch
from e3rl.planners.tree import NOBODY
from e3rl.planners.utility import Joint, Marginal, Mean, Squared, looks_at_particles

SETTINGS = TreeSearch(playouts=40, particles=5, leaf="zero", choice="mean")
SAME = (
    "node_visits", "raw_values", "node_values", "parents", "action_from_parent", "children_index", "children_values",
    "children_visits", "children_rewards", "children_discounts",
)  # fmt: skip


@pytest.fixture(scope="module")
def random_tables():
    rng = np.random.default_rng(7)
    shape = (MEMBERS, HORIZON, STATES, ACTIONS)
    return tables(
        rng.uniform(0.1, 0.9, (*shape, BITS)), rng.uniform(-1, 1, shape), rng.uniform(0, 0.4, shape)
    )


def grown(ensemble, settings, backend, time=0, value=None, line=None, utility=None):
    """The tree and what was found, on a device that is like a CPU or like a GPU."""
    trees = []
    utility = utility or Marginal(reward_scale=0.5).explore

    def recorded(original):
        def search(*args, **kwargs):
            trees.append(original(*args, **kwargs))
            return trees[-1]

        return search

    @eqx.filter_jit
    def run(ensemble, value, time, line):
        obs, key = jnp.array(bits_of(1), jnp.int8), jax.random.key(3)
        found = mcts.search(ensemble, value, obs, time, key, utility, settings, HORIZON, ACTIONS, line)
        return found, {name: getattr(trees[-1], name)[0] for name in SAME}

    line = None if line is None else jnp.array([*line, *[NOBODY] * (HORIZON - len(line))], jnp.int32)
    with (
        mock.patch.object(mcts.mctx, "search", recorded(mcts.mctx.search)),
        mock.patch.object(mcts.ahead, "search", recorded(ahead.search)),
        mock.patch.object(jax, "default_backend", return_value=backend),
        mock.patch.object(bernoulli_steps, "_generation", return_value=9.0),
    ):
        return run(ensemble, value, jnp.array(time), line)


def alike(one, other):
    (found, tree), (again, same) = one, other
    for name in SAME:
        np.testing.assert_allclose(tree[name], same[name], atol=1e-4, err_msg=name)
    assert int(found.action) == int(again.action)
    assert float(found.value) == pytest.approx(float(again.value), abs=1e-4)


@pytest.mark.parametrize(
    ("leaf", "common_noise", "time"),
    [
        ("zero", True, 0),
        ("rollout", True, 0),
        ("rollout", False, 0),
        ("rollout", False, 2),
        ("value", False, 1),
    ],
)
def test_the_tree_is_that_of_mctx(random_tables, leaf, common_noise, time):
    """With so small a horizon many playouts end at the largest depth, where a node is visited again."""
    settings = dataclasses.replace(SETTINGS, leaf=leaf, common_noise=common_noise)
    value = numpy_network(4, deviation=0.7, seed=1) if leaf == "value" else None
    one = grown(random_tables, settings, "cpu", time, value)
    assert np.sum(one[1]["node_visits"] > 0) < SETTINGS.playouts + 1
    alike(one, grown(random_tables, settings, "tpu", time, value))


def test_a_line_is_tried_first_there_too(random_tables):
    settings = dataclasses.replace(SETTINGS, reuse=True, playouts=12)
    one, other = (grown(random_tables, settings, backend, line=(1, 0, 1)) for backend in ("cpu", "tpu"))
    alike(one, other)
    assert one[0].line.tolist() == other[0].line.tolist()


@pytest.fixture(scope="module", params=["input", "gate"])
def networks(request):
    """Of few units and with few particles, so that the device's arrays have room left over."""

    def make(key):
        return BernoulliDynamics(BITS, ACTIONS, HORIZON, width=6, conditioning=request.param, key=key)

    return make_ensemble(make, MEMBERS, jax.random.key(5))


@pytest.mark.parametrize("leaf", ["zero", "rollout", "value"])
@pytest.mark.parametrize("common_noise", [True, False])
def test_many_steps_at_once_change_nothing(networks, leaf, common_noise):
    """The program of a GPU, interpreted."""
    settings = dataclasses.replace(SETTINGS, leaf=leaf, common_noise=common_noise, particles=70)
    value = numpy_network(4, deviation=0.7, seed=1) if leaf == "value" else None
    with mock.patch.object(BernoulliSteps, "take", autospec=True, side_effect=BernoulliSteps.take) as asked:
        other = grown(networks, settings, "gpu", value=value)
    assert asked.called
    alike(grown(networks, settings, "cpu", value=value), other)


def test_beliefs_come_out_of_many_steps_too(networks):
    settings = dataclasses.replace(SETTINGS, leaf="rollout", from_samples=False)
    utility = Mean(reward_scale=0.5, caution=0.1).exploit
    alike(*(grown(networks, settings, backend, utility=utility) for backend in ("cpu", "gpu")))


def test_a_utility_that_looks_at_particles_gets_them(networks):
    settings = dataclasses.replace(SETTINGS, common_noise=False)
    with mock.patch.object(BernoulliSteps, "take", side_effect=AssertionError):
        other = grown(networks, settings, "gpu", utility=Joint().explore)
    alike(grown(networks, settings, "cpu", utility=Joint().explore), other)
    assert looks_at_particles(Joint(caution=0.1).exploit, MEMBERS, (BITS,))
    for utility in (Joint(caution=0.0).exploit, Marginal().explore, Squared().exploit):
        assert not looks_at_particles(utility, MEMBERS, (BITS,))


def test_on_a_cpu_nothing_is_asked_ahead(networks):
    assert networks.many_steps(10) is None


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), min_size=1, max_size=6), st.floats(-1, 1))
def test_returns_are_those_of_a_loop(steps, value):
    reward, discount = (jnp.array(column, jnp.float32) for column in zip(*steps, strict=True))
    slow, after = [], value
    for gained, onwards in reversed(steps):
        after = gained + onwards * after
        slow.insert(0, after)
    np.testing.assert_allclose(ahead.discounted(reward, discount, jnp.float32(value)), slow, atol=1e-5)


@pytest.mark.parametrize(
    ("bits", "width", "generation", "fit"),
    [
        (23, 50, "9.0", True),
        (103, 50, "8.6", True),
        (303, 50, "9.0", False),
        (23, 50, "7.5", False),
        (23, 50, "gfx90a", False),
    ],
)
def test_a_device_without_the_room_takes_a_step_at_a_time(bits, width, generation, fit, monkeypatch):
    device = types.SimpleNamespace(compute_capability=generation)
    monkeypatch.setattr(jax, "devices", lambda: [device])
    assert bernoulli_steps.fits(bits, width) is fit
