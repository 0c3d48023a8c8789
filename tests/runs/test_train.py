"""`e3rl train`: a folder for every seed, programs that seeds share or do not, finished runs left alone."""

import numpy as np
import pytest
from scripted import Echo, EchoConfig, EchoProgram
from tiny import LOCK, OPTIONS, SEEDS

from e3rl.envs.opening import Opened
from e3rl.runs import train as train_module
from e3rl.runs.folder import RunFolder, read_json, read_metrics
from e3rl.runs.record import Record
from e3rl.runs.train import train
from e3rl.types import UserError

CONFIG = EchoConfig()
ALONE = EchoConfig(together=False)
POLE = "CartPole-v1"


def run(out, seeds=SEEDS, env=LOCK, options=OPTIONS, config=CONFIG, **more):
    return train(Echo, env, options, config, seeds, out, **more)


@pytest.fixture(autouse=True)
def events(monkeypatch):
    """What happened to programs and environments, in order."""
    told = []

    class Told(Opened):
        is_open = True

        def __init__(self, env, options):
            super().__init__(env, options)
            told.append(f"opened {options.get('seed', '')}".strip())

        def close(self):
            if self.is_open:
                told.append("closed")
            self.is_open = False
            super().close()

    monkeypatch.setattr(train_module, "open_environment", lambda env, options: Told(env, dict(options)))
    monkeypatch.setattr(EchoProgram, "events", told)
    return told


def test_every_seed_has_its_own_folder_and_its_own_lock(tmp_path):
    paths, summaries = run(tmp_path)
    assert paths == [tmp_path / "seed3", tmp_path / "seed4"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["seed3", "seed4"]
    for path, summary, seed in zip(paths, summaries, SEEDS, strict=True):
        about = read_json(path / "config.json")
        assert (about["algo"], about["env"], about["seed"]) == ("echo", LOCK, seed)
        assert about["env_options"] == {**OPTIONS, "seed": seed}
        assert summary == RunFolder(path).summary()
        assert (summary["seed"], summary["seeds_in_program"]) == (seed, 2)
        assert len(read_metrics(path)) == 4


def test_one_seed_has_the_folder_to_itself(tmp_path):
    paths, [summary] = run(tmp_path / "run", seeds=[5])
    assert paths == [tmp_path / "run"]
    assert summary["seed"] == 5
    assert (tmp_path / "run" / "summary.json").is_file()


def test_a_seed_is_the_same_alone_and_beside_others(tmp_path):
    together, _ = run(tmp_path / "together")
    alone, _ = run(tmp_path / "alone", config=ALONE)
    for one, other in zip(together, alone, strict=True):
        assert RunFolder(one).policy.read_bytes() == RunFolder(other).policy.read_bytes()


def test_options_may_name_the_lock_for_all_seeds(tmp_path, events):
    paths, _ = run(tmp_path, options={**OPTIONS, "seed": 9})
    assert [read_json(path / "config.json")["env_options"]["seed"] for path in paths] == [9, 9]
    assert events[:2] == ["opened 9", "opened 9"]
    [path], _ = run(tmp_path / "maze", [3], "e3rl/Maze-v0", {"size": 5})
    assert read_json(path / "config.json")["env_options"] == {"size": 5}  # nothing in it is drawn from a seed


@pytest.mark.parametrize(
    ("env", "config", "expected"),
    [
        (LOCK, CONFIG, ["opened 3", "opened 4", "trained [3, 4]", "closed [3, 4]", "closed", "closed"]),
        (LOCK, ALONE, ["opened 3", "trained [3]", "closed [3]", "closed",
                       "opened 4", "trained [4]", "closed [4]", "closed"]),
        (POLE, CONFIG, ["opened", "trained [3]", "closed [3]", "closed",
                        "opened", "trained [4]", "closed [4]", "closed"]),
    ],
    ids=["together", "one by one", "in Python"],
)  # fmt: skip
def test_seeds_share_a_program_where_they_can_and_environments_live_as_long_as_it(
    env, config, expected, events, tmp_path
):
    _, summaries = run(tmp_path, env=env, options=OPTIONS if env == LOCK else {}, config=config)
    assert [summary["seed"] for summary in summaries] == [3, 4]
    assert events == expected


def test_an_environment_is_closed_when_its_seed_fails(events, tmp_path):
    with pytest.raises(UserError, match="broken"):
        run(tmp_path, (4, 5, 6), POLE, {}, EchoConfig(fails=5))
    assert events == [
        "opened", "trained [4]", "closed [4]", "closed", "opened", "trained [5]", "closed [5]", "closed",
    ]  # fmt: skip
    assert RunFolder(tmp_path / "seed5").about_checkpoint()["epoch"] == 4
    assert not (tmp_path / "seed6").exists()


def test_a_finished_run_is_not_run_again(events, tmp_path):
    done = run(tmp_path)
    events.clear()
    assert run(tmp_path, resume=True) == done
    assert not [event for event in events if event.startswith("trained")]
    with pytest.raises(UserError, match=r"holds another run: env_options.horizon is 3 there, 4 was given"):
        run(tmp_path, resume=True, options=OPTIONS | {"horizon": 4})
    with pytest.raises(UserError, match=r"holds another run: config.offset is 0 there, 1 was given"):
        run(tmp_path, resume=True, config=EchoConfig(offset=1))


def test_a_run_that_one_seed_finished_is_finished_for_all(tmp_path):
    """As after a kill between the last files of two seeds that share a program."""
    paths, summaries = run(tmp_path)
    policy = RunFolder(paths[1]).policy.read_bytes()
    (paths[1] / "summary.json").unlink()
    RunFolder(paths[1]).policy.unlink()
    again = run(tmp_path, resume=True)[1]
    assert [s["exploit_return_mean"] for s in again] == [s["exploit_return_mean"] for s in summaries]
    assert RunFolder(paths[1]).policy.read_bytes() == policy


@pytest.mark.parametrize("env", [POLE, LOCK])
def test_a_seed_that_finished_is_not_trained_again_for_one_that_did_not(env, events, tmp_path):
    options = OPTIONS if env == LOCK else {}
    own = {**options, "seed": 3} if env == LOCK else {}
    finished = RunFolder(tmp_path / "seed3")
    finished.write_config(Echo.describe(env, own, 3, ALONE))
    stored = {**Record([3]).summary(0, np.ones(1, np.float32), None), "stored": True}
    finished.finish({"total": np.zeros(1)}, stored)
    paths, summaries = run(tmp_path, env=env, options=options, config=ALONE, resume=True)
    assert paths == [tmp_path / "seed3", tmp_path / "seed4"]
    assert summaries[0] == stored
    assert summaries[1]["seed"] == 4
    assert [event for event in events if event.startswith("trained")] == ["trained [4]"]
    assert events.count("closed") == 2  # both were opened, one only to be looked at


def test_folders_that_hold_something_else(tmp_path):
    run(tmp_path)
    with pytest.raises(UserError, match="seed3 already holds a run"):
        run(tmp_path)
    with pytest.raises(UserError, match="already holds the runs of several seeds"):
        run(tmp_path, seeds=[3])
    with pytest.raises(UserError, match="already holds the run of one seed"):
        run(tmp_path / "seed3")


@pytest.mark.parametrize(
    ("lost", "words"),
    [
        (["checkpoint/policy.safetensors"], "files of it are missing: made again from its checkpoint"),
        (["checkpoint/policy.safetensors", "checkpoint/state.safetensors"], "made again from the beginning"),
        (["summary.json"], None),
        (["metrics.csv", "checkpoint/state.safetensors"], "made again from the beginning"),
        (["checkpoint/state.safetensors", "summary.json"], "has no checkpoint yet: the run begins again"),
    ],
)
def test_resuming_makes_again_what_is_missing(tmp_path, lost, words):
    [path], _ = run(tmp_path / "run", seeds=[3])
    table, policy = read_metrics(path), RunFolder(path).policy.read_bytes()
    for name in lost:
        (path / name).unlink()
    said = []
    run(tmp_path / "run", seeds=[3], resume=True, say=said.append)
    assert RunFolder(path).is_finished
    assert RunFolder(path).policy.read_bytes() == policy
    unlike = {"seconds": None}
    assert [{**row, **unlike} for row in read_metrics(path)] == [{**row, **unlike} for row in table]
    assert (words is None and not said) or words in said[0]


def test_resuming_where_there_is_nothing_says_so(tmp_path):
    said = []
    run(tmp_path / "new", seeds=[3], resume=True, say=said.append)
    assert said == [f"there is no run to resume in {tmp_path / 'new'}: a new one begins"]


def test_what_cannot_be_trained_leaves_no_folder_and_nothing_open(events, tmp_path):
    for more, message in (
        ({"config": EchoConfig(offset=13)}, "bad luck"),
        ({"config": "short"}, "unknown config 'short'; known: auto, long"),
        ({"changes": {"ofset": "3"}}, "unknown setting 'ofset'; did you mean 'offset'"),
        ({"options": {"horizon": 0}}, "horizon"),
    ):
        with pytest.raises(UserError, match=message):
            run(tmp_path / "out", **more)
        assert not (tmp_path / "out").exists()
    opened = [event for event in events if event.startswith("opened")]
    assert events.count("closed") == len(opened)


def test_settings_are_a_preset_with_changes_by_path_under_any_name(tmp_path):
    said = []
    [path], _ = run(
        tmp_path, [3], config="long", changes={"shift": "2", "together": "false"}, say=said.append
    )
    found = read_json(path / "config.json")["config"]
    assert (found["episodes"], found["offset"], found["together"]) == (9, 2, False)
    assert said == ["shift is now called offset"]
    [path], _ = run(tmp_path / "auto", [3], config=None)
    assert read_json(path / "config.json")["config"]["offset"] == 4  # what suits the lock


def test_a_watcher_sees_it_and_may_stop_it(tmp_path):
    def watch(progress):
        if progress.episode == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "cut", watch=watch)
    run(tmp_path / "cut", resume=True)
    run(tmp_path / "whole")
    for seed in SEEDS:
        cut, whole = (RunFolder(tmp_path / name / f"seed{seed}") for name in ("cut", "whole"))
        assert cut.policy.read_bytes() == whole.policy.read_bytes()
        returns = [[row["return"] for row in read_metrics(folder.path)] for folder in (cut, whole)]
        assert returns[0] == returns[1]
        assert np.isfinite([float(value) for value in returns[0]]).all()


def test_copies_in_processes_of_their_own_are_for_environments_in_python(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(Opened, "copies", lambda self, count, asynchronous: asked.append(asynchronous))
    monkeypatch.setattr(EchoProgram, "close", lambda self: None)
    run(tmp_path / "a", [3], POLE, {}, asynchronous=True)
    run(tmp_path / "b", [3], POLE, {})
    assert asked == [True, False]
