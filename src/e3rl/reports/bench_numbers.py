"""Numbers of `e3rl bench` in sentences. Rows are named as in its files, several at a time: `neural/plan/` is all
below it, `control/dqn_update,control/model_update` are two."""

from typing import Any

import numpy as np

from e3rl.reports.bench_tables import Row, rows_of, target_of
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.wording import ends, listed, times
from e3rl.types import UserError


def _rows(evidence: Evidence, names: str) -> list[Row]:
    found = rows_of(evidence, *names.split(","))
    if not found:
        raise UserError(f"a page tells of {names}, which `e3rl bench` has not recorded")
    return found


def bench(evidence: Evidence, names: str, field: str = "ratio", digits: str = "1", by: str = "1") -> str:
    """A number of a row, or the range of several."""
    values = [np.ravel(one[field]) for one in _rows(evidence, names) if one.get(field) is not None]
    return ends(np.concatenate(values) * float(by), int(digits))


def bench_ratio(evidence: Evidence, names: str, field: str, other: str, digits: str = "1") -> str:
    """One number of a row as a multiple of another: `yardstick_best_s` of `ours_best_s`."""
    rows = [one for one in _rows(evidence, names) if one.get(field) is not None]
    return ends((one[field] / one[other] for one in rows), int(digits))


def bench_more(evidence: Evidence, names: str, this: str, than: str) -> str:
    """How many % more time rows take than others of like names: those with `fresh` than those with `common` noise."""
    rows: dict[str, float] = {one["name"]: one["ours_s"] for one in _rows(evidence, names)}
    pairs = [
        (seconds, rows.get(f"/{name}/".replace(f"/{this}/", f"/{than}/").strip("/")))
        for name, seconds in rows.items()
        if this in name.split("/")
    ]
    return ends(100.0 * (seconds / other - 1.0) for seconds, other in pairs if other is not None)


def bench_target(evidence: Evidence, names: str, which: str = "met") -> str:
    """How many rows meet their target, or which were `missed`, and by what."""
    rows = [(one, target_of(one["name"])) for one in _rows(evidence, names) if one["ratio"] is not None]
    asked = [(one, target) for one, target in rows if target is not None]
    missed = [one for one, target in asked if one["ratio"] < target]
    if which == "missed":
        told = [f"{one['name'].partition('/')[2]} ({times(one['ratio'], 2)})" for one in missed]
        return listed(told) or "none"
    return f"{len(asked) - len(missed)} of {len(asked)}"


def calibration(evidence: Evidence, utility: str, which: str, digits: str = "0") -> str:
    """Of the disagreement about pairs that were not tried, the share in % that is left, at the end, about those tried
    ten times and more: on the locks, by models that know dice or by `plain` ones."""
    own = [one for one in _rows(evidence, "calibration/") if one["name"].endswith(f"/{utility}")]
    locks = [one for one in own if one["name"].startswith("calibration/lock")]
    chosen = [one for one in locks if ("-dice/" in one["name"]) == (which == "dice")]
    return ends((100 * one["well_tried"][-1] / one["untried"][-1] for one in chosen), int(digits))


def as_of(evidence: Evidence, experiment: str, commit: str) -> str:
    """The commit that results are of. A sentence about how old they are must not outlive them: once they are recorded
    anew, so is it."""
    about: dict[str, Any] = evidence.need(experiment).about
    today = about["machine"]["commit"] if isinstance(about.get("machine"), dict) else about["commit"]
    if not today.startswith(commit):
        raise UserError(f"{experiment} is of commit {today[:7]} by now: a page still tells of {commit}")
    return commit
