"""The table and the curves of the mazes and control tasks, from made-up results."""

import csv
import json

import numpy as np
import pytest
from matplotlib import image

from e3rl import cli
from e3rl.experiments.deterministic import COLUMNS
from e3rl.neural.config import NeuralE3Config
from e3rl.reports import deterministic
from e3rl.reports.deterministic import draw, found, table
from e3rl.runs.settings import as_dict, changed
from e3rl.types import UserError


def save(folder, name, verdicts, explored=(), episodes_per_epoch=2, file=None):
    """Verdicts of (seed, budget, return, share that reached the goal, optimum or None); explored returns by seed."""
    judged = [
        {"seed": seed, "budget": budget, "return_mean": mean, "reached": reached}
        | ({} if optimum is None else {"optimal_return_mean": optimum})
        for seed, budget, mean, reached, optimum in verdicts
    ]
    config = as_dict(changed(NeuralE3Config(), {"explore.per_epoch": episodes_per_epoch}))
    if name.startswith("maze"):  # as versions wrote it that had one flat table
        config = {"episodes_per_epoch": episodes_per_epoch}
    path = folder / f"{file or name.replace('/', '-')}.json"
    path.write_text(json.dumps({"experiment": name, "config": config, "exploit": judged}))
    with path.with_suffix(".csv").open("w", newline="") as file:
        rows = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        rows.writeheader()
        for seed, returns in enumerate(explored):
            for i, value in enumerate(returns):
                about = {"experiment": name, "seed": seed, "budget": 4, "episode": i + 1, "length": 9}
                rows.writerow({**about, "phase": "explore", "return": value, "reached": False})
                rows.writerow({**about, "phase": "exploit", "return": 1e6, "reached": True})


CAR = [
    (0, 20, -110.0, 1.0, None),
    (1, 20, -150.0, 0.9, None),
    (2, 20, -120.0, 1.0, None),
    (0, 50, -105.0, 1.0, None),
]
MAZE = [(0, 50, 0.5, 0.8, 0.9), (1, 50, 0.7, 1.0, 1.1)]
EXPLORED = [[-200.0, -200.0, -180.0, -100.0], [-200.0, -100.0, -120.0, -100.0]]


def test_table_by_hand(tmp_path):
    by_epoch = [-200.0, -140.0, -80.0, -80.0, -80.0]
    save(tmp_path, "mountaincar/e3rl", CAR, [np.repeat(by_epoch, 10)], episodes_per_epoch=10)
    save(tmp_path, "maze/10-ue2", MAZE, EXPLORED)
    save(tmp_path, "maze/5-ue2", [(0, 2, 0.5, 1.0, 0.9)], [[-1.0, -2.0]])  # a single epoch
    head, *lines = table(tmp_path).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "maze/5-ue2 2 1 0.50 (0.50 to 0.50) 0.50 [0.50, 0.50] 100% to 100% 0.90 -1.5 (-1.5)",
        "maze/10-ue2 50 2 0.60 (0.50 to 0.70) 0.60 [0.50, 0.70] 80% to 100% 1.00 -125.0 (-125.0)",
        "mountaincar/e3rl 20 3 -120.00 (-150.00 to -110.00) -126.67 [-150.00, -110.00] 90% to 100% -140.0 (-140.0)",
        "mountaincar/e3rl 50 1 -105.00 (-105.00 to -105.00) -105.00 [-105.00, -105.00] 100% to 100% -95.0 (-80.0)",
    ]
    assert head.index("episodes") + len("episodes") == lines[1].index(" 50 ") + len(" 50")


def test_mazes_stand_in_the_order_of_their_sizes_and_other_files_are_left_alone(tmp_path):
    names = ["acrobot/e3rl", "maze/5-e3rl", "maze/5-ue2", "maze/10-e3rl", "maze/20-e3rl", "mountaincar/paper"]
    for name in reversed(names):
        save(tmp_path, name, MAZE)
    (tmp_path / "other.json").write_text('{"experiment": "lock/h5"}')
    (tmp_path / "begun.json").write_text('{"experiment": "maze/5-new"}')
    assert [result.experiment for result in found(tmp_path)] == names


def test_the_figure_has_a_panel_per_task_with_epochs_and_budgets(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr(deterministic.Figure, "savefig", lambda self, path, **rest: figures.append(self))
    save(tmp_path, "mountaincar/e3rl", CAR, EXPLORED)
    save(tmp_path, "mountaincar/paper", CAR[:1], EXPLORED)
    save(tmp_path, "maze/5-e3rl", MAZE, EXPLORED)
    assert draw(tmp_path) == tmp_path / "returns.png"
    [figure] = figures
    maze, car = figure.axes
    assert [maze.get_title(), car.get_title()] == ["maze, 5 × 5", "MountainCar"]
    handles, labels = car.get_legend_handles_labels()
    ours, papers = "Neural-E³", "Neural-E³, the paper's settings"
    assert set(labels) == {
        f"{name}: {phase}" for name in (ours, papers) for phase in ("exploring", "exploiting")
    }
    drawn = dict(zip(labels, handles, strict=True))
    # Epochs of two episodes: (−200, −140) and (−150, −110) by seed.
    np.testing.assert_allclose(drawn[f"{ours}: exploring"].get_xydata(), [[2, -175.0], [4, -125.0]])
    marks = drawn[f"{ours}: exploiting"][0].get_xydata()
    np.testing.assert_allclose(marks, [[20, -120.0], [50, -105.0]], atol=deterministic.DODGE)
    np.testing.assert_array_equal(marks[:, 1], [-120.0, -105.0])
    others = drawn[f"{papers}: exploiting"][0].get_xydata()
    assert others[0, 0] - marks[0, 0] == pytest.approx(deterministic.DODGE)  # beside each other
    [bars] = drawn[f"{ours}: exploiting"][2]
    ends = [sorted(segment[:, 1]) for segment in bars.get_segments()]
    np.testing.assert_allclose(ends, [[-150.0, -110.0], [-105.0, -105.0]])


@pytest.mark.parametrize(("name", "file"), [("acrobot/e3rl", None), ("maze/5-ue2", "monday")])
def test_report_prints_the_table_and_draws_the_picture(name, file, tmp_path, capsys):
    save(tmp_path, name, MAZE, EXPLORED, file=file)
    assert cli.main(["report", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    page = str(tmp_path / "report.html")
    assert report == {"table": table(tmp_path), "figures": [str(tmp_path / "returns.png")], "page": page}
    assert image.imread(report["figures"][0]).size > 0
    assert cli.main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{report['table']}\npicture: {report['figures'][0]}\npage: {page}\n"


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda about, rows: about.write_text(about.read_text()[:40]), r"acrobot-e3rl\.json is damaged"),
        (lambda about, rows: about.unlink(), "holds no results of mazes or control tasks"),
        (
            lambda about, rows: about.write_text(about.read_text().replace("per_epoch", "per_eon")),
            r"acrobot-e3rl\.json is damaged: config: 'per_eon' is no setting",
        ),
        (
            lambda about, rows: about.write_text('{"experiment": "acrobot/e3rl", "exploit": []}'),
            r"acrobot-e3rl\.json is damaged: config: 'config'",
        ),
        (lambda about, rows: rows.rename(rows.with_stem("maze-5")), r"acrobot-e3rl\.csv is missing"),
        (lambda about, rows: rows.write_text("seed,return\n0,1.0\n"), r"acrobot-e3rl\.csv is damaged"),
        (lambda about, rows: rows.write_text("phase,seed,return\n"), r"acrobot-e3rl\.csv is damaged"),
        (lambda about, rows: rows.write_text("phase,seed,return\nexplore,0\n"), r"\.csv is damaged"),
    ],
)
def test_damaged_results_are_one_line(damage, words, tmp_path, capsys):
    save(tmp_path, "acrobot/e3rl", CAR, EXPLORED)
    damage(tmp_path / "acrobot-e3rl.json", tmp_path / "acrobot-e3rl.csv")
    with pytest.raises(UserError, match=words):
        draw(tmp_path)
    assert cli.main(["report", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
