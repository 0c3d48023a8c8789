"""A sentence of the paper, and the verdict on it."""

import csv
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from scipy import stats

from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.statistics.intervals import Share
from e3rl.types import UserError

DAMAGE = (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError, csv.Error)
"""What reading files raises that are not as `e3rl reproduce` writes them."""


UNLIKELY = 0.05
"""A chance below this is none, where a verdict rests on a test."""


class Verdict(StrEnum):
    HOLDS = "holds"
    DIFFERS = "differs"
    NOT_TESTED = "not tested"


class Finding(NamedTuple):
    """What the data say about a part of a claim."""

    text: str
    holds: bool | None
    """None where there are no data, or too few."""
    run: bool = True
    """Whether there are any."""


def missing(what: str) -> Finding:
    return Finding(f"{what}: not run", None, run=False)


def more_of(ours: Share, theirs: Share) -> tuple[bool | None, float]:
    """Whether ours is the larger share, and the chance of such a lead among equals (Fisher's exact test, one-sided): a
    lead that chance may explain leaves it open."""
    table = [[share.hits, share.total - share.hits] for share in (ours, theirs)]
    chance = float(stats.fisher_exact(table, "greater").pvalue)
    if ours.hits * theirs.total <= theirs.hits * ours.total:
        return False, chance
    return True if chance < UNLIKELY else None, chance


class Claim(NamedTuple):
    name: str
    place: str
    """In the paper."""
    says: str
    """In our words."""
    holds_if: str
    """The rule by which findings become a verdict."""
    measure: Callable[[Evidence], Sequence[Finding]]
    settings: str = ""
    """Whose, where it was measured with more than one."""
    note: str = ""


class Judged(NamedTuple):
    claim: Claim
    verdict: Verdict
    measured: str
    cells: tuple[str, ...]
    """The experiments that were asked for, whether they have been run or not."""
    whole: bool
    """Whether all have that it needs."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "claim": self.claim.name,
            "place": self.claim.place,
            "says": self.claim.says,
            "settings": self.claim.settings,
            "measured": self.measured,
            "verdict": self.verdict.value,
            "holds_if": self.claim.holds_if,
            "note": self.claim.note,
            "cells": list(self.cells),
        }


def verdict(findings: Sequence[Finding]) -> Verdict:
    """One part that differs is enough to differ; what has not been measured cannot hold."""
    said = [finding.holds for finding in findings]
    if False in said:
        return Verdict.DIFFERS
    return Verdict.NOT_TESTED if None in said or not said else Verdict.HOLDS


def judge(claim: Claim, evidence: Evidence) -> Judged:
    asked = evidence.asking()
    try:
        findings = claim.measure(asked)
    except DAMAGE as error:
        cells = ", ".join(asked.asked)
        raise UserError(f"one of {cells} is damaged: {type(error).__name__}: {error}") from error
    text = "; ".join(finding.text for finding in findings) or "no experiment for it"
    return Judged(
        claim, verdict(findings), text, tuple(asked.asked), all(finding.run for finding in findings)
    )
