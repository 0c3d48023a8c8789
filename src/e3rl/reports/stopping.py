"""Exploration that ended by itself: a table from the files of `e3rl reproduce stopping/...`."""

import csv
import re
from pathlib import Path

import numpy as np

from e3rl.reports.results import Result, results_in
from e3rl.reports.statistics.intervals import Share
from e3rl.types import UserError

NOISE = {"always": "", "stirred": " after one action", "by_state": " in some states"}
HEAD = (
    "| lock | noise bits | reward | seeds | solved [95%] | ended by itself | episodes per level: median (range) | "
    "reward first met |\n|---|---|---|---|---|---|---|---|"
)


def table(folder: Path, *more: Path) -> str:
    """A row for every lock and reward, as Markdown, of one folder or several."""
    results = sorted(
        (found for each in (folder, *more) for found in results_in(each, "stopping")), key=_order
    )
    if not results:
        raise UserError(f"{folder} holds no results of stopping experiments")
    return "\n".join([HEAD, *(line for result in results for line in _lines(result))])


def _order(result: Result) -> tuple[int, str, int]:
    horizon, kind, bits = re.fullmatch(
        r"stopping(?:-protocol)?/h(\d+)-?([a-z-]*)(\d*)", result.experiment
    ).groups()  # type: ignore[union-attr]
    return int(horizon), kind, int(bits or 0)


def _lines(result: Result) -> list[str]:
    settings = result.about["settings"]
    bits = settings["horizon"] if settings["noise_bits"] is None else settings["noise_bits"]
    repelled = ", members repelled" if settings.get("repulsion") else ""
    try:
        with result.table.open(newline="") as file:
            rows = list(csv.DictReader(file))
        return [
            f"| H={settings['horizon']} | {bits}{NOISE[settings['noise']]}{repelled} | {reward} | "
            + _measured([row for row in rows if row["reward"] == reward])
            for reward in settings["rewards"]
        ]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{result.table} is not a table of `e3rl reproduce {result.experiment}`") from error


def _measured(rows: list[dict[str, str]]) -> str:
    levels = np.array([int(row["episodes"]) / int(row["horizon"]) for row in rows])
    first = [int(row["first_paid"]) / int(row["horizon"]) for row in rows if int(row["first_paid"])]
    solved, alone = (sum(row[name] == "True" for row in rows) for name in ("solved", "by_itself"))
    met = f"{np.median(first):.1f}H" + ("" if len(first) == len(rows) else f", by {len(first)}")
    shown = f"{np.median(levels):.1f}H ({levels.min():.1f}H to {levels.max():.1f}H)"
    seeds = sorted(int(row["seed"]) for row in rows)
    return f"{seeds[0]} to {seeds[-1]} | {Share(solved, len(rows))} | {alone} | {shown} | {met} |"
