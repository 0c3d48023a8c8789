"""Where in somebody else's code an error arose."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from e3rl.envs.adapter import make
from e3rl.envs.blame import told
from e3rl.envs.opening import open_environment
from e3rl.types import UserError

HERE = Path(__file__)


def line_of(words):
    return next(
        i for i, line in enumerate(HERE.read_text().splitlines(), 1) if line.strip().startswith(words)
    )


class Wrong(gymnasium.Env):
    """Raises where it is told to."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, place="", error="value"):
        self.place, self.error = place, error
        self.fail("init")

    def fail(self, place):
        if self.place == place and self.error == "value":
            raise ValueError("a cable\ncame off")
        if self.place == place and self.error == "exit":
            raise SystemExit(3)

    def reset(self, *, seed=None, options=None):
        self.fail("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.fail("step")
        return np.zeros(2, np.float32), 0.0, False, False, {}

    def close(self):
        self.fail("close")


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register("Wrong-v0", Wrong, max_episode_steps=5)
    yield
    del gymnasium.registry["Wrong-v0"]


@pytest.fixture(autouse=True)
def in_its_folder(monkeypatch):
    monkeypatch.chdir(HERE.parent)


def place(words):
    return rf"\({HERE.name}, line {line_of(words)}\)"


@pytest.mark.parametrize(
    ("error", "words", "text"),
    [
        ("value", "raise ValueError", "ValueError: a cable came off"),
        ("exit", "raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_an_environment_that_cannot_be_made(error, words, text):
    with pytest.raises(UserError, match=rf"cannot be made with .*: {text} {place(words)}$"):
        make("Wrong-v0", place="init", error=error)


@pytest.mark.parametrize("where", ["reset", "step"])
@pytest.mark.parametrize(
    ("error", "words", "text"),
    [
        ("value", "raise ValueError", "ValueError: a cable came off"),
        ("exit", "raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_an_environment_that_fails_while_it_is_played(where, error, words, text):
    copies = open_environment("Wrong-v0", {"place": where, "error": error}).copies(1)
    answer = copies.reset([0])
    if where == "step":
        assert not answer.failures
        answer = copies.step(np.zeros(1, int))
    assert answer.failures[0].problem == f"{text} {place(words)}".replace("\\", "")
    assert "in fail" in answer.failures[0].traceback


def test_an_environment_that_cannot_be_closed_is_a_warning():
    opened = open_environment("Wrong-v0", {"place": "close"})
    with pytest.warns(UserWarning, match="Wrong-v0 cannot be closed: ValueError: a cable came off"):
        opened.close()


def test_an_environment_without_spaces():
    class Bare(gymnasium.Env):
        pass

    with pytest.raises(UserError, match="Bare cannot be used: AttributeError"):
        make(Bare())


def test_of_an_error_in_a_library_the_line_that_called_it():
    try:
        json.loads("{")
    except ValueError as error:
        said = told(error)
    assert said.endswith(place("json.loads(").replace("\\", ""))


def test_without_a_traceback_there_is_no_place():
    assert told(ValueError("so")) == "ValueError: so"
    assert told(KeyError()) == "KeyError"
