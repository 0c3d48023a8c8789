"""What every agent does by itself: settings, the clock of `predict`, saving and loading, and what it refuses."""

import dataclasses
import json
import math

import gymnasium
import numpy as np
import pytest
from gymnasium.vector.utils import batch_space
from scripted import Echo, EchoConfig
from tiny import LOCK, lock

from e3rl.envs.adapter import batch_size
from e3rl.envs.lock import CombinationLock
from e3rl.envs.membership import violation
from e3rl.experiments.agents import load
from e3rl.runs.agent import AbstractAgent, checked_seed
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.runs.settings import as_dict, by_path
from e3rl.types import UserError

OPTIONS = {"horizon": 3, "noise_bits": 1, "seed": 2}
OBS = [0, 1, 0, 0]


@pytest.fixture(scope="module")
def agent():
    agent = Echo(LOCK, EchoConfig(), seed=5, env_options=OPTIONS)
    agent.learn()
    return agent


def test_settings_are_an_object_or_a_preset_or_what_suits():
    for config, wanted in (
        (EchoConfig(offset=3), EchoConfig(offset=3)),
        ("long", EchoConfig(episodes=9)),
        ("auto", EchoConfig(offset=4)),
        (None, EchoConfig(offset=4)),
    ):
        assert Echo(LOCK, config).config == wanted
    with pytest.raises(UserError, match="unknown config 'longer'; known: auto, long"):
        Echo(LOCK, "longer")
    with pytest.raises(UserError, match="echo takes settings of type EchoConfig, got 3"):
        Echo(LOCK, 3)


def test_predict_keeps_the_clock(agent):
    agent.start_episode()
    assert [agent.predict(OBS) for _ in range(6)] == [1, 2, 3] * 2  # starts over after the horizon
    agent.predict(OBS)
    agent.start_episode()
    assert agent.predict(OBS) == 1
    assert agent.predict(OBS, time=1) == 2
    assert agent.predict(OBS) == 3  # a time given sets the clock


def test_predict_for_several_observations(agent):
    agent.start_episode()
    many = [OBS, [0, 0, 1, 1], OBS]
    first = agent.predict(many)
    assert isinstance(first, np.ndarray)
    assert first.tolist() == [1, 2, 1]
    assert agent.predict(many).tolist() == [2, 3, 2]  # they share the clock
    assert agent.predict(many, time=[0, 1, 2]).tolist() == [1, 3, 3]
    assert agent.predict(np.array(OBS)) == 3  # which such times leave alone
    assert agent.predict(np.zeros((0, 4), np.int8)).shape == (0,)
    agent.start_episode()


SPACES = gymnasium.spaces
PAIR = SPACES.Tuple([SPACES.Discrete(3), SPACES.Box(0.0, 1.0, (2,))])


@pytest.mark.parametrize(
    "space",
    [SPACES.Discrete(3), SPACES.MultiDiscrete([2, 3]), SPACES.Box(0, 255, (2, 2, 3), np.uint8), PAIR,
     SPACES.Dict(a=SPACES.Discrete(3), b=PAIR)],
)  # fmt: skip
def test_a_batch_is_told_from_an_observation(space):
    space.seed(0)
    assert batch_size(space, space.sample()) is None
    several = batch_space(space, 4)
    several.seed(0)
    obs = several.sample()
    assert batch_size(space, obs) == 4
    assert violation(several, obs) is None
    assert batch_size(space, "nonsense") is None


def test_predict_without_a_clock_counts_on(agent, monkeypatch):
    monkeypatch.setattr(agent.program, "clock_limit", None)
    agent.start_episode()
    assert [agent.predict(OBS) for _ in range(5)] == [1, 2, 3, 0, 1]
    assert agent.predict(OBS, time=101) == 2
    with pytest.raises(UserError, match="time must be at least 0, got -1"):
        agent.predict(OBS, time=-1)
    agent.start_episode()


@pytest.mark.parametrize(
    ("obs", "time", "message"),
    [
        ([0, 1, 0], None, r"observation has shape \(3,\), the space MultiBinary\(4\) has \(4,\)"),
        ([[0, 1, 0]], None, r"observation has shape \(1, 3\), the space MultiBinary\(4\) has \(4,\)"),
        ([[[0, 1, 0, 0]]], None, r"observation has shape \(1, 1, 4\), the space MultiBinary\(4\) has \(4,\)"),
        ([[0, 1, 0, 0], [0, 1, 0, 2]], None, r"observation\[1, 3\] is 2, outside the space Box"),
        ([[0, 1, 0, 0]] * 2, [0, 3], r"time must be in 0 … 2, got 3"),
        (
            [[0, 1, 0, 0]] * 2,
            [0, 1, 2],
            r"a whole number, or one for each of 2 observations, got \[0, 1, 2\]",
        ),
        ([0, 1, 0, 0], [0], r"time must be a whole number, got \[0\]"),
        ([0, 1, 0, 0], 0.5, r"time must be a whole number, got 0\.5"),
        ([0, 1, 0, 2], None, r"observation\[3\] is 2, outside the space MultiBinary\(4\)"),
        ([0, 1, 0, 0.5], None, r"dtype float64, the space MultiBinary\(4\) has int8: \[0, 1, 0, 0.5\]"),
        ([0, 1, 0, math.nan], None, r"has int8: \[0, 1, 0, nan\]"),
        ([0, 1, 0, 0], 3, r"time must be in 0 … 2, got 3"),
        ([0, 1, 0, 0], -1, r"time must be in 0 … 2, got -1"),
    ],
)
def test_predict_refuses(agent, obs, time, message):
    with pytest.raises(UserError, match=message):
        agent.predict(obs, time)


@pytest.mark.parametrize("use", [lambda a, _: a.predict(OBS), lambda a, _: a.evaluate(3), Echo.save])
def test_before_learning(use, tmp_path):
    with pytest.raises(UserError, match=r"has not learned yet: call learn\(\) first"):
        use(Echo(LOCK, env_options=OPTIONS), tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_evaluation(agent):
    assert agent.evaluate(7).shape == (7,)
    np.testing.assert_array_equal(agent.evaluate(7), agent.evaluate(7))
    with pytest.raises(UserError, match="episodes must be at least 1, got 0"):
        agent.evaluate(0)


def test_saved_and_loaded_it_is_the_same(agent, tmp_path):
    agent.save(tmp_path / "saved")
    about = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert (about["algo"], about["env"], about["env_options"], about["seed"]) == ("echo", LOCK, OPTIONS, 5)
    assert about["config"] == as_dict(agent.config)
    loaded = Echo.load(tmp_path / "saved")
    assert (loaded.config, loaded.seed, loaded.policy) == (agent.config, agent.seed, agent.policy)
    np.testing.assert_array_equal(loaded.env.successor, agent.env.successor)
    loaded.save(tmp_path / "again")
    for name in ("config.json", "checkpoint/policy.safetensors"):
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_learning_is_recorded_where_asked_and_can_be_loaded_from_there(agent, tmp_path):
    other, seen = Echo(LOCK, EchoConfig(), seed=5, env_options=OPTIONS), []
    summary = other.learn(tmp_path / "run", watch=seen.append)
    assert other.policy == agent.policy
    assert summary == RunFolder(tmp_path / "run").summary()
    assert json.loads(json.dumps(summary)) == summary
    assert len(read_metrics(tmp_path / "run")) == 4
    assert [progress.episode for progress in seen] == [1, 2, 3, 4]
    assert Echo.load(tmp_path / "run").policy == agent.policy
    with pytest.raises(UserError, match="already holds a run"):
        other.learn(tmp_path / "run")
    other.learn(tmp_path / "run", resume=True)
    assert other.policy == agent.policy


def test_progress_is_shown_unless_it_is_not_wanted(capsys):
    def shown(**options):
        Echo(LOCK, EchoConfig(), seed=5, env_options=OPTIONS).learn(**options)
        return capsys.readouterr()

    line = "train: step {}/4, return 0.00, disagreement 0.00\n"
    assert shown() == ("", line.format(1) + line.format(4))
    assert shown(progress=False) == ("", "")
    assert shown(watch=lambda progress: None) == ("", "")


def test_a_callback_sees_every_epoch_and_may_stop_a_run_that_then_goes_on(agent, tmp_path):
    seen = []

    def callback(progress):
        seen.append((progress.phase, progress.episode))
        return None if len(seen) < 3 else False

    other = Echo(LOCK, EchoConfig(), seed=5, env_options=OPTIONS)
    stopped = other.learn(tmp_path, callback=callback, progress=False)
    assert seen == [("train", 1), ("train", 2), ("train", 3)]
    assert not stopped.finished
    assert (stopped.total_episodes, stopped.env_steps, stopped.saved_in) == (3, 6, str(tmp_path))
    assert str(stopped) == f"seed 5: stopped after 3 episodes, 0 s; saved in {tmp_path}, resume=True goes on"
    assert len(read_metrics(tmp_path)) == 3
    assert RunFolder(tmp_path).summary() is None
    with pytest.raises(UserError, match="has not learned yet"):
        other.predict(OBS)
    summary = other.learn(tmp_path, resume=True, callback=lambda progress: seen.append(progress.episode))
    assert summary.finished
    assert seen[3:] == [4]  # None goes on
    assert other.policy == agent.policy


def test_a_callback_without_a_folder():
    stopped = Echo(LOCK, EchoConfig(), env_options=OPTIONS).learn(callback=lambda progress: False)
    assert str(stopped) == "seed 0: stopped after 1 episodes, 0 s; nothing is saved without `out`"


@pytest.mark.parametrize(
    "make", [lambda: gymnasium.make(LOCK, **OPTIONS), lambda: CombinationLock(**OPTIONS)]
)
def test_an_environment_without_an_id_is_needed_again(agent, make, tmp_path):
    env = make()
    other = Echo(env, EchoConfig(), seed=5)
    other.learn()
    other.save(tmp_path)
    with pytest.raises(UserError, match=r"an environment without an id: load it with env=\.\.\."):
        Echo.load(tmp_path)
    assert Echo.load(tmp_path, env=env).policy == agent.policy
    assert Echo.load(str(tmp_path), env=LOCK).policy == agent.policy


def test_loading_what_is_no_agent(agent, tmp_path):
    with pytest.raises(UserError, match=r"holds no run: config.json is missing"):
        Echo.load(tmp_path / "nowhere")
    agent.save(tmp_path)
    config, policy = tmp_path / "config.json", RunFolder(tmp_path).policy
    text, weights = config.read_text(), policy.read_bytes()

    def refuses(message):
        with pytest.raises(UserError, match=message):
            Echo.load(tmp_path)

    config.write_text("{}")
    refuses("holds a run of an earlier version")
    config.write_text('{"format": 2}')
    refuses("config.json is no configuration of a run: 'algo' is missing")
    config.write_text(text.replace('"algo": "echo"', '"algo": "dqn"'))
    refuses("holds an agent of dqn, not of echo")
    config.write_text(text.replace('"algo": "echo"', '"algo": "shout"'))
    with pytest.raises(UserError, match="unknown algorithm 'shout'; known: neural-e3"):
        load(tmp_path)
    config.write_text(text.replace('"offset"', '"ofset"'))
    refuses("config.json is no configuration of echo: 'offset' is missing")
    config.write_text(text.replace('"offset": 0', '"offset": -1'))
    refuses("config.json is no configuration of echo: offset must not be negative")
    config.write_text(json.dumps({**json.loads(text), "config": 3}))
    refuses("config.json is no configuration of a run: config is 3")
    config.write_text(text)
    policy.write_bytes(weights[:-1])
    refuses("policy.safetensors is damaged")
    policy.unlink()
    refuses("has no trained policy yet: finish the run with --resume first")
    policy.write_bytes(weights)
    assert Echo.load(tmp_path).policy == agent.policy


def test_an_environment_that_is_refused_is_closed_if_it_was_opened_here(monkeypatch):
    closed = []
    from e3rl.envs.opening import Opened

    close = Opened.close
    monkeypatch.setattr(Opened, "close", lambda self: (closed.append(self.spec.name), close(self)))
    env = gymnasium.make("CartPole-v1")
    env.unwrapped.close = lambda: closed.append("the object")
    for each in ("CartPole-v1", env):
        with pytest.raises(UserError, match="bad luck"):
            Echo(each, EchoConfig(offset=13))
    assert closed == ["CartPole-v1"] * 2
    agent = Echo(env)
    agent.close()
    assert closed == ["CartPole-v1"] * 3  # what was given as an object stays open


def test_an_agent_of_an_object_describes_no_id():
    assert Echo(lock(), EchoConfig()).description["env"] is None


def test_seeds_share_a_program_unless_an_agent_says_otherwise():
    assert AbstractAgent.share_a_program(EchoConfig())
    assert not Echo.share_a_program(EchoConfig(together=False))


@pytest.mark.parametrize("seed", ["3", 1.0, True, -1, 2**31, None, [3]])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(UserError, match=r"seed must be a whole number from 0 to 2\*\*31 − 1, got "):
        checked_seed(seed)
    if type(seed) is int:
        with pytest.raises(UserError, match="seed must be a whole number"):
            Echo(LOCK, env_options=OPTIONS, seed=seed)


def test_numpys_numbers_are_taken(tmp_path):
    options = {"horizon": np.int64(3), "antishaped": np.bool_(True), "noise_bits": np.int32(1)}
    config = {"episodes": np.int64(2), "offset": np.array(1)}
    agent = Echo(LOCK, config, np.uint8(3), options)
    agent.learn(tmp_path)
    assert agent.seed == 3
    assert len(agent.evaluate(np.int64(4))) == 4
    again = Echo.load(tmp_path)
    assert (again.config, again.description) == (agent.config, agent.description)


def test_settings_may_come_in_a_dictionary():
    """Changes to what suits the environment, flat or nested, or all of it as config.json has it."""
    agent = Echo(LOCK, {"episodes": 7}, env_options=OPTIONS)
    assert agent.config == dataclasses.replace(Echo.suited(agent.opened), episodes=7)
    assert Echo(LOCK, as_dict(agent.config), env_options=OPTIONS).config == agent.config
    assert by_path({"planner": {"name": "graph", "nodes": 5}, "fit": {"batch": 4}, "clock": True}) == {
        "planner": "graph", "planner.nodes": 5, "fit.batch": 4, "clock": True,
    }  # fmt: skip
    with pytest.raises(UserError, match="unknown setting 'epsodes'; did you mean 'episodes'"):
        Echo(LOCK, {"epsodes": 7}, env_options=OPTIONS)
    with pytest.raises(UserError, match="settings are named by words, got 3"):
        Echo(LOCK, {3: 7}, env_options=OPTIONS)


def test_an_agent_is_not_saved_over_somebody_elses_files(agent, tmp_path):
    agent.learn()
    (tmp_path / "config.json").write_text('{"mine": 1}')
    with pytest.raises(UserError, match=r"config.json is not that of a run"):
        agent.save(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
