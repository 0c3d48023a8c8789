"""Runs with a process for each copy of the environment, or each seed: whoever is told to end, they are saved, in one
line."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults import waiting
from faults.runs import LIMIT, assert_same, assert_sound, environment, folders

from e3rl import cli
from e3rl.runs import seeds_in_processes
from e3rl.runs.folder import RunFolder
from e3rl.runs.processors import processors

COMMAND = [sys.executable, "-c", "import faults.waiting; from e3rl.cli import run; run()"]
RUN = ["train", "faults.waiting:Waiting-v0", "--algo", waiting.Player.algo, "--seed", "203", "--out"]
SHORT, LONG = (["--set", f"episodes={episodes}"] for episodes in (8, 40))
TRIALS = int(os.environ.get("E3RL_FAULTS_TRIALS", "5"))
WAYS = {"copies": ["--async"], "seeds": ["--seeds", "3"]}
KEPT = r"saved in .* (after \d+ episodes|by (its last checkpoint|their last checkpoints))"
SAVED = r"e3rl: ended by {}; " + KEPT + r"; go on with: e3rl train .* --resume\n"
EARLY = r"e3rl: ended by {}; (nothing to save yet.*|training had not begun|training is complete, in .*)\n"


def start(out, length, way):
    """In a group of its own, as from a terminal."""
    return subprocess.Popen(
        [*COMMAND, *RUN, str(out), *length, *WAYS[way]],
        env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip


def finish(process):
    """Exit code and what was said on stderr."""
    try:
        _, said = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert "Traceback" not in said, said
    return process.returncode, said


def members(group):
    """The processes of a group that have not ended."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, of_group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:  # gone meanwhile
            continue
        if int(of_group) == group and state != "Z":
            found.append(folder.name)
    return found


def assert_all_gone(group):
    limit = time.monotonic() + 30.0
    while members(group) and time.monotonic() < limit:
        time.sleep(0.05)
    assert not members(group)


def wait_for_a_checkpoint(process, out):
    while process.poll() is None and not any(out.rglob("state.safetensors")):
        time.sleep(0.02)


def whole(out, length, way, *more):
    """In this process, where the same is played, or in those of other seeds."""
    seeds = WAYS[way] if way == "seeds" else []
    assert cli.main([*RUN, str(out), *length, *seeds, *more]) == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_signal_to_all_processes(way, tmp_path, monkeypatch):
    """Ctrl-C in a terminal reaches those of copies and seeds too, which have nothing to say."""
    process = start(tmp_path / "cut", SHORT, way)
    wait_for_a_checkpoint(process, tmp_path / "cut")
    os.killpg(process.pid, signal.SIGINT)
    code, said = finish(process)
    assert code == 130, said
    last = said.splitlines(keepends=True)[-1]
    assert re.fullmatch(SAVED.format("SIGINT"), last), said
    assert said.count("e3rl:") == 1
    assert_all_gone(process.pid)
    assert_sound(tmp_path / "cut")
    monkeypatch.setattr(seeds_in_processes, "processors", lambda: processors()[:1])
    whole(tmp_path / "cut", SHORT, way, "--resume")
    whole(tmp_path / "whole", SHORT, way)
    assert_same(tmp_path / "cut", tmp_path / "whole")


@pytest.mark.faults
@pytest.mark.parametrize("everyone", [True, False], ids=["group", "parent"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
@pytest.mark.parametrize("way", WAYS)
def test_signals_with_processes(way, name, everyone, tmp_path, tally):
    """At any time: while the processes start, in the middle of steps, while they end."""
    number, rng = signal.Signals[name], random.Random(f"{name} {everyone}")
    whole(tmp_path / "whole", LONG, way)
    for i in range(TRIALS):
        out = tmp_path / f"cut{i}"
        process = start(out, LONG, way)
        while process.poll() is None and len(members(process.pid)) < 2:
            time.sleep(0.01)  # until the first process of its own: imports are another test's
        time.sleep(rng.uniform(0.0, 10.0))
        (os.killpg if everyone else os.kill)(process.pid, number)
        code, said = finish(process)
        assert_all_gone(process.pid)
        if code > 0:
            assert code == 128 + number
            last = said.splitlines(keepends=True)[-1]
            assert re.fullmatch(f"{SAVED}|{EARLY}".format(name, name), last), said
            tally["said where it is saved" if "saved in" in last else "said that nothing is to save"] += 1
        elif number == signal.SIGKILL:
            assert code in (0, -number), said
            tally["finished before" if code == 0 else "killed"] += 1
        else:  # all was done and said: Python was taking itself apart
            assert code in (0, -number), said
            assert folders(out)
            assert all(RunFolder(path).is_finished for path in folders(out))
            tally["finished before"] += 1
        assert_sound(out)
        whole(out, LONG, way, "--resume")
        assert_same(out, tmp_path / "whole")
        tally["resumed to the same bytes"] += 1
