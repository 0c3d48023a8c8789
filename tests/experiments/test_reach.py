"""`e3rl reproduce reach` on a chain of four places: what it writes, what it does not run again, how it is told."""

import csv
import json

import pytest

from e3rl.cli.errors import interrupted
from e3rl.experiments import reach
from e3rl.experiments.tables import write_table
from e3rl.reports.reach import table
from e3rl.runs.folder import COLUMNS, RunFolder
from e3rl.types import UserError

TASK = reach.Task("e3rl/Chain-v0", (("n", 4),), target=11.5, episodes=50)


def ignore(line):
    pass


@pytest.fixture
def tiny(monkeypatch):
    monkeypatch.setattr(reach, "TASKS", {"chain": TASK})
    monkeypatch.setattr(reach, "BASELINES", ())


def test_a_task_is_run_once_and_goes_on_where_it_stopped(tiny, tmp_path):
    said = []
    [row] = reach.run("reach/chain", tmp_path, said.append, [200])
    assert (row["algo"], row["seed"], row["return_mean"]) == ("tabular-e3", 200, 12.0)
    assert 0 < row["explore_episodes"] <= row["steps"]
    assert len(said) == 1
    again = reach.run("reach", tmp_path, said.append, [200])
    assert said[1:] == [f"reach/chain: done before, {tmp_path / 'reach-chain.csv'}"]
    assert float(again[0]["return_mean"]) == 12.0
    with (tmp_path / "reach-chain.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == 1
    about = json.loads((tmp_path / "reach-chain.json").read_text())
    assert (about["chosen"], about["optimum"], about["target"]) == ("tabular-e3", 12.0, 11.5)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == []


def test_what_was_damaged_is_one_line(tiny, tmp_path):
    (tmp_path / "reach-chain.csv").write_text("something,else\n1,2\n")
    with pytest.raises(UserError, match=r"reach-chain\.csv or its \.json is damaged"):
        reach.run("reach/chain", tmp_path, ignore, [200])


def test_practice_counts_as_experience_and_not_as_evaluation(tmp_path):
    folder = RunFolder(tmp_path)
    phases = ["explore"] * 2 + ["practice"] * 3 + ["exploit"] * 2
    for i, phase in enumerate(phases):
        values = dict.fromkeys(COLUMNS, 0) | {"phase": phase, "length": 10, "return": -1.0 if i < 5 else i}
        folder.add_row(**values)
    folder.write_rows()
    about = {"explore_episodes": 2, "practice_episodes": 3, "wall_seconds": 1.0, "seeds_in_program": 1}
    folder.write_summary(about)
    row = reach._row(7, tmp_path, 0)
    assert [row[name] for name in ("explore_episodes", "steps", "return_mean")] == [5, 50, 5.5]
    assert row["positive"] == 1.0


def test_a_target_is_met_by_seeds_that_have_the_return_within_the_episodes(tmp_path):
    def row(algo, seed, episodes, mean, positive):
        numbers = dict.fromkeys(("return_low", "return_high"), mean)
        rest = {"positive": positive, "seconds": 3.0 + seed, "together": 1}
        about = {"experiment": "reach/taxi", "algo": algo, "seed": seed, "explore_episodes": episodes}
        return {**about, "steps": 100 * seed, "return_mean": mean, **numbers, **rest}

    rows = [row("tabular-e3", 1, 60, 7.5, 1.0), row("tabular-e3", 2, 61, 8.0, 1.0)]
    rows += [row("tabular-e3", 3, 10, 7.49, 0.5), row("dqn", 1, "", -200.0, 0.0)]
    about = {
        "experiment": "reach/taxi",
        "chosen": "tabular-e3",
        "optimum": 7.93,
        "target": 7.5,
        "episodes": 60,
    }
    write_table(tmp_path / "reach-taxi.csv", reach.COLUMNS, rows, {**about, "share": False})
    cells = [cell.strip() for cell in table(tmp_path).splitlines()[-1].strip("|").split("|")]
    assert cells == [
        "taxi", "tabular-e3", "3", "10–61", "100–300", "7.5 (7.49)", "7.93", "1 of 3 (≥ 7.5 after at most 60)",
        "4–6", "-200", "–",
    ]  # fmt: skip
    write_table(tmp_path / "reach-taxi.csv", reach.COLUMNS, rows, {**about, "share": True, "target": 0.95})
    assert "1 of 3 (≥ 95% of episodes after at most 60)" in table(tmp_path)
    assert "goal in 50% of episodes at least" in table(tmp_path)


def test_an_interrupted_experiment_goes_on_by_the_same_command():
    stopped = KeyboardInterrupt()
    stopped.add_note("saved in some/folder after 3 episodes")
    assert interrupted(stopped, ["reproduce", "reach"]).endswith("go on with: e3rl reproduce reach")
    assert interrupted(stopped, ["train", "lock"]).endswith("go on with: e3rl train lock --resume")
