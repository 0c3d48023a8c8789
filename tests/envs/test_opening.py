"""An environment is built once; copies are built, shared and closed as promised."""

import os
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.envs import open_environment
from e3rl.envs.adapter import GymnasiumEnvironment, make
from e3rl.envs.encoding import Encoding
from e3rl.envs.lock import CombinationLock
from e3rl.envs.registration import FunctionalGymEnv
from e3rl.envs.spec import DEFAULT_TIME_LIMIT
from e3rl.types import UserError

LOGGED = '''
import os
from pathlib import Path

import gymnasium


class Logged(gymnasium.Env):
    """Writes down when it is built and when it is closed; it cannot be built more than `most` times."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, log, most=100):
        self.log = Path(log)
        if self.log.read_text().count("built") == most:
            raise RuntimeError("no more of these")
        self.write("built")

    def write(self, what):
        with self.log.open("a") as file:
            file.write(f"{what} {id(self)} {os.getpid()}\\n")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, False, {}

    def close(self):
        self.write("closed")


gymnasium.register("Logged-v0", entry_point=Logged)
'''
ID = "logged_environment:Logged-v0"
NO_COPY = "an environment without an id cannot be copied: set copies=1, or register it"


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The log file of environments that other processes can import too."""
    (tmp_path / "logged_environment.py").write_text(LOGGED)
    monkeypatch.syspath_prepend(tmp_path)
    log = tmp_path / "log"
    log.touch()
    yield log
    sys.modules.pop("logged_environment", None)
    gymnasium.registry.pop("Logged-v0", None)


def entries(log, what):
    return [line.split()[1:] for line in log.read_text().splitlines() if line.startswith(what)]


def test_five_copies_are_five_constructions(log):
    opened = open_environment(ID, {"log": str(log)})
    assert isinstance(opened.made, GymnasiumEnvironment)
    copies = opened.copies(5)
    assert copies.copies == 5
    assert len(entries(log, "built")) == 5
    before = opened.made.reset(0)
    np.testing.assert_array_equal(copies.reset([None] * 5).obs, np.zeros((5, 2)))
    after = copies.reset([0] * 5).obs
    assert after.shape == (5, *before.shape)
    assert opened.made._episode == 2  # the first copy is the one that was made
    opened.close()
    opened.close()
    assert sorted(entries(log, "closed")) == sorted(entries(log, "built"))


def test_processes_cost_one_construction_each_and_the_first(log):
    opened = open_environment(ID, {"log": str(log)})
    copies = opened.copies(2, asynchronous=True)
    processes = [process for _, process in entries(log, "built")]
    assert len(processes) == 3
    assert processes.count(str(os.getpid())) == 1
    assert len(set(processes)) == 3
    assert not entries(log, "closed")
    assert copies.reset([1, 2]).failures == {}
    opened.close()
    assert sorted(entries(log, "closed")) == sorted(entries(log, "built"))


def test_a_second_call_shares_nothing_with_the_first(log):
    opened = open_environment(ID, {"log": str(log)})
    copies, others = opened.copies(2), opened.copies(2)
    assert len(entries(log, "built")) == 4
    seen = copies.reset([1, 2]).obs
    others.reset([3, 4])
    np.testing.assert_array_equal(copies.step(np.array([-1, -1])).obs, seen)
    copies.close()
    assert len(entries(log, "closed")) == 1  # all but the one that was made for both to see
    opened.close()
    assert sorted(entries(log, "closed")) == sorted(entries(log, "built"))


def test_a_construction_that_fails_half_way_leaves_nothing_open(log):
    opened = open_environment(ID, {"log": str(log), "most": 2})
    with pytest.raises(UserError, match=r"cannot be made .*: RuntimeError: no more of these \(.*, line 17\)"):
        opened.copies(5)
    assert len(entries(log, "built")) == 2
    assert sorted(entries(log, "closed")) == sorted(entries(log, "built"))


def test_objects_are_a_single_copy_and_stay_open(log):
    open_environment(ID, {"log": str(log)}).close()  # now the id is known
    log.write_text("")
    env = gymnasium.make("Logged-v0", log=str(log))
    opened = open_environment(env)
    assert [opened.copies(4).copies for _ in range(2)] == [1, 1]
    opened.close()
    assert len(entries(log, "built")) == 1
    assert not entries(log, "closed")


@pytest.mark.parametrize("adapt", [lambda env: env, make])
def test_objects_are_copied_where_the_caller_asks_for_it(log, adapt):
    open_environment(ID, {"log": str(log)}).close()
    log.write_text("")
    env = gymnasium.make("Logged-v0", log=str(log))
    opened = open_environment(adapt(env))
    assert opened.made.env is env
    assert opened.copies(3, copy_objects=True).copies == 3
    built = entries(log, "built")
    assert len(built) == 3
    opened.close()
    assert sorted(entries(log, "closed")) == sorted(built[1:])


class Bare(gymnasium.Env):
    observation_space, action_space = spaces.Box(0.0, 1.0, (2,)), spaces.Discrete(3)


def test_what_cannot_be_copied():
    opened = open_environment(Bare())
    assert opened.copies(1, copy_objects=True).copies == 1
    with pytest.raises(UserError, match=f"^{NO_COPY}$"):
        opened.copies(2, copy_objects=True)
    wrapped = gymnasium.make("CartPole-v1")

    class Unrecorded(gymnasium.Wrapper):
        """A wrapper that does not say how it was made."""

    with pytest.raises(UserError, match=r"^CartPole-v1 cannot be copied, set copies=1: ") as caught:
        open_environment(Unrecorded(wrapped)).copies(2, copy_objects=True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("env", ["e3rl/CombinationLock-v0", CombinationLock(3), Bare(), make(Bare())])
def test_only_ids_of_python_environments_can_be_asynchronous(env):
    message = "only Gymnasium environments given by their id can be asynchronous"
    with pytest.raises(UserError, match=message):
        open_environment(env).copies(2, asynchronous=True)


def test_functional_environments():
    opened = open_environment("e3rl/CombinationLock-v0", {"horizon": 6})
    assert isinstance(opened.functional, CombinationLock)
    assert opened.functional is opened.made
    assert (opened.spec.name, opened.spec.horizon) == ("e3rl/CombinationLock-v0", 6)
    assert opened.spec.optimal_return == opened.functional.optimal_return
    with pytest.raises(UserError, match="e3rl/CombinationLock-v0 is compiled and has no copies in Python"):
        opened.copies(2)
    opened.close()
    lock = CombinationLock(6)
    assert open_environment(lock).made is lock
    assert open_environment(FunctionalGymEnv(lock)).functional is lock
    assert open_environment(lock).spec == opened.spec


def test_python_environments():
    opened = open_environment("CliffWalking-v1")
    assert opened.functional is None
    assert opened.spec.encoding == Encoding(spaces.Discrete(48))
    assert (opened.spec.name, opened.spec.actions) == ("CliffWalking-v1", 4)
    assert opened.spec.horizon == DEFAULT_TIME_LIMIT
    copies = opened.copies(2)
    assert copies.spec == opened.spec
    opened.close()


def test_errors_are_those_of_make():
    with pytest.raises(UserError, match="unknown environment 'CartPol-v1'; did you mean"):
        open_environment("CartPol-v1")
    with pytest.raises(UserError, match="takes no arguments, got horizon"):
        open_environment(CombinationLock(3), {"horizon": 4})
    opened = open_environment("CartPole-v1")
    with pytest.raises(UserError, match="copies must be at least 1, got 0"):
        opened.copies(0)
