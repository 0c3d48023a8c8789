"""The lock experiments: their analysis against rows worked by hand, and one tiny experiment from end to end."""

import csv
import json
import math
from functools import partial

import pytest

from e3rl.envs.lock import CombinationLock
from e3rl.experiments import lock
from e3rl.experiments.lock import COLUMNS, EXPERIMENTS, LockExperiment, run, smallest_budget, tally
from e3rl.neural.config import CONFIGS, NeuralE3Config
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
            assert EXPERIMENTS[name].horizon == horizon
            assert EXPERIMENTS[name].seeds == (0, 1, 2, 3, 4)
            assert ratio in EXPERIMENTS[name].ratios
        assert EXPERIMENTS[f"lock-paper/h{horizon}"].config == f"paper-lock-h{horizon}"
    assert all(experiment.config in CONFIGS for experiment in EXPERIMENTS.values())


def test_unknown_experiment(tmp_path):
    with pytest.raises(UserError, match="unknown experiment 'lock/h6'; known: lock/h5"):
        run("lock/h6", tmp_path, print)


def test_a_tiny_experiment(tmp_path, monkeypatch):
    tiny = NeuralE3Config(
        explore_episodes=7, ensemble_size=2, hidden=8, model_updates=2, model_batch=4, value_updates=2,
        value_batch=4, exploit_updates=20, evaluation_episodes=5, playouts=4, particles=2, dqn_batch=4,
        round_episodes=3, round_updates=2,
    )  # fmt: skip
    monkeypatch.setitem(CONFIGS, "tiny", tiny)
    monkeypatch.setitem(lock.EXPERIMENTS, "lock/tiny", LockExperiment(3, (1, 2), "tiny", (7,)))
    monkeypatch.setattr(lock, "CombinationLock", partial(CombinationLock, noise_bits=1))
    said = []
    table = run("lock/tiny", tmp_path, said.append)
    cases = [(row["ratio"], row["episodes"], row["reward"], row["seed"]) for row in table]
    assert cases == [
        (ratio, 3 * ratio, reward, 7) for ratio in (1, 2) for reward in ("standard", "antishaped")
    ]
    for row in table:
        optimum = CombinationLock(3, antishaped=row["reward"] == "antishaped", seed=7).optimal_return
        assert row["optimal_return"] == pytest.approx(optimum)
        assert row["solved"] == (row["return_mean"] >= 0.95 * optimum)
        assert 0 <= row["paid_episodes"] <= row["episodes"]
    with (tmp_path / "lock-tiny.csv").open(newline="") as file:
        stored = list(csv.DictReader(file))
    assert [[row[name] for name in COLUMNS] for row in stored] == [
        [str(row[name]) for name in COLUMNS] for row in table
    ]
    about = json.loads((tmp_path / "lock-tiny.json").read_text())
    assert (
        about["settings"].items() >= {"horizon": 3, "ratios": [1, 2], "config": "tiny", "seeds": [7]}.items()
    )
    assert about["config"]["explore_ratio"] == 2
    assert about["solved"].keys() == {"3", "6"}
    assert len(said) == 2
    assert said[1].endswith(tally(table, 6))
