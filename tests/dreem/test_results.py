"""The data behind docs/dreem.md and its figures, on small cases."""

from itertools import pairwise

from e3rl.dreem.ellipsoid import SHRINKAGE
from e3rl.experiments import dreem_ellipsoid, dreem_lock
from e3rl.experiments.dreem_rank import RankSetting, measure
from e3rl.experiments.dreem_results import read_csv, write_csv
from e3rl.reports.dreem_figures import draw
from e3rl.runs.folder import write_json


def test_rounds_of_the_shown_lock_end_with_one_model():
    rows = dreem_lock.shown_rounds()
    for reward in dreem_lock.REWARDS:
        own = [row for row in rows if row["reward"] == reward]
        assert own[0]["v_explore"] == 10.0  # D is at most 2 a step
        assert own[-1]["log10_models"] == 0.0
        assert own[-1]["v_explore"] <= dreem_lock.EPSILON / 4
        assert all(after["log10_models"] < before["log10_models"] for before, after in pairwise(own))


def test_a_run_that_loses_every_model_counts_as_failed():
    row = dreem_lock.sweep_row(5, "standard", n=2, seed=0)
    assert not row["solved"]
    assert not row["finished"]
    assert dreem_lock.sweep_row(5, "standard", n=128, seed=0)["solved"]


def test_theorem_on_the_lock():
    row = dreem_lock.theorem(4, seeds=2)
    assert row["runs"] == 4
    assert row["failures"] == row["true_model_eliminated"] == 0
    assert row["rounds_max"] <= row["rounds_bound"]


def test_the_ellipsoids_run_meets_lemma_3_in_each_of_its_rounds():
    found = dreem_ellipsoid.run()
    assert found.result.finished
    assert 0 in found.result.models_left
    assert [each.rank for each in found.factors] == [0, 2]
    assert len(found.rounds) == 2
    for row in found.rows():
        assert row["premise"]
        assert row["volume_ratio"] <= row["sliced_ratio"] <= SHRINKAGE


def test_figures_are_drawn_from_the_tables(tmp_path):
    write_json(
        tmp_path / "rank.json", {"rows": [measure(RankSetting("factored", 3, 1, models=20, policies=20))]}
    )
    write_csv(tmp_path / "lock-rounds.csv", dreem_lock.shown_rounds(), {})
    sweep = [dreem_lock.sweep_row(horizon, "standard", 64, 0) for horizon in (2, 3, 4)]
    write_csv(tmp_path / "lock-sweep.csv", sweep, {})
    assert read_csv(tmp_path / "lock-sweep.csv")[0]["n"] == "64"
    neural = [
        {"reward": reward, "episode": k, "v_explore": v, "return": 0.0}
        for reward in dreem_lock.REWARDS
        for k, v in enumerate((float("inf"), 3.0, 2.0))
    ]
    write_csv(tmp_path / "lock-neural.csv", neural, {})
    paths = draw(tmp_path)
    assert [path.name for path in paths] == [
        "ellipsoids.png",
        "ranks.png",
        "lock-rounds.png",
        "lock-sweep.png",
    ]
    assert all(path.stat().st_size > 10_000 for path in paths)
