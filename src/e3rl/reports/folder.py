"""What a folder of results holds, by what its JSON files say, and the report that suits it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from e3rl.experiments.catalogue import family_of
from e3rl.reports import baselines, deterministic, lock_budgets, planning


class Report(NamedTuple):
    """A table, and the pictures that belong to it."""

    table: Callable[[Path], str]
    draw: Callable[[Path], list[Path]]


CONTROL = Report(deterministic.table, lambda folder: [deterministic.draw(folder)])
REPORTS: dict[str, Report] = {
    "lock": Report(lock_budgets.table, lambda folder: [lock_budgets.draw_budgets(folder)]),
    "planning": Report(planning.table, lambda folder: []),
    "maze": CONTROL,
    "mountaincar": CONTROL,
    "acrobot": CONTROL,
    "baselines": Report(baselines.table, baselines.draw),
}
"""By the family of the experiments."""


def report_of(folder: Path) -> Report | None:
    """The report on the experiments whose results are in `folder`; None where there are none."""
    for path in sorted(folder.glob("*.json")):
        try:
            about = json.loads(path.read_text())
        except (OSError, ValueError):
            continue  # the report itself will say so, if it is one of its own
        name = about.get("experiment") if isinstance(about, dict) else None
        if isinstance(name, str) and family_of(name) in REPORTS:
            return REPORTS[family_of(name)]
    return None
