"""Section 3 and appendix A: propositions, lemmas, the theorem, and the doubling trick."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from e3rl.dreem.distributions import pairwise_disagreement, per_step, state_distributions, v_exploit
from e3rl.dreem.misfit import misfits
from e3rl.dreem.policies import time_dependent_policies
from e3rl.reports.claims.claim import Claim, Finding, missing
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.statistics.intervals import Share

CLASSES = 40
"""Random model classes on which the lemmas are checked exactly."""
MODELS, STATES, ACTIONS, HORIZON = 4, 3, 2, 2


def rank_at_most(evidence: Evidence, family: str, ranks: str = "ranks") -> list[Finding]:
    result = evidence.find("dreem/rank")
    rows = [] if result is None else [row for row in result.about["rows"] if row["family"] == family]
    if not rows:
        return [missing("ranks")]
    return [
        Finding(
            f"{row['states']} states: rank {max(row[ranks])}, bound {row['bound']}",
            max(row[ranks]) <= row["bound"],
        )
        for row in rows
    ]


def _classes() -> Sequence[tuple[Any, Any, Any]]:
    """Random classes, their first model the truth: transitions, start, and all policies."""
    rng, policies = np.random.default_rng(0), time_dependent_policies(STATES, ACTIONS, HORIZON)
    drawn = []
    for i in range(CLASSES):
        spread = (1.0, 0.1, 0.01)[i % 3]
        base = rng.dirichlet(np.ones(STATES), size=(STATES, ACTIONS))
        others = rng.dirichlet(np.ones(STATES), size=(MODELS, STATES, ACTIONS))
        tables = per_step((1 - spread) * base + spread * others, HORIZON)
        drawn.append((tables, rng.dirichlet(np.ones(STATES)), policies))
    return drawn


def disagreement_means_misfit(evidence: Evidence) -> list[Finding]:
    """The largest share that D ever has of 4|A|H times the larger misfit; the lemma says at most 1."""
    worst = 0.0
    for tables, start, policies in _classes():
        found = np.maximum.accumulate(misfits(tables, tables[0], start, policies), axis=2)  # h' ≤ h
        either = np.maximum(found[:, :, None], found[:, None])  # [π, M, M', h]
        apart = np.moveaxis(pairwise_disagreement(tables, state_distributions(tables, start, policies)), 2, 0)
        allowed = 4 * ACTIONS * HORIZON * either
        worst = max(worst, float(np.max(apart[allowed > 0] / allowed[allowed > 0])))
    text = (
        f"{CLASSES} random classes, all pairs and policies: D is at most {worst:.2f} of what the lemma allows"
    )
    return [Finding(text, worst <= 1.0)]


def explore_or_exploit(evidence: Evidence) -> list[Finding]:
    kept, cases = 0, 0
    for i, (tables, start, policies) in enumerate(_classes()):
        epsilon = (0.05, 0.3, 1.0)[i // 3 % 3]
        occupancy = state_distributions(tables, start, policies)
        explored = pairwise_disagreement(tables, occupancy).sum(axis=3).max(axis=(0, 1))
        best = int(explored.argmax())
        if explored[best] > epsilon / ACTIONS:
            shown = misfits(tables, tables[0], start, policies[best : best + 1]).max()
            kept += bool(shown > epsilon / (4 * HORIZON**2 * ACTIONS**2))
        else:
            values = v_exploit(occupancy, np.linspace(0.0, 1.0, STATES))
            kept += all(values[0, own.argmax()] >= values[0].max() - epsilon for own in values)
        cases += 1
    return [Finding(f"{Share(kept, cases)} random classes", kept == cases)]


def rounds_within_bound(evidence: Evidence) -> list[Finding]:
    found = []
    for name, given in (("dreem/certify", "family"), ("dreem/lock-theorem", "horizon")):
        result = evidence.find(name)
        if result is None:
            found.append(missing(name))
            continue
        for row in result.about["rows"]:
            label = f"H={row[given]} lock" if given == "horizon" else row[given]
            text = f"{label}: {row['rounds_max']} rounds, bound {row['rounds_bound']:.0f}"
            found.append(Finding(text, row["rounds_max"] <= row["rounds_bound"]))
    result = evidence.find("dreem/ellipsoid")
    if result is None:
        return [*found, missing("ellipsoids")]
    rounds = [
        row for run in ("practical", "theorem") for row in result.about[run]["rounds"] if row["premise"]
    ]
    worst = max(row["volume_ratio"] for row in rounds)
    return [*found, Finding(f"ellipsoids shrink to {worst:.2f} at most, 0.60 allowed", worst <= 0.6)]


def few_failures(evidence: Evidence, experiments: Sequence[str]) -> list[Finding]:
    """The upper end of the interval must be below δ."""
    found = []
    for experiment in experiments:
        result = evidence.find(experiment)
        if result is None:
            found.append(missing(experiment))
            continue
        by_delta: dict[float, list[dict[str, Any]]] = {}
        for row in result.about["rows"]:
            by_delta.setdefault(row["delta"], []).append(row)
        for delta, rows in by_delta.items():
            failed = Share(sum(row["failures"] for row in rows), sum(row["runs"] for row in rows))
            text = f"{experiment}: {failed} runs failed, δ = {delta:g} allowed"
            found.append(Finding(text, failed.interval.high <= delta))
    return found


def truth_survives(evidence: Evidence) -> list[Finding]:
    found = []
    for experiment in ("dreem/certify", "dreem/lock-theorem"):
        result = evidence.find(experiment)
        if result is None:
            found.append(missing(experiment))
            continue
        rows = result.about["rows"]
        lost = Share(sum(row["true_model_eliminated"] for row in rows), sum(row["runs"] for row in rows))
        found.append(Finding(f"{experiment}: eliminated in {lost} runs", lost.hits == 0))
    return found


def doubling_costs_no_more(evidence: Evidence) -> list[Finding]:
    known, unknown = evidence.find("dreem/certify"), evidence.find("dreem/certify-doubling")
    if known is None or unknown is None:
        return [missing("doubling")]
    rank = {row["family"]: row for row in known.about["rows"]}
    found = []
    for row in unknown.about["rows"]:
        ratio = row["trajectories_max"] / rank[row["family"]]["trajectories_max"]
        text = (
            f"{row['family']}: {ratio:.2f} times the trajectories, {row['failures']} of {row['runs']} failed"
        )
        found.append(Finding(text, ratio <= 2 + np.log2(rank[row["family"]]["rank"])))
    return found


CLAIMS = [
    Claim(
        "theory/proposition-1", "Proposition 1", "With finitely many states the misfit matrices have rank at most |S|.",
        "no rank of a random instance exceeds it", partial(rank_at_most, family="tabular"),
    ),
    Claim(
        "theory/proposition-2", "Proposition 2", "If the true transition matrix has rank K, so at most have they.",
        "no rank of a random instance exceeds it", partial(rank_at_most, family="low-rank"),
        note="The other models need not have low rank.",
    ),
    Claim(
        "theory/proposition-3", "Proposition 3", "In a factored MDP with L parameters their rank is at most L.",
        "no rank of a random instance exceeds it", partial(rank_at_most, family="factored"),
        "as stated, the joint distance",
        "L counts the entries of the factors' tables. The counterexamples are binary factors of which each has a "
        "parent of "
        "its own, so that no two see the same; the total variation of a product is not a sum over factors.",
    ),
    Claim(
        "theory/proposition-3-mended", "Proposition 3", "In a factored MDP with L parameters their rank is at most L.",
        "no rank of a random instance exceeds it", partial(rank_at_most, family="factored", ranks="ranks_per_factor"),
        "mended, a distance per factor",
    ),
    Claim(
        "theory/lemma-1", "Lemma 1", "Where two models disagree by α, one of them has a misfit of α/(4|A|H) or more.",
        "no pair of models, policy and step of a random class breaks it", disagreement_means_misfit,
        note="Computed exactly by the command itself.",
    ),
    Claim(
        "theory/lemma-2", "Lemma 2", "Either exploration shows a misfit above ε/(4H²|A|²), or exploiting is ε-optimal.",
        "no random class breaks it", explore_or_exploit,
        note="The proof bounds one of the two gaps in value only; both are bounded, and the statement survives, with "
        "½‖·‖₁ for the distance between state distributions. Computed exactly by the command itself.",
    ),
    Claim(
        "theory/lemma-3", "Lemma 3", "Exploration ends after Hd log(β/2φ)/log(5/3) rounds at most.",
        "no run takes more, and no round leaves more than 3/5 of the volume", rounds_within_bound,
        note="Three steps of the proof need mending; none changes the number.",
    ),
    Claim(
        "theory/theorem-1", "Theorem 1", "With the theorem's n and φ the policy is ε-optimal with a chance of 1 − δ.",
        "the 95% interval of the share of failed runs ends below δ",
        partial(few_failures, experiments=("dreem/certify", "dreem/lock-theorem")),
        note="A round takes nH trajectories: each step needs roll-ins of its own.",
    ),
    Claim(
        "theory/truth-survives", "Theorem 1", "The true model is never eliminated.", "it was in no run", truth_survives,
    ),
    Claim(
        "theory/doubling", "A.3", "Without knowing d, doubling finds an ε-optimal policy with a chance of 1 − δ.",
        "the 95% interval of the share of failed runs ends below δ",
        partial(few_failures, experiments=("dreem/certify-doubling",)),
    ),
    Claim(
        "theory/doubling-cost", "A.3", "That takes as many samples, up to factors logarithmic in d.",
        "at most 2 + log₂ d times the trajectories", doubling_costs_no_more,
        note="The appendix's bound has d where Theorem 1 has d²; the proof gives d².",
    ),
]  # fmt: skip
