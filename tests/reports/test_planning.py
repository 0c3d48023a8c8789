"""The table of the planning experiments."""

import json
import re

import pytest

from e3rl import cli
from e3rl.reports.planning import table
from e3rl.types import UserError

HEADER = (
    "experiment,horizon,reward,seed,ratio,episodes,return_mean,optimal_return,solved,paid_episodes,seconds"
)
HEAD = ["| exploration | seeds solved | mean returns | paid episodes |", "|---|---|---|---|"]


def save(folder, name, *rows, group="planning"):
    """Rows of (seed, episodes, return, solved, paid)."""
    lines = [
        f"{group}/{name},8,antishaped,{seed},{episodes // 8},{episodes},{mean},4.125,{solved},{paid},9.5"
        for seed, episodes, mean, solved, paid in rows
    ]
    path = folder / f"{group}-{name}.csv"
    path.write_text("\n".join([HEADER, *lines, ""]))
    path.with_suffix(".json").write_text(json.dumps({"experiment": f"{group}/{name}"}))
    return path


def test_the_largest_budget_of_each_file(tmp_path):
    save(
        tmp_path,
        "value",
        (0, 64, 0.1, False, 1),
        (1, 64, 4.1, True, 5),
        (0, 128, 4.0, True, 9),
        (1, 128, -0.125, False, 7),
    )
    save(tmp_path, "mcts-leaf-zero", (0, 96, 0.0, False, 0), (0, 128, 0.5, False, 2))
    assert table(tmp_path).splitlines() == [
        *HEAD,
        "| mcts-leaf-zero | 0 of 1 | 0.50 | 2 |",
        "| value | 1 of 2 | 4.00, -0.12 | 9, 7 |",
    ]


def test_budgets_that_differ_are_named(tmp_path):
    save(tmp_path, "value", (0, 128, 4.0, True, 9))
    save(tmp_path, "mcts", (0, 64, 0.5, False, 2))
    assert table(tmp_path).splitlines()[2:] == [
        "| mcts (64 episodes) | 0 of 1 | 0.50 | 2 |",
        "| value (128 episodes) | 1 of 1 | 4.00 | 9 |",
    ]


def test_a_comparison_on_its_own_lock_has_a_table_of_its_own(tmp_path):
    save(tmp_path, "value", (0, 128, 4.0, True, 9))
    solved = (200, 60, 4.0, True, 8), (201, 60, 0.25, False, 3)
    save(tmp_path, "mcts", (200, 30, 4.0, True, 5), (201, 30, 4.0, True, 5), *solved, group="planning-h5")
    save(tmp_path, "value", (200, 60, 0.5, False, 2), group="planning-h5")
    assert table(tmp_path).splitlines() == [
        *HEAD,
        "| value | 1 of 1 | 4.00 | 9 |",
        "",
        "| h5 | seeds solved, after episodes | mean returns | paid episodes |",
        HEAD[1],
        "| mcts | 2, 1 of 2, after 30, 60 | 4.00, 0.25 | 8, 3 |",
        "| value | 0 of 1, after 60 | 0.50 | 2 |",
    ]
    assert table(tmp_path, "planning").splitlines() == [*HEAD, "| value | 1 of 1 | 4.00 | 9 |"]
    assert table(tmp_path, "planning-h5") == table(tmp_path).partition("\n\n")[2]


def test_what_is_not_such_a_table(tmp_path):
    with pytest.raises(UserError, match="holds no results of planning experiments"):
        table(tmp_path)
    path = save(tmp_path, "odd")
    for text in (
        "",
        "a,b\n1,2\n",
        f"{HEADER}\nplanning/odd,8\n",
        f"{HEADER}\nplanning/odd,8,antishaped,0,8,many\n",
    ):
        path.write_text(text)
        with pytest.raises(UserError, match=f"{re.escape(str(path))} is not a table"):
            table(tmp_path)


def test_report_prints_the_table_and_draws_nothing(tmp_path, capsys):
    """Found by what the JSON says, whatever the files are called."""
    path = save(tmp_path, "mcts", (0, 64, 4.0, True, 9))
    for end in (".csv", ".json"):
        path.with_suffix(end).rename(tmp_path / f"friday{end}")
    assert cli.main(["report", str(tmp_path), "--json"]) == 0
    said = {"table": table(tmp_path), "figures": [], "page": str(tmp_path / "report.html")}
    assert json.loads(capsys.readouterr().out) == said
    assert table(tmp_path).splitlines()[2:] == ["| mcts | 1 of 1 | 4.00 | 9 |"]
    assert cli.main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{table(tmp_path)}\npage: {tmp_path / 'report.html'}\n"
