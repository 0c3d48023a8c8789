"""Specs: equal where a compiled program serves both environments."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.envs.adapter import make
from e3rl.envs.encoding import Encoding
from e3rl.envs.lock import CombinationLock
from e3rl.envs.maze import Maze
from e3rl.envs.playing import PythonCopies
from e3rl.envs.registration import FunctionalGymEnv
from e3rl.envs.spec import DEFAULT_TIME_LIMIT, Spec, spec_of

BOX = spaces.Box(-1.0, 1.0, (2,))


def test_encodings_of_equal_spaces_are_equal():
    encoding, twin = Encoding(BOX), Encoding(spaces.Box(-1.0, 1.0, (2,)))
    assert encoding == twin
    assert hash(encoding) == hash(twin)
    others = [
        spaces.Box(-1.0, 2.0, (2,)),
        spaces.Box(-1.0, 1.0, (3,)),
        spaces.MultiBinary(2),
        spaces.Discrete(2),
        spaces.Discrete(2, start=1),
    ]
    assert len({encoding, *map(Encoding, others)}) == 6
    assert encoding != BOX


def test_specs_are_compared_by_what_programs_depend_on():
    spec = Spec("a", Encoding(BOX), 3, 10, optimal_return=1.0)
    same = Spec("b", Encoding(BOX), 3, 10)
    assert spec == same
    assert {spec: "compiled"}[same] == "compiled"
    assert len({spec, Spec("a", Encoding(BOX), 4, 10), Spec("a", Encoding(BOX), 3, 11)}) == 3
    assert spec != Spec("a", Encoding(spaces.MultiBinary(2)), 3, 10, optimal_return=1.0)


def test_functional_environments():
    lock = CombinationLock(4, antishaped=True)
    spec = spec_of(lock)
    assert (spec.name, spec.actions, spec.horizon) == ("CombinationLock", 4, 4)
    assert spec.encoding == Encoding(lock.observation_space)
    assert spec.optimal_return == lock.optimal_return
    assert spec == spec_of(CombinationLock(4, seed=1), name="another lock of that size")
    assert spec_of(Maze(5)).optimal_return is None  # every maze has its own


@pytest.mark.parametrize(
    ("env_id", "asked", "horizon"),
    [
        ("CartPole-v1", None, 500),
        ("CartPole-v1", 900, 500),
        ("CartPole-v1", 20, 20),
        ("CliffWalking-v1", None, DEFAULT_TIME_LIMIT),
        ("CliffWalking-v1", 5_000, 5_000),
    ],
)
def test_horizons(env_id, asked, horizon):
    made = make(env_id)
    assert spec_of(made, time_limit=asked).horizon == horizon
    copies = PythonCopies(made, time_limit=asked)
    assert (copies.time_limit, copies.own_limit) == (horizon, made.time_limit)
    assert copies.spec == spec_of(make(env_id), time_limit=asked)
    assert (copies.name, copies.observation_space) == (env_id, made.observation_space)


class Paying(gymnasium.Env):
    """Says what its best return is."""

    observation_space, action_space = BOX, spaces.Discrete(2)
    optimal_return = 7.0


def test_the_optimum_is_told_where_rewards_are_the_environments_own():
    env = Paying()
    assert spec_of(make(env)).optimal_return == 7.0
    limited = gymnasium.wrappers.TimeLimit(gymnasium.wrappers.OrderEnforcing(env), 5)
    assert PythonCopies(make(limited)).optimal_return == 7.0
    assert spec_of(make(gymnasium.wrappers.TransformReward(limited, np.sign))).optimal_return is None
    env.optimal_return = lambda state: 7.0
    assert spec_of(make(env)).optimal_return is None
    wrapped = gymnasium.wrappers.TimeLimit(FunctionalGymEnv(CombinationLock(3)), 2)
    assert spec_of(make(wrapped)).optimal_return is None
