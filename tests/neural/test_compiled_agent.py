"""Neural-E³'s compiled slots on locks of three levels: what several seeds do at once, each does alone."""

import gc
import weakref
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import AGENT, LOCK, OPTIONS, TINY, lock

from e3rl.envs.opening import open_environment
from e3rl.envs.spec import spec_of
from e3rl.models.fit import ModelSet
from e3rl.neural.compiled_agent import KEPT, CompiledAgent, compiled_agent
from e3rl.neural.slots import OneSeed
from e3rl.planners.base import Policy
from e3rl.replay import Replay
from e3rl.runs.lanes import seed_keys, side_by_side
from e3rl.runs.settings import changed
from e3rl.values.update import QState

HORIZON = 3
ENVS = side_by_side([lock(3), lock(4)])
KEYS = seed_keys([3, 4])


def epoch_of(count, t):
    return jnp.full(count, t, jnp.int32)


def lane(tree, i):
    return jax.tree.map(lambda leaf: leaf[i : i + 1], tree)


class Run(NamedTuple):
    """What some epochs of Algorithm 1 made."""

    models: ModelSet
    value: QState
    replay: Replay
    v_explore: list
    explored: list


def run(begin, envs, keys):
    models, value, replay = begin
    v_explore, explored = [], []
    for t in range(2):
        at = epoch_of(keys.shape[0], t)
        policy, v = AGENT.plan(models, value, replay, keys, at)
        value = policy.value
        policy, replay, episodes = AGENT.collect(envs, policy, replay, keys, at)
        models, _ = AGENT.update_models(policy.models, replay, keys, at)
        v_explore.append(v)
        explored.append(episodes)
    return Run(models, value, replay, v_explore, explored)


def assert_same(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jnp.issubdtype(a.dtype, jnp.floating):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
        else:
            np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def begin():
    return AGENT.init(KEYS)


@pytest.fixture(scope="module")
def both(begin):
    return run(begin, ENVS, KEYS)


def test_several_lanes_are_single_lanes_side_by_side(begin, both):
    for i in range(2):
        assert_same(run(lane(begin, i), lane(ENVS, i), KEYS[i : i + 1]), lane(both, i))


def test_lanes_change_places(begin, both):
    """What a lane does is a matter of its own seed and environment, not of where it stands."""
    turned = jax.tree.map(lambda leaf: leaf[::-1], (begin, ENVS))
    assert_same(run(*turned, KEYS[::-1]), jax.tree.map(lambda leaf: leaf[::-1], both))


def test_epochs_fill_the_buffer_and_report_their_episodes(both):
    replay, (first, second) = both.replay, both.explored
    np.testing.assert_array_equal(replay.size, 2 * HORIZON)
    np.testing.assert_array_equal(replay.recent, HORIZON)
    np.testing.assert_array_equal(replay.rows.time[:, : 2 * HORIZON], [list(range(HORIZON)) * 2] * 2)
    rewards = np.asarray(replay.rows.reward)[:, : 2 * HORIZON].reshape(2, 2, HORIZON).sum(axis=-1)
    for i, episodes in enumerate((first, second)):
        np.testing.assert_array_equal(episodes.lengths, HORIZON)
        np.testing.assert_allclose(episodes.returns[:, 0], rewards[:, i], atol=1e-6)
        assert np.all(np.asarray(episodes.disagreement) > 0)
        start = np.asarray(replay.rows.obs)[:, i * HORIZON]
        np.testing.assert_array_equal(episodes.start[:, 0], start)
    assert replay.rows.obs.dtype == np.int8  # zeros and ones take a byte each


def test_v_explore_is_unbounded_before_the_first_episode_and_known_after(both):
    assert np.all(np.isinf(both.v_explore[0]))
    assert np.all(np.isfinite(both.v_explore[1]))


def test_training_moves_models_and_keeps_their_anchors(begin, both):
    before, after = begin[0], both.models
    np.testing.assert_array_equal(before.anchor.weights.head, after.anchor.weights.head)
    assert np.any(np.asarray(before.members.weights.head != after.members.weights.head))


def test_an_epoch_leaves_types_as_they_were(begin, both):
    """Otherwise the second epoch would have everything compiled again."""
    for before, after in zip(jax.tree.leaves(begin), jax.tree.leaves(both[:3]), strict=True):
        assert (before.shape, before.dtype, before.weak_type) == (after.shape, after.dtype, after.weak_type)


def test_actions_are_uniform_until_there_are_so_many_transitions(begin, both):
    """As they were in the first epoch, and planned from then on."""
    agent = CompiledAgent(AGENT.spec, changed(TINY, {"explore.uniform_transitions": 2 * HORIZON}))
    policy = lane(Policy(both.models, both.value, both.replay.scale), 0)
    at, one = epoch_of(1, 2), (lane(ENVS, 0), policy)

    def actions(which, replay, *fresh):
        *_, collected, _ = which(*one, replay, KEYS[:1], at, *fresh)
        size = int(replay.size[0])
        return np.asarray(collected.rows.action)[0, size : size + HORIZON].tolist()

    enough = lane(both.replay, 0)
    few = enough._replace(size=enough.size - 1)
    uniform, planned = (actions(AGENT._collect, enough, fresh) for fresh in (True, False))
    assert uniform != planned
    assert actions(agent.collect, few) == uniform
    assert actions(agent.collect, enough) == planned
    assert actions(AGENT.collect, few) == planned


def test_agents_of_equal_settings_share_what_is_compiled():
    spec = open_environment(LOCK, {**OPTIONS, "seed": 9}).spec
    assert compiled_agent(spec, TINY) is AGENT
    assert compiled_agent(spec, changed(TINY, {"fit.members": 3})) is not AGENT
    longer = spec_of(lock(), time_limit=2)
    assert compiled_agent(longer, TINY) is not AGENT


def test_the_latest_agents_outlive_their_runs():
    """Who trains in a loop compiles once; who tries many settings is not left with all of their programs."""
    settings = [changed(TINY, {"fit.updates": updates}) for updates in range(50, 50 + KEPT + 1)]
    first, *others = [weakref.ref(compiled_agent(AGENT.spec, config)) for config in settings]
    gc.collect()
    assert first() is None
    for kept, config in zip(others, settings[1:], strict=True):
        assert kept() is compiled_agent(AGENT.spec, config)


def test_capacity_holds_every_episode_of_a_run():
    one = OneSeed(AGENT.spec, changed(TINY, {"explore.episodes": 5, "explore.per_epoch": 2}))
    assert one.epochs == 3
    spare = 2  # an epoch's worth, for what is kept of one that an environment broke
    assert one.capacity == (6 + spare) * HORIZON
    rounds = changed(one.config, {"rounds.count": 2, "rounds.episodes": 5})
    assert OneSeed(AGENT.spec, rounds).capacity == (6 + spare + 10) * HORIZON
    by_ratio = changed(TINY, {"explore.episodes": 0, "explore.ratio": 4})
    assert OneSeed(AGENT.spec, by_ratio).epochs == 4 * HORIZON
