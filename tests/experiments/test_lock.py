"""The lock experiments: their analysis against rows worked by hand, and one tiny experiment from end to end."""

import csv
import json
import math
from functools import partial
from types import SimpleNamespace
from typing import ClassVar
from unittest.mock import ANY

import numpy as np
import pytest
from tiny import TINY

from e3rl.e3 import Epoch
from e3rl.envs.lock import CombinationLock
from e3rl.experiments import lock
from e3rl.experiments.lock import (
    COLUMNS,
    LOCK_EXPERIMENTS,
    LockExperiment,
    is_done,
    run,
    smallest_budget,
    tally,
)
from e3rl.neural.presets import PRESETS
from e3rl.runs.settings import as_dict, changed
from e3rl.types import UserError


def rows(solved, reward="standard"):
    """{ratio: whether each seed is solved} as rows of a horizon of 10."""
    return [
        {"ratio": ratio, "episodes": 10 * ratio, "reward": reward, "seed": seed, "solved": each}
        for ratio, seeds in solved.items()
        for seed, each in enumerate(seeds)
    ]


@pytest.mark.parametrize(
    ("solved", "smallest"),
    [
        ({5: [0, 1], 10: [1, 1], 20: [1, 1]}, 10),
        ({5: [1, 1], 10: [1, 1], 20: [1, 1]}, 5),
        ({5: [1, 1], 10: [1, 0], 20: [1, 1]}, 20),  # luck at 5 does not count: 10 fails
        ({5: [1, 1], 10: [1, 1], 20: [0, 1]}, math.inf),
        ({20: [1, 1], 5: [0, 0], 10: [1, 1]}, 10),  # in any order
        ({}, math.inf),
    ],
)
def test_smallest_budget_by_hand(solved, smallest):
    assert smallest_budget(rows(solved), "standard") == smallest


def test_each_reward_has_its_own_budget():
    table = rows({5: [1], 10: [1]}) + rows({5: [0], 10: [1]}, "antishaped")
    assert smallest_budget(table, "standard") == 5
    assert smallest_budget(table, "antishaped") == 10


def test_a_reward_that_was_not_measured_is_not_solved():
    assert smallest_budget(rows({5: [1], 10: [1]}), "antishaped") == math.inf


def test_tally_by_hand():
    table = rows({5: [1, 0, 1], 10: [1, 1, 1]}) + rows({5: [0, 0], 10: [1, 0]}, "antishaped")
    assert tally(table, 50) == "standard solved 2 of 3, antishaped solved 0 of 2"
    assert tally(table, 100) == "standard solved 3 of 3, antishaped solved 1 of 2"


def test_the_papers_protocol():
    """Seeds 0 to 4; budgets of 25H, 50H, 50H and 75H episodes are among those measured."""
    for horizon, ratio in ((5, 25), (10, 50), (15, 50), (20, 75)):
        for name in (f"lock/h{horizon}", f"lock-paper/h{horizon}"):
            assert LOCK_EXPERIMENTS[name].horizon == horizon
            assert LOCK_EXPERIMENTS[name].seeds == (0, 1, 2, 3, 4)
            assert ratio in LOCK_EXPERIMENTS[name].ratios
        assert LOCK_EXPERIMENTS[f"lock-paper/h{horizon}"].config == f"paper-lock-h{horizon}"


def test_every_experiment_can_be_made():
    for name, experiment in LOCK_EXPERIMENTS.items():
        config = changed(PRESETS[experiment.config], dict(experiment.changes))
        assert config.explore.per_epoch == 1, name
        assert experiment.seeds, name
        assert set(experiment.rewards) <= {"standard", "antishaped"}, name
    best = LOCK_EXPERIMENTS["planning/mcts-choice-best"]
    assert changed(PRESETS["e3rl"], dict(best.changes)).planner.choice == "best"
    assert changed(PRESETS["e3rl"], dict(LOCK_EXPERIMENTS["planning/mcts"].changes)).planner.choice == "mean"


def test_unknown_experiment(tmp_path):
    with pytest.raises(UserError, match="unknown experiment 'lock/h6'; known: lock/h5"):
        run("lock/h6", tmp_path, print)


class Scripted:
    """Stands for `NeuralProgram`: each epoch's returns are given, and so are those of the greedy episodes after it."""

    explored = ((0.1, 5.0), (0.0, 0.0), (2.0, 2.1), (4.9, 0.0), (0.0, 5.0), (5.0, 5.0))
    """By epoch and lane: more than 2 is paid for by the last lock's reward."""
    greedy: ClassVar = {3: (5.0, 4.0), 6: (4.8, 4.9)}
    """By episodes explored."""

    def __init__(self, envs, specs, config, seeds):
        self.seeds, self.keys, self.config = seeds, "keys", config
        self.agent = SimpleNamespace(exploit=lambda models, replay, keys: (models, replay, keys))
        made.append(self)
        self.envs, self.specs = envs, specs

    def explore(self, record, resume, exploit, after_epoch):
        assert (list(record.seeds), resume) == (list(self.seeds), True)
        half = list(self.seeds)[: len(self.seeds) // 2]
        assert [folder.path.name for folder in record.folders] == [
            f"{reward}-seed{seed}" for reward in ("standard", "antishaped") for seed in half
        ]
        for t, returns in enumerate(self.explored):
            for lane, value in enumerate(returns):
                record.add(lane, "explore", value, 3, 3 * (t + 1))
            collected = SimpleNamespace(returns=np.array(returns)[:, None])
            after_epoch(Epoch(t, None, None, collected, None, f"M{t + 1}", f"R{t + 1}"))

    def evaluate(self, policy, episodes):
        models, replay, _ = policy
        assert models[1:] == replay[1:]
        return np.tile(np.array(self.greedy[int(models[1:])])[:, None], episodes)


made: list[Scripted] = []


@pytest.fixture
def tiny_experiment(monkeypatch):
    made.clear()
    monkeypatch.setitem(PRESETS, "tiny", TINY)
    monkeypatch.setitem(LOCK_EXPERIMENTS, "lock/tiny", LockExperiment(3, (1, 2), "tiny", (7,)))


def check(table, out, said):
    """What is written is what is returned."""
    cases = [(row["ratio"], row["episodes"], row["reward"], row["seed"]) for row in table]
    assert cases == [
        (ratio, 3 * ratio, reward, 7) for ratio in (1, 2) for reward in ("standard", "antishaped")
    ]
    for row in table:
        optimum = CombinationLock(3, antishaped=row["reward"] == "antishaped", seed=7).optimal_return
        assert row["optimal_return"] == pytest.approx(optimum)
        assert row["solved"] == (row["return_mean"] >= 0.95 * optimum)
        assert 0 <= row["paid_episodes"] <= row["episodes"]
    with (out / "lock-tiny.csv").open(newline="") as file:
        stored = list(csv.DictReader(file))
    assert [[row[name] for name in COLUMNS] for row in stored] == [
        [str(row[name]) for name in COLUMNS] for row in table
    ]
    about = json.loads((out / "lock-tiny.json").read_text())
    wanted = {"horizon": 3, "ratios": [1, 2], "config": "tiny", "seeds": [7]}
    assert about["settings"].items() >= wanted.items()
    assert about["config"] == as_dict(changed(TINY, {"explore.epsilon_share": 0.0}))
    assert about["solved"].keys() == {"3", "6"}
    assert len(said) == 2
    assert said[1].endswith(tally(table, 6))
    return about


@pytest.mark.usefixtures("tiny_experiment")
def test_an_experiment_with_scripted_returns(tmp_path, monkeypatch):
    """At three levels the optimum is 5 with standard rewards and 4 1/3 with antishaped ones."""
    monkeypatch.setattr(lock, "NeuralProgram", Scripted)
    said = []
    table = run("lock/tiny", tmp_path, said.append)
    about = check(table, tmp_path, said)
    assert [(row["return_mean"], row["solved"], row["paid_episodes"]) for row in table] == [
        (5.0, True, 0), (4.0, False, 2), (4.8, True, 2), (4.9, True, 4),
    ]  # fmt: skip
    assert about["smallest_ratio_solving_all_seeds"] == {"standard": 1, "antishaped": 2}
    assert said[0].startswith("lock/tiny 1H (3 episodes), ")
    assert said[0].endswith("standard solved 1 of 1, antishaped solved 0 of 1")
    [program] = made
    assert program.config == changed(TINY, {"explore.epsilon_share": 0.0})
    assert list(program.seeds) == [7, 7]
    assert [float(env.optimal_return) for env in program.envs] == pytest.approx([5.0, 5.0 - 2 / 3])
    assert [spec.horizon for spec in program.specs] == [3, 3]
    assert about["command"] == "e3rl reproduce lock/tiny"
    assert about["explore_return_mean"] == {
        "standard": {"7": pytest.approx(2.0)}, "antishaped": {"7": pytest.approx(17.1 / 6, abs=1e-5)},
    }  # fmt: skip
    assert about["more_tables"] == ["lock-tiny-exploring.csv"]
    with (tmp_path / "lock-tiny-exploring.csv").open(newline="") as file:
        points = [(row["reward"], row["episode"], float(row["return_mean"])) for row in csv.DictReader(file)]
    assert points[:2] == [("standard", "1", 0.1), ("standard", "2", 0.0)]
    assert len(points) == 12


@pytest.mark.usefixtures("tiny_experiment")
def test_what_is_done_is_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "NeuralProgram", Scripted)
    assert not is_done("lock/tiny", tmp_path)
    table = run("lock/tiny", tmp_path, print)
    assert is_done("lock/tiny", tmp_path)
    assert not is_done("lock/tiny", tmp_path, [7, 8])
    said = []
    assert run("lock/tiny", tmp_path, said.append) == table
    assert said == [f"lock/tiny: done before, {tmp_path / 'lock-tiny.csv'}"]
    assert len(made) == 1
    monkeypatch.setitem(PRESETS, "tiny", changed(TINY, {"fit.updates": 3}))
    assert not is_done("lock/tiny", tmp_path)
    assert run("lock/tiny", tmp_path, said.append) == [{**row, "seconds": ANY} for row in table]
    assert len(made) == 2


@pytest.mark.usefixtures("tiny_experiment")
def test_seeds_that_were_measured_before_are_not_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "NeuralProgram", Scripted)
    first = run("lock/tiny", tmp_path, print, [8])
    monkeypatch.setattr(Scripted, "greedy", {3: (1.0, 1.0), 6: (2.0, 2.0)})
    table = run("lock/tiny", tmp_path, print, [7, 8])
    assert [list(program.seeds) for program in made] == [[8, 8], [7, 7]]
    assert table[: len(first)] == first
    assert [(row["seed"], row["return_mean"]) for row in table[len(first) :]] == [
        (7, 1.0), (7, 1.0), (7, 2.0), (7, 2.0),
    ]  # fmt: skip
    assert is_done("lock/tiny", tmp_path, [7, 8])
    assert is_done("lock/tiny", tmp_path)
    about = json.loads((tmp_path / "lock-tiny.json").read_text())
    assert (about["command"], about["settings"]["seeds"]) == ("e3rl reproduce lock/tiny --seeds 7,8", [7, 8])
    assert about["explore_return_mean"]["standard"] == {"8": pytest.approx(2.0), "7": pytest.approx(2.0)}
    [earlier] = about["earlier"]
    assert (earlier["seeds"], earlier["command"]) == ([8], "e3rl reproduce lock/tiny --seeds 8")
    with (tmp_path / "lock-tiny-exploring.csv").open(newline="") as file:
        curves = [(row["seed"], row["reward"]) for row in csv.DictReader(file)]
    assert list(dict.fromkeys(curves)) == [
        (seed, reward) for seed in ("8", "7") for reward in ("standard", "antishaped")
    ]
    monkeypatch.setattr(Scripted, "greedy", {3: (3.0,) * 4, 6: (3.0,) * 4})
    run("lock/tiny", tmp_path, print, [7, 8, 9])
    told = json.loads((tmp_path / "lock-tiny.json").read_text())["earlier"]
    assert [one["seeds"] for one in told] == [[8], [7]]


@pytest.mark.usefixtures("tiny_experiment")
def test_seeds_from_several_folders_are_put_together(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "NeuralProgram", Scripted)
    whole, parts = tmp_path / "whole", [tmp_path / "a", tmp_path / "b"]
    for seed, part in zip((8, 7), parts, strict=True):
        run("lock/tiny", part, print, [seed])
    run("lock/tiny", whole, print, [8])
    run("lock/tiny", whole, print, [7, 8])
    rows = lock.put_together("lock/tiny", tmp_path / "joined", parts)
    assert is_done("lock/tiny", tmp_path / "joined", [7, 8])
    tables = []
    for folder in (whole, tmp_path / "joined"):
        for name in ("lock-tiny.csv", "lock-tiny-exploring.csv"):
            with (folder / name).open(newline="") as file:
                found = [row | {"seconds": None} for row in csv.DictReader(file)]
            tables.append(sorted(found, key=lambda row: tuple(map(str, row.values()))))
    assert tables[:2] == tables[2:]
    assert len(rows) == len(tables[0])
    about, alone = (
        json.loads((folder / "lock-tiny.json").read_text()) for folder in (tmp_path / "joined", whole)
    )
    assert [one["seeds"] for one in about["earlier"]] == [[8], [7]]
    assert about["solved"] == alone["solved"]
    assert about["explore_return_mean"] == alone["explore_return_mean"]
    for part in parts:  # one by one it comes to the same
        lock.put_together("lock/tiny", tmp_path / "slowly", [part])
    slowly = json.loads((tmp_path / "slowly" / "lock-tiny.json").read_text())
    assert slowly["earlier"] == about["earlier"]
    with pytest.raises(UserError, match="measured twice: seeds 8"):
        lock.put_together("lock/tiny", tmp_path / "joined", parts[:1])
    with pytest.raises(UserError, match="has no whole seed of lock/tiny"):
        lock.put_together("lock/tiny", tmp_path / "joined", [tmp_path / "nothing"])


@pytest.mark.usefixtures("tiny_experiment")
def test_a_budget_that_was_judged_before_an_interruption_is_not_judged_again(tmp_path, monkeypatch):
    class Interrupted(Scripted):
        explored = Scripted.explored[:4]

        def explore(self, *args):
            super().explore(*args)
            raise KeyboardInterrupt

    class Resumed(Scripted):
        greedy: ClassVar = {6: Scripted.greedy[6]}

    monkeypatch.setattr(lock, "NeuralProgram", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("lock/tiny", tmp_path, print)
    assert not is_done("lock/tiny", tmp_path)
    monkeypatch.setattr(lock, "NeuralProgram", Resumed)
    rows = run("lock/tiny", tmp_path, print)
    assert [(row["episodes"], row["return_mean"]) for row in rows] == [(3, 5.0), (3, 4.0), (6, 4.8), (6, 4.9)]


def test_seeds_and_epochs_that_cannot_be(tmp_path, monkeypatch, tiny_experiment):
    with pytest.raises(UserError, match=r"seeds must be from 0 to .*, got -1"):
        run("lock/tiny", tmp_path, print, [-1])
    monkeypatch.setitem(PRESETS, "tiny", changed(TINY, {"explore.per_epoch": 2}))
    with pytest.raises(UserError, match=r"explore\.per_epoch must be 1"):
        run("lock/tiny", tmp_path, print)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("tiny_experiment")
def test_a_tiny_experiment(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "CombinationLock", partial(CombinationLock, noise_bits=1))
    said = []
    check(run("lock/tiny", tmp_path, said.append), tmp_path, said)
