"""The maze and control experiments: what they are, and one tiny experiment of each kind from end to end."""

import csv
import json

import numpy as np
import pytest

from e3rl.experiments import deterministic
from e3rl.experiments.deterministic import COLUMNS, EXPERIMENTS, Experiment, run
from e3rl.neural.config import CONFIGS, NeuralE3Config
from e3rl.types import UserError

TINY = {
    "explore_ratio": 0, "episodes_per_epoch": 2, "clock": False, "ensemble_size": 2, "hidden": 8, "model_updates": 2,
    "model_batch": 4, "prior_weight": 0.0, "planner": "graph", "nodes": 20, "distance": "squared",
    "reward_scale": 0.0, "value_heads": False, "dqn_heads": False, "exploit_updates": 4, "dqn_batch": 4,
    "evaluation_episodes": 3,
}  # fmt: skip


def tiny(monkeypatch, name, env, options, **settings):
    config = NeuralE3Config(**{**TINY, "explore_episodes": 1, **settings})
    monkeypatch.setitem(CONFIGS, "tiny", config)
    monkeypatch.setitem(EXPERIMENTS, name, Experiment(env, options, "tiny", (2, 4), (5, 6)))
    return config


def check(name, out, rows, said):
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
    assert about["config"]["explore_episodes"] == 4
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
    assert len(said) == 2
    assert said[1].startswith(f"{name}, ")
    return about


def test_a_tiny_control_experiment(tmp_path, monkeypatch):
    name, said = "mountaincar/tiny", []
    tiny(monkeypatch, name, "e3rl/MountainCar-v0", (("time_limit", 6),), family="mlp", exploit="dqn")
    rows = run(name, tmp_path, said.append)
    about = check(name, tmp_path, rows, said)
    assert {row["optimal_return"] for row in rows} == {""}
    assert {row["length"] for row in rows} == {6}
    assert not any(row["reached"] for row in rows)
    assert "optimal_return_mean" not in about["exploit"][0]


@pytest.mark.slow
def test_a_tiny_maze_experiment(tmp_path, monkeypatch):
    name, said = "maze/tiny", []
    tiny(monkeypatch, name, "e3rl/Maze-v0", (("size", 5),), family="conv", exploit="graph")
    rows = run(name, tmp_path, said.append)
    about = check(name, tmp_path, rows, said)
    assert all(row["return"] <= row["optimal_return"] + 1e-4 for row in rows)
    assert all(row["reached"] for row in rows if row["length"] < 100)
    assert " of " in said[0]
    assert about["exploit"][0]["optimal_return_mean"] <= 2.0


def test_every_experiment_can_be_made():
    for name, experiment in EXPERIMENTS.items():
        config = CONFIGS[experiment.config]
        assert all(budget % config.episodes_per_epoch == 0 for budget in experiment.budgets), name
        assert experiment.seeds
        NeuralE3Config(**{**vars(config), **dict(experiment.changes)})


@pytest.mark.parametrize(
    ("changes", "seeds", "message"),
    [
        ({"episodes_per_epoch": 3}, (), "budgets must be whole epochs of 3 episodes"),
        ({}, (-1,), "seeds must be from 0 to .*, got -1"),
    ],
)
def test_what_cannot_be_run(tmp_path, monkeypatch, changes, seeds, message):
    tiny(monkeypatch, "mountaincar/tiny", "e3rl/MountainCar-v0", (), family="mlp", **changes)
    with pytest.raises(UserError, match=message):
        deterministic.run("mountaincar/tiny", tmp_path, print, seeds)
    assert not list(tmp_path.iterdir())
