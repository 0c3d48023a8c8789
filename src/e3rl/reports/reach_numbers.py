"""Numbers of `e3rl reproduce reach` in sentences: what the agent that was picked took and gave."""

from collections.abc import Iterator

import numpy as np

from e3rl.experiments.reach import TASKS
from e3rl.reports import reach as of_reach
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.results import Result
from e3rl.reports.wording import ends, listed, signed


def reach(evidence: Evidence, name: str, column: str, which: str = "range", digits: str = "0") -> str:
    """A column of the seeds' rows of an environment, or of `every` one: its `range`, `median` or least (`worst`).
    Besides those of the file there are `minutes`, and what seeds are `short` of the return asked for."""
    results = dict(_measured(evidence)).values() if name == "every" else [evidence.need(f"reach/{name}")]
    values = [value for result in results for value in _values(result, column)]
    if not values:
        return "nothing"
    if which == "range":
        return ends(values, int(digits))
    return signed(float(np.median(values) if which == "median" else min(values)), int(digits))


def _values(result: Result, column: str) -> list[float]:
    about, rows = result.about, of_reach.own_rows(result)
    if column == "minutes":
        return [value / 60.0 for value in of_reach.numbers(rows, "seconds")]
    if column == "short":
        returns = of_reach.numbers(rows, "return_mean")
        return [about["target"] - value for value in returns if value < about["target"]]
    return of_reach.numbers(rows, column)


def _measured(evidence: Evidence) -> Iterator[tuple[str, Result]]:
    for name in TASKS:
        found = evidence.find(f"reach/{name}")
        if found is not None:
            yield name, found


def reach_targets(evidence: Evidence, which: str = "met") -> str:
    """Environments of which every seed has what was asked for, or those that `missed` it and how many seeds have it."""
    asked = [(name, found) for name, found in _measured(evidence) if found.about["target"] is not None]
    met = {name: of_reach.met(found.about, of_reach.own_rows(found)) for name, found in asked}
    missed = [f"{name} ({sum(seeds)} of {len(seeds)})" for name, seeds in met.items() if not all(seeds)]
    return (listed(missed) or "none") if which == "missed" else f"{len(met) - len(missed)} of {len(met)}"


def reach_ends(evidence: Evidence, which: str) -> str:
    """Environments of Neural-E³ whose exploration may end by `itself`, or goes on to its `ceiling` whatever happens."""
    rules = {
        name: found.about["configs"][found.about["chosen"]]["explore"]
        for name, found in _measured(evidence)
        if found.about["chosen"] == "neural-e3"
    }
    itself = [name for name, rule in rules.items() if rule.get("epsilon") or rule.get("epsilon_share")]
    return listed(itself if which == "itself" else [name for name in rules if name not in itself]) or "none"
