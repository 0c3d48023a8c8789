"""The record of a run: whatever stops one, what was good is kept and resuming ends the same.

The program that is recorded here has a few numbers for a state and no networks.
"""

import errno
import json
import math
import os
import signal
import time

import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.runs import folder as folder_module
from e3rl.runs import record as record_module
from e3rl.runs.checkpoint import load_arrays, staged
from e3rl.runs.folder import RunFolder, read_json, read_metrics
from e3rl.runs.record import Record
from e3rl.types import UserError

SEEDS = (3, 4)
EPOCHS, EVERY, GREEDY = 7, 3, 5


class Walk:
    """Every epoch a step of a random walk for each seed. Saved every third epoch and at the end."""

    def __init__(self, record, spoil=None):
        self.record, self.spoil = record, spoil or {}

    def learn(self, resume=False):
        """The policies and summaries of all seeds."""
        record, seeds = self.record, self.record.seeds
        resumed = record.begin(resume, lambda: self.blank())
        state = resumed.state if resumed else {"place": np.zeros(len(seeds), np.float32)}
        start = resumed.abouts[0]["epoch"] if resumed else 0
        if resumed:
            assert [about["lucky"] for about in resumed.abouts] == [10 * seed for seed in seeds]
        record.say("compiling", int(record.episodes[0]), EPOCHS)
        with record:
            for t in range(start, EPOCHS):
                place = np.asarray(state["place"]) + [self.step(seed, t) for seed in seeds]
                place = np.array(self.spoil.get(t, place), np.float32)
                record.insist(np.isfinite(place), place, "place", f" in epoch {t}")
                self.add("explore", place, t + 1)
                state = {"place": place}
                record.hold(t + 1, state, [{"lucky": 10 * seed} for seed in seeds])
                if (t + 1) % EVERY == 0:
                    record.save()
            record.save()
            for _ in range(GREEDY):
                self.add("exploit", np.asarray(state["place"]), EPOCHS)
            returns = np.tile(np.asarray(state["place"])[:, None], GREEDY) + np.arange(GREEDY)
            summaries = [record.summary(i, returns[i], 9.0, explored=EPOCHS) for i in range(len(seeds))]
            record.finish(state, summaries)
        return state, summaries

    @staticmethod
    def blank():
        return {"place": jnp.zeros((), jnp.float32)}

    @staticmethod
    def step(seed, t):
        return np.random.default_rng([seed, t]).normal()

    def add(self, phase, place, done):
        self.record.read_clock()
        for lane in range(len(place)):
            steps = int(self.record.env_steps[lane]) + 2
            own = {"disagreement": float(done)} if phase == "explore" else {}
            self.record.add(lane, phase, float(place[lane]), 2, steps, **own)
        self.record.say(phase, done, EPOCHS, float(place.mean()), float(done))


def about(seed):
    return {"algo": "walk", "env": None, "env_options": {}, "seed": seed, "config": {"step": 1}}


def record(out=None, watch=lambda progress: None, seeds=SEEDS):
    folders = [RunFolder(out / f"seed{seed}") for seed in seeds] if out else []
    return Record(seeds, folders, [about(seed) for seed in seeds], watch)


def learn(out=None, resume=False, watch=lambda progress: None, spoil=None):
    return Walk(record(out, watch), spoil).learn(resume)


def folders(out):
    return [RunFolder(out / f"seed{seed}") for seed in SEEDS]


def epochs(out):
    return [folder.about_checkpoint()["epoch"] for folder in folders(out)]


def leftovers(out):
    return [path for path in out.rglob("*") if path.name.endswith(".tmp")]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed, and what its watcher saw."""
    out, seen = tmp_path_factory.mktemp("whole"), []
    return out, learn(out, watch=seen.append), seen


def assert_same_run(out, other):
    """To the byte, but for the time that it took."""
    for one, two in zip(folders(out), folders(other), strict=True):
        assert one.policy.read_bytes() == two.policy.read_bytes()
        assert load_arrays(one.state)[0] == load_arrays(two.state)[0]
        tables = [[{**row, "seconds": None} for row in read_metrics(run.path)] for run in (one, two)]
        assert tables[0] == tables[1]
        summaries = [{**run.summary(), "wall_seconds": None} for run in (one, two)]
        assert summaries[0] == summaries[1]


def stop_at(done, phase="explore", error=KeyboardInterrupt):
    def watch(progress):
        if (progress.phase, progress.episode) == (phase, done):
            raise error

    return watch


def test_what_a_run_leaves(whole):
    out, (state, summaries), _ = whole
    for lane, (seed, run) in enumerate(zip(SEEDS, folders(out), strict=True)):
        files = sorted(str(path.relative_to(run.path)) for path in run.path.rglob("*") if path.is_file())
        assert files == [
            "checkpoint/policy.safetensors", "checkpoint/state.safetensors", "config.json", "metrics.csv",
            "summary.json",
        ]  # fmt: skip
        assert read_json(run.path / "config.json").items() >= about(seed).items()
        rows = read_metrics(run.path)
        assert [row["phase"] for row in rows] == ["explore"] * EPOCHS + ["exploit"] * GREEDY
        assert [int(row["episode"]) for row in rows] == list(range(1, EPOCHS + GREEDY + 1))
        assert [int(row["env_steps"]) for row in rows] == list(range(2, 2 * (EPOCHS + GREEDY) + 1, 2))
        places = np.cumsum([Walk.step(seed, t) for t in range(EPOCHS)])
        np.testing.assert_allclose([float(row["return"]) for row in rows[:EPOCHS]], places, rtol=1e-5)
        assert [float(row["disagreement"]) for row in rows[:2]] == [1.0, 2.0]
        assert {row["v_explore"] for row in rows} == {"nan"}  # nobody said any
        arrays, saved = load_arrays(run.state)
        assert float(arrays["['place']"]) == state["place"][lane] == pytest.approx(places[-1], rel=1e-5)
        assert saved.items() >= {"epoch": 7, "rows": 7, "env_steps": 14, "lucky": 10 * seed}.items()
        assert run.summary() == summaries[lane]


def test_the_summary(whole):
    _, (state, summaries), _ = whole
    for lane, (seed, summary) in enumerate(zip(SEEDS, summaries, strict=True)):
        mean = float(state["place"][lane]) + 2.0
        assert summary.items() >= {**about(seed), "explored": 7, "optimal_return": 9.0}.items()
        assert (summary["total_episodes"], summary["seeds_in_program"]) == (12, 2)
        assert summary["exploit_return_mean"] == pytest.approx(mean, rel=1e-6)
        margin = 1.96 * math.sqrt(2.5) / math.sqrt(5)  # the deviation of 0 … 4
        assert summary["exploit_return_ci"] == pytest.approx([mean - margin, mean + margin], rel=1e-5)
        assert summary["wall_seconds"] >= 0.0


def test_one_greedy_episode_has_no_interval():
    summary = Record([5]).summary(0, np.array([1.0], np.float32), None)
    assert (summary["seed"], summary["exploit_return_mean"], summary["exploit_return_ci"]) == (5, 1.0, None)
    json.dumps(summary, allow_nan=False)


def test_a_watcher_hears_every_word(whole):
    _, (state, _), seen = whole
    assert [progress.phase for progress in seen] == [
        "compiling",
        *["explore"] * EPOCHS,
        *["exploit"] * GREEDY,
    ]
    assert [progress.episode for progress in seen[1:8]] == list(range(1, 8))
    assert {progress.episodes for progress in seen} == {EPOCHS}
    assert seen[-1].mean_return == pytest.approx(float(state["place"].mean()))
    assert sorted(progress.seconds for progress in seen) == [progress.seconds for progress in seen]


def test_without_folders_nothing_is_written_and_the_result_is_the_same(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    state, summaries = learn()
    np.testing.assert_array_equal(state["place"], whole[1][0]["place"])
    assert [s["exploit_return_mean"] for s in summaries] == [s["exploit_return_mean"] for s in whole[1][1]]
    with pytest.raises(KeyboardInterrupt):
        learn(watch=stop_at(5))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("done", "phase", "epoch"),
    [(1, "explore", None), (2, "explore", 1), (4, "explore", 3), (6, "explore", 5), (7, "exploit", 7)],
)
def test_interrupted_it_keeps_its_last_complete_epoch_and_resumes_exactly(
    whole, tmp_path, done, phase, epoch
):
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path, watch=stop_at(done, phase))
    for run in folders(tmp_path):
        assert run.state.exists() == (epoch is not None)
        if epoch is not None:
            assert run.about_checkpoint()["epoch"] == epoch
            assert len(read_metrics(run.path)) == epoch
    learn(tmp_path, resume=True)
    assert_same_run(tmp_path, whole[0])


def test_the_clock_goes_on_where_it_stopped(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path, watch=stop_at(5))
    for run in folders(tmp_path):
        tree, saved = load_arrays(run.state)
        folder_module.save_tree(run.state, {"place": tree["['place']"]}, **{**saved, "seconds": 1000.0})
    _, summaries = learn(tmp_path, resume=True)
    assert all(1000.0 <= summary["wall_seconds"] < 1900.0 for summary in summaries)
    seconds = [float(row["seconds"]) for row in read_metrics(tmp_path / "seed3")]
    assert max(seconds[:4]) < 900.0 < min(seconds[4:])


@pytest.mark.parametrize("error", [SystemExit, RuntimeError])
def test_killed_it_has_the_last_checkpoint_and_resumes_exactly(whole, tmp_path, error):
    """No time to save anything, or nobody knows in which state it is."""
    with pytest.raises(error):
        learn(tmp_path, watch=stop_at(6, error=error))
    assert epochs(tmp_path) == [3, 3]
    learn(tmp_path, resume=True)
    assert_same_run(tmp_path, whole[0])


def test_killed_between_table_and_checkpoint_it_resumes_exactly(whole, tmp_path, monkeypatch):
    """At the second checkpoint: the new table is in place, the new state is not."""

    def die(run, tree, **saved):
        run.write_rows()
        if saved["epoch"] == 6:
            raise SystemExit
        return stage(run, tree, **saved)

    stage = RunFolder.stage_checkpoint
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "stage_checkpoint", die)
        with pytest.raises(SystemExit):
            learn(tmp_path)
    first, _ = folders(tmp_path)
    assert first.about_checkpoint()["rows"] == 3
    assert len(read_metrics(first.path)) == 6
    learn(tmp_path, resume=True)
    assert_same_run(tmp_path, whole[0])


def test_seeds_killed_between_their_commits_resume_exactly(whole, tmp_path):
    for out, done in ((tmp_path, 5), (tmp_path / "earlier", 3)):
        with pytest.raises(KeyboardInterrupt):
            learn(out, watch=stop_at(done))
    second = folders(tmp_path)[1]
    second.state.replace(staged(second.state))
    folders(tmp_path / "earlier")[1].state.replace(second.state)
    assert epochs(tmp_path) == [4, 2]
    learn(tmp_path, resume=True)
    assert leftovers(tmp_path) == []
    assert_same_run(tmp_path, whole[0])


def test_seeds_saved_at_different_epochs_are_refused(tmp_path):
    for name, done in (("a", 5), ("b", 3)):
        with pytest.raises(KeyboardInterrupt):
            learn(tmp_path / name, watch=stop_at(done))
    folders(tmp_path / "b")[1].state.replace(folders(tmp_path / "a")[1].state)
    with pytest.raises(UserError, match="saved at different epochs: resume them one by one"):
        learn(tmp_path / "a", resume=True)


def test_a_checkpoint_of_another_program_is_refused(tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        learn(tmp_path, watch=stop_at(5))
    monkeypatch.setattr(Walk, "blank", staticmethod(lambda: {"place": jnp.zeros(2)}))
    with pytest.raises(UserError, match=r"belongs to another configuration: .* expected float32\[2\]"):
        learn(tmp_path, resume=True)


def test_a_finished_run_resumed_ends_the_same(whole, tmp_path):
    learn(tmp_path)
    learn(tmp_path, resume=True)
    assert_same_run(tmp_path, whole[0])


@pytest.mark.parametrize(
    ("epoch", "place", "message", "kept"),
    [
        (4, [0.5, math.nan], r"the place of seed 4 became nan in epoch 4\. The checkpoint from before it is kept", 4),
        (4, [math.inf, 0.5], r"the place of seed 3 became inf in epoch 4\. The checkpoint from", 4),
        (0, [math.nan, 0.5], r"the place of seed 3 became nan in epoch 0\.$", None),
    ],
)  # fmt: skip
def test_a_number_that_is_none_stops_the_run_and_keeps_what_was_good(
    whole, tmp_path, epoch, place, message, kept
):
    with pytest.raises(UserError, match=message):
        learn(tmp_path, spoil={epoch: place})
    if kept is not None:
        assert epochs(tmp_path) == [kept, kept]
        assert len(read_metrics(tmp_path / "seed3")) == kept
    learn(tmp_path, resume=True)
    assert_same_run(tmp_path, whole[0])


def test_a_full_disk_at_a_checkpoint(whole, tmp_path, monkeypatch):
    """The run stops, the checkpoint before it stands, and with room again the run goes on from there."""
    full = []

    def fsync(descriptor):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def watch(progress):
        if progress.episode == 5:
            full.append(True)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(UserError, match=r"cannot write .*: No space left on device; what was .* kept"):
            learn(tmp_path, watch=watch)
    assert epochs(tmp_path) == [3, 3]
    assert leftovers(tmp_path) == []
    learn(tmp_path, resume=True)
    assert_same_run(tmp_path, whole[0])


def test_what_is_held_is_saved_once_and_with_its_own_rows(tmp_path, monkeypatch):
    saved = []
    together = folder_module.checkpoint_together
    monkeypatch.setattr(
        "e3rl.runs.record.checkpoint_together", lambda *args: (saved.append(args), together(*args))
    )
    own = record(tmp_path)
    own.begin(False, Walk.blank)
    own.save()  # nothing is held
    for lane in range(2):
        own.add(lane, "explore", 0.0, 2, 2)
    own.hold(1, {"place": np.zeros(2, np.float32)})
    own.add(0, "explore", 0.0, 2, 4)  # of an epoch that is not complete
    own.save()
    own.save()
    assert len(saved) == 1
    assert [len(read_metrics(run.path)) for run in folders(tmp_path)] == [1, 1]
    assert [run.about_checkpoint()["env_steps"] for run in folders(tmp_path)] == [2, 2]


def test_rows_may_be_written_without_a_checkpoint(tmp_path):
    own = record(tmp_path)
    own.begin(False, Walk.blank)
    own.add(0, "exploit", 1.5, 2, 2, v_explore=0.25)
    own.write_rows()
    [row], none = (read_metrics(run.path) for run in folders(tmp_path))
    assert (row["return"], row["v_explore"], row["model_loss"]) == ("1.5", "0.25", "nan")
    assert none == []


def test_a_state_of_any_shape_is_read_by_its_names(tmp_path):
    """For programs whose state grows: nobody can say beforehand what is in the file."""
    seed = SEEDS[:1]
    first = record(tmp_path, seeds=seed)
    assert first.begin(False, None) is None
    first.add(0, "explore", 1.0, 2, 2)
    first.hold(1, {"seen": np.arange(6).reshape(1, 3, 2), "count": np.array([7])}, [{"word": "yes"}])
    with first:
        first.save()
    resumed = record(tmp_path, seeds=seed).begin(True, None)
    assert resumed.state.keys() == {"seen", "count"}
    np.testing.assert_array_equal(resumed.state["seen"], np.arange(6).reshape(3, 2))
    assert int(resumed.state["count"]) == 7
    assert resumed.abouts[0]["word"] == "yes"


# By time, by signal, and as it happens.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_the_last_complete_epoch_and_says_where(whole, tmp_path, number):
    def watch(progress):
        if progress.episode == 5:
            os.kill(os.getpid(), number)

    with pytest.raises(KeyboardInterrupt) as raised:
        learn(tmp_path, watch=watch)
    assert epochs(tmp_path) == [4, 4]
    places = ", ".join(str(run.path) for run in folders(tmp_path))
    assert raised.value.__notes__ == [f"saved in {places} after 4 episodes"]
    assert signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler)
    learn(tmp_path, resume=True)
    assert_same_run(tmp_path, whole[0])


def test_before_the_first_epoch_there_is_nothing_to_save(tmp_path):
    with pytest.raises(KeyboardInterrupt) as raised:
        learn(tmp_path, watch=stop_at(1))
    assert raised.value.__notes__ == ["nothing to save yet, the first epoch was under way"]


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr("e3rl.runs.record.time.perf_counter", lambda: self.now)


def test_a_checkpoint_every_half_minute_whatever_the_epochs(tmp_path, monkeypatch):
    clock, saved = Clock(monkeypatch), []
    own = record(tmp_path, seeds=SEEDS[:1])
    own.begin(False, Walk.blank)
    for epoch in range(1, 8):
        clock.now += 12.0
        own.add(0, "explore", 0.0, 2, 2 * epoch)
        own.hold(epoch, {"place": np.zeros(1, np.float32)})
        run = RunFolder(tmp_path / "seed3")
        saved.append(run.about_checkpoint()["epoch"] if run.state.exists() else None)
    assert saved == [None, None, 3, 3, 3, 6, 6]


def test_checkpoints_that_take_long_are_rare(tmp_path, monkeypatch):
    """A minute each: every 33 minutes, three per cent of the time."""
    clock, saved = Clock(monkeypatch), []

    def slowly(*args):
        clock.now += 60.0
        saved.append(clock.now)

    monkeypatch.setattr("e3rl.runs.record.checkpoint_together", slowly)
    own = record(tmp_path, seeds=SEEDS[:1])
    own.begin(False, Walk.blank)
    for epoch in range(1, 1000):
        clock.now += 10.0
        own.hold(epoch, {"place": np.zeros(1, np.float32)})
    assert len(saved) == 5
    assert min(np.diff(saved)) >= 60.0 / 0.03


def test_rows_can_be_read_while_the_run_goes_on(tmp_path, monkeypatch):
    clock, seen = Clock(monkeypatch), []

    def watch(progress):
        clock.now += 1.5
        seen.append(len(read_metrics(tmp_path / "seed3")))

    with pytest.raises(RuntimeError, match="killed"):
        learn(
            tmp_path,
            watch=lambda progress: (watch(progress), stop_at(3, error=RuntimeError("killed"))(progress)),
        )
    assert seen == [0, 1, 2, 3]
    assert len(read_metrics(tmp_path / "seed3")) == 3  # none of which belongs to a checkpoint
    learn(tmp_path, resume=True)
    assert [int(row["episode"]) for row in read_metrics(tmp_path / "seed3")] == list(
        range(1, EPOCHS + GREEDY + 1)
    )


def test_a_state_that_was_consumed_is_not_saved(tmp_path):
    own = record(tmp_path, seeds=SEEDS[:1])
    own.begin(False, Walk.blank)
    held = {"place": jnp.zeros(1)}
    own.hold(1, held)
    held["place"].delete()
    own.save()
    assert not own.saved


def test_how_often_can_be_said_for_all_runs(monkeypatch):
    assert Record([3]).every == 30.0
    monkeypatch.setenv("E3RL_CHECKPOINT_SECONDS", "2.5")
    assert (Record([3]).every, Record([3], every=7.0).every) == (2.5, 7.0)
    for text in ("soon", "-1", "nan", "inf"):
        monkeypatch.setenv("E3RL_CHECKPOINT_SECONDS", text)
        with pytest.raises(UserError, match=f"must be a number of seconds, got '{text}'"):
            Record([3])


def test_a_word_about_what_takes_long(monkeypatch):
    """And none about what does not."""
    told = []
    record = Record(SEEDS, watch=told.append)
    with record.patiently("fitting", 20):
        pass
    assert told == []
    monkeypatch.setattr(record_module, "PATIENCE", 0.01)
    with record.patiently("fitting", 20):
        waited = time.monotonic()
        while not told and time.monotonic() < waited + 10.0:
            time.sleep(0.01)
    assert [(one.phase, one.episode, one.episodes) for one in told] == [("fitting", 0, 20)]
