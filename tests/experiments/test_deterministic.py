"""The maze and control experiments: what they are, one with scripted episodes, and tiny ones from end to end."""

import csv
import json
from types import SimpleNamespace

import numpy as np
import pytest

from e3rl.e3 import Epoch
from e3rl.envs.mountain_car import MountainCar
from e3rl.experiments import deterministic
from e3rl.experiments.catalogue import EXPERIMENTS, family_of, results_folder
from e3rl.experiments.deterministic import COLUMNS, DETERMINISTIC_EXPERIMENTS, DeterministicExperiment, run
from e3rl.neural.presets import PRESETS
from e3rl.neural.slots import Episodes
from e3rl.neural.stopping import Stopping
from e3rl.reports import deterministic as reports
from e3rl.runs.settings import as_dict, changed, settings_of
from e3rl.types import UserError

TINY = {
    "explore.episodes": 1, "explore.per_epoch": 2, "model.hidden": 8, "fit.members": 2, "fit.updates": 2,
    "fit.batch": 4, "fit.unroll": 1, "planner.nodes": 20, "exploit.nodes": 20, "exploit.value.updates": 4,
    "exploit.snapshots": 1, "exploit.value.batch": 4, "evaluation_episodes": 3,
}  # fmt: skip
CONTROL = (("time_limit", 6),)


@pytest.fixture
def tiny(monkeypatch):
    def tiny(name, env, options, preset, **changes):
        there = set(settings_of(PRESETS[preset]))
        small = {path: value for path, value in TINY.items() if path in there}
        config = changed(PRESETS[preset], {**small, **changes})
        monkeypatch.setitem(PRESETS, "tiny", config)
        experiment = DeterministicExperiment(env, options, "tiny", (2, 4), (5, 6))
        monkeypatch.setitem(DETERMINISTIC_EXPERIMENTS, name, experiment)
        return config

    return tiny


def check(name, out, rows, said, config):
    """What is written is what is returned: per seed 4 explored and after each budget 3 played."""
    cases = [(row["seed"], row["phase"], row["budget"], row["episode"]) for row in rows]
    explored = [(seed, "explore", 4, episode) for seed in (5, 6) for episode in (1, 2, 3, 4)]
    played = [(seed, "exploit", b, episode) for seed in (5, 6) for b in (2, 4) for episode in (1, 2, 3)]
    assert sorted(cases) == sorted(explored + played)
    path = out / name.replace("/", "-")
    with path.with_suffix(".csv").open(newline="") as file:
        stored = list(csv.DictReader(file))
    assert list(stored[0]) == list(COLUMNS)
    assert [[row[column] for column in COLUMNS] for row in stored] == [
        [str(row[column]) for column in COLUMNS] for row in rows
    ]
    about = json.loads(path.with_suffix(".json").read_text())
    assert about["experiment"] == name
    assert about["settings"]["seeds"] == [5, 6]
    to_the_end = {"explore.episodes": 4, "explore.epsilon_share": 0.0, "planner.tried": 0.0}
    assert about["config"] == as_dict(changed(config, to_the_end))
    assert [(verdict["budget"], verdict["seed"]) for verdict in about["exploit"]] == [
        (2, 5), (2, 6), (4, 5), (4, 6),
    ]  # fmt: skip
    for verdict in about["exploit"]:
        own = [
            r
            for r in rows
            if (r["phase"], r["budget"], r["seed"]) == ("exploit", verdict["budget"], verdict["seed"])
        ]
        returns = [row["return"] for row in own]
        assert verdict["return_mean"] == pytest.approx(np.mean(returns), abs=1e-3)
        assert verdict["return_min"] == min(returns)
        assert verdict["reached"] == np.mean([row["reached"] for row in own])
    for seed in (5, 6):
        own = [row["return"] for row in rows if (row["phase"], row["seed"]) == ("explore", seed)]
        assert about["explore_return_mean"][str(seed)] == pytest.approx(np.mean(own))
    assert [" after " in line for line in said] == [True, False, True]
    assert said[2].startswith(f"{name}, ")
    return about


class Scripted:
    """Stands for `NeuralProgram`: the return of an episode is made of its epoch, its lane and its number."""

    def __init__(self, envs, specs, config, seeds):
        assert all(isinstance(env, MountainCar) and env.time_limit == 6 for env in envs)
        assert (config.explore.episodes, [spec.horizon for spec in specs]) == (4, [6, 6])
        self.env, self.keys, self.agent = "all cars", "keys", self
        self.stopping = SimpleNamespace(over=np.zeros(2, bool))

    def explore(self, record, resume, exploit, after_epoch, helper=None):
        for t in range(2):
            after_epoch(Epoch(t, None, None, self.episodes(t, 2), None, f"M{t}", f"R{t}"))
        exploit("M1", "R1", None)

    def exploit(self, models, replay, keys):
        return models

    def exploit_episodes(self, env, policy, replay, keys, t, count):
        assert (env, policy[1:], replay[1:], keys, count) == ("all cars", str(t[0]), str(t[0]), "keys", 3)
        return replay, self.episodes(10 + int(t[0]), count)

    @staticmethod
    def episodes(t, count):
        lanes, numbers = np.meshgrid([0, 1], range(count), indexing="ij")
        returns = -100.0 * t - 10.0 * lanes - numbers
        reached = numbers == lanes
        return Episodes(returns, np.full((2, count), 6), returns, returns, reached, SimpleNamespace())


def test_an_experiment_with_scripted_episodes(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(deterministic, "NeuralProgram", Scripted)
    name, said = "mountaincar/tiny", []
    config = tiny(name, "e3rl/MountainCar-v0", CONTROL, "e3rl-control")
    rows = run(name, tmp_path, said.append)
    about = check(name, tmp_path, rows, said, config)
    assert [row["return"] for row in rows if (row["seed"], row["phase"]) == (6, "explore")] == [
        -10,
        -11,
        -110,
        -111,
    ]
    assert [row["return"] for row in rows if (row["seed"], row["budget"], row["phase"]) == (5, 4, "exploit")] == [
        -1100, -1101, -1102,
    ]  # fmt: skip
    assert {row["optimal_return"] for row in rows} == {""}
    assert {row["length"] for row in rows} == {6}
    first = about["exploit"][0]
    assert (first["return_mean"], first["return_min"], first["reached"]) == (
        -1001.0,
        -1002.0,
        pytest.approx(1 / 3),
    )
    assert first["return_ci"] == pytest.approx([-1001 - 1.96 / 3**0.5, -1001 + 1.96 / 3**0.5], abs=1e-3)
    assert "optimal_return_mean" not in first
    assert said[0].endswith(
        ": seed 5 after 2 episodes: return -1001.00, goal reached in 33%; "
        "seed 6 after 2 episodes: return -1011.00, goal reached in 33%"
    )


def test_seeds_that_end_by_themselves_have_rows_until_then(tiny, tmp_path, monkeypatch):
    class Ending(Scripted):
        """The first seed explores for an epoch, the other for two."""

        def explore(self, record, resume, exploit, after_epoch, helper=None):
            after_epoch(Epoch(0, None, None, self.episodes(0, 2), None, "M0", "R0"))
            self.stopping.over[0] = True
            after_epoch(Epoch(1, None, None, self.episodes(1, 2), None, "M1", "R1"))
            record.episodes[:] = (2, 4)
            exploit("M1", "R1", None)

    monkeypatch.setattr(deterministic, "NeuralProgram", Ending)
    name, said = "mountaincar/ends", []
    tiny(name, "e3rl/MountainCar-v0", CONTROL, "e3rl-control", **{"explore.epsilon_share": 0.2})
    only = DeterministicExperiment("e3rl/MountainCar-v0", CONTROL, "tiny", (4,), (5, 6), ends=True)
    monkeypatch.setitem(DETERMINISTIC_EXPERIMENTS, name, only)
    assert deterministic.config_of(only).explore.epsilon_share == 0.2
    rows = run(name, tmp_path, said.append)
    explored = [(row["seed"], row["episode"]) for row in rows if row["phase"] == "explore"]
    assert sorted(explored) == [(5, 1), (5, 2), (6, 1), (6, 2), (6, 3), (6, 4)]
    about = json.loads((tmp_path / "mountaincar-ends.json").read_text())
    assert [verdict["explored"] for verdict in about["exploit"]] == [2, 4]
    assert "seed 5 after 2 episodes: return" in said[-1]
    (told,) = reports.found(tmp_path)
    assert reports.marks_of(told.about["exploit"]) == {3.0: [v["return_mean"] for v in about["exploit"]]}
    size, epochs = reports.explored(told)
    assert (size, epochs.shape) == (2, (2, 2))
    assert np.isnan(epochs[0, 1])
    assert not np.isnan(epochs[1]).any()
    assert reports.last_of(epochs).tolist() == [epochs[0, 0], epochs[1, 1]]
    line = reports.table(tmp_path).splitlines()[1]
    assert "2 to 4" in line
    assert "nan" not in line


def test_what_an_attempt_explored_that_was_given_up_is_forgotten(tiny, tmp_path, monkeypatch):
    """It explored all four episodes, and the next one, begun anew, only two."""
    name, length = "mountaincar/ends", 4

    class Ending(Scripted):
        def explore(self, record, resume, exploit, after_epoch, helper=None):
            for t in range(length // 2):
                after_epoch(Epoch(t, None, None, self.episodes(t, 2), None, f"M{t}", f"R{t}"))
            if length == 4:
                raise KeyboardInterrupt
            record.episodes[:] = length
            exploit("M1", "R1", None)

    monkeypatch.setattr(deterministic, "NeuralProgram", Ending)
    tiny(name, "e3rl/MountainCar-v0", CONTROL, "e3rl-control")
    only = DeterministicExperiment("e3rl/MountainCar-v0", CONTROL, "tiny", (4,), (5, 6), ends=True)
    monkeypatch.setitem(DETERMINISTIC_EXPERIMENTS, name, only)
    with pytest.raises(KeyboardInterrupt):
        run(name, tmp_path, print)
    length = 2
    explored = [row["episode"] for row in run(name, tmp_path, print) if row["phase"] == "explore"]
    assert sorted(explored) == [1, 1, 2, 2]


def test_epochs_between_budgets_are_told_too(tiny, tmp_path, monkeypatch):
    monkeypatch.setattr(deterministic, "NeuralProgram", Scripted)
    tiny("mountaincar/tiny", "e3rl/MountainCar-v0", CONTROL, "e3rl-control")
    only = DeterministicExperiment("e3rl/MountainCar-v0", CONTROL, "tiny", (4,), (5, 6))
    monkeypatch.setitem(DETERMINISTIC_EXPERIMENTS, "mountaincar/tiny", only)
    said = []
    run("mountaincar/tiny", tmp_path, said.append)
    assert said[0].endswith(" s: explored episodes up to 2")
    assert said[1].endswith(" s: explored episodes up to 4")
    assert "after 4 episodes" in said[2]


def test_what_is_done_is_not_run_again_and_what_is_repeated_counts_once(tiny, tmp_path, monkeypatch):
    """An interruption in the last epoch: the rows of all but that are there, and those that come again replace them."""
    monkeypatch.setattr(deterministic, "NeuralProgram", Scripted)
    name = "mountaincar/tiny"
    tiny(name, "e3rl/MountainCar-v0", CONTROL, "e3rl-control")
    whole = run(name, tmp_path / "whole", print)
    assert deterministic.is_done(name, tmp_path / "whole")
    assert not deterministic.is_done(name, tmp_path / "whole", [5, 6, 7])
    said = []
    assert run(name, tmp_path / "whole", said.append) == whole
    assert said == [f"{name}: done before, {tmp_path / 'whole' / 'mountaincar-tiny.csv'}"]

    class Interrupted(Scripted):
        def exploit(self, models, replay, keys):
            if models == "M1":
                raise KeyboardInterrupt
            return models

    monkeypatch.setattr(deterministic, "NeuralProgram", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(name, tmp_path / "cut", print)
    assert not deterministic.is_done(name, tmp_path / "cut")
    monkeypatch.setattr(deterministic, "NeuralProgram", Scripted)
    assert sorted(map(str, run(name, tmp_path / "cut", print))) == sorted(map(str, whole))
    tiny(name, "e3rl/MountainCar-v0", CONTROL, "e3rl-control", **{"fit.updates": 3})
    assert not deterministic.is_done(name, tmp_path / "whole")


@pytest.mark.slow
def test_a_tiny_control_experiment(tiny, tmp_path):
    name, said = "mountaincar/tiny", []
    config = tiny(name, "e3rl/MountainCar-v0", CONTROL, "e3rl-control")
    rows = run(name, tmp_path, said.append)
    check(name, tmp_path, rows, said, config)
    assert {row["length"] for row in rows} == {6}
    assert not any(row["reached"] for row in rows)


@pytest.mark.slow
def test_a_tiny_maze_experiment(tiny, tmp_path):
    name, said = "maze/tiny", []
    config = tiny(name, "e3rl/Maze-v0", (("size", 5),), "e3rl-image")
    rows = run(name, tmp_path, said.append)
    about = check(name, tmp_path, rows, said, config)
    assert all(row["return"] <= row["optimal_return"] + 1e-4 for row in rows)
    assert all(row["reached"] for row in rows if row["length"] < 100)
    assert " of " in said[0]
    assert about["exploit"][0]["optimal_return_mean"] <= 2.0


def test_every_experiment_can_be_made():
    for name, experiment in DETERMINISTIC_EXPERIMENTS.items():
        config = changed(PRESETS[experiment.config], dict(experiment.changes))
        assert all(budget % config.explore.per_epoch == 0 for budget in experiment.budgets), name
        assert experiment.seeds
        assert Stopping(deterministic.config_of(experiment), 200, 1).by_itself == experiment.ends, name


@pytest.mark.parametrize(
    ("changes", "seeds", "message"),
    [
        ({"explore.per_epoch": 3}, (), "budgets must be whole epochs of 3 episodes"),
        ({}, (-1,), "seeds must be from 0 to .*, got -1"),
    ],
)
def test_what_cannot_be_run(tiny, tmp_path, changes, seeds, message):
    tiny("mountaincar/tiny", "e3rl/MountainCar-v0", (), "e3rl-control", **changes)
    with pytest.raises(UserError, match=message):
        run("mountaincar/tiny", tmp_path, print, seeds)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("experiment", "family", "folder"),
    [
        ("lock/h5", "lock", "lock"),
        ("lock-paper/h5", "lock", "lock"),
        ("mountaincar/paper", "mountaincar", "control"),
        ("acrobot/e3rl", "acrobot", "control"),
        ("maze/5-ue2", "maze", "maze"),
        ("planning/mcts", "planning", "planning"),
    ],
)
def test_where_results_lie(experiment, family, folder):
    assert experiment in EXPERIMENTS
    assert family_of(experiment) == family
    assert str(results_folder(experiment)) == f"results/{folder}"
