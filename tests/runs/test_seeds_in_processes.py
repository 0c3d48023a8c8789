"""Seeds that are trained in processes end with the same files as alone, whatever becomes of one of them or of us."""

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest
from scripted import PAUSE, Echo, EchoConfig, EchoProgram
from tiny import LOCK, OPTIONS

import e3rl
from e3rl.envs.opening import Opened
from e3rl.runs import seeds_in_processes
from e3rl.runs import train as train_module
from e3rl.runs.folder import RunFolder, read_json, read_metrics
from e3rl.runs.lock import FolderLock
from e3rl.runs.processors import processors
from e3rl.runs.progress import Progress, nobody
from e3rl.runs.seeds_in_processes import (
    BEING_WRITTEN,
    processors_each,
    room_for,
    train_in_processes,
)
from e3rl.runs.train import train
from e3rl.types import UserError

SEEDS = (3, 4, 5)
CONFIG = EchoConfig()
LONG = EchoConfig(episodes=40)


def run(out, seeds=SEEDS, env=LOCK, options=OPTIONS, config=CONFIG, **more):
    return train(Echo, env, options, config, seeds, out, apart=True, **more)


@pytest.fixture(scope="module", autouse=True)
def two():
    """As on a machine with two processors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seeds_in_processes, "processors", lambda: (processors() * 2)[:2])
        yield


def assert_same(out, other, seeds=SEEDS):
    for seed in seeds:
        one, two = RunFolder(out / f"seed{seed}"), RunFolder(other / f"seed{seed}")
        assert one.policy.read_bytes() == two.policy.read_bytes()
        tables = [[{**row, "seconds": None} for row in read_metrics(folder.path)] for folder in (one, two)]
        assert tables[0] == tables[1]
        told = [{**folder.summary(), "wall_seconds": None, "config": None} for folder in (one, two)]
        assert told[0] == told[1]


def test_each_seed_is_as_if_it_had_been_alone(tmp_path):
    seen = []
    paths, summaries = run(tmp_path / "apart", watch=seen.append)
    assert paths == [tmp_path / "apart" / f"seed{seed}" for seed in SEEDS]
    assert sorted(path.name for path in (tmp_path / "apart").iterdir()) == ["seed3", "seed4", "seed5"]
    assert summaries == [RunFolder(path).summary() for path in paths]
    for seed in SEEDS:
        train(Echo, LOCK, OPTIONS, CONFIG, [seed], tmp_path / "alone" / f"seed{seed}")
        abouts = [read_json(tmp_path / name / f"seed{seed}" / "config.json") for name in ("apart", "alone")]
        assert abouts[0] == abouts[1]
    assert_same(tmp_path / "apart", tmp_path / "alone")
    assert seen[0].apart == 3
    assert seen[-1].episode == seen[-1].episodes == 12
    assert run(tmp_path / "apart", resume=True) == (paths, summaries)


def once_under_way(out, then):
    """A watcher that does something when the first two seeds are."""

    def watch(progress):
        if all(RunFolder(out / f"seed{seed}").state.exists() for seed in SEEDS[:2]):
            then()

    return watch


def slowly(patch):
    """From now on there is time for something to happen to processes."""
    patch.setenv(PAUSE, "0.2")
    patch.setenv("E3RL_CHECKPOINT_SECONDS", "0")


def interrupt():
    raise KeyboardInterrupt


@pytest.fixture(scope="module")
def cut(tmp_path_factory):
    """A run that was interrupted, and by what."""
    out = tmp_path_factory.mktemp("cut") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        slowly(patch)
        with pytest.raises(KeyboardInterrupt) as raised:
            run(out, config=LONG, watch=once_under_way(out, interrupt))
    return out, raised.value


def test_an_interruption_saves_what_is_under_way_and_begins_nothing_more(cut):
    out, error = cut
    assert error.__notes__ == [f"saved in {out / 'seed3'}, {out / 'seed4'} by their last checkpoints"]
    assert sorted(path.name for path in out.iterdir()) == ["seed3", "seed4"]
    assert not multiprocessing.active_children()
    for folder in map(RunFolder, out.iterdir()):
        assert 0 < folder.epoch < LONG.episodes
        assert not (folder.path / ".lock").exists()


@pytest.mark.parametrize("apart", [True, False])
def test_an_interrupted_run_resumes_to_the_same_bytes(apart, cut, tmp_path):
    """In processes or not."""
    shutil.copytree(cut[0], tmp_path / "cut")
    said = []
    train(Echo, LOCK, OPTIONS, LONG, SEEDS, tmp_path / "cut", resume=True, say=said.append, apart=apart)
    assert said == [f"there is no run to resume in {tmp_path / 'cut' / 'seed5'}: a new one begins"]
    for seed in SEEDS:
        train(Echo, LOCK, OPTIONS, LONG, [seed], tmp_path / "alone" / f"seed{seed}")
    assert_same(tmp_path / "cut", tmp_path / "alone")


def test_an_error_at_one_seed_ends_the_others_as_an_interruption_does(tmp_path):
    config = EchoConfig(episodes=16, fails=3)
    with pytest.raises(UserError) as raised:
        run(tmp_path, config=config, env="CartPole-v1", options={})
    assert str(raised.value) == "broken"
    assert "in learn" in "".join(raised.value.__notes__)  # where it was, for --debug
    assert RunFolder(tmp_path / "seed3").epoch == 16
    assert not list(tmp_path.rglob(".lock"))


def test_a_worker_that_is_killed_is_one_line_and_the_others_are_saved(tmp_path, monkeypatch):
    slowly(monkeypatch)

    def kill():
        os.kill(int((tmp_path / "seed3" / ".lock").read_text().split()[0]), signal.SIGKILL)

    words = r"a process that was at seed 3 has ended \(signal SIGKILL, as when memory runs out\); --resume goes on"
    with pytest.raises(UserError, match=words):
        run(tmp_path, config=LONG, watch=once_under_way(tmp_path, kill))
    assert not (tmp_path / "seed4" / ".lock").exists()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "seed4 already holds a run"),
        (
            {"resume": True, "config": EchoConfig(offset=1)},
            "holds another run: config.offset is 0 there, 1 was",
        ),
        ({"log": "wandb"}, "unknown log"),
        ({"changes": {"ofset": "3"}}, "unknown setting"),
        ({"resume": True}, "state.safetensors is damaged"),
    ],
)
def test_what_can_be_known_before_is_refused_before_any_begins(more, words, tmp_path, monkeypatch):
    train(Echo, LOCK, {**OPTIONS, "seed": 4}, CONFIG, [4], tmp_path / "seed4")
    (tmp_path / "seed4" / "summary.json").unlink()
    if "damaged" in words:
        state = RunFolder(tmp_path / "seed4").state
        state.write_bytes(state.read_bytes()[:-9])
    monkeypatch.setattr(train_module, "train_in_processes", lambda *args: pytest.fail("it has begun"))
    with pytest.raises(UserError, match=words):
        run(tmp_path, **more)


def test_one_seed_or_copies_in_processes_need_no_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(train_module, "train_in_processes", lambda *args: pytest.fail("it has begun"))
    run(tmp_path / "one", [3])
    monkeypatch.setattr(Opened, "copies", lambda self, count, asynchronous: None)
    monkeypatch.setattr(EchoProgram, "close", lambda self: None)
    run(tmp_path / "async", env="CartPole-v1", options={}, asynchronous=True)


def test_each_seed_has_as_many_processors_as_another(monkeypatch):
    monkeypatch.setattr(seeds_in_processes, "processors", lambda: [4, 5, 6, 7, 8])
    wanted = {1: [{4, 5, 6, 7, 8}], 2: [{4, 6}, {5, 7}], 3: [{4}, {5}, {6}], 9: [{4}, {5}, {6}, {7}, {8}]}
    assert {seeds: processors_each(seeds) for seeds in wanted} == wanted


def test_as_many_workers_as_there_is_room_for(monkeypatch):
    monkeypatch.setattr(seeds_in_processes, "available", lambda: 4e9)
    assert [room_for(memory) for memory in (0.0, 1.2e9, 1.4e9, 9e9)] == [5, 2, 1, 1]


def look(number, watch, say):
    """What a worker is like."""
    warnings.warn(f"{BEING_WRITTEN} for 'jit_f': it ends early", stacklevel=1)
    warnings.warn("mind the gap", stacklevel=1)
    say("hello")
    watch(Progress("explore", 1, 2, 0.0, 0.0, 0.0))
    own = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {"processors": own, "promotion": str(jax.config.jax_numpy_dtype_promotion), "pid": os.getpid()}


def test_workers_are_on_their_own_processors_and_know_what_jax_was_told():
    said, own = [], set(processors()[-1:])
    with pytest.warns(UserWarning, match="gap") as warned:
        found = train_in_processes(look, {0: 10, 5: 15}, [own], nobody, said.append)
    assert {str(one.message) for one in warned} == {"mind the gap"}
    assert list(found) == [0, 5]
    assert found[0] == found[5]  # by the same worker
    assert found[0]["pid"] != os.getpid()
    assert found[0]["processors"] in (None, sorted(own))
    assert found[0]["promotion"] == jax.config.jax_numpy_dtype_promotion == "strict"
    assert said == ["seed 10: hello", "seed 15: hello"]


class Odd(Exception):
    """Cannot be sent."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


class Told(Odd, UserError):
    """Nor can this one, but what it says is all there is to know."""


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (OSError(27, "File too large", "a.png"), OSError(27, "File too large", "a.png")),
        (Told(1, 2), UserError("1 and 2")),
        (Odd(1, 2), RuntimeError("Odd: 1 and 2")),
        (SystemExit("enough"), SystemExit("enough")),
    ],
)
def test_errors_arrive_as_what_they_are_where_they_can(error, sent):
    def fail(*_):
        raise error

    word, found = seeds_in_processes._trained(fail, 0, SimpleNamespace(watch=None))
    assert word is seeds_in_processes.Word.FAILED
    assert (type(found), found.args) == (type(sent), sent.args)
    assert "in fail" in found.__notes__[-1]


ORPHANED = """
import sys
from scripted import PAUSE, Echo, EchoConfig, EchoProgram
from e3rl.runs import seeds_in_processes
from e3rl.runs.train import train
from pathlib import Path
from tiny import LOCK, OPTIONS

seeds_in_processes.processors = lambda: [0, 0]
seeds_in_processes.bound_to = __import__("contextlib").nullcontext
train(Echo, LOCK, OPTIONS, EchoConfig(episodes=99), [3, 4], Path(sys.argv[1]), apart=True)
"""


def test_workers_die_with_their_parent_and_hold_no_folder(tmp_path):
    paths = [str(Path(e3rl.__file__).parents[1]), str(Path(__file__).parents[1])]
    process = subprocess.Popen(
        [sys.executable, "-c", ORPHANED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), PAUSE: "0.1"},
    )
    locks = [tmp_path / f"seed{seed}" / ".lock" for seed in (3, 4)]
    wait_until(lambda: all(lock.exists() and lock.read_text() for lock in locks))
    workers = [int(lock.read_text().split()[0]) for lock in locks]
    process.kill()
    process.wait()
    wait_until(lambda: not any(is_alive(worker) for worker in workers))
    wait_until(lambda: all(is_free(lock.parent) for lock in locks))  # once their threads have ended too


def is_free(folder):
    lock = FolderLock(folder)
    with suppress(UserError):
        lock.acquire()
        lock.release()
        return True
    return False


def wait_until(condition):
    limit = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.02)


def is_alive(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
