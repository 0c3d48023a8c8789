"""Neural-E³'s compiled slots on a lock of three levels: what several seeds do at once, each does alone."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.envs.lock import CombinationLock
from e3rl.models.fit import ModelSet
from e3rl.values.network import QState
from e3rl.neural.acting import Policy
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.lanes import Lanes, key_for, over_lanes
from e3rl.replay import Replay

HORIZON, SEEDS = 3, (0, 1)
TINY = NeuralE3Config(
    explore_episodes=6, episodes_per_epoch=2, ensemble_size=2, hidden=8, model_updates=2, model_batch=4,
    value_updates=2, value_batch=4, exploit_updates=2, playouts=4, particles=2,
)  # fmt: skip


def make_env(seed):
    return CombinationLock(HORIZON, antishaped=seed == 1, noise_bits=1, seed=seed)


ENVS = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(make_env(seed) for seed in SEEDS))
KEYS = jnp.stack([jax.random.key(seed) for seed in SEEDS])


def epoch_of(count, t):
    return jnp.full(count, t, jnp.int32)


def lane(tree, i):
    return jax.tree.map(lambda leaf: leaf[i : i + 1], tree)


def start(lanes):
    """What `lanes.init` makes for two seeds, with weights from numpy: drawing them takes seconds to compile."""
    rng = np.random.default_rng(0)
    models, value, _ = eqx.filter_eval_shape(lanes.fresh, jax.random.key(0))

    def fill(leaf):
        shape = (len(SEEDS), *leaf.shape)
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            return jnp.array(rng.normal(0.0, 0.5, shape), leaf.dtype)
        return jnp.zeros(shape, leaf.dtype)

    members, network = jax.tree.map(fill, models.members), jax.tree.map(fill, value.online)
    optimiser, value = jax.tree.map(
        lambda leaf: jnp.zeros((len(SEEDS), *leaf.shape), leaf.dtype), (models.optimiser, value)
    )
    empty = Replay.empty(lanes.capacity, jnp.zeros(lanes.encoding.shape, lanes.storage))
    return (
        ModelSet(members, members, optimiser),
        value._replace(online=network, target=network),
        jax.tree.map(lambda leaf: jnp.stack([leaf] * len(SEEDS)), empty),
    )


class Run(NamedTuple):
    """What some epochs of Algorithm 1 made."""

    models: ModelSet
    value: QState
    replay: Replay
    v_explore: list
    explored: list


def run(lanes, begin, envs, keys):
    models, value, replay = begin
    v_explore, explored = [], []
    for t in range(2):
        at = epoch_of(keys.shape[0], t)
        policy, v = lanes.plan(models, value, replay, keys, at)
        value = policy.value
        replay, episodes = lanes.collect(envs, policy, replay, keys, at)
        models, _ = lanes.update_models(models, replay, keys, at)
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
def lanes():
    return Lanes(make_env(0), TINY)


@pytest.fixture(scope="module")
def begin(lanes):
    return start(lanes)


@pytest.fixture(scope="module")
def both(lanes, begin):
    return run(lanes, begin, ENVS, KEYS)


@pytest.mark.parametrize("i", [0, 1])
def test_several_lanes_are_single_lanes_side_by_side(lanes, begin, both, i):
    assert_same(run(lanes, lane(begin, i), lane(ENVS, i), KEYS[i : i + 1]), lane(both, i))


def test_lanes_change_places(lanes, begin, both):
    """What a lane does is a matter of its own seed and environment, not of where it stands."""
    turned = jax.tree.map(lambda leaf: leaf[::-1], (begin, ENVS))
    assert_same(run(lanes, *turned, KEYS[::-1]), jax.tree.map(lambda leaf: leaf[::-1], both))


def test_epochs_fill_the_buffer_and_report_their_episodes(both):
    replay, first = both.replay, both.explored[0]
    np.testing.assert_array_equal(replay.size, 2 * 2 * HORIZON)
    np.testing.assert_array_equal(replay.recent, 2 * HORIZON)
    np.testing.assert_array_equal(replay.rows.time[:, : 4 * HORIZON], [list(range(HORIZON)) * 4] * 2)
    np.testing.assert_array_equal(first.lengths, HORIZON)
    rewards = np.asarray(replay.rows.reward)[:, : 2 * HORIZON].reshape(2, 2, HORIZON)
    np.testing.assert_allclose(first.returns, rewards.sum(axis=-1), atol=1e-6)
    assert np.all(np.asarray(first.disagreement) > 0)


def test_v_explore_is_unbounded_before_the_first_episode_and_known_after(both):
    assert np.all(np.isinf(both.v_explore[0]))
    assert np.all(np.isfinite(both.v_explore[1]))


def test_training_moves_models_and_keeps_their_anchors(begin, both):
    before, after = begin[0], both.models
    np.testing.assert_array_equal(before.anchor.weights.head, after.anchor.weights.head)
    assert np.any(np.asarray(before.members.weights.head != after.members.weights.head))


@pytest.mark.parametrize("planner", ["mcts", "uniform"])
def test_other_planners_explore(begin, planner):
    config = NeuralE3Config(**{**vars(TINY), "planner": planner, "leaf": "zero"})
    lanes = Lanes(make_env(0), config)
    models, value, replay = lane(begin, 0)
    envs, keys = lane(ENVS, 0), KEYS[:1]
    # mctx averages with integer counts, which strict promotion forbids.
    with jax.numpy_dtype_promotion("standard"):
        for t in range(2):
            policy, v_explore = lanes.plan(models, value, replay, keys, epoch_of(1, t))
            assert np.isinf(v_explore[0]) == (t == 0 or planner == "uniform")
            replay, episodes = lanes.collect(envs, policy, replay, keys, epoch_of(1, t))
    assert int(replay.size[0]) == 2 * 2 * HORIZON
    assert np.all(np.isfinite(episodes.disagreement))
    assert set(np.unique(np.asarray(replay.rows.action)[0, : 4 * HORIZON])) <= set(range(4))
    assert not lanes.needs_value
    for a, b in zip(jax.tree.leaves(policy), jax.tree.leaves((models, value, replay.scale)), strict=True):
        np.testing.assert_array_equal(a, b)  # nothing was planned ahead


def test_capacity_holds_every_episode_of_a_run(lanes):
    assert lanes.epochs == 3
    spare = 2  # an epoch's worth, for what is kept of one that an environment broke
    assert lanes.capacity == (6 + spare) * HORIZON
    rounds = Lanes(make_env(0), NeuralE3Config(**{**vars(TINY), "exploit_rounds": 2, "round_episodes": 5}))
    assert rounds.capacity == (6 + spare + 10) * HORIZON


def test_over_lanes_shares_plain_numbers():
    added = over_lanes(lambda x, n: x + n)(jnp.array([1.0, 2.0]), 3.0)
    np.testing.assert_array_equal(added, [4.0, 5.0])
    np.testing.assert_array_equal(over_lanes(lambda x, n: x + n)(jnp.array([1.0]), 3.0), [4.0])


def test_keys_differ_by_seed_name_and_index():
    names = [
        "models",
        "value",
        "collect",
        "fit models",
        "fit value",
        "v_explore",
        "exploit",
        "exploit episodes",
    ]
    keys = [key_for(KEYS[s], name, index) for s in range(2) for name in names for index in range(3)]
    data = {tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in keys}
    assert len(data) == len(keys)
    same = key_for(jax.random.key(0), "collect", jnp.array(2))
    np.testing.assert_array_equal(
        jax.random.key_data(same), jax.random.key_data(key_for(KEYS[0], "collect", 2))
    )


@pytest.mark.parametrize(("wanted", "best"), [(2.0, 2.0), (9.0, 3.0), (-1.0, 1.0)])
def test_of_several_snapshots_the_one_is_kept_that_collects_most_in_imagination(monkeypatch, wanted, best):
    """Every stretch of training adds 1 to a weight, and the imagined return is the higher the closer it is to
    `wanted`."""
    lanes = Lanes(make_env(0), dataclasses.replace(TINY, snapshots=3, exploit_updates=6))
    models, value, replay = (lane(part, 0) for part in start(lanes))
    models, value, replay = jax.tree.map(lambda leaf: leaf[0], (models, value, replay))
    asked = []

    def fit(policy, value, replay, key, updates, table):
        asked.append(updates)
        return value._replace(
            online=eqx.tree_at(lambda q: q.hidden_bias, value.online, value.online.hidden_bias + 1.0)
        )

    def judged(network, members, starts, horizon, key):
        return -jnp.abs(network.hidden_bias[0] - begun - wanted)

    begun = value.online.hidden_bias[0]
    monkeypatch.setattr(lanes, "_fit_exploit", fit)
    monkeypatch.setattr(lanes, "_table", lambda *_: None)
    monkeypatch.setattr("e3rl.neural.lanes.imagined_return", judged)
    untrained = Policy(models, value, replay.scale)
    trained = lanes._train_exploit(untrained, replay, jax.random.key(0), 0, 6, lanes.config.snapshots)
    assert float(trained.value.online.hidden_bias[0] - begun) == pytest.approx(best)
    assert set(asked) == {2}
