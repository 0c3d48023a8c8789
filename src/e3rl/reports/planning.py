"""What each way to plan the exploration has found: a table from the files of `e3rl reproduce planning/...`."""

import csv
from pathlib import Path

from e3rl.reports.results import results_in
from e3rl.types import UserError


def table(folder: Path) -> str:
    """Every exploration at its largest budget, as Markdown; returns and paid episodes seed by seed."""
    found = {}
    for result in results_in(folder, "planning"):
        path, name = result.table, result.experiment.removeprefix("planning/")
        try:
            with path.open(newline="") as file:
                rows = list(csv.DictReader(file))
            budget = max(int(row["episodes"]) for row in rows)
            found[name] = budget, _cells([row for row in rows if int(row["episodes"]) == budget])
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            raise UserError(f"{path} is not a table of `e3rl reproduce planning/...`") from error
    if not found:
        raise UserError(f"{folder} holds no results of planning experiments")
    same = len({budget for budget, _ in found.values()}) == 1
    lines = ["| exploration | seeds solved | mean returns | paid episodes |", "|---|---|---|---|"]
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
