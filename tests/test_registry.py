"""Parts by name: ours, and those of a package that somebody else installed."""

import sys
import textwrap

import pytest

from e3rl.neural.config import NeuralE3Config
from e3rl.planners import EXPLOITERS, PLANNERS
from e3rl.planners.graph_search import GraphSearch
from e3rl.registry import Registry
from e3rl.runs.settings import as_dict, changed, from_dict
from e3rl.types import UserError

MODULE = "from their_package.planner import Hidden, Theirs\n"
PLANNER = """
from dataclasses import dataclass

from e3rl.planners.uniform import Uniform
from e3rl.runs.settings import setting


@dataclass(frozen=True)
class Theirs(Uniform):
    eagerness: float = setting(0.5, "How eager", at_most=1)


class Hidden(Uniform):
    pass
"""
ENTRY_POINTS = """
[e3rl.planners]
theirs = their_package:Theirs
nowhere = their_package:Missing
broken = their_broken_package:Theirs
graph = their_package:Hidden

[e3rl.testing]
theirs = their_package:Theirs
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package as pip installs it: modules that work, one that does not, and metadata with entry points."""
    (tmp_path / "their_package").mkdir()
    (tmp_path / "their_package" / "__init__.py").write_text(MODULE)
    (tmp_path / "their_package" / "planner.py").write_text(PLANNER)
    (tmp_path / "their_broken_package.py").write_text("raise RuntimeError('no GPU\\nhere')\n")
    about = tmp_path / "their_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(textwrap.dedent(ENTRY_POINTS))
    monkeypatch.syspath_prepend(tmp_path)
    for registry in (PLANNERS, EXPLOITERS):  # they looked before the package was there
        registry.__dict__.pop("_offered", None)
    yield
    for registry in (PLANNERS, EXPLOITERS):
        registry.__dict__.pop("_offered", None)
    for name in ("their_package", "their_package.planner"):
        sys.modules.pop(name, None)


def test_ours():
    registry = Registry("animal", "e3rl.nobody-has-this", {"cat": int, "dog": str})
    assert list(registry) == ["cat", "dog"]
    assert len(registry) == 2
    assert dict(registry) == {"cat": int, "dog": str}
    assert registry.called("dog") is str
    assert registry.name_of(int) == "cat"
    assert "cat" in registry
    assert "cow" not in registry
    assert 3 not in registry
    with pytest.raises(KeyError):
        registry["cow"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("dgo", r"unknown animal 'dgo'; did you mean 'dog'\? known: cat, dog$"),
        ("elephant", "unknown animal 'elephant'; known: cat, dog$"),
        (None, "unknown animal None; known: cat, dog$"),
    ],
)
def test_a_name_that_nobody_has(name, message):
    registry = Registry("animal", "e3rl.nobody-has-this", {"cat": int, "dog": str})
    with pytest.raises(UserError, match=message):
        registry.called(name)


def test_a_part_without_a_name():
    registry = Registry("animal", "e3rl.nobody-has-this", {"cat": int})
    assert registry.name_of(float) == "builtins:float"
    assert registry.called("builtins:float") is float
    for name in ("builtins:flote", "not_imported_yet:Anything", "builtins"):
        with pytest.raises(UserError, match="unknown animal"):
            registry.called(name)
    assert "not_imported_yet" not in sys.modules


@pytest.mark.usefixtures("package")
def test_a_planner_of_another_package_is_found_and_has_its_own_settings():
    config = changed(NeuralE3Config(), {"planner": "theirs", "planner.eagerness": "0.25"})
    from their_package import Theirs

    assert config.planner == Theirs(eagerness=0.25)
    stored = as_dict(config)
    assert stored["planner"] == {"name": "theirs", "eagerness": 0.25}
    assert from_dict(NeuralE3Config, stored) == config
    assert as_dict(NeuralE3Config(planner=Theirs())) == as_dict(
        changed(NeuralE3Config(), {"planner": "theirs"})
    )
    with pytest.raises(UserError, match="planner 'theirs' has no setting 'nodes'; it has eagerness"):
        changed(config, {"planner.nodes": 3})
    with pytest.raises(UserError, match="eagerness must be at most 1, got 2"):
        changed(config, {"planner.eagerness": 2})


@pytest.mark.usefixtures("package")
def test_what_it_offers_stands_behind_ours():
    ours = ["value", "unified", "graph", "states", "mcts", "uniform"]
    assert list(PLANNERS) == [*ours, "theirs", "nowhere", "broken"]
    assert len(PLANNERS) == 9
    assert PLANNERS.called("graph") is GraphSearch  # a name of ours cannot be taken
    from their_package import Hidden

    unnamed = as_dict(NeuralE3Config(planner=Hidden()))
    assert unnamed["planner"]["name"] == "their_package.planner:Hidden"
    assert from_dict(NeuralE3Config, unnamed).planner == Hidden()
    assert "theirs" not in EXPLOITERS
    with pytest.raises(
        UserError, match=r"unknown exploiter 'theirs'; known: value, dqn, graph, states, mcts$"
    ):
        changed(NeuralE3Config(), {"exploit": "theirs"})


@pytest.mark.usefixtures("package")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "broken",
            "planner 'broken' of the package their-package cannot be loaded: RuntimeError: no GPU here$",
        ),
        (
            "nowhere",
            "planner 'nowhere' of the package their-package cannot be loaded: AttributeError: .*Missing",
        ),
    ],
)
def test_a_broken_part_is_one_line_and_disturbs_no_other(name, message):
    with pytest.raises(UserError, match=message) as raised:
        changed(NeuralE3Config(), {"planner": name})
    assert "\n" not in str(raised.value)
    for works in ("theirs", "graph", "value"):
        config = changed(NeuralE3Config(), {"planner": works})
        assert as_dict(config)["planner"]["name"] == works
    with pytest.raises(
        UserError, match=r"known: value, unified, graph, states, mcts, uniform, theirs, nowhere, broken$"
    ):
        changed(NeuralE3Config(), {"planner": "best"})
