"""Planning with the true dynamics: a table from the files of `e3rl reproduce perfect-model/...`."""

import csv
from pathlib import Path

from e3rl.reports.results import Result, results_in
from e3rl.types import UserError

HEAD = "| task | search | episodes at the goal | mean return | a plan takes |\n|---|---|---|---|---|"


def table(folder: Path) -> str:
    """A row for every task and search, as Markdown."""
    results = results_in(folder, "perfect")
    if not results:
        raise UserError(f"{folder} holds no results of planning with the true dynamics")
    return "\n".join([HEAD, *(line for result in results for line in _lines(result))])


def _lines(result: Result) -> list[str]:
    task = result.experiment.partition("/")[2]
    try:
        with result.table.open(newline="") as file:
            return [
                f"| {task} | {row['planner']} | {row['reached']} of {row['episodes']} | "
                f"{float(row['return_mean']):.0f} | {1000 * float(row['seconds_per_plan']):.1f} ms |"
                for row in csv.DictReader(file)
            ]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{result.table} is not a table of `e3rl reproduce {result.experiment}`") from error
