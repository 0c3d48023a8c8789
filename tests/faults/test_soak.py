"""Training over and over in one process: memory, open files and threads stay as they are."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from faults import soaking
from faults.runs import LIMIT, environment
from scripted import Echo, EchoConfig, EchoProgram
from tiny import LOCK, OPTIONS

from e3rl.runs.train import train

MINUTES = float(os.environ.get("E3RL_FAULTS_MINUTES", "50"))


def test_many_runs_leave_no_files_open(tmp_path, monkeypatch):
    def held():
        used = soaking.used()
        return used["open files"], used["threads"]

    monkeypatch.setattr(EchoProgram, "events", [])
    train(Echo, LOCK, OPTIONS, EchoConfig(), [3, 4], tmp_path / "first")
    before = held()
    for i in range(10):
        train(Echo, LOCK, OPTIONS, EchoConfig(), [3, 4], tmp_path / str(i))
    assert held() == before


@pytest.mark.faults
def test_soak(tmp_path, tally):
    """Most of an hour; the first quarter is for warming up."""
    seconds, said = 60.0 * MINUTES, tmp_path / "said"
    with said.open("w") as out:
        command = [sys.executable, str(Path(soaking.__file__)), str(tmp_path / "runs"), str(seconds)]
        subprocess.run(command, env=environment(), stdout=out, timeout=seconds + LIMIT, check=True)
    seen = [json.loads(line) for line in said.read_text().splitlines()]
    warm = [used for used in seen if used.pop("seconds") > seconds / 4.0]
    first, last = warm[: len(warm) // 3], warm[-len(warm) // 3 :]
    tally["runs"] = len(seen) * len(soaking.SMALL)
    for name in warm[0]:
        before, after = (min(used[name] for used in part) for part in (first, last))
        tally[f"{name} after a quarter"], tally[f"{name} at the end"] = round(before), round(after)
        assert after <= 1.05 * before + 1.0, name
