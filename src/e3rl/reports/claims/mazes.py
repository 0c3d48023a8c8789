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
STEP = 0.2
"""What a move costs."""
HALF_A_STEP = STEP / 2
"""A difference of returns that nobody would see in a figure."""
BEST_AT_5 = 1.6
"""A mean return in mazes of 5 × 5 that is within a step of the best possible."""


def _lead(evidence: Evidence, settings: str, size: int) -> np.ndarray | None:
    """How far Neural-E³'s greedy return is above UE²'s, by seed; mazes of a seed are the same for both."""
    ours, theirs = (evidence.greedy(f"maze/{size}-{variant}") for variant in PAIRS[settings])
    return None if ours is None or theirs is None else ours - theirs


def similar_when_small(evidence: Evidence, settings: str) -> list[Finding]:
    lead = _lead(evidence, settings, 5)
    if lead is None:
        return [missing("5 × 5")]
    interval = mean_within(lead.tolist())
    apart = not interval.low <= 0.0 <= interval.high
    same = max(abs(interval.low), abs(interval.high)) < HALF_A_STEP
    return [Finding(f"5 × 5: a lead of {interval.text()}", True if same else False if apart else None)]


def ahead_as_size_grows(evidence: Evidence, settings: str) -> list[Finding]:
    leads = {size: _lead(evidence, settings, size) for size in SIZES}
    told = [
        f"{size} × {size}: {'not run' if lead is None else mean_within(lead.tolist()).text()}"
        for size, lead in leads.items()
    ]
    small, large = leads[SIZES[0]], leads[SIZES[-1]]
    if small is None or large is None or leads[10] is None:
        return [Finding(f"lead over UE²: {'; '.join(told)}", None, run=False)]
    growth = mean_within((large - small).tolist())
    grows = True if growth.low > 0.0 else False if growth.high < STEP else None
    return [Finding(f"lead over UE²: {'; '.join(told)}; growth {growth.text()}", grows)]


def more_while_exploring(evidence: Evidence, settings: str) -> list[Finding]:
    found = []
    for size in SIZES:
        ours, theirs = (
            evidence.explored(f"maze/{size}-{variant}", FIRST_EPOCH) for variant in PAIRS[settings]
        )
        if ours is None or theirs is None:
            found.append(missing(f"{size} × {size}"))
            continue
        lead = mean_within((ours - theirs).tolist())
        ahead = Share(int(np.sum(ours > theirs)), len(ours))
        text = f"{size} × {size}: {lead.text('.1f')} an episode more, on {ahead} seeds"
        found.append(Finding(text, True if lead.low > 0.0 else False if lead.high < 0.0 else None))
    return found


def dqn_solves_small(evidence: Evidence) -> list[Finding]:
    """At its end, greedily: half of the way, where its bar is, comes soon."""
    finals, half_way = evidence.finals("baselines-maze/5-dqn"), evidence.to_bar("baselines-maze/5-dqn")
    if finals is None or half_way is None:
        return [missing("5 × 5")]
    share = Share(sum(one["return_mean"] >= BEST_AT_5 for one in finals), len(finals))
    episodes = min(one["episodes"] for one in finals)
    text = f"5 × 5: {share} at {BEST_AT_5} or better after {episodes:,} episodes; half of the way there {half_way}"
    return [Finding(text, share.is_most)]


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
        f"more than half of the seeds have a greedy return of {BEST_AT_5} at the end", dqn_solves_small,
    ),
    Claim(
        "maze/dqn-fails", "5.2", "It learns nothing meaningful in mazes of 10 × 10 and 20 × 20.",
        "no seed gets a mean of 100 above the bar", dqn_fails,
    ),
    *_both(
        "maze/ue2-similar", "UE² and Neural-E³ do similarly at 5 × 5.",
        "the interval of the difference in greedy return is within half a step of none; it differs where that "
        "interval leaves none out",
        similar_when_small,
    ),
    *_both(
        "maze/ue2-behind", "Neural-E³ gets ahead of UE² as mazes grow.",
        "the interval of how much larger its lead in greedy return is at 20 × 20 than at 5 × 5 is above none; it "
        "differs where that is below a step",
        ahead_as_size_grows,
    ),
    *_both(
        "maze/more-while-exploring", "Neural-E³ collects more reward while exploring.",
        "the interval of what it collects more than UE² is above none at every size, the first epoch aside, which is "
        "uniform; it differs where that is below none at one",
        more_while_exploring,
    ),
    Claim(
        "maze/predictions-agree", "5.2, Figure 5",
        "The models' predictions agree until the reward, which is rare, is reached.",
        "their disagreement at the rewarded step is more than ten times the median before", agree_until_the_reward,
    ),
]  # fmt: skip
