"""The examples run, on tiny budgets."""

import ast
import importlib.util
import itertools
import json
import re
import runpy
import shlex
import sys
from pathlib import Path

import gymnasium
import pytest
import tiny
from scripted import Echo

from e3rl import NeuralE3Config, cli
from e3rl.runs.settings import changed

FOLDER = Path(__file__).parents[1] / "examples"
SCRIPTS = [path for path in sorted(FOLDER.glob("*.py")) if path.stem != "sweep"]
SAID = {
    "batch_scheduler": "finished: return",
    "own_environment": "its way: ",
    "slow_simulator": "in processes of their own",
    "solve_lock": "loaded again",
}


@pytest.fixture
def ids():
    """What an example registers is forgotten."""
    before = set(gymnasium.registry)
    yield
    for name in set(gymnasium.registry) - before:
        gymnasium.registry.pop(name)


def example(name, monkeypatch):
    """The example as a module, as its own folder finds it."""
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.delitem(sys.modules, name, raising=False)
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_example_runs(path, monkeypatch, capsys, ids):
    monkeypatch.setattr(sys, "argv", [str(path), "--quick"])
    monkeypatch.syspath_prepend(str(FOLDER))
    runpy.run_path(str(path), run_name="__main__")
    assert SAID[path.stem] in capsys.readouterr().out


def test_solving_a_lock(monkeypatch, capsys):
    """The example with the lock and the settings that the other tests have compiled already."""
    module = example("solve_lock", monkeypatch)
    assert changed(NeuralE3Config(), module.QUICK).explore.total(5) == 4
    monkeypatch.setattr(module, "OPTIONS", {**tiny.OPTIONS, "seed": 7})
    monkeypatch.setattr(module, "QUICK", tiny.CHANGES)
    module.main(quick=True)
    learned, played, loaded = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"seed 7: return -?\d\.\d{3} .* of the optimum 4\.333, .*", learned)
    assert re.fullmatch(r"one episode through Gymnasium: -?\d\.\d\d", played)
    assert re.fullmatch(r"loaded again: -?\d\.\d\d over 20 episodes", loaded)


def test_an_environment_of_ones_own(monkeypatch, capsys, ids):
    example("own_environment", monkeypatch).main(quick=False)
    verdict, discovered, way = capsys.readouterr().out.splitlines()
    assert verdict.startswith("seed 0: return 0.840 ")
    assert discovered.startswith("22 states were discovered; exploration ended by itself")
    assert way == "its way: " + "←" * 6 + "→" * 11  # to the key, then to the door


def test_a_slow_simulator(monkeypatch, capsys, ids):
    """In processes of their own, and with the same result."""
    module = example("slow_simulator", monkeypatch)
    changed(module.DQNConfig(), module.SETTINGS)
    monkeypatch.setattr(module, "QUICK", {**module.QUICK, "hidden": 8, "updates": 1})
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # of the processes
    module.main(quick=True)
    alone, apart, compared = capsys.readouterr().out.splitlines()
    assert alone.startswith("seed 0: return ")
    assert apart.partition(",")[0] == alone.partition(",")[0]
    assert re.fullmatch(r"\d+ steps a second in one process, \d+ in processes of their own", compared)


def test_under_a_scheduler(monkeypatch, capsys):
    """The turns are played by the real command; here the first is ended at once, whatever it has done by then."""
    module = example("batch_scheduler", monkeypatch)
    real, seconds = module.one_turn, iter([2.5, 60.0, 60.0])
    monkeypatch.setattr(module, "one_turn", lambda job, out, _: real(job, out, next(seconds)))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("PYTHONPATH", str(FOLDER.parent / "src"))
    monkeypatch.setattr(module, "QUICK", [*module.QUICK[:3], "explore.episodes=20", "--resume"])
    module.main(quick=True)
    *turns, end = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"turn 1 ended with exit code -?\d+, after \d+ episodes in all", turns[0])
    # On slippery ice returns differ, so more than a hundred greedy episodes judge the policy.
    last = re.fullmatch(r"turn \d+ ended with exit code 0, after (\d+) episodes in all", turns[-1])
    assert last is not None
    assert int(last[1]) >= 120
    assert end.startswith("finished: return ")
    assert end.endswith(f", {last[1]} episodes")


def commands():
    """Those that examples name: of the scheduler's job, and in the texts of the scripts."""
    job = re.findall(r"^srun e3rl (train .*)$", (FOLDER / "job.sbatch").read_text(), re.MULTILINE)
    texts = [ast.get_docstring(ast.parse(path.read_text())) for path in FOLDER.glob("*.py")]
    return job + [found for text in texts for found in re.findall(r"e3rl (train [^`]*)", text)]


def test_commands_that_examples_name_are_understood():
    found = commands()
    assert len(found) >= 3
    for command in found:
        assert cli.parser().parse_args(shlex.split(command)).env


def test_a_sweep(monkeypatch, capsys, tmp_path):
    module = example("sweep", monkeypatch)
    for values in itertools.product(*module.GRID.values()):
        changed(NeuralE3Config(), dict(zip(module.GRID, values, strict=True)))
    monkeypatch.setattr(module, "AGENT", Echo)
    monkeypatch.setattr(module, "GRID", {"offset": (0, 1), "episodes": (2, 3)})
    for _ in range(2):  # the second time everything is there
        module.main(tmp_path, workers=1)
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 4
        assert all(re.fullmatch(r"offset=\d-episodes=\d: return .* to .*, 3 seeds", line) for line in lines)
    assert len(list(tmp_path.glob("*/seed*/summary.json"))) == 12


def test_the_notebook(monkeypatch, capsys, tmp_path):
    """Every cell, in order, with the lock and the settings of the other tests."""
    notebook = json.loads((FOLDER / "open_a_lock.ipynb").read_text())
    monkeypatch.setenv("MPLBACKEND", "agg")
    import matplotlib.pyplot as plt

    plt.switch_backend("agg")
    here = {"OUT": str(tmp_path / "run"), "OPTIONS": {**tiny.OPTIONS, "seed": 7}, "CHANGES": tiny.CHANGES}
    names: dict = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "open_a_lock.ipynb", "exec"), names)
            if "parameters" in cell["metadata"].get("tags", []):
                assert here.keys() == {name for name in names if name.isupper()}
                names |= here
    plt.close("all")
    verdict, played = capsys.readouterr().out.splitlines()
    assert verdict.startswith("seed 7: return ")
    assert re.fullmatch(r"return -?\d\.\d{3}, the best possible is 4\.333 on average", played)
    assert len(names["frames"]) == 4


def test_the_notebook_shows_what_it_made():
    """It was run as a whole: every cell of code has its number, the lock was opened, two pictures are there."""
    cells = json.loads((FOLDER / "open_a_lock.ipynb").read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell["outputs"]]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    text = "".join("".join(output.get("text", [])) for output in outputs if output.get("name") == "stdout")
    assert "100% of the optimum" in text
