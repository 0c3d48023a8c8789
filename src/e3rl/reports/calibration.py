"""What disagreement tells, as tables: of the rows of `e3rl bench calibration`."""

from collections.abc import Sequence
from typing import Any

from e3rl.planners import UTILITIES


def tables(found: Sequence[dict[str, Any]]) -> list[str]:
    """The tables of docs/benchmarks.md: one distance through time, then all of them after the last episodes."""
    by_name = {row["name"]: row for row in found}
    names = list(dict.fromkeys(name.removeprefix("calibration/").rpartition("/")[0] for name in by_name))
    through = ["| world, models | AUROC | Spearman | well tried | untried |", "|---|---|---|---|---|"]
    columns = [name for name in UTILITIES if any(key.endswith(f"/{name}") for key in by_name)]
    finally_ = [f"| world, models | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name in names:
        rows = {utility: by_name.get(f"calibration/{name}/{utility}") for utility in columns}
        row = rows["marginal" if rows["mean"] else "squared"]
        assert row is not None
        series = (" ".join(_short(value) for value in row[key]) for key in ("auroc", "spearman"))
        ends = (" → ".join(_ends(row[key])) for key in ("well_tried", "untried"))
        through.append(f"| {name} | {' | '.join((*series, *ends))} |")
        last = (f"{_short(r['auroc'][-1])}, {_short(r['spearman'][-1])}" if r else "" for r in rows.values())
        finally_.append(f"| {name} | {' | '.join(last)} |")
    return [*through, "", *finally_]


def _short(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _ends(values: list[float | None]) -> list[str]:
    """The first that there is, and the last."""
    there = [value for value in values if value is not None]
    return [f"{value:.2g}" for value in (there[0], there[-1])] if there else ["–"]
