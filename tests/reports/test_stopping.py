"""The table of exploration that ended by itself, and that the documentation's is this one."""

from pathlib import Path

import pytest

from e3rl.experiments.stopping import COLUMNS
from e3rl.experiments.tables import write_table
from e3rl.reports import stopping
from e3rl.types import UserError

ROOT = Path(__file__).parents[2]


def written(folder, name="h10-bits30", bits=30, noise="always", **more):
    rows = [
        dict(zip(COLUMNS, values, strict=True))
        for values in (
            (f"stopping/{name}", 10, "standard", 300, 120, True, 0.1, 40, 5.0, 5.0, True, 9.0),
            (f"stopping/{name}", 10, "standard", 301, 400, False, 0.9, 0, 1.0, 5.0, False, 9.0),
            (f"stopping/{name}", 10, "standard", 302, 150, True, 0.1, 20, 5.0, 5.0, True, 9.0),
        )
    ]
    settings = {"horizon": 10, "noise_bits": bits, "noise": noise, "rewards": ["standard"], **more}
    path = folder / f"stopping-{name}.csv"
    write_table(path, COLUMNS, rows, {"experiment": f"stopping/{name}", "settings": settings})
    return path


def test_a_row_for_every_lock_and_reward(tmp_path):
    written(tmp_path)
    written(tmp_path, "h10-stirred", None, "stirred")
    written(tmp_path, "h10-repelled", None, repulsion=30.0)
    assert stopping.table(tmp_path).splitlines()[2:] == [
        "| H=10 | 30 | standard | 300 to 302 | 2 of 3 [9%, 99%] | 2 | 15.0H (12.0H to 40.0H) | 3.0H, by 2 |",
        "| H=10 | 10, members repelled | standard | 300 to 302 | 2 of 3 [9%, 99%] | 2 | 15.0H (12.0H to 40.0H) "
        "| 3.0H, by 2 |",
        "| H=10 | 10 after one action | standard | 300 to 302 | 2 of 3 [9%, 99%] | 2 | 15.0H (12.0H to 40.0H) "
        "| 3.0H, by 2 |",
    ]


def test_what_is_no_such_table_is_one_line(tmp_path):
    with pytest.raises(UserError, match="holds no results of stopping experiments"):
        stopping.table(tmp_path)
    written(tmp_path).write_text("a,b\n1,2\n")
    with pytest.raises(UserError, match="is not a table of `e3rl reproduce stopping/h10-bits30`"):
        stopping.table(tmp_path)
