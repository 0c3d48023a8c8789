"""What each way to plan the exploration has found: tables from the files of `e3rl reproduce planning/...`."""

import csv
from pathlib import Path
from typing import NamedTuple

from e3rl.reports.results import results_in
from e3rl.types import UserError

RULE = "|---|---|---|---|"


class Found(NamedTuple):
    """What one exploration has found, seed by seed."""

    budgets: tuple[int, ...]
    """In episodes, the largest last."""
    solved: list[list[bool]]
    """By budget."""
    returns: list[float]
    """After the largest budget, as is what follows."""
    paid: list[str]

    @property
    def at_last(self) -> str:
        return f"{sum(self.solved[-1])} of {len(self.solved[-1])}"

    @property
    def on_the_way(self) -> str:
        return f"{', '.join(str(sum(seeds)) for seeds in self.solved)} of {len(self.solved[-1])}"

    @property
    def rest(self) -> str:
        return f"{', '.join(f'{mean:.2f}' for mean in self.returns)} | {', '.join(self.paid)}"


def table(folder: Path, only: str | None = None) -> str:
    """Every exploration at its largest budget, as Markdown; returns and paid episodes seed by seed. Comparisons such as
    planning-h5 have tables of their own, with the seeds solved at every budget; one of all these may be asked for."""
    groups = dict[str, dict[str, Found]]()
    for result in results_in(folder, "planning"):
        group, _, name = result.experiment.partition("/")
        groups.setdefault(group, {})[name] = _read(result.table)
    if not groups:
        raise UserError(f"{folder} holds no results of planning experiments")
    tables = (
        _at_largest(found) if group == "planning" else _compared(group.removeprefix("planning-"), found)
        for group, found in sorted(groups.items())
        if only in (None, group)
    )
    return "\n\n".join(tables)


def _read(path: Path) -> Found:
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        budgets = tuple(sorted({int(row["episodes"]) for row in rows}))
        after = [[row for row in rows if int(row["episodes"]) == budget] for budget in budgets]
        return Found(
            budgets,
            [[row["solved"] == "True" for row in seeds] for seeds in after],
            [float(row["return_mean"]) for row in after[-1]],
            [row["paid_episodes"] for row in after[-1]],
        )
    except (IndexError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{path} is not a table of `e3rl reproduce planning/...`") from error


def _at_largest(explorations: dict[str, Found]) -> str:
    same = len({found.budgets[-1] for found in explorations.values()}) == 1
    lines = ["| exploration | seeds solved | mean returns | paid episodes |", RULE]
    for name, found in sorted(explorations.items()):
        # An interrupted experiment stops at a smaller budget than the others: say so.
        shown = name if same else f"{name} ({found.budgets[-1]} episodes)"
        lines.append(f"| {shown} | {found.at_last} | {found.rest} |")
    return "\n".join(lines)


def _compared(lock: str, explorations: dict[str, Found]) -> str:
    lines = [f"| {lock} | seeds solved, after episodes | mean returns | paid episodes |", RULE]
    for name, found in sorted(explorations.items()):
        after = ", ".join(map(str, found.budgets))
        lines.append(f"| {name} | {found.on_the_way}, after {after} | {found.rest} |")
    return "\n".join(lines)
