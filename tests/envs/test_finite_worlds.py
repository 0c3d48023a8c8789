"""RiverSwim, the chain and four rooms: their steps against their tables and against moves made by hand, their optimum
against trying out every way to play."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.envs.chain import Chain, ChainState
from e3rl.envs.encoding import Encoding
from e3rl.envs.four_rooms import OBSERVATIONS, FourRooms, RoomsState, four_rooms
from e3rl.envs.induction import best_values
from e3rl.envs.opening import open_environment
from e3rl.envs.river_swim import RiverState, RiverSwim
from e3rl.types import UserError

COPIES = 4_000


@eqx.filter_jit
def step_all(env, states, actions, keys):
    return eqx.filter_vmap(env.step)(keys, states, actions)


def at(env, place):
    time = jnp.int32(0)
    if isinstance(env, FourRooms):
        return RoomsState(jnp.array(divmod(place, env.size), jnp.int32), time)
    return (RiverState if isinstance(env, RiverSwim) else ChainState)(jnp.int32(place), time)


def open_places(env):
    if isinstance(env, FourRooms):
        goal = env.goal[0] * env.size + env.goal[1]
        return [place for place in np.flatnonzero(~env.walls).tolist() if place != goal]
    return list(range(env.n))


@pytest.mark.parametrize(
    "env",
    [RiverSwim(5), Chain(4, decoy=0.3, slip=0.2), FourRooms(7, slip=0.4)],
    ids=lambda e: type(e).__name__,
)
def test_steps_follow_the_table(env):
    chance, gain = env.transition_table()
    np.testing.assert_allclose(chance[open_places(env)].sum(axis=-1), 1.0)
    pairs = list(itertools.product(open_places(env)[:6], range(env.num_actions)))
    each = jax.tree.map(lambda *leaves: np.stack(leaves), *(at(env, s) for s, _ in pairs))
    states = jax.tree.map(lambda leaf: jnp.asarray(np.repeat(leaf, COPIES, axis=0)), each)
    actions = jnp.repeat(jnp.array([a for _, a in pairs], jnp.int32), COPIES)
    keys = jax.random.split(jax.random.key(0), len(actions))
    _, reached, reward, _, _ = step_all(env, states, actions, keys)
    reached, reward = np.asarray(reached).reshape(-1, COPIES), np.asarray(reward).reshape(-1, COPIES)
    for (s, a), places, paid in zip(pairs, reached, reward, strict=True):
        share = np.bincount(places, minlength=chance.shape[-1]) / COPIES
        np.testing.assert_array_equal(share > 0, chance[s, a] > 0)
        np.testing.assert_allclose(share, chance[s, a], atol=0.04)
        assert paid.mean() == pytest.approx(gain[s, a], abs=0.04)


def test_the_river_of_six_places():
    """Osband, Russo and Van Roy (2013), written out."""
    chance, gain = RiverSwim(6).transition_table()
    swim = (
        np.diag([0.4, 0.6, 0.6, 0.6, 0.6, 0.6])
        + np.diag([0.6] + 4 * [0.35], 1)
        + np.diag(4 * [0.05] + [0.4], -1)
    )
    np.testing.assert_allclose(chance[:, 1], swim)
    drift = np.zeros((6, 6))
    drift[range(6), [0, 0, 1, 2, 3, 4]] = 1.0
    np.testing.assert_allclose(chance[:, 0], drift)
    assert np.argwhere(gain).tolist() == [[0, 0], [5, 1]]
    assert (gain[0, 0], gain[5, 1]) == (0.005, 1.0)
    assert RiverSwim(6).time_limit == 120
    assert RiverSwim(20).time_limit == 400


def test_the_optimum_of_the_river_is_to_swim():
    env = RiverSwim(6)
    chance, gain = env.transition_table()
    swims = drifts = np.zeros(6)
    for _ in range(env.time_limit):
        swims, drifts = gain[:, 1] + chance[:, 1] @ swims, gain[:, 0] + chance[:, 0] @ drifts
    assert drifts[0] == pytest.approx(0.6)
    assert swims[0] <= env.optimal_return <= swims[0] + 0.1  # at the end there is no time left to get there
    assert RiverSwim(6, horizon=5).optimal_return == pytest.approx(5 * 0.005)


def test_the_chain_without_slips():
    env = Chain(20)
    assert (env.time_limit, env.optimal_return) == (
        29,
        pytest.approx(12.0),
    )  # 18 steps to the end; the 18th is paid
    assert Chain(20, horizon=10).optimal_return == pytest.approx(0.01)
    assert Chain(5, decoy=2.0, horizon=7).optimal_return == pytest.approx(14.0)


def brute_force(env, start, horizon):
    """The best value over all ways to play, a tree without any table of values."""
    chance, gain = env.transition_table()

    def value(s, left):
        if left == 0:
            return 0.0
        return max(
            gain[s, a] + sum(chance[s, a, t] * value(t, left - 1) for t in np.flatnonzero(chance[s, a]))
            for a in range(env.num_actions)
        )

    return value(start, horizon)


@pytest.mark.parametrize(
    ("env", "start"),
    [
        (RiverSwim(3, horizon=5), 0),
        (Chain(4, decoy=0.4, slip=0.3, horizon=6), 1),
        (FourRooms(7, slip=0.0, time_limit=6), 8),
    ],
    ids=["river", "chain", "rooms"],
)
def test_the_optimum_by_brute_force(env, start):
    assert env.optimal_return == pytest.approx(brute_force(env, start, env.time_limit))


def test_best_values_by_hand():
    chance = np.array([[[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]])
    gain = np.array([[0.0, 0.1], [0.0, 1.0]])
    np.testing.assert_allclose(best_values(chance, gain, 1), [0.1, 1.0])
    np.testing.assert_allclose(best_values(chance, gain, 3), [2.0, 3.0])


ROOMS = """
#############
#.....#.....#
#.....#.....#
#...........#
#.....#.....#
#.....#.....#
##.####.....#
#.....###.###
#.....#.....#
#.....#.....#
#...........#
#.....#.....#
#############
"""


def test_the_rooms_are_those_of_the_paper():
    drawn = "\n".join("".join("#" if wall else "." for wall in row) for row in four_rooms(13))
    assert drawn == ROOMS.strip()


@pytest.mark.parametrize("size", range(7, 16))
def test_the_goal_can_be_reached_whatever_the_size(size):
    shortest = 2 * (size - 3)
    assert FourRooms(size, time_limit=4 * size).optimal_return == 1.0
    assert FourRooms(size, time_limit=shortest - 1).optimal_return == 0.0


def test_moves_walls_and_the_goal_by_hand():
    env = FourRooms(7, time_limit=3)
    step = eqx.filter_jit(env.step)
    key, state = jax.random.key(0), env.reset(jax.random.key(0))[0]
    for action, cell in ((0, 8), (1, 9), (2, 16)):
        state, obs, reward, terminated, truncated = step(key, state, jnp.int32(action))
        assert (int(obs), float(reward), bool(terminated)) == (cell, 0.0, False)
    assert bool(truncated)
    goal = RoomsState(jnp.array([5, 4], jnp.int32), jnp.int32(2))
    _, obs, reward, terminated, truncated = step(key, goal, jnp.int32(1))
    assert (int(obs), float(reward), bool(terminated), bool(truncated)) == (40, 1.0, True, False)


def test_every_observation_shows_the_same_cell():
    seen = {}
    for name in OBSERVATIONS:
        env = FourRooms(7, observation=name)
        obs = env._observe(jnp.array([2, 3], jnp.int32))
        assert env.observation_space.contains(np.asarray(obs, env.observation_space.dtype)[()])
        seen[name] = np.asarray(obs)
    assert seen["category"] == 17
    assert np.flatnonzero(seen["bits"]).tolist() == np.flatnonzero(seen["floats"]).tolist() == [17]
    np.testing.assert_allclose(seen["coordinates"], [2 / 6, 3 / 6])
    image = seen["image"]
    np.testing.assert_array_equal(image[:, :, 0] > 0, four_rooms(7))
    assert np.argwhere(image[:, :, 1]).tolist() == [[2, 3]]
    assert np.argwhere(image[:, :, 2]).tolist() == [[5, 5]]
    kinds = {name: {part.kind for part in Encoding(FourRooms(7, observation=name).observation_space).parts}
             for name in OBSERVATIONS}  # fmt: skip
    assert kinds["category"] == {"categorical"}
    assert kinds["bits"] == {"binary"}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RiverSwim(2), "n must be at least 3, got 2"),
        (lambda: RiverSwim(6, horizon=-1), "horizon must not be negative"),
        (lambda: Chain(2), "n must be at least 3"),
        (lambda: Chain(slip=1.5), "slip must be between 0 and 1"),
        (lambda: Chain(horizon=-2), "horizon must not be negative"),
        (lambda: FourRooms(6), "size must be at least 7, border included, got 6"),
        (lambda: FourRooms(slip=-0.1), "slip must be between 0 and 1"),
        (lambda: FourRooms(time_limit=0), "time_limit must be at least 1"),
        (lambda: FourRooms(observation="words"), "observation must be one of category, bits, .* got 'words'"),
    ],
)
def test_bad_options(make, words):
    with pytest.raises(UserError, match=words):
        make()


def test_options_by_id_and_the_optimum_in_the_spec():
    spec = open_environment("e3rl/RiverSwim-v0", {"n": 20}).spec
    assert (spec.horizon, spec.actions) == (400, 2)
    assert spec.optimal_return == pytest.approx(RiverSwim(20).optimal_return)
    assert open_environment("e3rl/FourRooms-v0", {"slip": 0.3}).spec.optimal_return == pytest.approx(
        FourRooms(slip=0.3).optimal_return
    )
