"""What a folder of results holds, by what its JSON files say, and the report that suits it."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from e3rl.experiments.catalogue import family_of
from e3rl.reports import baselines, deterministic, lock_budgets, planning, reach, stopping, unified
from e3rl.reports.results import results_in


class Report(NamedTuple):
    """A table, and the pictures that belong to it."""

    table: Callable[[Path], str]
    draw: Callable[[Path], list[Path]]


CONTROL = Report(deterministic.table, lambda folder: [deterministic.draw(folder)])
REPORTS: dict[str, Report] = {
    "lock": Report(lock_budgets.table, lambda folder: [lock_budgets.draw_budgets(folder)]),
    "planning": Report(planning.table, lambda folder: []),
    **dict.fromkeys(deterministic.FAMILIES, CONTROL),
    "baselines": Report(baselines.table, baselines.draw),
    "reach": Report(reach.table, lambda folder: []),
    "stopping": Report(stopping.table, lambda folder: []),
    **dict.fromkeys(("unified", "repulsion"), Report(unified.table, lambda folder: [])),
}
"""By the family of the experiments."""


def report_of(folder: Path) -> Report | None:
    """The report on the experiments whose results are in `folder`; None where there are none."""
    for result in results_in(folder, *REPORTS):
        return REPORTS[family_of(result.experiment)]
    return None
