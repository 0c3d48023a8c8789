"""MountainCar and Acrobot against Gymnasium's own, step for step."""

from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.envs.acrobot import Acrobot, AcrobotState, wrap
from e3rl.envs.mountain_car import MountainCar, MountainCarState

STEPS = 1000
# Acrobot is chaotic: Gymnasium's own, started 1e-15 away, is off by more than 1e-5 after 180 steps of one of
# these episodes. So its free run is set to Gymnasium's state again every 50 steps, MountainCar's only where an
# episode starts.
FREE_STEPS = {MountainCar: STEPS, Acrobot: 50}
KEY = jax.random.key(0)  # both are deterministic: `step` uses no randomness


class Record(NamedTuple):
    """What Gymnasium did: row t is the step taken from `state[t]`."""

    state: np.ndarray
    elapsed: np.ndarray
    action: np.ndarray
    obs: np.ndarray
    reward: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray


def as_state(ours, row, time=0):
    time = jnp.array(time, jnp.int32)
    if isinstance(ours, MountainCar):
        return MountainCarState(row[0], row[1], time)
    return AcrobotState(row, time)


def record(env_id, seed, swing, steps=STEPS):
    """Play at random; with chance `swing` push the way it moves already, which reaches the goal at times."""
    env = gymnasium.make(env_id, disable_env_checker=True)
    draw = np.random.default_rng(seed)
    env.reset(seed=seed)
    rows, elapsed = [], 0
    for _ in range(steps):
        state = np.array(env.unwrapped.state, np.float64)
        action = 1 + int(np.sign(state[-1])) if draw.random() < swing else int(draw.integers(3))
        obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((state, elapsed, action, obs, reward, terminated, truncated))
        elapsed += 1
        if terminated or truncated:
            env.reset()
            elapsed = 0
    return Record(*(np.array(column) for column in zip(*rows, strict=True)))


@pytest.fixture(
    scope="module", params=[(MountainCar(), "MountainCar-v0"), (Acrobot(), "Acrobot-v1")], ids=lambda p: p[1]
)
def pair(request):
    return request.param


@pytest.fixture(
    scope="module", params=[(0, 0.0), (1, 0.0), (2, 0.8), (3, 0.9)], ids=lambda p: f"seed{p[0]}-swing{p[1]}"
)
def played(request, pair):
    return record(pair[1], *request.param), request.param[1]


def expected_reward(ours, theirs):
    """Gymnasium's MountainCar pays −1 on the step that reaches the goal as well; ours pays 0 there."""
    return theirs.reward + theirs.terminated if isinstance(ours, MountainCar) else theirs.reward


def test_the_recordings_hold_both_kinds_of_ending(played):
    theirs, swing = played
    assert theirs.truncated.any() if swing == 0.0 else theirs.terminated.any()


def test_each_float32_step_from_gymnasiums_state(pair, played):
    ours, theirs = pair[0], played[0]

    def step(row, action):
        return ours.step(KEY, as_state(ours, row), action)[1:4]

    obs, reward, terminated = jax.jit(jax.vmap(step))(
        jnp.array(theirs.state, jnp.float32), jnp.array(theirs.action, jnp.int32)
    )
    assert obs.dtype == jnp.float32
    np.testing.assert_allclose(obs, theirs.obs, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(terminated, theirs.terminated)
    np.testing.assert_array_equal(reward, expected_reward(ours, theirs))


def test_free_running_in_float64(pair, played):
    ours, theirs = pair[0], played[0]

    def step(state, inputs):
        row, elapsed, action = inputs
        again = elapsed % FREE_STEPS[type(ours)] == 0
        state = jax.tree.map(lambda new, old: jnp.where(again, new, old), as_state(ours, row, elapsed), state)
        state, *rest = ours.step(KEY, state, action)
        return state, (state, *rest)

    with jax.enable_x64(True):
        rows = jnp.array(theirs.state)
        assert rows.dtype == jnp.float64
        run = jax.jit(lambda *inputs: jax.lax.scan(step, as_state(ours, inputs[0][0]), inputs)[1])
        out = run(rows, jnp.array(theirs.elapsed), jnp.array(theirs.action))
        state, obs, reward, terminated, truncated = jax.tree.map(np.asarray, out)
    np.testing.assert_allclose(obs, theirs.obs, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(terminated, theirs.terminated)
    np.testing.assert_array_equal(truncated, theirs.truncated)
    np.testing.assert_array_equal(reward, expected_reward(ours, theirs))
    assert jax.tree.leaves(state)[0].dtype == np.float64


@pytest.mark.parametrize("state", [(-1.19, -0.05), (-1.2, 0.0), (0.59, 0.06), (0.49, 0.02), (-0.5, 0.0699)])
@pytest.mark.parametrize("action", [0, 1, 2])
def test_mountain_car_at_its_bounds(state, action):
    theirs = gymnasium.make("MountainCar-v0", disable_env_checker=True)
    theirs.reset(seed=0)
    theirs.unwrapped.state = state
    wanted, _, ended, _, _ = theirs.step(action)
    ours = MountainCar()
    _, obs, reward, terminated, _ = ours.step(KEY, as_state(ours, jnp.array(state)), jnp.int32(action))
    np.testing.assert_allclose(obs, wanted, rtol=0, atol=1e-6)
    assert bool(terminated) == ended
    assert float(reward) == (0.0 if ended else -1.0)


def test_acrobot_at_its_bounds():
    """Fast enough to wrap both angles and to clip both speeds."""
    theirs = gymnasium.make("Acrobot-v1", disable_env_checker=True)
    theirs.reset(seed=0)
    for row in [(3.1, -3.0, 12.5, -28.2), (-3.1, 3.1, -12.5, 28.2), (3.0, 3.1, 12.5, 28.2)]:
        theirs.unwrapped.state = np.array(row)
        wanted = theirs.step(2)[0]
        state, obs, *_ = Acrobot().step(KEY, as_state(Acrobot(), jnp.array(row)), jnp.int32(2))
        np.testing.assert_allclose(obs, wanted, rtol=0, atol=1e-4)
        np.testing.assert_allclose(state.joints, theirs.unwrapped.state, rtol=0, atol=1e-4)
        assert Acrobot().observation_space.contains(np.asarray(obs))


def test_wrap_takes_off_whole_turns():
    angles = np.array([0.0, 3.0, -3.0, 3.2, -3.2, 9.5, -9.5, 20.0])
    turns = np.array([0, 0, 0, 1, -1, 2, -2, 3])
    np.testing.assert_allclose(wrap(jnp.array(angles)), angles - 2 * np.pi * turns, atol=1e-5)
    ends = jnp.array([np.pi, -np.pi])
    np.testing.assert_array_equal(wrap(ends), ends)


def test_spaces_and_limits_are_gymnasiums(pair):
    ours, theirs = pair[0], gymnasium.make(pair[1], disable_env_checker=True)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.time_limit == theirs.spec.max_episode_steps


def test_starts_are_drawn_as_gymnasium_draws_them(pair):
    """The ranges agree, and so do the quartiles of a few thousand draws."""
    ours, theirs = pair[0], gymnasium.make(pair[1], disable_env_checker=True)
    wanted = []
    for i in range(2000):
        theirs.reset(seed=i)
        wanted.append(theirs.unwrapped.state)
    state, _ = jax.jit(jax.vmap(ours.reset))(jax.random.split(KEY, 4000))
    drawn = np.stack(state[:2], axis=1) if isinstance(ours, MountainCar) else np.asarray(state.joints)
    for quantile in (0.0, 0.25, 0.5, 0.75, 1.0):
        gap = np.quantile(drawn, quantile, axis=0) - np.quantile(wanted, quantile, axis=0)
        assert np.abs(gap).max() < 0.012
    assert not np.asarray(state.time).any()


@pytest.mark.parametrize("kind", [MountainCar, Acrobot])
def test_scaled_observations_fill_the_unit_box(kind):
    plain, scaled = kind(), kind(scale_observation=True)
    low, high = plain.observation_space.low, plain.observation_space.high
    assert scaled.observation_space == gymnasium.spaces.Box(0.0, 1.0, low.shape, np.float32)
    _, obs = plain.reset(KEY)
    np.testing.assert_allclose(scaled.reset(KEY)[1], (obs - low) / (high - low), atol=1e-6)
    top = [0.6, 0.07] if kind is MountainCar else [0.0, np.pi, 4 * np.pi, 9 * np.pi]
    corner = as_state(plain, jnp.array(top))
    wanted = [1.0, 1.0] if kind is MountainCar else [1.0, 0.5, 0.0, 0.5, 1.0, 1.0]
    seen = np.asarray(scaled._observe(corner))
    np.testing.assert_allclose(seen, wanted, atol=1e-6)
    assert scaled.observation_space.contains(seen)


@pytest.mark.parametrize("kind", [MountainCar, Acrobot])
def test_a_time_limit_of_ones_own(kind):
    env = kind(time_limit=3)
    state, _ = env.reset(KEY)
    flags = []
    for _ in range(3):
        state, _, _, terminated, truncated = env.step(KEY, state, jnp.int32(1))
        flags.append((bool(terminated), bool(truncated)))
    assert flags == [(False, False), (False, False), (False, True)]
    with pytest.raises(ValueError, match="time_limit"):
        kind(time_limit=0)
