"""The baselines' experiments: what is kept of a run, worked by hand, and that no seed is run twice."""

import csv
import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from e3rl.envs.registration import build
from e3rl.experiments import baselines
from e3rl.experiments.agents import AGENTS
from e3rl.experiments.baselines import BASELINE_EXPERIMENTS as EXPERIMENTS
from e3rl.experiments.baselines import COLUMNS, MARKS, POINTS, BaselineExperiment, is_done, run
from e3rl.experiments.tables import table_path
from e3rl.runs import folder
from e3rl.runs.settings import as_dict
from e3rl.types import UserError

NAME = "baselines-lock/tiny"
RECORDED = Path(__file__).parents[2] / "results" / "baselines"
SUMMARY = {"exploit_return_mean": 4.5, "exploit_return_ci": [4.0, 5.0], "wall_seconds": 1.25}


def metrics(returns, length=5):
    """Episodes of `length` steps as the rows of a metrics.csv."""
    return [{"return": str(value), "env_steps": str(length * (i + 1))} for i, value in enumerate(returns)]


LOCK = MARKS["e3rl/CombinationLock-v0"]


def final(returns, optimum=5.0, marks=LOCK):
    return baselines._final(metrics(returns), {**SUMMARY, "optimal_return": optimum}, marks)


def test_a_curve_is_the_means_of_a_hundred_stretches():
    rows = baselines._curve(NAME, 3, metrics(range(250)))
    assert len(rows) == POINTS
    assert rows[0] == {
        "experiment": NAME, "seed": 3, "episode": 3, "env_steps": 15, "return_mean": 1.0,
    }  # fmt: skip
    ends = [row["episode"] for row in rows]
    assert ends[-1] == 250
    assert set(np.diff([0, *ends])) == {2, 3}
    counts = np.diff([0, *ends])
    assert np.dot(counts, [row["return_mean"] for row in rows]) == pytest.approx(sum(range(250)))


def test_a_short_curve_has_a_point_per_episode():
    rows = baselines._curve(NAME, 0, metrics([-500.0, -300.0]))
    assert [(row["episode"], row["env_steps"], row["return_mean"]) for row in rows] == [
        (1, 5, -500.0), (2, 10, -300.0),
    ]  # fmt: skip


def test_without_a_finished_episode_there_is_no_curve():
    assert baselines._curve(NAME, 0, []) == []
    found = final([])
    assert (found["episodes"], found["first_found"], found["over_bar"]) == (0, None, None)


def test_the_large_reward_counts_from_the_first_episode_that_got_it():
    found = final([0.0] * 99 + [5.0, 0.0, 2.0, 5.0] + [0.0] * 97)
    assert found["first_found"] == 100
    assert found["episodes_that_found"] == 2  # 2.0 is not above 2
    assert found["over_bar"] is None
    assert found["episodes"] == 200
    assert (found["return_mean"], found["return_ci"], found["seconds"]) == (4.5, [4.0, 5.0], 1.25)


def test_half_of_the_optimum_is_a_mean_of_a_hundred_episodes():
    """Paid from the 61st on: the hundred that end with the 111th are the first with 51 paid ones."""
    found = final([0.0] * 60 + [5.0] * 100)
    assert (found["first_found"], found["over_bar"]) == (61, 111)
    assert final([5.0] * 100)["over_bar"] == 100
    assert final([5.0] * 99)["over_bar"] is None
    assert final([5.0] * 60)["over_bar"] is None
    assert final([0.0] * 150)["first_found"] is None


def test_control_tasks_have_a_goal_and_a_bar_of_their_own():
    car = MARKS["e3rl/MountainCar-v0"]
    found = final([-200.0] * 60 + [-120.0] * 100, None, car)
    assert (found["first_found"], found["episodes_that_found"]) == (61, 100)
    assert (found["bar"], found["over_bar"]) == (-150.0, 123)  # 63 of a hundred at −120
    pole = final([480.0] * 100, None, MARKS["e3rl/CartPole-v1"])
    assert "first_found" not in pole
    assert (pole["bar"], pole["over_bar"]) == (475.0, 100)


@pytest.fixture
def trained(monkeypatch):
    """Training replaced by a note of what was asked for and a run folder of four episodes, of which two count."""
    asked = []

    def train(agent, env, options, config, seeds, out, resume):
        assert resume
        asked.append((agent.algo, env, options, config.total_steps, tuple(seeds)))
        out.mkdir(parents=True)
        with (out / "metrics.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, folder.COLUMNS, restval="0", lineterminator="\n")
            table.writeheader()
            for i, phase in enumerate(("train", "train", "exploit", "exploit")):
                table.writerow({"phase": phase, "env_steps": 3 * (i + 1), "return": float(seeds[0] + i)})
        return [out], [{**SUMMARY, "optimal_return": 5.0}]

    monkeypatch.setattr(baselines, "train", train)
    options = (("horizon", 3), ("antishaped", True))
    tiny = BaselineExperiment("dqn", "e3rl/CombinationLock-v0", options, "e3rl-lock-dqn", 12, (7, 8))
    monkeypatch.setitem(EXPERIMENTS, NAME, tiny)
    return asked


def test_every_seed_is_a_run_of_its_own(trained, tmp_path):
    said = []
    rows = run(NAME, tmp_path, said.append)
    options = {"horizon": 3, "antishaped": True}
    assert trained == [
        ("dqn", "e3rl/CombinationLock-v0", options, 12, (seed,)) for seed in (7, 8)
    ]  # fmt: skip
    assert [(row["seed"], row["episode"], row["return_mean"]) for row in rows] == [
        (7, 1, 7.0), (7, 2, 8.0), (8, 1, 8.0), (8, 2, 9.0),
    ]  # fmt: skip
    path = tmp_path / "baselines-lock-tiny.csv"
    with path.open(newline="") as file:
        stored = list(csv.DictReader(file))
    assert stored == [{column: str(row[column]) for column in COLUMNS} for row in rows]
    about = json.loads(path.with_suffix(".json").read_text())
    assert about["experiment"] == NAME
    assert about["config"]["total_steps"] == 12
    assert about["settings"]["seeds"] == [7, 8]
    assert {seed: one["episodes"] for seed, one in about["final"].items()} == {"7": 2, "8": 2}
    assert said == [f"{NAME}, seed {seed}: return 4.50 after 2 episodes" for seed in (7, 8)]


def test_a_seed_in_the_table_is_not_run_again(trained, tmp_path):
    run(NAME, tmp_path, print, [8])
    assert is_done(NAME, tmp_path, [8])
    assert not is_done(NAME, tmp_path)
    before = (tmp_path / "baselines-lock-tiny.csv").read_text().splitlines()
    said = []
    run(NAME, tmp_path, said.append)
    assert [seeds for *_, seeds in trained] == [(8,), (7,)]
    assert len(said) == 1
    after = (tmp_path / "baselines-lock-tiny.csv").read_text().splitlines()
    assert after[: len(before)] == before
    assert len(after) == 5
    about = json.loads((tmp_path / "baselines-lock-tiny.json").read_text())
    assert sorted(about["final"]) == ["7", "8"]
    assert len(run(NAME, tmp_path, print)) == 4
    assert len(trained) == 2
    assert (tmp_path / "baselines-lock-tiny.csv").read_text().splitlines() == after


def test_numbers_that_are_no_seeds(trained, tmp_path):
    with pytest.raises(UserError, match=r"seeds must be from 0 to .*, got 3, -1"):
        run(NAME, tmp_path, print, [3, -1])
    assert trained == []


def test_a_seed_that_was_interrupted_leaves_those_before_it(trained, tmp_path, monkeypatch):
    whole = baselines.train

    def stop(*args, **more):
        if args[4] == [8]:
            raise KeyboardInterrupt
        return whole(*args, **more)

    monkeypatch.setattr(baselines, "train", stop)
    with pytest.raises(KeyboardInterrupt):
        run(NAME, tmp_path, print)
    about = json.loads((tmp_path / "baselines-lock-tiny.json").read_text())
    assert list(about["final"]) == ["7"]


@pytest.fixture
def table(trained, tmp_path):
    """Where both seeds have been run."""
    run(NAME, tmp_path, print)
    trained.clear()
    return tmp_path / "baselines-lock-tiny.csv"


def test_rows_read_back_are_those_that_were_written(table, trained, tmp_path):
    again = run(NAME, tmp_path, print)
    assert trained == []
    assert again == run(NAME, tmp_path / "other", print)


@pytest.mark.parametrize(
    ("lost", "repeated"),
    [("the second seed's final", [8]), ("the JSON", [7, 8]), ("the last row", [8]), ("the table", [7, 8])],
)
def test_what_a_kill_leaves_is_made_whole(lost, repeated, table, trained, tmp_path):
    rows, about = table.read_text(), table.with_suffix(".json")
    match lost:
        case "the second seed's final":
            stored = json.loads(about.read_text())
            del stored["final"]["8"]
            about.write_text(json.dumps(stored))
        case "the JSON":
            about.rename(tmp_path / "elsewhere")
        case "the last row":
            table.write_text("".join(rows.splitlines(keepends=True)[:-1]))
        case "the table":
            table.rename(tmp_path / "elsewhere")
    run(NAME, tmp_path, print)
    assert [seed for *_, (seed,) in trained] == repeated
    assert table.read_text() == rows
    assert sorted(json.loads(about.read_text())["final"]) == ["7", "8"]


@pytest.mark.parametrize("missing", ["first_found", "bar", "over_bar"])
def test_a_final_of_an_older_format_is_made_again(missing, table, trained, tmp_path):
    about = table.with_suffix(".json")
    whole = json.loads(about.read_text())
    older = json.loads(about.read_text())
    del older["final"]["7"][missing]
    about.write_text(json.dumps(older))
    run(NAME, tmp_path, print)
    assert [seed for *_, (seed,) in trained] == [7]
    assert json.loads(about.read_text()) == whole


def test_a_task_without_a_goal_asks_for_no_first_episode(trained, tmp_path, monkeypatch):
    pole = dataclasses.replace(EXPERIMENTS[NAME], env="e3rl/CartPole-v1", options=())
    monkeypatch.setitem(EXPERIMENTS, NAME, pole)
    assert run(NAME, tmp_path, print) == run(NAME, tmp_path, print)
    assert len(trained) == 2


def test_results_of_other_settings_are_not_mixed_in(table, trained, tmp_path, monkeypatch):
    longer = dataclasses.replace(EXPERIMENTS[NAME], steps=15)
    monkeypatch.setitem(EXPERIMENTS, NAME, longer)
    said = []
    rows = run(NAME, tmp_path, said.append, [8])
    assert said[0] == f"{NAME}: {table} holds results of other settings, starting over"
    assert len(said) == 2
    assert [row["seed"] for row in rows] == [8, 8]
    assert list(json.loads(table.with_suffix(".json").read_text())["final"]) == ["8"]


def test_more_seeds_are_no_other_settings(table, trained, tmp_path, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, NAME, dataclasses.replace(EXPERIMENTS[NAME], seeds=(7, 8, 9)))
    assert [row["seed"] for row in run(NAME, tmp_path, print)] == [7, 7, 8, 8, 9, 9]
    assert [seed for *_, (seed,) in trained] == [9]


@pytest.mark.parametrize("damage", [("8.0", "eight"), ("return_mean", "mean"), (",1,3,", ",1\n")])
def test_a_damaged_table_is_one_line(damage, table, tmp_path):
    table.write_text(table.read_text().replace(*damage))
    with pytest.raises(UserError, match=r"baselines-lock-tiny.csv and its JSON are damaged") as raised:
        run(NAME, tmp_path, print)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("settings", [[1], None, "dqn"])
def test_damaged_settings_are_one_line(settings, table, tmp_path):
    about = table.with_suffix(".json")
    about.write_text(json.dumps(json.loads(about.read_text()) | {"settings": settings}))
    with pytest.raises(UserError, match=r"and its JSON are damaged: TypeError: .* not a mapping$"):
        run(NAME, tmp_path, print)


def test_every_experiment_can_be_made():
    for name, experiment in EXPERIMENTS.items():
        config = AGENTS[experiment.algo].presets[experiment.config]
        env = build(experiment.env, **dict(experiment.options))
        assert experiment.steps % config.copies == 0, name
        assert experiment.seeds == ((0, 1, 2) if "maze" in name else (0, 1, 2, 3, 4))
        assert experiment.marks
        if name.startswith("baselines-lock/"):
            horizon, reward, algo = name.partition("/")[2].split("-", 2)
            assert (f"h{env.horizon}", env.antishaped, experiment.algo) == (
                horizon, reward == "antishaped", algo,
            )  # fmt: skip
            assert config.clock


@pytest.mark.parametrize("name", ["baselines-mountaincar/dqn", "baselines-acrobot/dqn-long"])
def test_weight_noise_and_nothing_else(name):
    plain, noisy = (
        as_dict(baselines.config_of(EXPERIMENTS[each])) for each in (name, f"{name}-weight-noise")
    )
    assert noisy == {**plain, "weight_noise": True}


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if table_path(RECORDED, name).is_file()])
def test_what_is_recorded_was_made_with_todays_settings(name, monkeypatch):
    """`e3rl reproduce` leaves every result of this repository as it is, whichever version wrote it."""
    said = []
    monkeypatch.setattr(baselines, "train", lambda *args, **more: pytest.fail("a recorded seed is run again"))
    assert is_done(name, RECORDED)
    rows = run(name, RECORDED, said.append)
    assert said == []
    assert {row["seed"] for row in rows} == set(EXPERIMENTS[name].seeds)


def test_settings_of_earlier_versions_as_todays():
    dqn = {"hidden": 8, "learning_starts": 9}
    assert baselines._current(dqn) == {**dqn, "average_share": 0.0}
    assert baselines._current({**dqn, "average_share": 0.2}) == {**dqn, "average_share": 0.2}
    rnd = {
        "intrinsic_coefficient": 1.0, "intrinsic_discount": 0.99, "embedding": 64, "predictor_share": 0.5,
        "obs_clip": 5.0,
    }  # fmt: skip
    bonus = {
        "name": "rnd",
        "coefficient": 1.0,
        "discount": 0.99,
        "embedding": 64,
        "predictor_share": 0.5,
        "obs_clip": 5.0,
    }
    flat = {"hidden": 8, **rnd}
    assert baselines._current({**flat, "rnd": True}) == {"hidden": 8, "input_gain": 1.0, "bonus": bonus}
    assert baselines._current({**flat, "rnd": False, "input_gain": 16.0}) == {
        "hidden": 8, "input_gain": 16.0, "bonus": {"name": "none"},
    }  # fmt: skip
    for config in ({"hidden": 8, "bonus": bonus}, None, [1]):
        assert baselines._current(config) == config
