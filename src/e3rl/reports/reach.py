"""The table of `e3rl reproduce reach`: what every environment took and gave, beside the baselines."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

from e3rl.experiments.reach import BASELINES, TASKS
from e3rl.reports.results import Result, results_in


def table(folder: Path) -> str:
    """Markdown, a row for each environment: medians over seeds and the worst of them."""
    results = {result.experiment.removeprefix("reach/"): result for result in results_in(folder, "reach")}
    head = (
        "environment", "agent", "seeds", "episodes", "steps", "return: median (worst)", "optimum", "target met",
        "seconds", *(f"{name}: median" for name in BASELINES),
    )  # fmt: skip
    lines = [head, ["---"] * len(head)]
    lines += [_line(name, results[name]) for name in TASKS if name in results]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def rows_of(result: Result) -> list[dict[str, Any]]:
    with result.table.open(newline="") as file:
        return list(csv.DictReader(file))


def own_rows(result: Result) -> list[dict[str, Any]]:
    """Those of the agent that was picked, a seed each."""
    return [row for row in rows_of(result) if row["algo"] == result.about["chosen"]]


def _line(name: str, result: Result) -> list[str]:
    about = result.about
    rows, own = rows_of(result), own_rows(result)
    returns = numbers(own, "return_mean")
    optimum, target = about["optimum"], about["target"]
    return [
        name,
        about["chosen"],
        str(len(own)),
        _range(numbers(own, "explore_episodes")),
        _range(numbers(own, "steps")),
        f"{np.median(returns):.4g} ({min(returns):.4g})" + (_goals(own) if about["share"] else ""),
        "–" if optimum is None else f"{optimum:.4g}",
        "–" if target is None else _met(about, own),
        _range(numbers(own, "seconds")),
        *(_median([row for row in rows if row["algo"] == algo]) for algo in BASELINES),
    ]


def met(about: dict[str, Any], own: list[dict[str, Any]]) -> list[bool]:
    """Which seeds have what was asked for, within the episodes allowed."""
    got = numbers(own, "positive" if about["share"] else "return_mean")
    allowed = _allowed(about)
    return [
        value >= about["target"] and episodes <= allowed
        for value, episodes in zip(got, numbers(own, "explore_episodes"), strict=True)
    ]


def _allowed(about: dict[str, Any]) -> float:
    return float("inf") if about["episodes"] is None else float(about["episodes"])


def _met(about: dict[str, Any], own: list[dict[str, Any]]) -> str:
    seeds = met(about, own)
    asked = f"{about['target']:.0%} of episodes" if about["share"] else f"{about['target']:g}"
    return f"{sum(seeds)} of {len(seeds)} (≥ {asked} after at most {_allowed(about):g})"


def _goals(own: list[dict[str, Any]]) -> str:
    return f", goal in {min(numbers(own, 'positive')):.0%} of episodes at least"


def _median(rows: list[dict[str, Any]]) -> str:
    return f"{np.median(numbers(rows, 'return_mean')):.4g}" if rows else "–"


def numbers(rows: list[dict[str, Any]], column: str) -> list[float]:
    return [float(row[column]) for row in rows if row[column] != ""] or [float("nan")]


def _range(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:,.0f}" if low == high else f"{low:,.0f}–{high:,.0f}"
