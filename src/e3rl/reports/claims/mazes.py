"""Section 5.2 and appendix C.2: mazes."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from e3rl.reports.claims.claim import Claim, Finding, missing
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.claims.lock import PAPERS
from e3rl.reports.statistics.intervals import Share, mean_within

SIZES = (5, 10, 20)
E3RLS = "e3rl's"
PAIRS = {PAPERS: ("paper", "paper-ue2"), E3RLS: ("e3rl", "ue2")}
"""Neural-E³ and UE², by whose settings they have."""
FIRST_EPOCH = 10
"""Episodes that are uniform for both."""
HALF_A_STEP = 0.1
"""Of return: a difference that nobody would see in a figure."""


def _lead(evidence: Evidence, settings: str, size: int) -> np.ndarray | None:
    """How far Neural-E³'s greedy return is above UE²'s, by seed; mazes of a seed are the same for both."""
    ours, theirs = (evidence.greedy(f"maze/{size}-{variant}") for variant in PAIRS[settings])
    return None if ours is None or theirs is None else ours - theirs


def similar_when_small(evidence: Evidence, settings: str) -> list[Finding]:
    lead = _lead(evidence, settings, 5)
    if lead is None:
        return [missing("5 × 5")]
    return [
        Finding(
            f"5 × 5: a lead of {mean_within(lead.tolist()).text()}", abs(float(np.mean(lead))) < HALF_A_STEP
        )
    ]


def ahead_as_size_grows(evidence: Evidence, settings: str) -> list[Finding]:
    leads = {size: _lead(evidence, settings, size) for size in SIZES}
    told = [
        f"{size} × {size}: {'not run' if lead is None else mean_within(lead.tolist()).text()}"
        for size, lead in leads.items()
    ]
    known = [float(np.mean(lead)) for lead in leads.values() if lead is not None]
    grows = known[-1] > known[0] + HALF_A_STEP if len(known) == len(SIZES) else None
    return [Finding(f"lead over UE²: {'; '.join(told)}", grows)]


def more_while_exploring(evidence: Evidence, settings: str) -> list[Finding]:
    found = []
    for size in SIZES:
        ours, theirs = (
            evidence.explored(f"maze/{size}-{variant}", FIRST_EPOCH) for variant in PAIRS[settings]
        )
        if ours is None or theirs is None:
            found.append(missing(f"{size} × {size}"))
            continue
        ahead = Share(int(np.sum(ours > theirs)), len(ours))
        text = f"{size} × {size}: {mean_within((ours - theirs).tolist()).text('.1f')} an episode more, on {ahead} seeds"
        found.append(Finding(text, ahead.is_most))
    return found


def dqn_solves_small(evidence: Evidence) -> list[Finding]:
    waited = evidence.to_bar("baselines-maze/5-dqn")
    return [missing("5 × 5") if waited is None else Finding(f"5 × 5: {waited}", waited.share.is_most)]


def dqn_fails(evidence: Evidence) -> list[Finding]:
    found = []
    for size in SIZES[1:]:
        waited = evidence.to_bar(f"baselines-maze/{size}-dqn")
        name = f"{size} × {size}"
        found.append(missing(name) if waited is None else Finding(f"{name}: {waited}", not waited.share.hits))
    return found


def agree_until_the_reward(evidence: Evidence) -> list[Finding]:
    result = evidence.first("predictions", "predictions-5")
    if result is None:
        return [missing("Figure 5")]
    steps = result.about["steps"]
    paid = next((i for i, step in enumerate(steps) if step["reward"] > 0), None)
    if not paid:
        return [Finding("no reward in the episode that is shown", None)]
    before = float(np.median([step["disagreement"] for step in steps[:paid]]))
    then = steps[paid]["disagreement"]
    text = f"step {paid + 1}, the rewarded one: disagreement {then:.3g}, median before {before:.3g}"
    return [Finding(text, then > 10 * before)]


def _both(
    name: str, says: str, holds_if: str, measure: Callable[..., Sequence[Finding]], note: str = ""
) -> Sequence[Claim]:
    return [
        Claim(name, "5.2", says, holds_if, partial(measure, settings=whose), whose, note) for whose in PAIRS
    ]


CLAIMS = [
    Claim(
        "maze/dqn-small", "5.2", "The DQN solves 5 × 5 mazes after many episodes.",
        "more than half of the seeds get a mean of 100 above the bar", dqn_solves_small,
    ),
    Claim(
        "maze/dqn-fails", "5.2", "It learns nothing meaningful in mazes of 10 × 10 and 20 × 20.",
        "no seed gets a mean of 100 above the bar", dqn_fails,
    ),
    *_both(
        "maze/ue2-similar", "UE² and Neural-E³ do similarly at 5 × 5.",
        "mean greedy returns are less than half a step apart",
        similar_when_small,
    ),
    *_both(
        "maze/ue2-behind", "Neural-E³ gets ahead of UE² as mazes grow.",
        "its lead in greedy return at 20 × 20 is larger than that at 5 × 5 by more than half a step",
        ahead_as_size_grows,
    ),
    *_both(
        "maze/more-while-exploring", "Neural-E³ collects more reward while exploring.",
        "it collects more than UE² on most seeds at every size, the first epoch aside, which is uniform",
        more_while_exploring,
    ),
    Claim(
        "maze/predictions-agree", "5.2, Figure 5",
        "The models' predictions agree until the reward, which is rare, is reached.",
        "their disagreement at the rewarded step is more than ten times the median before", agree_until_the_reward,
    ),
]  # fmt: skip
