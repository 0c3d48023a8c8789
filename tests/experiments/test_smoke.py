"""The small scale: every kind of cell runs from end to end, is done then, and goes on after a kill."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e3rl import cli
from e3rl.baselines.presets import DQN_CONFIGS, PPO_CONFIGS
from e3rl.experiments.catalogue import CELLS, IS_DONE, SETTINGS
from e3rl.experiments.figures import FIGURES
from e3rl.experiments.names import LOCK
from e3rl.experiments.smoke import smaller
from e3rl.neural.presets import PRESETS
from e3rl.reports.drawn import DRAWN

KINDS = (
    "lock/h5", "maze/5-paper", "mountaincar/steadied", "mountaincar/paper-rounds", "stopping-protocol/h5",
    "baselines-maze/5-dqn",
)  # fmt: skip
"""One cell of every runner, and mazes."""


@pytest.mark.parametrize("preset", [*PRESETS, *DQN_CONFIGS, *PPO_CONFIGS])
def test_small_settings_are_settings(preset):
    config = {**PRESETS, **DQN_CONFIGS, **PPO_CONFIGS}[preset]
    assert smaller(config).evaluation_episodes == 3
    assert smaller(smaller(config)) == smaller(config)
    assert type(smaller(config)) is type(config)


def test_cells_share_programs():
    """Compiling is all that takes time there, and is done once for cells that are the same when they are small."""
    cells = [cell for cell in FIGURES["paper"].cells if cell in CELLS]
    programs = set()
    for cell in cells:
        small = CELLS[cell].experiment_of(cell, True)
        options = {"horizon": small.horizon} if hasattr(small, "horizon") else dict(small.options)
        kind = getattr(small, "algo", "neural-e3"), getattr(small, "env", LOCK)
        options.pop("antishaped", None)  # data of the program
        programs.add((*kind, str(sorted(options.items())), CELLS[cell].config_of(small, True)))
    assert len(cells) > 90
    assert len(programs) <= 26


def run_cell(cell, out, *more):
    return cli.main(["reproduce", cell, "--scale", "smoke", "--out", str(out), *more])


@pytest.mark.slow
@pytest.mark.parametrize("cell", KINDS)
def test_a_cell_is_run_once(cell, tmp_path, capsys):
    assert not IS_DONE[cell](cell, tmp_path, (), True)
    assert run_cell(cell, tmp_path) == 0
    assert IS_DONE[cell](cell, tmp_path, (), True)
    assert not IS_DONE[cell](cell, tmp_path, (), False)
    assert not (tmp_path / "unfinished").exists()
    path = tmp_path / f"{cell.replace('/', '-')}.json"
    about, before = json.loads(path.read_text()), path.stat().st_mtime_ns
    assert about["command"] == f"e3rl reproduce {cell} --scale smoke"
    assert about["settings"]["seeds"] == list(SETTINGS[cell].seeds[:1])
    assert run_cell(cell, tmp_path) == 0
    assert path.stat().st_mtime_ns == before
    assert run_cell(cell, tmp_path, "--again") == 0
    assert path.stat().st_mtime_ns > before
    assert not (tmp_path / "unfinished").exists()
    assert unchanging(json.loads(path.read_text())) == unchanging(about)
    capsys.readouterr()


def unchanging(about):
    """Without what it took."""
    if isinstance(about, dict):
        return {key: unchanging(value) for key, value in about.items() if key != "seconds"}
    return [unchanging(value) for value in about] if isinstance(about, list) else about


def rows(path):
    with path.open(newline="") as file:
        return [{**row, "seconds": None} for row in csv.DictReader(file)]


@pytest.mark.slow
@pytest.mark.parametrize("cell", KINDS)
def test_a_cell_that_was_killed_goes_on(cell, tmp_path):
    """From its first checkpoint; the table is that of a run that nobody killed."""
    command = [sys.executable, "-m", "e3rl.cli", "reproduce", cell, "--scale", "smoke", "--out"]
    environment = {**os.environ, "E3RL_CHECKPOINT_SECONDS": "0", "JAX_PLATFORMS": "cpu"}
    subprocess.run([*command, str(tmp_path / "whole")], env=environment, check=True, capture_output=True)
    killed = subprocess.Popen(
        [*command, str(tmp_path / "killed")], env=environment, stderr=subprocess.DEVNULL
    )
    while killed.poll() is None and not list(
        tmp_path.glob("killed/unfinished/*/*/checkpoint/state.safetensors")
    ):
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert not IS_DONE[cell](cell, tmp_path / "killed", (), True)
    subprocess.run([*command, str(tmp_path / "killed")], env=environment, check=True, capture_output=True)
    tables = sorted(path.name for path in (tmp_path / "whole").glob("*.csv"))
    assert tables
    assert tables == sorted(path.name for path in (tmp_path / "killed").glob("*.csv"))
    for name in tables:
        assert rows(tmp_path / "whole" / name) == rows(tmp_path / "killed" / name)


@pytest.mark.slow
def test_predictions_are_drawn_and_kept(tmp_path, capsys):
    drawn = DRAWN["predictions"]
    assert not drawn.is_done("predictions", tmp_path)
    assert run_cell("predictions", tmp_path) == 0
    assert drawn.is_done("predictions", tmp_path)
    about = json.loads((tmp_path / "predictions.json").read_text())
    assert about["command"] == "e3rl reproduce predictions --scale smoke"
    assert [row["step"] for row in about["steps"]] == list(range(1, len(about["steps"]) + 1))
    assert all(row["disagreement"] >= 0.0 and row["largest_error"] >= 0.0 for row in about["steps"])
    assert not (tmp_path / "unfinished").exists()
    assert capsys.readouterr().err == f"picture: {tmp_path / 'predictions.png'}\n"


def test_ellipsoids_are_drawn_and_kept(tmp_path, capsys):
    assert run_cell("ellipsoids", tmp_path) == 0
    about = json.loads((tmp_path / "ellipsoid.json").read_text())
    assert about["command"] == "e3rl reproduce ellipsoids"
    assert about["practical"]["rank"] == [0, 2]
    assert (tmp_path / "ellipsoids.png").is_file()
    capsys.readouterr()


@pytest.mark.parametrize("cell", ["reach/taxi", "dreem"])
def test_what_cannot_be_made_small(cell, tmp_path, capsys):
    assert run_cell(cell, tmp_path) == 2
    assert capsys.readouterr().err == f"e3rl: error: {cell} has no smaller version: leave --scale out\n"
    assert list(tmp_path.iterdir()) == []


def test_small_results_have_a_folder_of_their_own(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", "figure-1", "--scale", "smoke"]) == 0
    assert (tmp_path / "runs/smoke/figures/figure1/environments.png").is_file()
    assert not Path("results").exists()
    assert "1 cells, 0 of them done before" in capsys.readouterr().err
    assert cli.main(["reproduce", "figure-1", "--scale", "smoke", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"cells": 1, "done_before": 1, "failed": {}}
    assert FIGURES["figure-1"].cells == ("environments",)
