"""Odd input of every kind: an answer or one clear line, never a traceback, a hang or code of a file's.

The quick part tries some; `make faults` sets E3RL_FAULTS_EXAMPLES and tries 10⁵ in all.
"""

import argparse
import contextlib
import io
import json
import os
import pickle
import random
import sys
import threading
import time

import gymnasium
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jaxtyping import TypeCheckError
from scripted import Echo, EchoConfig, EchoProgram
from tiny import LOCK, OPTIONS
from tiny_baselines import IdleConfig

from e3rl import cli
from e3rl.baselines import DQN
from e3rl.cli import training
from e3rl.envs.opening import open_environment
from e3rl.experiments.agents import AGENTS, load
from e3rl.runs.checkpoint import load_arrays
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.runs.record import Record
from e3rl.runs.renamed import current_names
from e3rl.runs.settings import settings_of
from e3rl.runs.train import train
from e3rl.types import UserError

EXAMPLES = int(os.environ.get("E3RL_FAULTS_EXAMPLES", "0"))


def fuzz(quick, share=1.0):
    return settings(
        max_examples=round(share * EXAMPLES) or quick, deadline=None, database=None, derandomize=not EXAMPLES,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )  # fmt: skip


def soundly(action):
    """The result, or None where there was one clear line instead."""
    try:
        return action()
    except UserError:
        return None


# The command line.

WORDS = st.sampled_from(
    ["train", "evaluate", "report", "theory", "dreem", "envs", "bench", "reproduce", "lock", "maze", "CartPole-v1",
     "--json", "--debug", "--resume", "--out", "--seed", "--seeds", "--algo", "--set", "--env", "--config", "--horizon",
     "--size", "--episodes", "--models", "--policies", "--rank", "--actions", "--epsilon", "--delta", "--beta",
     "--runs", "", "-",
     "--", "-1", "0", "3", "1e400", "1e-320", "nan", "inf", "hidden=8", "=", "a=", "=b", "a.b.c=1", "../..",
     "/dev/null", "/proc/self/mem", "\x00", "é" * 300, "e3rl/Maze-v0", "os:system", "ppo", "auto", "10" * 200]
)  # fmt: skip
NUMBERS = st.sampled_from(
    ["1", "2", "10", "0.1", "1e-3", "1", "0", "-1", "1e400", "1e-320", "nan", "9" * 400]
)
ANY_WORD = WORDS | st.text(max_size=12)


def flags_of_commands():
    """The options of every command."""
    [commands] = [
        action for action in cli.parser()._actions if isinstance(action, argparse._SubParsersAction)
    ]
    return {
        name: [flag for action in sub._actions for flag in action.option_strings if "help" not in flag]
        for name, sub in commands.choices.items()
    }


FLAGS = flags_of_commands()


@st.composite
def command_lines(draw):
    """Words in any order, or a command with options that it has."""
    if draw(st.booleans()):
        return draw(st.lists(ANY_WORD, max_size=9))
    command = draw(st.sampled_from(sorted(FLAGS)))
    if command == "theory":
        needed = ("--horizon", "--actions", "--rank", "--models", "--policies", "--epsilon", "--delta")
        argv = [f"{flag}={draw(NUMBERS)}" for flag in needed]
    else:
        argv = draw(st.lists(st.sampled_from(["lock", "maze", "CartPole-v1", "runs"]) | ANY_WORD, max_size=1))
    for flag in draw(st.lists(st.sampled_from(FLAGS[command]), max_size=4)):
        argv += [flag, *draw(st.lists(NUMBERS | ANY_WORD, max_size=2))]
    return [command, *argv]


@pytest.fixture
def idle(monkeypatch, tmp_path):
    """Commands that take long, or reach out, are left out: what is tried is how they are asked."""
    monkeypatch.chdir(tmp_path)
    told = {**Record([3]).summary(0, np.ones(2, np.float32), None), "explore_episodes": 7}
    monkeypatch.setattr("e3rl.runs.train.train", lambda *args, **more: ([args[5]], [told]))
    monkeypatch.setattr("e3rl.reports.learning.draw_runs", lambda paths, out: out)
    for name in ("envs", "bench", "reproduce", "dreem"):
        monkeypatch.setattr(cli, name, lambda args: 0)
    monkeypatch.setattr(training, "_suited", lambda env, options: ("neural-e3", ""))


@fuzz(quick=80)
@given(argv=command_lines())
def test_command_lines(argv, idle, tally):
    out, err = io.StringIO(), io.StringIO()
    out.fileno = lambda: os.open(os.devnull, os.O_WRONLY)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([*argv, *(["--out", "runs/x"] if argv[:1] == ["train"] and "" in argv else [])])
    assert code in (0, 2)
    if code and "--debug" not in argv:
        assert err.getvalue().startswith("e3rl: error: ")
        assert err.getvalue().count("\n") == 1
    tally[f"exit code {code}"] += 1


# Settings.

PATHS = {
    algo: sorted({path for preset in agent.presets.values() for path in settings_of(preset)})
    for algo, agent in AGENTS.items()
}
EVERY_PATH = sorted({path for paths in PATHS.values() for path in paths})
ODD = ["0", "-1", "1e9", "1e400", "nan", "inf", "true", "graph", "", "a.b", "3.5", "10" * 100]
COMMON = ["1", "2", "8", "64", "0.5", "1e-3", "false", "value", "uniform", "mcts"]
VALUES = st.sampled_from(ODD) | st.sampled_from(COMMON) | st.text(max_size=8)


@pytest.fixture(scope="module")
def opened():
    return open_environment(LOCK, OPTIONS)


@pytest.fixture(scope="module")
def suited(opened):
    return {algo: agent.suited(opened) for algo, agent in AGENTS.items()}


@st.composite
def changed_settings(draw):
    """An algorithm and changes, mostly of settings that it has."""
    algo = draw(st.sampled_from(list(AGENTS)))
    own = st.sampled_from(PATHS[algo])
    names = draw(st.sampled_from([own, own, own, st.sampled_from(EVERY_PATH), st.text(max_size=8)]))
    return algo, draw(st.dictionaries(names, VALUES, max_size=4))


@fuzz(quick=80)
@given(drawn=changed_settings())
def test_settings(drawn, opened, suited, tally):
    algo, changes = drawn
    agent, base = AGENTS[algo], suited[algo]

    def chosen():
        try:
            return agent.configured(opened, base, current_names(base, changes, agent.renamed)[0])
        except (
            TypeCheckError
        ) as error:  # tests check annotations, and that comes before settings check themselves
            if "Expected type: typing.Literal" not in str(error):
                raise
            raise UserError("not one of its words") from error

    tally["refused" if soundly(chosen) is None else "taken"] += 1


# Files.


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run's files."""
    EchoProgram.events = []
    out = tmp_path_factory.mktemp("finished") / "run"
    train(Echo, LOCK, OPTIONS, EchoConfig(), [3], out)
    return {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def damaged(data, draw):
    """Some bytes with bits flipped, cut, repeated, spliced or replaced."""
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        match draw(st.integers(0, 4)):
            case 0 if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case 1:
                del data[at:]
            case 2:
                to = draw(st.integers(0, max(0, len(data) - 1)))
                data[at:at] = data[min(at, to) : max(at, to)]
            case 3:
                data[at : at + 8] = draw(st.binary(max_size=16))
            case 4:
                del data[at : at + draw(st.integers(1, 40))]
    return bytes(data)


class Ran:
    """What nobody may make of the bytes of a file."""

    def __reduce__(self):
        return os.abort, ()


def written(finished, out):
    for name, data in finished.items():
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(data)


@fuzz(quick=80)
@given(data=st.data())
def test_checkpoints(data, finished, tmp_path, tally):
    """Noticed, or without any effect."""
    written(finished, tmp_path)
    run = RunFolder(tmp_path)
    good = load_arrays(run.state)[0]
    spoiled = (
        pickle.dumps(Ran())
        if data.draw(st.integers(0, 50)) == 0
        else damaged(run.state.read_bytes(), data.draw)
    )
    run.state.write_bytes(spoiled)
    found = soundly(lambda: load_arrays(run.state))
    if found is not None:
        assert found[0].keys() == good.keys()
        for name, array in found[0].items():
            np.testing.assert_array_equal(array, good[name])
    tally["noticed" if found is None else "without effect"] += 1


@pytest.fixture(scope="module")
def described():
    return Echo.describe(LOCK, OPTIONS, 3, EchoConfig())


@fuzz(quick=50)
@given(data=st.data(), name=st.sampled_from(["config.json", "metrics.csv", "summary.json"]))
def test_text_files(data, name, finished, described, tmp_path, tally):
    written(finished, tmp_path)
    (tmp_path / name).write_bytes(damaged((tmp_path / name).read_bytes(), data.draw))
    run = RunFolder(tmp_path)
    results = [
        soundly(run.summary),
        soundly(lambda: read_metrics(tmp_path)),
        soundly(lambda: Echo.load(tmp_path)),
    ]
    soundly(lambda: load(tmp_path))
    soundly(lambda: run.check(described, resume=True))
    tally["noticed" if None in results else "without effect"] += 1


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
JSON = LEAF | st.lists(LEAF, max_size=3) | st.dictionaries(st.text(max_size=5), LEAF, max_size=3)


@fuzz(quick=50)
@given(key=st.sampled_from(["algo", "env", "env_options", "seed", "config", "format"]), value=JSON)
def test_edited_configurations(key, value, finished, tmp_path, tally):
    written(finished, tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), key: value}))
    found = soundly(lambda: Echo.load(tmp_path))
    soundly(lambda: load(tmp_path))
    tally["refused" if found is None else "taken"] += 1


# Environments.

TROUBLES = ("raise", "exit", "nan", "inf", "shape", "dtype", "words", "nothing", "two", "reward", "flag", "never ends",
            "ends at once", "other space", "reseed", "none", "threads")  # fmt: skip


class Unruly(gymnasium.Env):
    """Does something odd in its calls of certain numbers, and something in order otherwise."""

    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, script):
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
        self.script, self.calls, self.steps = script, 0, 0

    def answer(self, end=False):
        self.calls += 1
        trouble = self.script.get(self.calls, "fine")
        obs, reward, ended = np.zeros(2, np.float32), 1.0, end
        match trouble:
            case "raise":
                raise random.choice([ValueError, KeyError, AssertionError, RecursionError, StopIteration])(
                    "odd\nwords"
                )
            case "exit":
                sys.exit(1)
            case "nan" | "inf":
                obs = np.full(2, float(trouble), np.float32)
            case "shape":
                obs = np.zeros((3, 1), np.float32)
            case "dtype":
                obs = np.array(["a", "b"])
            case "words":
                obs = "zero"
            case "none":
                obs = None
            case "reward":
                reward = "much"
            case "flag":
                ended = 1
            case "ends at once":
                ended = True
            case "other space":
                self.observation_space = gymnasium.spaces.Discrete(3)
            case "reseed":
                random.seed(0)
                np.random.seed(0)  # noqa: NPY002 - that is what they do
            case "threads":
                threading.Thread(target=time.sleep, args=(0.01,)).start()
            case "nothing":
                return None
            case "two":
                return 1, 2
            case "never ends":
                ended = False
        return obs, reward, ended, False, {}

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        found = self.answer()
        return found if found is None or len(found) == 2 else (found[0], {})

    def step(self, action):
        self.steps += 1
        return self.answer(end=self.steps == 7)


@fuzz(quick=20, share=0.1)
@given(script=st.dictionaries(st.integers(1, 40), st.sampled_from(TROUBLES), max_size=4))
def test_environments(script, tmp_path_factory, tally):
    """A run ends as planned, or with one line and what was learned; then resuming goes on from there."""
    out = tmp_path_factory.mktemp("run")
    config = IdleConfig(total_steps=30, evaluation_episodes=1, copies=1, steps=1)

    def learn(script, resume):
        opened = open_environment(Unruly(script))
        program = DQN.make_program([opened], config, [7])
        record = Record([7], [RunFolder(out)], [DQN.describe(None, {}, 7, config)])
        with record:
            return program.learn(record, resume)

    found = soundly(lambda: learn(script, False))
    tally["broken" if found is None else "fine"] += 1
    if found is None:
        with contextlib.suppress(UserError):
            learn({}, True)
        if not RunFolder(out).is_finished:
            assert {"ends at once", "never ends"} & set(script.values())  # it does not repeat itself
            tally["not resumed, since it does not repeat itself"] += 1
            return
    assert RunFolder(out).is_finished
    episodes = [int(row["episode"]) for row in read_metrics(out)]
    assert episodes == list(range(1, len(episodes) + 1))


def test_what_a_file_names_is_not_imported(finished, tmp_path):
    """A configuration may name parts of other packages; reading it imports none."""
    written(finished, tmp_path)
    config = tmp_path / "config.json"
    about = json.loads(config.read_text())
    (tmp_path / "planted.py").write_text("raise SystemExit('ran')")
    for key, value in (("algo", "planted:Agent"), ("config", {"planner": {"name": "planted:Planner"}})):
        config.write_text(json.dumps({**about, key: value}))
        assert soundly(lambda: load(tmp_path)) is None
    assert "planted" not in sys.modules
