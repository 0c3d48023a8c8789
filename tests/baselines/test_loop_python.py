"""The loop over environments in Python, with an agent that learns nothing: seeds of episodes, and what breaks."""

import os
import signal

import gymnasium
import numpy as np
import pytest
from tiny_baselines import IdleConfig

from e3rl.baselines import DQN, loop_python
from e3rl.baselines.training import BaselineProgram
from e3rl.envs.opening import open_environment
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.runs.record import Record
from e3rl.types import UserError

CONFIG = IdleConfig(total_steps=10, evaluation_episodes=3, copies=1, steps=1)


class Fragile(gymnasium.Env):
    """Breaks in the reset or in the step of that number, counted over all episodes of two steps."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, reset=0, step=0, length=2):
        self.broken = {"reset": reset, "step": step}
        self.calls = {"reset": 0, "step": 0}
        self.seeds, self.length = [], length

    def count(self, call):
        self.calls[call] += 1
        if self.calls[call] == self.broken[call]:
            raise RuntimeError("the cable\ncame off")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.count("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count("step")
        return np.zeros(2, np.float32), 1.0, self.calls["step"] % self.length == 0, False, {}


def program(env):
    opened = open_environment(env)
    copies = opened.copies(1, copy_objects=True)
    return BaselineProgram([copies], [opened.spec], CONFIG, [7])


def test_every_episode_has_a_seed_of_its_own():
    """Ten steps of training are five episodes and the reset of a sixth; then come three greedy episodes."""
    env = Fragile()
    policy, [summary] = program(env).learn(Record([7]))
    assert (summary["explore_episodes"], summary["total_episodes"], summary["env_steps"]) == (5, 8, 10)
    assert (summary["exploit_return_mean"], summary["metrics"]) == (2.0, {"reward": 1.0})
    assert policy["learned"].tolist() == [10]
    assert len(set(env.seeds)) == len(env.seeds) == 6 + 3
    twin = Fragile()
    program(twin).learn(Record([7]))
    assert twin.seeds == env.seeds


@pytest.mark.parametrize(
    ("broken", "place"),
    [
        ({"reset": 1}, "reset"),
        ({"step": 3}, "step 1"),
        ({"reset": 3}, "reset"),
        ({"reset": 6 + 2}, "reset"),
        ({"step": 10 + 4}, "step 2"),
    ],
    ids=["first reset", "a step", "a later reset", "reset in evaluation", "step in evaluation"],
)
def test_an_environment_that_breaks_ends_the_run_with_one_line(broken, place):
    with pytest.raises(UserError) as raised:
        program(Fragile(**broken)).learn(Record([7]))
    words = f"Fragile, {place} of an episode: RuntimeError: the cable came off ("
    assert str(raised.value).startswith(words)
    assert "test_loop_python.py, line " in str(raised.value)
    assert "in count" in raised.value.__notes__[0]  # where it happened, for who wants to know


def test_a_greedy_episode_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(loop_python, "LONGEST_EVALUATION", 25)
    endless = program(Fragile(length=1_000_000))
    policy, _ = endless.learn(Record([7]))
    returns, lengths = endless.loop.evaluate(policy, 2)
    np.testing.assert_array_equal(returns, [[25.0, 25.0]])
    np.testing.assert_array_equal(lengths, [[25, 25]])


def learn(out, env, resume=False):
    record = Record([7], [RunFolder(out)], [DQN.describe(None, {}, 7, CONFIG)])
    return program(env).learn(record, resume)


def told(out):
    return [{**row, "seconds": None} for row in read_metrics(out)]


class Signalled(Fragile):
    """The system wants the process to end, in the step of that number."""

    def count(self, call):
        self.calls[call] += 1
        if self.calls[call] == self.broken[call]:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize(("kind", "error"), [(Fragile, UserError), (Signalled, KeyboardInterrupt)])
def test_whatever_stops_it_the_iterations_before_are_kept_and_resumed_exactly(kind, error, tmp_path):
    """The checkpoint is due in half a minute, so this one is made because of the failure."""
    learn(tmp_path / "whole", Fragile())
    with pytest.raises(error):
        learn(tmp_path / "cut", kind(step=8))
    cut = RunFolder(tmp_path / "cut")
    assert cut.about_checkpoint()["epoch"] == 7
    assert len(read_metrics(cut.path)) == 3
    under_way = Fragile()
    under_way.calls["step"] = 6  # of which it does not know that it was played before
    learn(tmp_path / "cut", under_way, resume=True)
    assert told(tmp_path / "cut") == told(tmp_path / "whole")
    assert cut.policy.read_bytes() == RunFolder(tmp_path / "whole").policy.read_bytes()
    summaries = [RunFolder(tmp_path / name).summary() for name in ("cut", "whole")]
    assert summaries[0]["metrics"] == summaries[1]["metrics"]


def test_a_slow_environment_is_heard_of_every_few_seconds(tmp_path, monkeypatch):
    """Three steps of a second each: a word at every second one."""
    clock, seen = [100.0], []
    monkeypatch.setattr(loop_python.time, "perf_counter", lambda: clock[0])

    class Slow(Fragile):
        def step(self, action):
            clock[0] += 1.0
            return super().step(action)

    program(Slow()).learn(Record([7], watch=lambda progress: seen.append((progress.phase, progress.episode))))
    steps = [done for phase, done in seen if phase == "train"]
    assert steps[-1] == 10
    assert max(np.diff([0, *steps])) <= 2
