"""Copies of environments that play together: what is recorded, what is stepped, and what survives a failure."""

import functools
import multiprocessing
import os
import signal
import sys
import threading
import time

import cloudpickle
import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from e3rl.envs.adapter import GymnasiumEnvironment, make
from e3rl.envs.playing import REST, EpisodeBroken, PythonCopies, processes
from e3rl.envs.spec import DEFAULT_TIME_LIMIT
from e3rl.signals import heeding
from e3rl.types import UserError

KEY = jax.random.key(0)


class Walk(gymnasium.Env):
    """Counts its steps to the end of an episode, whose length is drawn by reset unless it is given.

    `failures` maps (episode, step) to what is called there instead, step 0 being the reset.
    """

    def __init__(self, space=None, length=None, start=0, failures=None):
        self.observation_space = space or spaces.Box(0.0, 100.0, (1,))
        self.action_space = spaces.Discrete(3, start=start)
        self.given_length, self.failures = length, failures or {}
        self.episodes, self.closed, self.actions = 0, False, []

    def _obs(self):
        if type(self.observation_space) is spaces.Box and self.observation_space.shape == (1,):
            return np.full(1, self.count, np.float32)
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.length = self.given_length or int(self.np_random.integers(2, 9))
        self.count, self.ended = 0, False
        self.episodes += 1
        if (self.episodes, 0) in self.failures:
            return self.failures[self.episodes, 0]()
        return self._obs(), {}

    def step(self, action):
        assert not self.ended, "stepped after the end"
        assert self.action_space.contains(action)
        self.count += 1
        self.actions.append(action)
        if (self.episodes, self.count) in self.failures:
            return self.failures[self.episodes, self.count]()
        self.ended = self.count == self.length
        return self._obs(), float(action), self.ended, False, {}

    def close(self):
        self.closed = True


def uniform(env, length=1):
    def one(key, episode, time):
        key = jax.random.fold_in(jax.random.fold_in(key, episode), time)
        return jax.random.randint(key, (length,), 0, env.num_actions)

    @jax.jit
    def plan(key, episodes, obs, time, wanted):
        assert obs.shape == (env.copies, *env.encoding.shape)
        assert episodes.shape == time.shape == wanted.shape == (env.copies,)
        actions = jax.vmap(one, (None, 0, 0))(key, episodes, time)
        return actions, jax.numpy.full(env.copies, length)

    return plan


def check(rows, env, episodes):
    """The contract of a trajectory, whoever made it."""
    assert rows.obs.shape == (episodes, env.time_limit, *env.encoding.shape)
    assert [column.dtype for column in rows] == [
        np.float32,
        np.int32,
        np.float32,
        np.float32,
        bool,
        bool,
        bool,
    ]
    lengths = rows.valid.sum(axis=1)
    assert (lengths >= 1).all()
    for e, n in enumerate(lengths):
        assert rows.valid[e, :n].all()
        np.testing.assert_array_equal(rows.obs[e, 1:n], rows.next_obs[e, : n - 1])
        ended = rows.terminated[e, :n] | rows.truncated[e, :n]
        assert ended[-1]
        assert not ended[:-1].any()
    assert ((rows.action >= 0) & (rows.action < env.num_actions)).all()


def walks(walk_arguments, copies, **kwargs):
    """Copies of a walk, with the walks."""
    made = []

    def constructor():
        made.append(Walk(**walk_arguments))
        return make(made[-1])

    return PythonCopies(constructor(), copies, constructor, **kwargs), made


def of_id(env_id, copies, **kwargs):
    return PythonCopies(make(env_id), copies, functools.partial(make, env_id), **kwargs)


@pytest.mark.parametrize(
    ("env_id", "limit"),
    [
        ("CartPole-v1", 500),
        ("FrozenLake-v1", 100),
        ("Blackjack-v1", DEFAULT_TIME_LIMIT),
        ("Taxi-v4", 40),
        ("CliffWalking-v1", 30),
        ("MountainCar-v0", 20),
        ("Acrobot-v1", 20),
    ],
)
def test_gymnasium_environments_and_twin_runs(env_id, limit):
    env = of_id(env_id, 3, time_limit=None if limit >= 100 else limit)
    assert (env.copies, env.time_limit, env.name) == (3, limit, env_id)
    plan = uniform(env)
    rows = env.play(plan, KEY, 5)
    check(rows, env, 5)
    for column, twin in zip(rows, env.play(plan, KEY, 5), strict=True):
        np.testing.assert_array_equal(column, twin)
    other = env.play(plan, jax.random.key(1), 5)
    assert not np.array_equal(rows.action, other.action)
    env.close()


def test_episodes_are_those_of_the_environment_itself():
    """Replayed by hand with the recorded actions, on the environment without any of our code."""
    env = of_id("CartPole-v1", 2)
    rows = env.play(uniform(env), KEY, 3)
    raw = gymnasium.make("CartPole-v1").unwrapped
    for e in range(3):
        raw.reset()
        raw.state = rows.obs[e, 0].astype(np.float64)
        for t in range(rows.valid[e].sum()):
            obs, reward, terminated, _, _ = raw.step(int(rows.action[e, t]))
            np.testing.assert_allclose(rows.next_obs[e, t], obs, rtol=1e-4, atol=1e-5)
            assert (rows.reward[e, t], rows.terminated[e, t]) == (reward, terminated)


@pytest.mark.parametrize(
    ("space", "shape"),
    [
        (spaces.Box(0, 255, (4, 4, 3), np.uint8), (4, 4, 3)),
        (spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Box(-1.0, 1.0, (2,))}), (4,)),
        (spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)]), (5,)),
        (spaces.MultiDiscrete([2, 3]), (5,)),
        (spaces.MultiBinary(4), (4,)),
    ],
)
def test_kinds_of_observations(space, shape):
    env, made = walks({"space": space, "start": 1}, 2)
    assert env.encoding.shape == shape
    rows = env.play(uniform(env), KEY, 4)
    check(rows, env, 4)
    # Ours count from 0, the environment's own from 1; it pays the action it was given.
    np.testing.assert_array_equal(rows.reward[rows.valid], rows.action[rows.valid] + 1)
    assert set(made[0].actions) == {1, 2, 3}


def test_ended_copies_are_not_stepped_and_start_again_when_the_others_plan():
    env, made = walks({}, 3)
    rows = env.play(uniform(env), KEY, 7)
    check(rows, env, 7)
    assert len(made) == 3
    assert sum(len(walk.actions) for walk in made) == rows.valid.sum()
    assert sum(walk.episodes for walk in made) == 7
    assert len(set(rows.valid.sum(axis=1))) > 1  # lengths differ, so copies had to wait


def test_fewer_episodes_than_copies():
    env, made = walks({}, 4)
    check(env.play(uniform(env), KEY, 2), env, 2)
    assert [walk.episodes for walk in made] == [1, 1, 0, 0]
    check(env.play(uniform(env), KEY, 6), env, 6)
    assert len(env.play(uniform(env), KEY, 0).valid) == 0


def test_sequences_are_executed_open_loop_in_rounds():
    env, made = walks({"length": 7}, 2)
    calls = []

    def plan(key, episodes, obs, time, wanted):
        calls.append((obs[:, 0].tolist(), time.tolist(), wanted.tolist()))
        return np.array([[0, 1, 2, 2], [2, 1, 0, 0]]), np.array([3, 2])

    rows = env.play(plan, KEY, 2)
    assert rows.action[0, :7].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert rows.action[1, :7].tolist() == [2, 1, 2, 1, 2, 1, 2]
    assert calls == [([t1, t2], [t1, t2], [t1 < 7, True]) for t1, t2 in [(0, 0), (3, 2), (6, 4), (7, 6)]]
    assert made[0].actions == [0, 1, 2, 0, 1, 2, 0]
    # An empty plan counts as its first action.
    assert env.play(lambda *_: (np.ones((2, 3), int), np.zeros(2, int)), KEY, 2).action.sum() == 14
    with pytest.raises(
        ValueError, match="2 plans, and the lengths of 1"
    ):  # nobody says how much of the other's plan counts
        env.play(lambda *_: (np.ones((2, 3), int), np.ones(1, int)), KEY, 2)


def test_plans_are_told_which_episodes_they_are_for_and_may_keep_what_they_saw():
    env, _ = walks({"length": 40}, 2)
    shown, copied, episodes, keys = [], [], [], []

    def plan(key, *now):
        keys.append(key)
        episodes.append(now[0].tolist())
        shown.append(now)
        copied.append([part.copy() for part in now])
        return np.zeros((2, 1), int), np.ones(2, int)

    env.play(plan, KEY, 3)
    assert episodes == [[0, 1]] * 40 + [[2, 1]] * 40
    assert (jax.random.key_data(jax.numpy.stack(keys)) == jax.random.key_data(jax.random.split(KEY)[1])).all()
    for parts, before in zip(shown, copied, strict=True):
        assert [part.dtype for part in parts] == [np.int32, np.float32, np.int32, bool]
        for part, then in zip(parts, before, strict=True):
            np.testing.assert_array_equal(part, then)


def test_time_limits():
    env, _ = walks({"length": 7}, 2, time_limit=5)
    rows = env.play(uniform(env), KEY, 3)
    check(rows, env, 3)
    assert rows.valid.all()
    assert rows.truncated[:, -1].all()
    assert not rows.terminated.any()
    assert of_id("CartPole-v1", 1, time_limit=900).time_limit == 500
    for arguments in ({"copies": 0}, {"copies": 1, "time_limit": 0}):
        with pytest.raises(UserError, match="must be at least 1, got 0"):
            walks({}, **arguments)


def test_an_environment_already_built_plays_alone_and_stays_open():
    walk = Walk()
    env = PythonCopies(make(walk), 4)
    assert env.copies == 1
    check(env.play(uniform(env), KEY, 3), env, 3)
    assert walk.episodes == 3
    env.close()
    assert not walk.closed
    env, made = walks({}, 3)
    env.close()
    assert [walk.closed for walk in made] == [False, True, True]


def raise_error():
    raise RuntimeError("the cable\ncame off")


FAILURES = [
    (raise_error, "RuntimeError: the cable came off"),
    (lambda: (np.array([np.nan], np.float32), 0.0, False, False, {}), r"observation\[0\] is nan"),
    (lambda: (np.zeros(1, np.float32), "much", False, False, {}), "reward must be a number, got 'much'"),
    (lambda: None, r"step must return \(observation, reward, terminated, truncated, info\), got None"),
]


@pytest.mark.parametrize(("fail", "message"), FAILURES)
def test_a_failure_keeps_everything_before_it(fail, message):
    """The second of three copies fails at step 7 of its second episode, when the third has yet to move."""
    made = [Walk(length=8, failures={(2, 7): fail} if i == 1 else None) for i in range(3)]
    turn = iter(made)
    env = PythonCopies(make(next(turn)), 3, lambda: make(next(turn)))
    with pytest.raises(EpisodeBroken, match=rf"^Walk, episode 15, step 7: {message}(\n|$| \()") as caught:
        env.play(uniform(env), KEY, 6, episodes_before=10)
    rows = caught.value.trajectory
    check(rows, env, 6)
    lengths = rows.valid.sum(axis=1)
    assert lengths.tolist() == [8, 8, 8, 7, 6, 7]
    assert rows.terminated[:3, 7].all()
    assert rows.truncated[np.arange(3, 6), lengths[3:] - 1].all()
    assert [len(walk.actions) for walk in made] == [15, 15, 15]


def test_a_failure_shows_where_it_happened():
    env = PythonCopies(make(Walk(failures={(1, 1): raise_error})))
    with pytest.raises(EpisodeBroken) as caught:
        env.play(uniform(env), KEY, 1)
    assert "in raise_error" in caught.value.__notes__[0]
    assert "\n" not in str(caught.value)


def test_a_failing_reset():
    env = PythonCopies(make(Walk(length=4, failures={(3, 0): raise_error})))
    with pytest.raises(EpisodeBroken, match=r"^Walk, episode 3, step 0: RuntimeError") as caught:
        env.play(uniform(env), KEY, 3)
    assert caught.value.trajectory.valid.sum(axis=1).tolist() == [4, 4]
    env = PythonCopies(make(Walk(failures={(1, 0): raise_error})))
    with pytest.raises(EpisodeBroken) as caught:
        env.play(uniform(env), KEY, 3)
    assert len(caught.value.trajectory.valid) == 0


def test_an_interruption_is_no_failure():
    def interrupt():
        raise KeyboardInterrupt

    env = PythonCopies(make(Walk(length=4, failures={(1, 2): interrupt})))
    with pytest.raises(KeyboardInterrupt):
        env.play(uniform(env), KEY, 1)


def test_what_is_asked_of_one_copy_leaves_the_others_alone():
    env, made = walks({"length": 2}, 3)
    blank = env.reset([None, 4, None])
    assert [walk.episodes for walk in made] == [0, 1, 0]
    assert blank.obs.tolist() == [[0.0]] * 3
    env.reset([4, None, 4])
    assert [walk.episodes for walk in made] == [1, 1, 1]
    first = env.step(np.array([2, REST, 1]))
    assert [walk.actions for walk in made] == [[2], [], [1]]
    assert (first.obs[:, 0].tolist(), first.reward.tolist()) == ([1.0, 0.0, 1.0], [2.0, 0.0, 1.0])
    assert first.failures == {}
    second = env.step(np.array([1, REST, REST]))
    assert second.terminated.tolist() == [True, False, False]
    assert not second.truncated.any()
    # What was answered before does not change with what is answered next, and an ended episode stays ended.
    assert first.obs[:, 0].tolist() == [1.0, 0.0, 1.0]
    assert env.step(np.array([1, 0, REST])).failures[0].problem.startswith("UserError: Walk: call reset()")
    assert made[1].actions == [0]


def failing_walk():
    failures = {(1, 2): raise_error, (2, 0): raise_error}
    return GymnasiumEnvironment(Walk(spaces.MultiBinary(8), length=3, failures=failures))


def test_answers_are_the_same_from_other_processes():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    there, here = (
        PythonCopies(failing_walk(), 2, failing_walk, asynchronous=where) for where in (True, False)
    )
    failed = []
    for seeds, actions in [
        ([1, None], [0, REST]),
        ([None, 2], [1, 2]),  # the first fails in its second step
        ([None, None], [REST, 0]),  # and then the second
        ([5, None], [REST, REST]),  # the first fails again, in a reset
        ([5, 6], [2, 1]),
        ([None, None], [2, 1]),
        ([None, None], [2, REST]),
    ]:
        for ours, theirs in [
            (here.reset(seeds), there.reset(seeds)),
            (here.step(np.array(actions)), there.step(np.array(actions))),
        ]:
            for one, other in zip(ours[:-1], theirs[:-1], strict=True):
                assert one.dtype == other.dtype
                np.testing.assert_array_equal(one, other)
            assert [(copy, failure.problem) for copy, failure in theirs.failures.items()] == [
                (copy, failure.problem) for copy, failure in ours.failures.items()
            ]
            assert all("in raise_error" in failure.traceback for failure in theirs.failures.values())
            failed += ours.failures
    assert failed == [0, 1, 0, 1]
    assert ours.terminated.tolist() == [True, False]
    there.close()
    there.close()


def walk_to_its_death():
    failures = {(3, 3): raise_error, (4, 2): functools.partial(os._exit, 1)}
    return GymnasiumEnvironment(Walk(spaces.MultiBinary(8), length=4, failures=failures))


def test_processes_of_their_own():
    """The same episodes as in this process; failures arrive here, and so does the news of a process that died."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    env, here = (
        PythonCopies(walk_to_its_death(), 2, walk_to_its_death, asynchronous=where) for where in (True, False)
    )
    for column, twin in zip(env.play(uniform(env), KEY, 3), here.play(uniform(here), KEY, 3), strict=True):
        np.testing.assert_array_equal(column, twin)
    with pytest.raises(
        EpisodeBroken, match="Walk, episode 1, step 3: RuntimeError: the cable came"
    ) as caught:
        env.play(uniform(env), KEY, 2)
    assert caught.value.trajectory.valid.sum(axis=1).tolist() == [2, 3]
    with pytest.raises(EpisodeBroken, match="Walk, episode 1, step 2: the process of a copy ended") as caught:
        env.play(uniform(env), KEY, 2)
    assert caught.value.trajectory.valid.sum(axis=1).tolist() == [1, 2]
    assert env.reset([None, 3]).failures[1].problem == "the process of a copy ended"
    with pytest.raises(EpisodeBroken, match="Walk, episode 1, step 0: the process of a copy ended"):
        env.play(uniform(env), KEY, 2)
    env.close()


class Slow(Walk):
    """Takes its time over every step: some more than others."""

    def step(self, action):
        time.sleep(0.002 if action == 0 else 0.02)
        return super().step(action)


def slow_walk():
    return GymnasiumEnvironment(Slow(spaces.MultiBinary(8)))


def test_those_that_are_done_plan_while_others_are_on_their_way():
    """The same episodes as together, and what was planned for whom does not depend on who was ready."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    env = PythonCopies(slow_walk(), 3, slow_walk, asynchronous=True)
    uniform_plan, wanted = uniform(env, 2), []

    def plan(key, *now):
        wanted.append(int(now[-1].sum()))
        actions, lengths = uniform_plan(key, *now)
        return np.where(now[-1][:, None], actions, 99), np.where(now[-1], lengths, 50)

    rows = env.play(plan, KEY, 7)
    calls = len(wanted)
    assert max(wanted) == 3
    wanted.clear()
    for column, twin in zip(env.play(plan, KEY, 7, together=False), rows, strict=True):
        np.testing.assert_array_equal(column, twin)
    assert len(wanted) > calls
    assert sum(wanted) == sum(-(-n // 2) for n in rows.valid.sum(axis=1))
    env.close()


def interrupting_walk():
    return GymnasiumEnvironment(Slow(spaces.MultiBinary(8), length=4))


def test_playing_again_after_an_interruption():
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    env = PythonCopies(interrupting_walk(), 2, interrupting_walk, asynchronous=True)
    plan = uniform(env, 4)
    rows = env.play(plan, KEY, 2)
    calls = 0

    def interrupted(*now):
        nonlocal calls
        calls += 1
        if calls == 2:  # the other is still on its way, or its answer lies in the pipe
            raise KeyboardInterrupt
        return np.array([[0, 0, 0, 0], [1, 1, 1, 1]]), np.array([1, 4])

    with pytest.raises(KeyboardInterrupt):
        env.play(interrupted, KEY, 2, together=False)
    for column, twin in zip(env.play(plan, KEY, 2), rows, strict=True):
        np.testing.assert_array_equal(column, twin)
    env.close()


def test_an_id_that_other_processes_do_not_know(monkeypatch, capfd):
    """As when a script registers it under `if __name__ == "__main__":`."""
    monkeypatch.setitem(gymnasium.registry, "here/Walk-v0", EnvSpec("here/Walk-v0", entry_point=Walk))
    known_here = functools.partial(make, "here/Walk-v0")
    first = known_here()
    with pytest.raises(
        UserError, match=r"^here/Walk-v0: a process could not make its copy: register"
    ) as caught:
        PythonCopies(first, 2, known_here, asynchronous=True)
    assert "\n" not in str(caught.value)
    last_words = capfd.readouterr().err.splitlines()
    assert len(last_words) == 2
    for i, line in enumerate(sorted(last_words)):
        assert line.startswith(
            f"e3rl: copy {i + 1} could not be made: UserError: unknown environment 'here/Walk-v0'"
        )


def stubborn_walk():
    return GymnasiumEnvironment(Walk(spaces.MultiBinary(8), length=3, failures={(1, 1): wait_for_long}))


def wait_for_long():
    time.sleep(100.0)


def test_a_question_that_is_broken_off(monkeypatch):
    """As by Ctrl-C: closing waits neither for an answer that was read already nor for one that does not come."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.setattr(processes, "PATIENCE", 0.2)
    env = PythonCopies(stubborn_walk(), 2, stubborn_walk, asynchronous=True)
    env.reset([1, 2])
    processes_of_copies = multiprocessing.active_children()
    with pytest.raises(KeyboardInterrupt), heeding():  # noqa: PT012
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        env.step(np.array([REST, 0]))
    env.close()
    assert len(processes_of_copies) == 2
    assert not any(process.is_alive() for process in processes_of_copies)
