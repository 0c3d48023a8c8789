"""Many cells: failures are listed, lost processes replaced, and nothing is run twice."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from e3rl import cli
from e3rl.cli import reproduction
from e3rl.experiments import sweep
from e3rl.experiments.failed import failures_under, forget_failure, note_failure
from e3rl.experiments.sweep import Task, sweep_here, sweep_in_processes
from e3rl.experiments.sweep_on_ray import sweep_on_ray, work
from e3rl.runs.processors import processors
from e3rl.types import UserError

TASKS = [Task("one", Path("a")), Task("two", Path("b")), Task("three", Path("c"))]


def tasks_in(folder):
    return [replace(task, out=folder / task.out) for task in TASKS]


def test_one_after_the_other_and_failures_are_kept(tmp_path):
    done, said = [], []

    def run(task):
        done.append(task.cell)
        if task.cell == "two":
            raise UserError("it broke")

    outcomes = sweep_here(tasks_in(tmp_path), run, str, said.append)
    assert done == ["one", "two", "three"]
    assert [outcome.error for outcome in outcomes] == [None, "it broke", None]
    assert sweep.failures(outcomes) == {"two": "it broke"}
    assert said[1].startswith("[2 of 3] two: failed: it broke, ")
    [failed] = failures_under(tmp_path)
    assert failed[:3] == ("two", "it broke", "e3rl reproduce two")


def test_an_interruption_ends_all_of_it():
    def run(task):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep_here(TASKS, run, str, print)


def test_a_task_as_a_command():
    task = Task("lock/h5", Path("out"), (1, 2), True, True)
    assert task.command == [
        "reproduce", "lock/h5", "--out", "out", "--seeds", "1,2", "--scale", "smoke", "--again",
    ]  # fmt: skip
    assert Task("lock/h5", Path("out")).command == ["reproduce", "lock/h5", "--out", "out"]


SCRIPT = """
import os, pathlib, signal, sys
*_, cell, _, out = sys.argv
place = pathlib.Path(out); place.mkdir(parents=True, exist_ok=True)
tries = len(list(place.glob(cell + "-*")))
(place / f"{cell}-{tries}").write_text(str(sorted(os.sched_getaffinity(0))))
print("begun", cell, file=sys.stderr)
if cell == "lost" and tries < 2 or cell == "doomed":
    os.kill(os.getpid(), signal.SIGKILL)
if cell == "wrong":
    print("e3rl: error: no such thing", file=sys.stderr); sys.exit(2)
"""


@pytest.fixture
def scripted(monkeypatch, tmp_path):
    """Processes that do what the name of their cell says in place of the command line."""
    real = subprocess.Popen
    monkeypatch.setattr(
        sweep.subprocess,
        "Popen",
        lambda command, **more: real([sys.executable, "-c", SCRIPT, *command[3:]], **more),
    )
    return lambda *cells: [Task(cell, tmp_path) for cell in cells]


def test_processes_that_are_lost_are_replaced(scripted, tmp_path):
    said = []
    outcomes = sweep_in_processes(scripted("fine", "lost", "wrong", "doomed"), 2, said.append)
    found = {outcome.cell: outcome.error for outcome in outcomes}
    assert found == {
        "fine": None, "lost": None, "wrong": "no such thing", "doomed": "its process was lost 4 times",
    }  # fmt: skip
    counts = {cell: len(list(tmp_path.glob(f"{cell}-*"))) for cell in found}
    assert counts == {"fine": 1, "lost": 3, "wrong": 1, "doomed": 4}
    assert said.count("lost: its process was lost (signal 9), it is taken up again") == 2
    assert "begun fine" in said
    assert not any("no such thing" in line for line in said if not line.startswith("["))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processors cannot be chosen here")
def test_processes_are_pinned(scripted, tmp_path):
    sweep_in_processes(scripted("fine"), len(processors()), print)
    assert len(json.loads((tmp_path / "fine-0").read_text())) == 1


def test_an_interrupted_sweep_ends_its_processes(monkeypatch, tmp_path):
    started, real = threading.Event(), subprocess.Popen
    processes = []

    def sleeper(command, **more):
        processes.append(real([sys.executable, "-c", "import time; time.sleep(60)"], **more))
        started.set()
        return processes[-1]

    monkeypatch.setattr(sweep.subprocess, "Popen", sleeper)
    main = threading.get_ident()
    threading.Thread(target=lambda: (started.wait(), signal.pthread_kill(main, signal.SIGINT))).start()
    with pytest.raises(KeyboardInterrupt):
        sweep_in_processes([Task("one", tmp_path), Task("two", tmp_path)], 1, print)
    assert [process.wait() for process in processes] == [-signal.SIGTERM]


def write_result(task):
    task.out.mkdir(parents=True, exist_ok=True)
    (task.out / "unfinished").mkdir()
    (task.out / "unfinished" / "state").write_text("half")
    (task.out / f"{task.cell}.csv").write_text("1")


def test_a_worker_elsewhere_sends_files_home(tmp_path):
    files, seconds, error = work(Task("one", tmp_path / "nowhere"), ".token", write_result, str)
    assert (files, error) == ({"one.csv": b"1"}, None)
    assert seconds >= 0.0
    assert not (tmp_path / "nowhere").exists()


def test_a_worker_that_shares_the_folder_writes_there(tmp_path):
    (tmp_path / ".token").write_text("")
    assert work(Task("one", tmp_path), ".token", write_result, str)[0] == {}
    assert (tmp_path / "one.csv").read_text() == "1"


def test_without_ray_it_is_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert cli.main(["reproduce", "figure-1", "--on", "ray", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.endswith("e3rl: error: --on ray needs Ray: pip install 'e3rl[ray]'\n")
    with pytest.raises(UserError, match="pip install"):
        sweep_on_ray(TASKS, print, str, print)


@pytest.mark.parametrize("how", [["--workers", "2"], ["--on", "ray"], []])
def test_an_unknown_cell_is_refused_before_anything_starts(how, capsys):
    assert cli.main(["reproduce", "lock/h6", *how]) == 2
    assert (
        capsys.readouterr().err == "e3rl: error: unknown experiment 'lock/h6'; `e3rl reproduce` lists them\n"
    )


@pytest.mark.parametrize("workers", ["0", "-1", "two", "1001"])
def test_workers_are_counted(workers, capsys):
    assert cli.main(["reproduce", "figure-1", "--workers", workers]) == 2
    assert "is not a whole number from 1 to 1000" in capsys.readouterr().err


def test_a_failure_is_noted_until_the_cell_is_done(tmp_path):
    note_failure(tmp_path / "lock", "lock/h5", "no memory", (3, 4), smoke=True)
    note_failure(tmp_path / "lock", "lock/h10", "no time")
    found = {one.experiment: one for one in failures_under(tmp_path)}
    assert found["lock/h5"].command == "e3rl reproduce lock/h5 --seeds 3,4 --scale smoke"
    forget_failure(tmp_path / "lock", "lock/h5")
    assert [one.error for one in failures_under(tmp_path)] == ["no time"]
    (tmp_path / "lock" / "unfinished" / "half.json").write_text('{"experiment": "lo')
    assert [one.error for one in failures_under(tmp_path)] == ["no time"]
    (tmp_path / "lock" / "unfinished" / "half.json").unlink()
    forget_failure(tmp_path / "lock", "lock/h10")
    assert not (tmp_path / "lock" / "unfinished").exists()
    forget_failure(tmp_path / "lock", "lock/h10")


def test_a_sweep_with_failures_says_so(monkeypatch, tmp_path, capsys):
    from e3rl.experiments import figures
    from e3rl.experiments.catalogue import EXPERIMENTS

    def broken(name, out, say, seeds):
        raise UserError("the disk is full")

    def bug(name, out, say, seeds):
        raise ZeroDivisionError("by nothing")

    monkeypatch.setitem(EXPERIMENTS, "lock/a", broken)
    monkeypatch.setitem(EXPERIMENTS, "lock/b", bug)
    monkeypatch.setitem(EXPERIMENTS, "lock/c", lambda name, out, say, seeds: [])
    cells = SimpleNamespace(cells=("lock/a", "lock/b", "lock/c"))
    monkeypatch.setitem(figures.FIGURES, "figure-9", cells)
    assert cli.main(["reproduce", "figure-9", "--out", str(tmp_path), "--json"]) == 1
    out, err = capsys.readouterr()
    failed = {"lock/a": "the disk is full", "lock/b": "ZeroDivisionError: by nothing"}
    assert json.loads(out) == {"cells": 3, "done_before": 0, "failed": failed}
    assert "[3 of 3] lock/c: done" in err
    assert err.endswith("failed: lock/a: the disk is full\nfailed: lock/b: ZeroDivisionError: by nothing\n")
    assert not (tmp_path / "sweeps").exists()
    assert {one.experiment: one.error for one in failures_under(tmp_path)} == failed
    monkeypatch.setitem(EXPERIMENTS, "lock/a", lambda name, out, say, seeds: [])
    assert cli.main(["reproduce", "lock/a", "--out", str(tmp_path / "lock")]) == 0
    assert [one.experiment for one in failures_under(tmp_path)] == ["lock/b"]
    capsys.readouterr()


def test_cells_of_one_folder_are_run_again_side_by_side(tmp_path, monkeypatch):
    """What one has made so far is nothing to another that ends."""

    def run(task, out):
        out.mkdir(parents=True)
        (out / f"{task.cell}.json").write_text("new")
        if task.cell == "one":
            reproduction.run_cell(Task("other", tmp_path, again=True))
            assert [path.name for path in tmp_path.glob("*.json")] == ["other.json"]
        return []

    monkeypatch.setattr(reproduction, "_run", run)
    reproduction.run_cell(Task("one", tmp_path, again=True))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.json", "other.json"]


def test_a_figure_of_which_a_part_is_done_leaves_what_the_whole_one_took(monkeypatch, tmp_path, capsys):
    from e3rl.experiments import figures
    from e3rl.experiments.catalogue import EXPERIMENTS, IS_DONE

    monkeypatch.setitem(figures.FIGURES, "figure-9", SimpleNamespace(cells=("lock/a", "lock/b")))
    for name in ("lock/a", "lock/b"):
        monkeypatch.setitem(EXPERIMENTS, name, lambda name, out, say, seeds: [])
    command = ["reproduce", "figure-9", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    whole = (tmp_path / "sweeps" / "figure-9.json").read_bytes()
    told = json.loads(whole)
    assert (told["command"], told["config"]) == ("e3rl reproduce figure-9", {"figure": "figure-9"})
    assert told["cells"].keys() == {"lock/a", "lock/b"}
    monkeypatch.setitem(IS_DONE, "lock/a", lambda *_: True)
    assert cli.main(command) == 0
    assert (tmp_path / "sweeps" / "figure-9.json").read_bytes() == whole
    monkeypatch.setitem(IS_DONE, "lock/a", lambda *_: False)
    assert cli.main([*command, "--seeds", "7"]) == 0  # of other seeds
    assert (tmp_path / "sweeps" / "figure-9.json").read_bytes() == whole
    assert "figure-9: 1 cell in" in capsys.readouterr().err
    assert cli.main(["reproduce", "figure-1", "--confirm", "--out", str(tmp_path / "other")]) == 2
    assert "pictures only" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_what_was_typed_is_told_but_for_folders():
    words = "reproduce figure-2c --workers 3 --confirm --out there"
    assert reproduction._command(cli.parser().parse_args(words.split())) == (
        "e3rl reproduce figure-2c --confirm --workers 3"
    )
    words = "reproduce paper --scale smoke --again --on ray --address auto"
    assert reproduction._command(cli.parser().parse_args(words.split())) == (
        "e3rl reproduce paper --scale smoke --again --on ray"
    )
