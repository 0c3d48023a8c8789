"""The lock's budgets from made-up tables, and damaged ones."""

import pytest

from e3rl import cli
from e3rl.reports.lock_budgets import read_rows, solved, table
from e3rl.types import UserError

HEADER = (
    "experiment,horizon,reward,seed,ratio,episodes,return_mean,optimal_return,solved,paid_episodes,seconds"
)


def save(folder, horizon):
    rows = [
        f"lock/h{horizon},{horizon},{reward},{seed},{ratio},{horizon * ratio},4.5,5.0,{ratio > 5 or seed == 0},9,9.5"
        for ratio in (5, 10)
        for reward in ("standard", "antishaped")
        for seed in (0, 1)
    ]
    path = folder / f"lock-h{horizon}.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    return path


def test_rows_and_what_they_count(tmp_path):
    save(tmp_path, 10)
    save(tmp_path, 5)
    tables = read_rows(tmp_path)
    assert list(tables) == ["lock/h5", "lock/h10"]
    assert solved(tables["lock/h5"], "antishaped", 5) == (1, 2)
    assert table(tmp_path).splitlines()[2] == "| lock/h5 | 5H: 1/2, 1/2; 10H: 2/2, 2/2 |"


@pytest.mark.parametrize(
    "damage",
    [("lock/h5,5,", "lock/h5,five,"), ("experiment", "name"), ("solved", "verdict"), ("True,9,9.5\n", ""),
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
    (tmp_path / "lock-h5.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"lock-h5\.csv is damaged: UnicodeDecodeError"):
        read_rows(tmp_path)
