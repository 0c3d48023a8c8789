"""Steps that are kept for another agent: what goes in comes out, also after a break."""

import numpy as np
import pytest
from gymnasium import spaces

from e3rl.envs.encoding import Encoding
from e3rl.tabular import log as log_module
from e3rl.tabular.log import Log, compact, restored

SPACE = spaces.Dict(
    bits=spaces.MultiBinary(11),
    number=spaces.Box(-np.inf, np.inf, (2,), np.float32),
    room=spaces.MultiDiscrete([3, 5]),
)
ENCODING = Encoding(SPACE)
IMAGE = Encoding(spaces.Box(0, 255, (4, 5, 3), np.uint8))


def seen(seed):
    SPACE.seed(seed)
    return ENCODING.encode(SPACE.sample())


@pytest.mark.parametrize("seed", range(5))
def test_an_observation_comes_back_as_it_was(seed):
    obs = seen(seed)
    frame = compact(ENCODING, obs)
    assert len(frame) == 2 + 2 * 4 + 2 * 4  # 11 bits, two numbers, two categories
    np.testing.assert_array_equal(restored(ENCODING, frame), obs)


def test_an_image_comes_back_as_it_was():
    IMAGE.space.seed(0)
    obs = IMAGE.encode(IMAGE.space.sample())
    np.testing.assert_array_equal(restored(IMAGE, compact(IMAGE, obs)), obs)


def filled(log, steps, start=0):
    rng = np.random.default_rng(start)
    for i in range(start, start + steps):
        log.add(seen(i % 7), int(rng.integers(4)), i % 10, float(i), seen((i + 1) % 7), i % 10 == 9)
    return log


def test_steps_in_order_and_equal_observations_once():
    log = filled(Log(ENCODING), 150)
    steps = log.steps()
    assert log.size == len(steps.time) == 150
    assert log.arrays()["log_frames"].shape[0] == 7
    assert steps.episodes == 15
    np.testing.assert_array_equal(steps.reward, np.arange(150))
    np.testing.assert_array_equal(steps.obs[13], seen(13 % 7))
    np.testing.assert_array_equal(steps.next_obs[13], seen(0))
    np.testing.assert_array_equal(np.flatnonzero(steps.terminated), np.arange(9, 150, 10))
    assert (steps.action.dtype, steps.obs.dtype) == (np.int32, np.float32)


def test_restored_it_goes_on():
    whole, first, again = filled(Log(ENCODING), 90), filled(Log(ENCODING), 40), Log(ENCODING)
    arrays = {**first.arrays(), "something": np.zeros(1)}
    again.restore(arrays)
    assert list(arrays) == ["something"]
    rng = np.random.default_rng(0)
    rng.integers(4, size=40)
    for i in range(40, 90):
        again.add(seen(i % 7), int(rng.integers(4)), i % 10, float(i), seen((i + 1) % 7), i % 10 == 9)
    for name, array in whole.arrays().items():
        np.testing.assert_array_equal(again.arrays()[name][:40], array[:40], err_msg=name)
    np.testing.assert_array_equal(again.steps().obs, whole.steps().obs)


def test_it_says_when_it_is_full(monkeypatch):
    log = Log(ENCODING)
    assert not log.full
    filled(log, 10)
    assert not log.full
    monkeypatch.setattr(log_module, "LARGEST", 100)
    assert log.full
