"""Cells on a real Ray cluster with two workers: one worker is killed on the way, and nothing is lost or doubled."""

import csv
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

import e3rl
from e3rl import cli
from e3rl.cli.reproduction import reason, run_among_others
from e3rl.experiments.catalogue import IS_DONE
from e3rl.experiments.sweep import Task
from e3rl.experiments.sweep_on_ray import sweep_on_ray

CELLS = [f"baselines-lock/h{horizon}-standard-{algo}" for horizon in (5, 10) for algo in ("dqn", "ppo-rnd")]


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # where Ray leaves a token
    monkeypatch.setenv("PYTHONPATH", str(Path(e3rl.__file__).parents[1]))
    monkeypatch.setenv("E3RL_CHECKPOINT_SECONDS", "0")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    small = {"num_cpus": 2, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    ray.init("local", _node_ip_address="127.0.0.1", **small)
    yield
    ray.shutdown()


def rows(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("cluster")
def test_a_worker_that_is_killed_is_replaced(tmp_path):
    out, killed, said = tmp_path / "ray", [], []
    home = Path(f"{CELLS[0].replace('/', '-')}/seed0")

    def kill():
        lock, state = (out / "unfinished" / home / name for name in (".lock", "checkpoint/state.safetensors"))
        while not (lock.exists() and state.exists()):
            time.sleep(0.01)
        killed.append(int(lock.read_text().split()[0]))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    tasks = [Task(cell, out, smoke=True) for cell in CELLS]
    outcomes = sweep_on_ray(tasks, run_among_others, reason, said.append)
    killer.join(timeout=1)
    assert len(killed) == 1
    assert killed[0] != os.getpid()
    assert sorted(outcome.cell for outcome in outcomes) == sorted(CELLS)
    assert [outcome.error for outcome in outcomes] == [None] * len(CELLS)
    assert len(said) == len(CELLS)
    assert not list(out.glob(".sweep-*"))
    for cell in CELLS:
        assert IS_DONE[cell](cell, out, (), True)
        assert cli.main(["reproduce", cell, "--scale", "smoke", "--out", str(tmp_path / "here")]) == 0
        name = cell.replace("/", "-")
        table = rows(out / f"{name}.csv")
        assert table == rows(tmp_path / "here" / f"{name}.csv")
        assert len({row["episode"] for row in table}) == len(table) > 0
        assert list(json.loads((out / f"{name}.json").read_text())["final"]) == ["0"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_cluster_that_is_not_there_is_one_line(tmp_path, monkeypatch, capsys):
    pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("RAY_gcs_rpc_server_connect_timeout_s", "1")
    argv = ["reproduce", "figure-1", "--on", "ray", "--address", "auto", "--out", str(tmp_path / "out")]
    assert cli.main(argv) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("e3rl: error: no Ray cluster at auto")
