"""The lock's budgets from made-up tables, and damaged ones."""

import json

import pytest
from matplotlib import image

from e3rl import cli
from e3rl.reports import lock_budgets
from e3rl.reports.lock_budgets import read_rows, solved, table
from e3rl.types import UserError

HEADER = (
    "experiment,horizon,reward,seed,ratio,episodes,return_mean,optimal_return,solved,paid_episodes,seconds"
)


def save(folder, horizon, name=None):
    """An experiment as `e3rl reproduce` writes it, or in files of another name."""
    rows = [
        f"lock/h{horizon},{horizon},{reward},{seed},{ratio},{horizon * ratio},4.5,5.0,{ratio > 5 or seed == 0},9,9.5"
        for ratio in (5, 10)
        for reward in ("standard", "antishaped")
        for seed in (0, 1)
    ]
    path = folder / f"{name or f'lock-h{horizon}'}.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    path.with_suffix(".json").write_text(json.dumps({"experiment": f"lock/h{horizon}"}))
    return path


def test_rows_and_what_they_count(tmp_path):
    save(tmp_path, 10)
    save(tmp_path, 5)
    tables = read_rows(tmp_path)
    assert list(tables) == ["lock/h5", "lock/h10"]
    assert solved(tables["lock/h5"], "antishaped", 5) == (1, 2)
    assert table(tmp_path).splitlines()[2] == "| lock/h5 | 5H: 1/2, 1/2; 10H: 2/2, 2/2 |"


def test_budgets_are_chosen_on_some_seeds_and_checked_on_others(tmp_path):
    """Seed 0 is solved from 5H on, seed 1 from 10H on: the budget that seed 0 chooses fails on seed 1."""
    save(tmp_path, 5)
    [*_, standard, antishaped] = table(tmp_path).splitlines()
    assert standard == (
        "| lock/h5 | standard | 2 of 2 [16%, 100%] | 2 of 2 [16%, 100%], median 25 | 5H | 0 of 1 [0%, 98%] |"
    )
    assert antishaped == standard.replace("standard", "antishaped")


@pytest.mark.parametrize(
    "damage",
    [("lock/h5,5,", "lock/h5,five,"), ("horizon", "levels"), ("solved", "verdict"), ("True,9,9.5\n", ""),
     (",5.0,True", ""), ("lock/h5,5,", "lock/h5,5.0,")],
)  # fmt: skip
def test_a_damaged_table_is_one_line(damage, tmp_path, capsys):
    path = save(tmp_path, 5)
    path.write_text(path.read_text().replace(*damage))
    with pytest.raises(UserError, match=r"lock-h5\.csv is damaged"):
        read_rows(tmp_path)
    assert cli.main(["report", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)


def test_a_table_of_bytes_is_one_line(tmp_path):
    save(tmp_path, 5).write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"lock-h5\.csv is damaged: UnicodeDecodeError"):
        read_rows(tmp_path)


def test_what_the_json_says_decides_and_not_the_names_of_files(tmp_path, capsys):
    """Beside it a table that nobody speaks for, and JSON that is about something else."""
    save(tmp_path, 5, "tuesday")
    save(tmp_path, 10, "wednesday").with_suffix(".json").unlink()
    (tmp_path / "a-list.json").write_text("[1, 2]")
    (tmp_path / "lock-h7.json").write_text('{"other": 1}')
    assert cli.main(["report", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == {
        "table": table(tmp_path),
        "figures": [str(tmp_path / "budgets.png")],
        "page": str(tmp_path / "report.html"),
    }
    assert report["table"].splitlines()[2:4] == ["| lock/h5 | 5H: 1/2, 1/2; 10H: 2/2, 2/2 |", ""]
    assert image.imread(report["figures"][0]).size > 0
    assert cli.main(["report", str(tmp_path)]) == 0
    drawn = f"picture: {tmp_path / 'budgets.png'}\npage: {tmp_path / 'report.html'}\n"
    assert capsys.readouterr().out.endswith(drawn)


def test_panels_of_every_horizon(tmp_path, monkeypatch):
    """Seven of them, in rows of three; the paper's budget is marked where it has one."""
    figures = []
    monkeypatch.setattr(lock_budgets.Figure, "savefig", lambda self, path, **rest: figures.append(self))
    for horizon in (5, 7, 10, 12, 15, 20, 50):
        save(tmp_path, horizon)
    assert lock_budgets.draw_budgets(tmp_path) == tmp_path / "budgets.png"
    [figure] = figures
    assert [axes.get_title() for axes in figure.axes] == [f"{h} levels" for h in (5, 7, 10, 12, 15, 20, 50)]
    assert {axes.get_xlabel() for axes in figure.axes} == {"exploration episodes per level"}
    assert figure.axes[0].lines[0].get_xydata().tolist() == [[5, 50], [10, 100]]
    assert [len(axes.lines) for axes in figure.axes] == [3, 2, 3, 2, 3, 3, 2]


def test_folders_without_any(tmp_path):
    with pytest.raises(UserError, match="holds no results of lock experiments"):
        read_rows(tmp_path)
    path = save(tmp_path, 5)
    path.write_text(HEADER + "\n")
    with pytest.raises(UserError, match="holds no results of lock experiments"):
        read_rows(tmp_path)
    path.unlink()
    with pytest.raises(UserError, match=r"lock-h5\.csv is missing, its \.json is there"):
        read_rows(tmp_path)
