"""What each way to plan the exploration has found: tables from the files of `e3rl reproduce planning/...`."""

import csv
from pathlib import Path
from typing import NamedTuple

from e3rl.reports.results import results_in
from e3rl.types import UserError

HEAD = "| {} | seeds solved | mean returns | paid episodes |\n|---|---|---|---|"


class Found(NamedTuple):
    budget: int
    """The largest that was measured."""
    cells: list[str]


def table(folder: Path) -> str:
    """Every exploration at its largest budget, as Markdown; returns and paid episodes seed by seed. Comparisons such as
    planning-h5 have tables of their own."""
    groups = dict[str, dict[str, Found]]()
    for result in results_in(folder, "planning"):
        group, _, name = result.experiment.partition("/")
        try:
            with result.table.open(newline="") as file:
                rows = list(csv.DictReader(file))
            budget = max(int(row["episodes"]) for row in rows)
            found = Found(budget, _cells([row for row in rows if int(row["episodes"]) == budget]))
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise UserError(f"{result.table} is not a table of `e3rl reproduce planning/...`") from error
        groups.setdefault(group, {})[name] = found
    if not groups:
        raise UserError(f"{folder} holds no results of planning experiments")
    return "\n\n".join(_one(group, found) for group, found in sorted(groups.items()))


def _one(group: str, found: dict[str, Found]) -> str:
    same = len({each.budget for each in found.values()}) == 1
    of = group.removeprefix("planning").removeprefix("-")
    lines = [HEAD.format(f"exploration, {of}" if of else "exploration")]
    for name, (budget, cells) in sorted(found.items()):
        # An interrupted experiment stops at a smaller budget than the others: say so.
        shown = name if same else f"{name} ({budget} episodes)"
        lines.append(f"| {shown} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cells(rows: list[dict[str, str]]) -> list[str]:
    return [
        f"{sum(row['solved'] == 'True' for row in rows)} of {len(rows)}",
        ", ".join(f"{float(row['return_mean']):.2f}" for row in rows),
        ", ".join(row["paid_episodes"] for row in rows),
    ]
