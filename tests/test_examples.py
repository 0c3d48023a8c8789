"""The examples run, on tiny budgets."""

import importlib.util
import re
import runpy
import sys
from pathlib import Path

import pytest
import tiny

from e3rl import NeuralE3Config
from e3rl.runs.settings import changed

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(path), "--quick"])
    runpy.run_path(str(path), run_name="__main__")
    assert "loaded again" in capsys.readouterr().out


def test_solving_a_lock(monkeypatch, capsys):
    """The example with the lock and the settings that the other tests have compiled already."""
    [path] = [path for path in EXAMPLES if path.stem == "solve_lock"]
    spec = importlib.util.spec_from_file_location("solve_lock", path)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert changed(NeuralE3Config(), example.QUICK).explore.total(5) == 4
    monkeypatch.setattr(example, "OPTIONS", {**tiny.OPTIONS, "seed": 7})
    monkeypatch.setattr(example, "QUICK", tiny.CHANGES)
    example.main(quick=True)
    *_, learned, played, loaded = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"return -?\d\.\d\d of 4\.33", learned)
    assert re.fullmatch(r"one episode through Gymnasium: -?\d\.\d\d", played)
    assert re.fullmatch(r"loaded again: -?\d\.\d\d over 20 episodes", loaded)
