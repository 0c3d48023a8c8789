"""What a baseline sees of an observation: bounded entries between 0 and 1, and always numbers."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.baselines.observer import Observer, horizon_of
from e3rl.types import UserError

LARGEST = np.finfo(np.float32).max


def box(low, high, dtype=np.float32):
    return spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)


def test_bounded_entries_lie_between_0_and_1():
    observe = Observer(box([-2.0, 0.0, 5.0], [2.0, 10.0, 5.0]))
    np.testing.assert_allclose(observe(np.array([-1.0, 10.0, 5.0], np.float32), 0), [0.25, 1.0, 5.0])


@pytest.mark.parametrize(
    "bounds", [(-LARGEST, LARGEST), (-3.4e38, 3.4e38), (0.0, LARGEST), (-np.inf, np.inf), (-np.inf, LARGEST)]
)
@pytest.mark.parametrize("value", [0.0, -1.5, 7.0, 1e6])
def test_enormous_bounds_are_none(bounds, value):
    """As of CartPole's speeds: the span would overflow, and every speed would look like ½."""
    space = box([bounds[0], 0.0], [bounds[1], 4.0])
    seen = np.array([value, 1.0], np.float32)
    for obs in (seen, jnp.asarray(seen)):
        scaled = np.asarray(Observer(space)(obs, 0))
        assert np.isfinite(scaled).all()
        np.testing.assert_allclose(scaled, [value, 0.25])
        assert scaled.dtype == np.float32


def test_bounds_beyond_float32_are_none():
    observe = Observer(box([-1e300], [1e300], np.float64))
    np.testing.assert_allclose(observe(np.array([3.0]), 0), [3.0])


def test_cart_pole_is_seen_in_numbers_of_ordinary_size():
    env = gymnasium.make("CartPole-v1")
    observe = Observer(env.observation_space)
    obs, _ = env.reset(seed=0)
    for _ in range(5):
        scaled = observe(obs, 0)
        assert np.isfinite(scaled).all()
        assert np.abs(scaled).max() < 10.0
        obs, *_ = env.step(0)
    assert len({observe(np.array([0.0, v, 0.0, v], np.float32), 0).tobytes() for v in (0.0, 0.1, 0.2)}) == 3
    env.close()


@pytest.mark.parametrize("xp", [np, jnp])
def test_a_clock_is_a_one_hot_that_ends_with_the_episode(xp):
    observe = Observer(spaces.MultiBinary(2), horizon=3)
    assert observe.shape == (5,)
    bits = xp.asarray([1, 0], np.int8)
    for time, hands in enumerate([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]):
        seen = observe(bits, time)
        np.testing.assert_array_equal(seen, [1, 0, *hands])
        assert isinstance(seen, jax.Array) == (xp is jnp)


def test_where_there_can_be_no_clock():
    with pytest.raises(UserError, match="clock needs observations that are vectors, not images of shape"):
        Observer(spaces.Box(0, 255, (4, 4, 3), np.uint8), horizon=3)
    with pytest.raises(UserError, match="clock needs an environment with a time limit"):
        horizon_of(None, clock=True)
    assert horizon_of(None, clock=False) is None
    assert horizon_of(4, clock=False) is None
    assert horizon_of(4, clock=True) == 4
