"""A run's folder: what may start in it, what resuming keeps, and checkpoints of several seeds as one."""

import csv
import errno
import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

import e3rl
from e3rl.runs import folder as run_folder
from e3rl.runs import lock as lock_module
from e3rl.runs.checkout import git_commit
from e3rl.runs.checkpoint import load_arrays, save_tree
from e3rl.runs.folder import (
    COLUMNS,
    FORMAT,
    RunFolder,
    checkpoint_together,
    complete_checkpoints,
    read_about,
    read_json,
    read_metrics,
    refuse_earlier,
    write_json,
)
from e3rl.runs.lock import FolderLock
from e3rl.types import UserError

ABOUT = {"algo": "neural-e3", "env": "id", "env_options": {"horizon": 3}, "seed": 0, "config": {"hidden": 8}}


def row(episode, **changes):
    values = {
        "phase": "explore", "episode": episode, "env_steps": 3 * episode, "return": 0.1, "length": 3,
        "disagreement": 1 / 3, "model_loss": float("nan"), "seconds": 0.5, "v_explore": float("inf"),
        "epsilon_hat": 0.25,
    }  # fmt: skip
    return values | changes


@pytest.fixture
def folder(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.begin(ABOUT, resume=False)
    for episode in (1, 2, 3):
        folder.add_row(**row(episode))
    folder.write_rows()
    folder.lock.release()
    return folder


SUMMARY = {
    "seed": 0, "total_episodes": 3, "exploit_return_mean": 1.0, "exploit_return_ci": None, "optimal_return": None,
    "wall_seconds": 1.0,
}  # fmt: skip


def save(folder, epoch):
    checkpoint_together([folder], [{"weight": np.full(2, epoch)}], [{"epoch": epoch}])


def test_a_new_folder_tells_everything_needed_to_repeat_the_run(folder):
    about = read_json(folder.path / "config.json")
    assert about == {**ABOUT, "format": FORMAT, "version": e3rl.__version__, "commit": git_commit()}


def test_rows_are_a_table_with_the_promised_columns(folder):
    assert ",".join(COLUMNS).startswith(
        "phase,episode,env_steps,return,length,disagreement,model_loss,seconds"
    )
    folder.write_rows()
    with (folder.path / "metrics.csv").open(newline="") as file:
        header, first, *_ = csv.reader(file)
    assert tuple(header) == COLUMNS
    assert first == ["explore", "1", "3", "0.1", "3", "0.333333333", "nan", "0.5", "inf", "0.25"]
    assert [int(row["episode"]) for row in read_metrics(folder.path)] == [1, 2, 3]


def test_a_folder_with_a_run_is_not_taken_without_resume(folder):
    with pytest.raises(UserError, match=r"already holds a run: give --resume .* or another --out"):
        RunFolder(folder.path).begin(ABOUT, resume=False)


def test_resuming_before_the_first_checkpoint_starts_again(folder):
    save(folder, 3)
    again = RunFolder(folder.path)
    assert again.begin(ABOUT, resume=True) is True
    again.lock.release()
    folder.state.unlink()
    again = RunFolder(folder.path)
    assert again.begin(ABOUT, resume=True) is False
    again.restart(ABOUT)
    assert read_metrics(folder.path) == []  # all of them are made again


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"config": {"hidden": 9}}, "config.hidden is 8 there, 9 was given"),
        ({"config": {"hidden": 8, "new": 1}}, "config.new is None there, 1 was given"),
        ({"seed": 1}, "seed is 0 there, 1 was given"),
        ({"env_options": {"horizon": 4}}, "env_options.horizon is 3 there, 4 was given"),
        ({"algo": "ue2"}, "algo is 'neural-e3' there, 'ue2' was given"),
    ],
)
def test_resuming_with_other_settings_names_the_first_difference(folder, changes, message):
    with pytest.raises(UserError, match=f"holds another run: {message}"):
        RunFolder(folder.path).begin(ABOUT | changes, resume=True)


def test_a_run_of_an_earlier_version_is_not_taken_up(folder):
    about = read_json(folder.path / "config.json")
    refuse_earlier(folder.path, about)
    for earlier in ({**about, "format": 1}, {key: about[key] for key in about if key != "format"}):
        write_json(folder.path / "config.json", earlier)
        with pytest.raises(
            UserError, match=r"run of an earlier version \(.*\), .* train again with another --out"
        ):
            RunFolder(folder.path).begin(ABOUT, resume=True)


def test_resuming_keeps_the_rows_of_the_checkpoint_as_they_were(folder):
    folder.write_rows()
    before = (folder.path / "metrics.csv").read_bytes()
    again = RunFolder(folder.path)
    again.keep_rows(2)
    assert len(again.rows) == 2
    again.add_row(**row(3))
    again.write_rows()
    assert (folder.path / "metrics.csv").read_bytes() == before


def test_missing_rows(folder):
    folder.write_rows()
    with pytest.raises(UserError, match=r"metrics.csv has 3 rows, the checkpoint 4"):
        folder.keep_rows(4)
    (folder.path / "metrics.csv").unlink()
    with pytest.raises(UserError, match=r"metrics.csv is missing"):
        folder.keep_rows(1)


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x00", b"a,b\n1,2\n", (",".join(COLUMNS) + "\nexplore,1\n").encode()]
)
def test_a_damaged_table(folder, content):
    (folder.path / "metrics.csv").write_bytes(content)
    with pytest.raises(UserError, match=r"metrics.csv is damaged"):
        read_metrics(folder.path)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff\xfe\x00"])
def test_damaged_json(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=r"config.json is damaged"):
        read_json(tmp_path / "config.json")
    with pytest.raises(UserError, match=r"holds no run: summary.json is missing"):
        read_json(tmp_path / "summary.json")


def test_finishing(folder):
    assert folder.summary() is None
    folder.finish({"weight": np.zeros(2)}, SUMMARY)
    assert folder.summary() == SUMMARY
    assert len(read_metrics(folder.path)) == 3
    assert load_arrays(folder.policy)[0].keys() == {"['weight']"}
    assert json.loads((folder.path / "summary.json").read_text()) == SUMMARY
    assert folder.is_finished


# What is not ours stays as it is.


def contents(path):
    return {
        found: found.read_bytes() for found in path.rglob("*") if found.is_file() and found.name != ".lock"
    }


@pytest.mark.parametrize("resume", [False, True])
@pytest.mark.parametrize("name", ["metrics.csv", "checkpoint/state.safetensors", "thesis.tex"])
def test_a_folder_with_somebody_elses_files_is_refused(tmp_path, name, resume):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(
        UserError, match=rf"is not empty and holds no run, .* \({name.split('/')[0]} is there\)"
    ):
        RunFolder(tmp_path).begin(ABOUT, resume)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_whose_config_is_missing_is_refused(folder, resume):
    save(folder, 3)
    (folder.path / "config.json").unlink()
    before = contents(folder.path)
    with pytest.raises(UserError, match=r"config.json is missing"):
        RunFolder(folder.path).begin(ABOUT, resume)
    assert contents(folder.path) == before


def test_a_config_of_another_program_is_refused(tmp_path):
    write_json(tmp_path / "config.json", {"compilerOptions": {}})
    with pytest.raises(UserError, match=r"config.json is not that of a run: give another --out"):
        RunFolder(tmp_path).begin(ABOUT, resume=False)


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match=r"file is a file: give a folder"):
        RunFolder(tmp_path / "file").begin(ABOUT, resume=False)


def test_a_run_that_never_learned_anything_may_be_begun_again_with_other_settings(tmp_path):
    for hidden in (8, 9):
        folder = RunFolder(tmp_path)
        assert folder.begin({**ABOUT, "config": {"hidden": hidden}}, resume=False) is False
        folder.lock.release()
    assert read_json(tmp_path / "config.json")["config"] == {"hidden": 9}


# One writer at a time.


def test_two_writers_of_one_folder(folder):
    first, second = RunFolder(folder.path), RunFolder(folder.path)
    first.begin(ABOUT, resume=True)
    with pytest.raises(UserError, match=rf"is in use by process {os.getpid()}: wait for it, or give another"):
        second.begin(ABOUT, resume=True)
    first.lock.release()
    second.begin(ABOUT, resume=True)
    second.lock.release()
    assert not (folder.path / ".lock").exists()


HELD = """
import os, sys, time
from pathlib import Path
from e3rl.runs.lock import FolderLock

lock = FolderLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


def test_the_lock_of_a_killed_process_is_stale(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HELD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    with pytest.raises(UserError, match=f"in use by process {process.pid}"):
        FolderLock(tmp_path).acquire()
    process.kill()
    process.wait()
    process.stdout.close()
    assert (tmp_path / ".lock").exists()
    lock = FolderLock(tmp_path)
    lock.acquire()
    assert (tmp_path / ".lock").read_text().split()[0] == str(os.getpid())
    lock.release()


@pytest.mark.parametrize(("written", "free"), [("", True), ("words", True), ("999999999 {host}", True),
                                               ("{pid} {host}", False), ("{pid} elsewhere", True)])  # fmt: skip
def test_where_a_file_system_has_no_locks_the_process_id_tells(tmp_path, monkeypatch, written, free):
    def unsupported(file, how):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(lock_module.fcntl, "flock", unsupported)
    (tmp_path / ".lock").write_text(written.format(pid=os.getpid(), host=socket.gethostname()))
    lock = FolderLock(tmp_path)
    if free:
        lock.acquire()
        lock.release()
    else:
        with pytest.raises(UserError, match="in use by process"):
            lock.acquire()


# Rows appear as they are made.


def test_rows_are_added_to_the_table_and_a_torn_one_is_not_read(folder):
    before = folder.metrics.stat().st_ino
    folder.add_row(**row(4))
    folder.write_rows(durably=False)
    assert folder.metrics.stat().st_ino == before
    assert [int(each["episode"]) for each in read_metrics(folder.path)] == [1, 2, 3, 4]
    whole = folder.metrics.read_bytes()
    folder.metrics.write_bytes(whole[:-5])
    assert len(read_metrics(folder.path)) == 3
    again = RunFolder(folder.path)
    again.keep_rows(3)
    again.add_row(**row(4))
    again.write_rows()
    assert folder.metrics.read_bytes() == whole


def test_after_a_failure_the_table_is_written_anew(folder, monkeypatch):
    whole = folder.metrics.read_bytes()

    def torn(path, data, durably):
        with path.open("ab") as file:
            file.write(data[:7])
        raise UserError("full")

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "append_file", torn)
        folder.add_row(**row(4))
        with pytest.raises(UserError, match="full"):
            folder.write_rows()
    folder.rows.pop()
    folder.write_rows()
    assert folder.metrics.read_bytes() == whole


# Edited files are told in one line.


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seed": "three"}, "seed is 'three'"), ({"seed": True}, "seed is True"), ({"algo": ["dqn"]}, "algo is"),
        ({"env_options": 3}, "env_options is 3"), ({"config": []}, r"config is \[\]"), ({"env": 7}, "env is 7"),
    ],
)  # fmt: skip
def test_a_config_with_values_of_other_kinds(tmp_path, changes, words):
    write_json(tmp_path / "config.json", {**ABOUT, **changes})
    with pytest.raises(UserError, match=f"config.json is no configuration of a run: {words}"):
        read_about(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "is damaged"), ("{}", "'seed' is missing; delete it, and --resume makes it again"),
        ('{"seed": 0}', "'exploit_return_mean' is missing"),
        (json.dumps({**SUMMARY, "exploit_return_mean": "good"}), "exploit_return_mean is 'good'"),
        (json.dumps({**SUMMARY, "exploit_return_ci": [1.0]}), r"exploit_return_ci is \[1.0\]"),
    ],
)  # fmt: skip
def test_a_partial_summary(tmp_path, content, words):
    (tmp_path / "summary.json").write_text(content)
    with pytest.raises(UserError, match=f"summary.json.*{words}"):
        RunFolder(tmp_path).summary()


def test_words_in_the_table(folder):
    folder.metrics.write_text(folder.metrics.read_text().replace("0.333333333", "a third", 1))
    with pytest.raises(
        UserError, match=r"metrics.csv is damaged: could not convert string to float: 'a third'"
    ):
        read_metrics(folder.path)


def test_links_that_go_round_in_circles(tmp_path):
    (tmp_path / "config.json").symlink_to("config.json")
    with pytest.raises(UserError, match=r"config.json is missing|cannot read"):
        RunFolder(tmp_path).begin(ABOUT, resume=True)


# Several seeds: their checkpoints count together or not at all.


@pytest.fixture
def two(tmp_path):
    folders = [RunFolder(tmp_path / name) for name in ("seed0", "seed1")]
    save_together(folders, 1)
    return folders


def save_together(folders, epoch):
    for folder in folders:
        folder.add_row(**row(epoch))
    trees = [{"weight": np.array([epoch, lane])} for lane in range(len(folders))]
    checkpoint_together(folders, trees, [{"epoch": epoch}] * len(folders))


def files(folders):
    return sorted(path.name for folder in folders for path in folder.state.parent.iterdir())


def epochs(folders):
    return [folder.about_checkpoint()["epoch"] for folder in folders]


@pytest.mark.parametrize("call", [1, 2, 3, 4])
def test_a_full_disk_at_any_file_leaves_every_seed_at_the_old_checkpoint(two, call, monkeypatch):
    old, calls = [folder.state.read_bytes() for folder in two], []

    def fill_up(descriptor):
        calls.append(descriptor)
        if len(calls) == call:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fill_up)
    with pytest.raises(UserError, match="No space left on device"):
        save_together(two, 2)
    assert [folder.state.read_bytes() for folder in two] == old
    assert files(two) == ["state.safetensors"] * 2
    for folder in two:
        folder.keep_rows(folder.about_checkpoint()["rows"])


def killed_between_commits(two, monkeypatch):
    def die(path):
        raise SystemExit  # nothing after this line runs, as after SIGKILL

    with monkeypatch.context() as patch:
        commit, done = run_folder.commit_file, []

        def commit_one(path):
            (die if done else commit)(path)
            done.append(path)

        patch.setattr(run_folder, "commit_file", commit_one)
        with pytest.raises(SystemExit):
            save_together(two, 2)


def test_a_checkpoint_committed_for_one_seed_is_completed_for_all(two, monkeypatch):
    killed_between_commits(two, monkeypatch)
    assert epochs(two) == [2, 1]
    complete_checkpoints(two)
    assert epochs(two) == [2, 2]
    assert files(two) == ["state.safetensors"] * 2
    np.testing.assert_array_equal(load_arrays(two[1].state)[0]["['weight']"], [2, 1])


def test_a_checkpoint_staged_for_some_seeds_only_is_dropped(two):
    two[0].stage_checkpoint({"weight": np.zeros(2)}, epoch=2)
    complete_checkpoints(two)
    assert epochs(two) == [1, 1]
    assert files(two) == ["state.safetensors"] * 2


def test_a_staged_checkpoint_of_another_epoch_is_dropped(two, monkeypatch):
    killed_between_commits(two, monkeypatch)
    staged = two[1].state.with_name(".state.safetensors.tmp")
    save_tree(staged, {"weight": np.zeros(2)}, epoch=1)
    complete_checkpoints(two)
    assert epochs(two) == [2, 1]


def test_a_seed_without_a_checkpoint_beside_seeds_with_one(two):
    two[1].state.unlink()
    with pytest.raises(
        UserError, match="seed1 has no checkpoint, but other seeds of this run do: resume those"
    ):
        complete_checkpoints(two)
