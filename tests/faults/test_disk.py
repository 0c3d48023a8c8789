"""Disks that fail: every write, flush to disk and rename of a run fails once, in every way, and nothing is lost.

The agent has no networks, so that a run takes a few milliseconds.
"""

import errno
import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from faults.runs import assert_same, assert_sound, environment
from scripted import Echo, EchoConfig, EchoProgram
from tiny import LOCK, OPTIONS

from e3rl.runs.train import train
from e3rl.types import UserError

SEEDS = (3, 4)
REASONS = {
    "full": errno.ENOSPC,
    "quota": errno.EDQUOT,
    "read-only": errno.EROFS,
    "vanished": errno.ESTALE,
    "broken": errno.EIO,
    "no more files": errno.EMFILE,
}
CALLS = ("write", "fsync", "replace", "open")


class Killed(BaseException):
    """Nothing after this runs: as after SIGKILL, but for what `finally` does."""


class Disk:
    """Counts the calls of one kind, and fails in one of them, or from it on."""

    def __init__(self, patch, call, at=0, error=None, for_good=False):
        self.call, self.at, self.error, self.for_good = call, at, error, for_good
        self.count = 0
        fsync, replace, opened = os.fsync, Path.replace, io.open
        owner = self

        class File(io.FileIO):
            def write(self, data):
                owner.happens("write")
                return super().write(data)

        def open_(path, mode="r", *args, **kwargs):
            ours = "b" in mode and mode != "rb" and any(name in str(path) for name in ("seed3", "seed4"))
            if not ours:
                return opened(path, mode, *args, **kwargs)
            owner.happens("open")
            return io.BufferedRandom(File(path, mode.replace("wb", "w+b")))

        patch.setattr(os, "fsync", lambda descriptor: (owner.happens("fsync"), fsync(descriptor)))
        patch.setattr(Path, "replace", lambda path, to: (owner.happens("replace"), replace(path, to))[1])
        patch.setattr(io, "open", open_)

    def happens(self, call):
        if call != self.call:
            return
        self.count += 1
        if self.count == self.at or (self.for_good and self.count > self.at > 0):
            raise self.error


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """A checkpoint of every epoch."""
    monkeypatch.setenv("E3RL_CHECKPOINT_SECONDS", "0")
    monkeypatch.setattr(EchoProgram, "events", [])


def run(out, resume=False):
    return train(Echo, LOCK, OPTIONS, EchoConfig(), SEEDS, out, resume=resume)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("E3RL_CHECKPOINT_SECONDS", "0")
        run(out)
    return out


def calls_of(call, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        disk = Disk(patch, call)
        run(tmp_path / "counted")
    assert disk.count > 3
    return disk.count


EVERY = [pytest.param(5, id="some"), pytest.param(1, id="all", marks=pytest.mark.faults)]


@pytest.mark.parametrize("step", EVERY)
@pytest.mark.parametrize("call", CALLS)
def test_every_call_fails_once(call, step, whole, tmp_path, monkeypatch, tally):
    """Some other reason each time; in the quick part every fifth call."""
    reasons = list(REASONS.items())
    for at in range(1, calls_of(call, tmp_path, monkeypatch) + 1, step):
        name, number = reasons[at % len(reasons)]
        for error in (OSError(number, os.strerror(number)), Killed()):
            out = tmp_path / f"{call}{at}{type(error).__name__}"
            with monkeypatch.context() as patch:
                Disk(patch, call, at, error)
                with pytest.raises((UserError, Killed)) as raised:
                    run(out)
            tally[f"{call}: {'killed' if raised.type is Killed else name}"] += 1
            if raised.type is not Killed:
                assert "\n" not in str(raised.value)
                assert any(seed in str(raised.value) for seed in ("seed3", "seed4"))  # names the file
            waiting = [path.name for path in out.rglob("*.tmp")]
            assert raised.type is Killed or set(waiting) <= {
                ".state.safetensors.tmp"
            }  # which one seed has already
            assert_sound(out)
            run(out, resume=True)
            assert_same(out, whole)
            tally["resumed to the same bytes"] += 1


@pytest.mark.parametrize("name", REASONS)
def test_a_disk_that_fails_for_good(name, whole, tmp_path, monkeypatch):
    error = OSError(REASONS[name], os.strerror(REASONS[name]))
    for at in (1, 4, 9):
        with monkeypatch.context() as patch:
            Disk(patch, "write", at, error, for_good=True)
            with pytest.raises(UserError, match=r"cannot write .*seed"):
                run(tmp_path / str(at))
        assert_sound(tmp_path / str(at))
        run(tmp_path / str(at), resume=True)
        assert_same(tmp_path / str(at), whole)


def test_a_slow_disk_only_takes_longer(whole, tmp_path, monkeypatch):
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (time.sleep(0.01), fsync(descriptor)))
    run(tmp_path / "run")
    assert_same(tmp_path / "run", whole)


def test_a_folder_that_vanishes(tmp_path, monkeypatch):
    def gone(program, t):
        if t == 2:
            (tmp_path / "run").rename(tmp_path / "elsewhere")
        return returns(program, t)

    returns = EchoProgram.returns
    monkeypatch.setattr(EchoProgram, "returns", gone)
    with pytest.raises(UserError, match=r"cannot write .*metrics.csv: No such file"):
        run(tmp_path / "run")


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.argv = ["e3rl", *sys.argv[2:]]
from e3rl.cli import run
run()
"""
TABULAR = ["FrozenLake-v1", "--algo", "tabular-e3", "--set", "explore.episodes=5", "evaluation_episodes=3"]


@pytest.mark.faults
@pytest.mark.parametrize("size", [100, 1000, 3000, 10_000, 30_000])
def test_files_may_not_be_larger(size, tmp_path, tally):
    """The system's own limit on the size of files: one line, and with room again the run goes on."""
    argv = ["train", *TABULAR, "--out", str(tmp_path / "run"), "--resume"]
    command = [sys.executable, "-c", LIMITED, str(size), *argv]
    own = environment(JAX_COMPILATION_CACHE_DIR="", E3RL_CHECKPOINT_SECONDS="0")
    done = subprocess.run(command, env=own, capture_output=True, text=True)
    tally[f"exit code {done.returncode}"] += 1
    assert done.returncode in (0, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert "File too large" in done.stderr
    assert_sound(tmp_path / "run")
    again = subprocess.run([sys.executable, "-m", "e3rl.cli", *argv], env=own, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
