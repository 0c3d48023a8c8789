"""The baselines' table against cells worked by hand, and that its figures show what is there."""

import csv
import json
import re

import numpy as np
import pytest
from matplotlib import image

from e3rl import cli
from e3rl.reports import baselines
from e3rl.reports.baselines import draw, found, table, together
from e3rl.types import UserError

LOCK = {"episodes_that_found": 3, "first_found": 70, "over_bar": 160}


def final(mean, episodes=200, optimum=5.0, seconds=2.0, **more):
    about = {"episodes": episodes, "return_mean": mean, "return_ci": None, "seconds": seconds}
    bar = -150.0 if optimum is None else optimum / 2
    return {**about, "optimal_return": optimum, "bar": bar, "over_bar": None, **more}


def save(folder, name, finals, points=((50, 0.0), (100, 1.0), (200, 4.0)), file=None):
    """Each seed's curve is `points`, higher by a tenth of the seed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{file or name.replace('/', '-')}.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["experiment", "seed", "episode", "env_steps", "return_mean"])
        for seed, one in enumerate(finals):
            shown = points if one["episodes"] else ()
            rows.writerows([name, seed, at, 5 * at, value + seed / 10] for at, value in shown)
    about = {"experiment": name, "final": {str(seed): one for seed, one in enumerate(finals)}}
    path.with_suffix(".json").write_text(json.dumps(about))
    return path


def save_neural(results):
    """Neural-E³ on the lock of five levels and on MountainCar, two budgets each."""
    (results / "lock").mkdir()
    rows = [
        f"lock/h5,5,{reward},{seed},{ratio},{5 * ratio},{value},5.0,True,9,9.5"
        for reward in ("standard", "antishaped")
        for seed in (0, 1)
        for ratio, value in ((5, 1.0 + seed), (10, 5.0))
    ]
    header = "experiment,horizon,reward,seed,ratio,episodes,return_mean,optimal_return,solved,paid_episodes,seconds"
    (results / "lock" / "lock-h5.csv").write_text("\n".join([header, *rows]) + "\n")
    (results / "lock" / "lock-h5.json").write_text('{"experiment": "lock/h5"}')
    (results / "control").mkdir()
    verdicts = [
        {"seed": s, "budget": b, "return_mean": -100.0 - s, "reached": 1.0} for s in (0, 1) for b in (20, 50)
    ]
    about = {"experiment": "mountaincar/e3rl", "exploit": verdicts}
    (results / "control" / "mountaincar-e3rl.json").write_text(json.dumps(about))


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_table_by_hand(tmp_path):
    nothing = {"episodes_that_found": 0, "first_found": None, "over_bar": None}
    solved = [
        final(4.0, seconds=1.0, **LOCK),
        final(5.0, seconds=2.0, **{**LOCK, "first_found": 40, "over_bar": 120}),
        final(0.0, seconds=9.0, **nothing),
    ]
    save(tmp_path, "baselines-lock/h5-standard-dqn", solved)
    save(tmp_path, "baselines-lock/h20-antishaped-ppo", [final(0.1, 20_000, 4.05, **nothing)])
    control = [final(-200.0, 1000, None), final(-120.0, 1660, None)]
    save(tmp_path, "baselines-mountaincar/ppo-rnd", control)
    head, rule, *lines = table(tmp_path).splitlines()
    assert len(cells(head)) == rule.count("---") == 10
    assert [cells(line) for line in lines] == [
        ["baselines-lock/h5-standard-dqn", "3", "4.00 (0.00 to 5.00)", "3.00 [0.00, 5.00]", "5.00", "200",
         "2 of 3, first at 40", "2.5", "2 of 3 [9%, 99%], median 160", "2.0"],
        ["baselines-lock/h20-antishaped-ppo", "1", "0.10 (0.10 to 0.10)", "0.10 [0.10, 0.10]", "4.05",
         "20,000", "0 of 1", "2.025", "0 of 1 [0%, 98%], median > 20,000", "2.0"],
        ["baselines-mountaincar/ppo-rnd", "2", "-160.00 (-200.00 to -120.00)", "-160.00 [-200.00, -120.00]", "–",
         "1,000 to 1,660", "–", "-150", "0 of 2 [0%, 84%], median > 1,000", "2.0"],
    ]  # fmt: skip


def test_experiments_stand_in_the_order_of_the_list(tmp_path):
    names = ["baselines-lock/h5-antishaped-ppo", "baselines-lock/h10-standard-dqn", "baselines-cartpole/ppo"]
    for name in ["baselines-own/thing", *reversed(names)]:
        save(tmp_path, name, [final(1.0, **LOCK)])
    assert [one.name for one in found(tmp_path)] == [*names, "baselines-own/thing"]


def test_what_an_id_says(tmp_path):
    for name in ("baselines-lock/h15-antishaped-ppo-rnd", "baselines-acrobot/e3rl-dqn"):
        save(tmp_path, name, [final(1.0, **LOCK)])
    lock, acrobot = found(tmp_path)
    assert (lock.task, lock.place, lock.method) == ("lock", (15, "antishaped"), "ppo-rnd")
    assert (acrobot.task, acrobot.method) == ("acrobot", "e3rl-dqn")


def test_seeds_of_the_same_episodes_are_kept_as_they_are(tmp_path):
    save(tmp_path, "baselines-lock/h5-standard-dqn", [final(9.0, **LOCK)] * 2)
    [one] = found(tmp_path)
    np.testing.assert_array_equal(one.curve.episodes, [50, 100, 200])
    np.testing.assert_allclose(one.curve.returns, [[0.0, 1.0, 4.0], [0.1, 1.1, 4.1]])


def test_a_seed_that_ended_earlier_goes_on_with_what_it_is_worth():
    short, long = np.array([[10.0, 20.0], [-9.0, -7.0]]), np.array([[15.0, 25.0, 40.0], [-6.0, -4.0, -1.0]])
    curve = together([short, long], [-3.0, -2.0])
    np.testing.assert_array_equal(curve.episodes, [15, 20, 25, 40])
    np.testing.assert_allclose(curve.returns, [[-8.0, -7.0, -3.0, -3.0], [-6.0, -5.0, -4.0, -1.0]])


def test_points_of_single_episodes_are_merged(tmp_path):
    points = [(1, 0.0), (2, 1.0), (4, 2.0), (5, 3.0), (7, 6.0), (20, 7.0)]
    save(tmp_path, "baselines-acrobot/dqn", [final(1.0, 20, None)], points)
    [one] = found(tmp_path)
    np.testing.assert_array_equal(one.curve.episodes, [5, 7, 20])
    np.testing.assert_allclose(one.curve.returns, [[(0.0 + 1.0 + 2 * 2.0 + 3.0) / 5, 6.0, 7.0]])


def test_a_seed_without_a_finished_episode_stands_in_the_table_alone(tmp_path):
    name = "baselines-acrobot/dqn"
    save(tmp_path, name, [final(1.0, 200, None), final(-7.0, 0, None)])
    [one] = found(tmp_path)
    np.testing.assert_allclose(one.curve.returns, [[0.0, 1.0, 4.0]])
    assert cells(table(tmp_path).splitlines()[2])[2:6] == [
        "-3.00 (-7.00 to 1.00)", "-3.00 [-7.00, 1.00]", "–", "0 to 200",
    ]  # fmt: skip
    save(tmp_path, name, [final(-7.0, 0, None)])
    assert found(tmp_path)[0].curve.episodes.size == 0
    assert draw(tmp_path) == [tmp_path / "control.png"]


def panels(figure):
    """Each panel's labelled lines and marks: label to median."""
    shown = []
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        lines = [handle[0] if isinstance(handle, tuple) else handle for handle in handles]
        shown.append({label: line.get_xydata().tolist() for label, line in zip(labels, lines, strict=True)})
    return shown


def test_figures_show_medians_marks_and_the_optimum(tmp_path, monkeypatch):
    folder, figures = tmp_path / "baselines", {}
    monkeypatch.setattr(
        baselines, "save_figure", lambda figure, path, **rest: figures.update({path.stem: figure})
    )
    for reward in ("standard", "antishaped"):
        save(folder, f"baselines-lock/h5-{reward}-dqn", [final(4.0, **LOCK)] * 3)
    save(folder, "baselines-lock/h10-standard-ppo", [final(4.0, **LOCK)])
    save(folder, "baselines-mountaincar/dqn", [final(-120.0, 200, None)])
    save_neural(tmp_path)
    assert draw(folder) == [folder / "lock.png", folder / "control.png"]
    short, long, antishaped, absent = panels(figures["lock"])
    assert short.keys() == antishaped.keys() == {"Neural-E³", "DQN", "optimal return"}
    np.testing.assert_allclose(short["DQN"], [[50, 0.1], [100, 1.1], [200, 4.1]])
    np.testing.assert_allclose(short["Neural-E³"], [[25, 1.5], [50, 5.0]])
    np.testing.assert_allclose(short["optimal return"], [[0, 5.0], [1, 5.0]])
    assert long.keys() == {"PPO", "optimal return"}
    assert not absent
    assert [text.get_text() for text in figures["lock"].axes[3].texts] == ["not run"]
    [mountain_car] = panels(figures["control"])
    assert mountain_car.keys() == {"DQN", "Neural-E³"}
    np.testing.assert_allclose(mountain_car["Neural-E³"], [[20, -100.5], [50, -100.5]])
    assert all(axes.get_xscale() == "log" for figure in figures.values() for axes in figure.axes)


@pytest.mark.parametrize(
    ("name", "pictures"),
    [
        ("baselines-lock/h20-antishaped-ppo-rnd", ["lock.png"]),
        ("baselines-acrobot/dqn", ["control.png"]),
        ("baselines-cartpole/dqn", []),
    ],
)
def test_report_on_a_part_of_the_experiments(name, pictures, tmp_path, capsys):
    """Without anything of Neural-E³ beside them."""
    save(tmp_path, name, [final(4.0, **LOCK)], file="sunday")
    assert cli.main(["report", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    page = str(tmp_path / "report.html")
    assert report == {
        "table": table(tmp_path), "figures": [str(tmp_path / path) for path in pictures], "page": page,
    }  # fmt: skip
    assert all(image.imread(path).size > 0 for path in report["figures"])
    assert cli.main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        *report["table"].splitlines(), *(f"picture: {path}" for path in report["figures"]), f"page: {page}",
    ]  # fmt: skip


def test_a_folder_without_any_is_one_line(tmp_path):
    for asked in (table, draw):
        with pytest.raises(UserError, match=r"holds no results of the baselines' experiments") as error:
            asked(tmp_path)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("damage", "cause"),
    [
        ("no table", "is there"),
        ("an empty table", "ValueError: the table has no rows of seed 0"),
        ("a word", "ValueError: could not convert string to float: 'hundred'"),
        ("no seeds", "ValueError: there are no seeds in it"),
        ("half a file", "is damaged: "),
        ("an older format", "KeyError: 'bar'"),
    ],
)
def test_damaged_results_are_one_line(damage, cause, tmp_path, capsys):
    path = save(tmp_path, "baselines-acrobot/dqn", [final(-500.0, 50, None)])
    about = path.with_suffix(".json")
    match damage:
        case "no table":
            path.rename(tmp_path / "baselines-other.csv")
        case "an empty table":
            path.write_text("experiment,seed,episode,env_steps,return_mean\n")
        case "a word":
            path.write_text(path.read_text().replace("100", "hundred"))
        case "no seeds":
            about.write_text('{"experiment": "baselines-acrobot/dqn", "final": {}}')
        case "half a file":
            about.write_text(about.read_text()[:40])
        case "an older format":
            about.write_text(about.read_text().replace('"bar"', '"threshold"'))
    assert cli.main(["report", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"e3rl: error: .*baselines-acrobot-dqn\.(json|csv) .*{cause}.*\n", err), err
