"""Training over and over in one process: memory, open files and threads stay as they are."""

import gc
import os
import threading
import time
from pathlib import Path

import jax
import pytest
from scripted import Echo, EchoConfig, EchoProgram
from tiny import LOCK, OPTIONS

from e3rl.experiments.agents import AGENTS
from e3rl.runs.train import train

MINUTES = float(os.environ.get("E3RL_FAULTS_MINUTES", "50"))
SMALL = {
    "tabular-e3": ("FrozenLake-v1", {}, {"explore.episodes": "5", "evaluation_episodes": "3"}),
    "dqn": ("CartPole-v1", {}, {"total_steps": "600", "evaluation_episodes": "2", "hidden": "8"}),
}


def used():
    """Resident pages, open files and threads of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return (
        pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        len(os.listdir("/proc/self/fd")),
        threading.active_count(),
    )


def test_many_runs_leave_no_files_open(tmp_path, monkeypatch):
    monkeypatch.setattr(EchoProgram, "events", [])
    train(Echo, LOCK, OPTIONS, EchoConfig(), [3, 4], tmp_path / "first")
    _, files, threads = used()
    for i in range(10):
        train(Echo, LOCK, OPTIONS, EchoConfig(), [3, 4], tmp_path / str(i))
    assert used()[1:] == (files, threads)


@pytest.mark.faults
def test_soak(tmp_path, tally):
    """Most of an hour; the first quarter is for warming up."""
    began, seen, i = time.monotonic(), [], 0
    while (passed := time.monotonic() - began) < 60.0 * MINUTES:
        for algo, (env, options, changes) in SMALL.items():
            train(
                AGENTS[algo], env, options, "auto", [i % 100 + 200], tmp_path / f"{algo}{i}", changes=changes
            )
        i += 1
        seen.append((passed, *used()))
        if i % 50 == 0:
            jax.clear_caches()  # what is compiled anew for every new program is JAX's to keep
    warm = [each for each in seen if each[0] > 15.0 * MINUTES]
    first, last = warm[: len(warm) // 3], warm[-len(warm) // 3 :]
    tally["runs"] = i * len(SMALL)
    for name, column in (("MiB", 1), ("open files", 2), ("threads", 3)):
        before, after = (min(each[column] for each in part) for part in (first, last))
        tally[f"{name} after a quarter"], tally[f"{name} at the end"] = round(before), round(after)
        assert after <= 1.05 * before + 1.0, name
