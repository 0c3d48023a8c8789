"""Experiments that run until exploration ends by itself, on a lock of two levels."""

import json

import pytest
import tiny

from e3rl.experiments import stopping
from e3rl.experiments.catalogue import EXPERIMENTS, results_folder
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.presets import PRESETS
from e3rl.runs.settings import changed
from e3rl.types import UserError

NAME = "stopping/tiny"


@pytest.fixture
def small(monkeypatch):
    """A few episodes of next to no training, of which nothing is too little left to go on for."""
    config = changed(NeuralE3Config(), {**tiny.CHANGES, "explore.episodes": 15, "explore.epsilon": 1e9})
    monkeypatch.setitem(PRESETS, "tiny", config)
    experiment = stopping.StoppingExperiment(2, 1, "stirred", "tiny", (200, 201))
    monkeypatch.setitem(stopping.STOPPING_EXPERIMENTS, NAME, experiment)


def test_a_row_for_every_seed_and_reward(small, tmp_path):
    said = []
    rows = stopping.run(NAME, tmp_path, said.append)
    assert [(row["reward"], row["seed"]) for row in rows] == [
        (reward, seed) for reward in ("standard", "antishaped") for seed in (200, 201)
    ]
    for row in rows:
        assert row["by_itself"] == (row["episodes"] < 15)
        assert row["solved"] == (row["return_mean"] >= 0.95 * row["optimal_return"])
        assert 0 <= row["first_paid"] <= row["episodes"]
    about = json.loads((tmp_path / "stopping-tiny.json").read_text())
    assert set(about["result"]) == {"standard", "antishaped"}
    assert about["settings"]["noise"] == "stirred"
    assert (tmp_path / "stopping-tiny.csv").read_text().count("\n") == 5
    assert any("still exploring" in line for line in said)
    assert said[-1].startswith(f"{NAME} antishaped: solved")


def test_members_are_repelled_where_an_experiment_says_so():
    repelled, plain = (stopping.experiment_of(name) for name in ("stopping/h5-repelled", "stopping/h5"))
    assert stopping.config_of(repelled) == changed(stopping.config_of(plain), {"fit.repulsion": 30.0})
    assert repelled.about.endswith("members repelled")


def test_ids(tmp_path):
    for name, experiment in stopping.STOPPING_EXPERIMENTS.items():
        assert EXPERIMENTS[name] is stopping.run
        assert results_folder(name).name == "stopping"
        assert f"lock of {experiment.horizon} levels" in experiment.about
    with pytest.raises(UserError, match="unknown experiment 'stopping/none'"):
        stopping.run("stopping/none", tmp_path, print)
    with pytest.raises(UserError, match="seeds must be"):
        stopping.run("stopping/h5", tmp_path, print, (-1,))


def test_what_was_measured_before_an_interruption_is_not_measured_again(small, tmp_path, monkeypatch):
    whole = stopping.run(NAME, tmp_path / "whole", lambda line: None)
    measured, run_cases = [], stopping.run_cases

    def interrupted(name, experiment, config, cases, *more):
        if len(measured) == 2:
            raise KeyboardInterrupt
        measured.extend(cases)
        return run_cases(name, experiment, config, cases, *more)

    monkeypatch.setattr(stopping, "_together", lambda cases: [[case] for case in cases])
    monkeypatch.setattr(stopping, "run_cases", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stopping.run(NAME, tmp_path / "parts", print)
    monkeypatch.setattr(stopping, "run_cases", run_cases)
    said = []
    rows = stopping.run(NAME, tmp_path / "parts", said.append)
    assert [{**row, "seconds": 0} for row in rows] == [{**row, "seconds": 0} for row in whole]
    assert not (tmp_path / "parts" / "unfinished").exists()
