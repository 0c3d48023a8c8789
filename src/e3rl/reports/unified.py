"""One phase or two, and members that repel each other: tables from the files of `e3rl reproduce unified/...` and
`repulsion/...`."""

import csv
from collections.abc import Callable
from pathlib import Path
from statistics import mean

from e3rl.reports.results import Result, results_in
from e3rl.types import UserError


def table(folder: Path) -> str:
    """Whatever of the two is there, as Markdown."""
    parts = []
    phases, repelled = results_in(folder, "unified"), results_in(folder, "repulsion")
    if phases:
        lines = [
            "| lock | agent | reward over 50H episodes | its mean | seeds solved |",
            "|---|---|---|---|---|",
        ]
        parts.append(lines + [line for result in phases for line in _lines(result, _phases)])
    if repelled:
        lines = ["| lock | episodes | repulsion | AUROC | its mean |", "|---|---|---|---|---|"]
        parts.append(lines + [line for result in repelled for line in _lines(result, _repelled)])
    if not parts:
        raise UserError(f"{folder} holds no results of unified or repulsion experiments")
    return "\n\n".join("\n".join(lines) for lines in parts)


def _lines(result: Result, lines_of: Callable[[list[dict[str, str]]], list[str]]) -> list[str]:
    try:
        with result.table.open(newline="") as file:
            return lines_of(list(csv.DictReader(file)))
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{result.table} is not a table of `e3rl reproduce {result.experiment}`") from error


def _phases(rows: list[dict[str, str]]) -> list[str]:
    lines = []
    for reward, agent in sorted({(row["reward"], row["agent"]) for row in rows}, reverse=True):
        same = [row for row in rows if (row["reward"], row["agent"]) == (reward, agent)]
        totals = [float(row["total_50h"]) for row in same]
        solved = f"{sum(row['solved'] == 'True' for row in same)} of {len(same)}"
        each = ", ".join(f"{total:.0f}" for total in totals)
        lines.append(
            f"| H={same[0]['horizon']}, {reward} | {agent} | {each} | {mean(totals):.0f} | {solved} |"
        )
    return lines


def _repelled(rows: list[dict[str, str]]) -> list[str]:
    lines = []
    for episodes, weight in sorted({(int(row["episodes"]), float(row["repulsion"])) for row in rows}):
        same = [row for row in rows if (int(row["episodes"]), float(row["repulsion"])) == (episodes, weight)]
        told = [float(row["auroc"]) for row in same if row["auroc"]]
        if told:
            each = ", ".join(f"{value:.2f}" for value in told)
            lines.append(f"| H={same[0]['horizon']} | {episodes} | {weight:g} | {each} | {mean(told):.3f} |")
    return lines
