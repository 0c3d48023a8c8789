"""Numbers in the sentences of the documentation. Between the marks `<!-- n: KEY -->` and `<!-- /n -->` stands what the
data say today; a key is the name of one of these functions and what it is asked about, such as `solved stopping/h5`."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from e3rl.experiments.durations import seconds_of
from e3rl.experiments.lock import CURVE_KINDS
from e3rl.experiments.tables import stored_rows
from e3rl.reports import bench_numbers, reach_numbers
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.deterministic import explored
from e3rl.reports.lock_budgets import PAPER_RATIO
from e3rl.reports.wording import ends, listed, signed
from e3rl.types import UserError

Rows = list[dict[str, str]]
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
NO_WAY = -20.0
"""The best return in a maze whose goal is too far away: to stand still for 100 moves."""
CLOSE = 1e-4


def rows_of(evidence: Evidence, experiment: str) -> Rows:
    found = evidence.rows(experiment)
    if not found:
        raise UserError(f"a page tells of {experiment}, which has no results")
    return found


def about(evidence: Evidence, experiment: str) -> dict[str, Any]:
    return evidence.need(experiment).about


def each(experiments: Iterable[str]) -> list[str]:
    """`stopping/h5,10` is short for stopping/h5 and stopping/h10."""
    found = []
    for name in experiments:
        first, *others = name.split(",")
        found += [first, *(first.rstrip("0123456789") + other for other in others)]
    return found


def solved(evidence: Evidence, *experiments: str) -> str:
    """Locks opened, over all seeds and both rewards."""
    every = [row["solved"] == "True" for name in each(experiments) for row in rows_of(evidence, name)]
    return f"{sum(every)} of {len(every)}"


def solved_at(evidence: Evidence, experiment: str, ratio: str, reward: str) -> str:
    """Locks opened after so many episodes per level."""
    share = evidence.solved(experiment, reward, int(ratio))
    if share is None:
        raise UserError(f"a page tells of {experiment} at {ratio}H, which was not measured")
    return f"{share.hits} of {share.total}"


def paid(evidence: Evidence, experiment: str, reward: str) -> str:
    """Exploration episodes that met the large reward, seed by seed, within the largest budget."""
    rows = [row for row in rows_of(evidence, experiment) if row["reward"] == reward]
    most = max(int(row["episodes"]) for row in rows)
    return listed([row["paid_episodes"] for row in rows if int(row["episodes"]) == most])


def met(evidence: Evidence, experiment: str) -> str:
    """After how many episodes per level exploring first met the reward of a standard lock, which pays nothing else, by
    seed: the end of the first stretch that was paid."""
    result = evidence.need(experiment)
    horizon = int(result.about["settings"]["horizon"])
    curves = stored_rows(result.table.with_name(f"{result.table.stem}-exploring.csv"), CURVE_KINDS)
    first: dict[int, str] = {}
    for point in (point for point in curves if point["reward"] == "standard"):
        first.setdefault(point["seed"], "never")
        if point["return_mean"] > 0.0 and first[point["seed"]] == "never":
            first[point["seed"]] = f"{point['episode'] / horizon:.0f}H"
    return listed(list(first.values()))


def opened(evidence: Evidence, experiment: str, reward: str) -> str:
    """Greedy returns of a lock after the largest budget, seed by seed."""
    rows = [row for row in rows_of(evidence, experiment) if row["reward"] == reward]
    most = max(int(row["episodes"]) for row in rows)
    return listed([f"{float(row['return_mean']):.1f}" for row in rows if int(row["episodes"]) == most])


def levels(evidence: Evidence, which: str, *experiments: str) -> str:
    """Episodes per level: the medians of every lock and reward, or the most of any seed."""
    found = [
        [
            int(row["episodes"]) / int(row["horizon"])
            for row in rows_of(evidence, name)
            if row["reward"] == reward
        ]
        for name in each(experiments)
        for reward in ("standard", "antishaped")
    ]
    if which == "most":
        return signed(max(max(own) for own in found))
    return ends(float(np.median(own)) for own in found)


def budget(evidence: Evidence, horizon: str) -> str:
    """The paper's, per level."""
    return str(PAPER_RATIO[int(horizon)])


def greedy(
    evidence: Evidence, experiment: str, episodes: str, which: str = "median", digits: str = "0"
) -> str:
    """Of Neural-E³ after so many episodes of exploring: the seeds' median, the worst of them, or all."""
    told = [one for one in about(evidence, experiment)["exploit"] if one["budget"] == int(episodes)]
    values = [one["return_mean"] for one in sorted(told, key=lambda one: one["seed"])]
    if which == "seeds":
        return listed([signed(value, int(digits)) for value in values])
    return signed(min(values) if which == "worst" else float(np.median(values)), int(digits))


def greedy_seeds(evidence: Evidence, experiment: str, episodes: str, bar: str) -> str:
    """Seeds whose greedy episodes collect a mean of `bar` or better after so many episodes of exploring; or of which
    at least one reaches the `goal`."""
    told = [one for one in about(evidence, experiment)["exploit"] if one["budget"] == int(episodes)]
    there = [one["reached"] > 0 if bar == "goal" else one["return_mean"] >= float(bar) for one in told]
    return f"{sum(there)} of {len(there)}"


def ended(evidence: Evidence, experiment: str) -> str:
    """After how many episodes exploration ended, by the seeds where it was sooner and later."""
    return ends((float(one["explored"]) for one in about(evidence, experiment)["exploit"]), 0)


def finals(evidence: Evidence, what: str, which: str, *experiments: str) -> str:
    """Of baselines: the `first`, the `last` or the `range` over seeds of `episodes`, `first_found` or `over_bar`, the
    `count` of seeds that have it, or all `seeds` of a number such as `return_mean`."""
    values = [one[what] for name in experiments for one in about(evidence, name)["final"].values()]
    told = [value for value in values if value is not None]
    if which == "count":
        return f"{len(told)} of {len(values)}"
    if which == "seeds":
        return listed([signed(value) if isinstance(value, float) else f"{value:,}" for value in told])
    return {
        "first": f"{min(told):,}",
        "last": f"{max(told):,}",
        "range": f"{min(told):,} to {max(told):,}",
    }[which]


def reached(evidence: Evidence, experiment: str, which: str) -> str:
    """Exploring a control task: how many episodes of each seed reached the goal, or in which epoch the first did."""
    per_epoch, _ = explored(evidence.need(experiment))
    by_seed: dict[str, list[int]] = {}
    for row in rows_of(evidence, experiment):
        if row["phase"] == "explore":
            own = by_seed.setdefault(row["seed"], [])
            own += [int(row["episode"])] if row["reached"] == "True" else []
    if which == "counts":
        return listed([str(len(own)) for own in by_seed.values()])
    epochs = sorted({(min(own) - 1) // per_epoch for own in by_seed.values()})
    return listed([ORDINALS[epoch] for epoch in epochs], "or")


def shortest(evidence: Evidence, which: str, *experiments: str) -> str:
    """Greedy episodes in mazes: on the shortest way, of those with one; or those without, missed, or with a detour."""
    rows = [row for name in experiments for row in rows_of(evidence, name) if row["phase"] == "exploit"]
    possible = [row for row in rows if float(row["optimal_return"]) > NO_WAY + CLOSE]
    best = [row for row in possible if float(row["return"]) > float(row["optimal_return"]) - CLOSE]
    missed = [row for row in possible if row["reached"] != "True"]
    counts = {
        "all": len(rows), "possible": len(possible), "impossible": len(rows) - len(possible), "best": len(best),
        "missed": len(missed), "detours": len(possible) - len(best) - len(missed),
    }  # fmt: skip
    return str(counts[which])


def lead(evidence: Evidence, which: str, one: str, other: str) -> str:
    """What one collects more than the other while exploring, an episode: by seed, or its mean, after the first epoch
    or in the last."""
    part = slice(-1, None) if which.startswith("last") else slice(1, None)
    ours, theirs = (explored(evidence.need(name))[1][:, part].mean(axis=1) for name in (one, other))
    difference = (ours - theirs).tolist()
    return ends(difference, 1) if which.endswith("seeds") else signed(float(np.mean(difference)), 1)


def in_epoch(evidence: Evidence, experiment: str, epoch: str) -> str:
    """The mean return while exploring, in an epoch; the first is 1."""
    return signed(float(explored(evidence.need(experiment))[1][:, int(epoch) - 1].mean()))


def failed(evidence: Evidence, experiment: str, how: str = "failures") -> str:
    """Runs of DREEM that ended with too little, or that went wrong in another way."""
    told = about(evidence, experiment)["rows"]
    return f"{sum(one[how] for one in told)} of {sum(one['runs'] for one in told)}"


def got_there(evidence: Evidence, experiment: str, which: str = "seeds") -> str:
    """Seeds of a baseline that came above the bar of its task, or the median of the episodes until then."""
    waited = evidence.to_bar(experiment)
    if waited is None:
        raise UserError(f"a page tells of {experiment}, which has no results")
    if which == "median":
        return str(waited).rpartition("median ")[2]
    return f"{waited.share.hits} of {waited.share.total}"


def speed(evidence: Evidence) -> str:
    """Our steps a second as a multiple of Stable-Baselines3's, over all tasks."""
    return ends(one["speed_ratio"] for one in about(evidence, "peers/summary")["rows"])


def seeds(evidence: Evidence, *experiments: str) -> str:
    """Such as "350 to 369"."""
    return ends(float(row["seed"]) for name in each(experiments) for row in rows_of(evidence, name))


def value(evidence: Evidence, experiment: str, path: str, form: str = "g") -> str:
    """What a file says, by the keys that lead there: `value dreem/ellipsoid theorem.rounds.0.sliced_ratio .4f`. Keys of
    several words have _ between these."""
    told: Any = about(evidence, experiment)
    for key in path.split("."):
        if isinstance(told, list):
            told = told[int(key)]
        else:
            told = {name.replace(" ", "_"): inside for name, inside in told.items()}[key]
    return f"{told:{form}}"


def took(evidence: Evidence, experiments: str, unit: str = "seconds") -> str:
    """All seeds of an experiment together, or of several with commas between."""
    found = [evidence.need(name) for name in experiments.split(",")]
    seconds = sum(seconds_of(one.about, one.table) for one in found)
    return signed(seconds / 60 if unit == "minutes" else seconds)


NUMBERS: dict[str, Callable[..., str]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        solved, solved_at, paid, met, opened, levels, budget, greedy, greedy_seeds, ended, finals, reached, shortest,
        lead, in_epoch, failed, got_there, speed, seeds, value, took, bench_numbers.bench, bench_numbers.bench_ratio,
        bench_numbers.bench_more, bench_numbers.bench_target, bench_numbers.calibration,
        bench_numbers.as_of, reach_numbers.reach, reach_numbers.reach_targets, reach_numbers.reach_ends,
    )
}  # fmt: skip


def number(key: str, evidence: Evidence) -> str:
    """What stands between the marks of a key; after `confirmed` one is asked of confirmatory seeds."""
    name, *words = key.split()
    if name == "confirmed":
        apart = evidence.confirmed()
        if apart is None:
            raise UserError(f"a page tells of confirmatory seeds ({key}), which have no results")
        return number(" ".join(words), apart)
    if name not in NUMBERS:
        raise UserError(f"no number is called {name!r}; there are {', '.join(NUMBERS)}")
    try:
        return NUMBERS[name](evidence, *words)
    except UserError:
        raise
    except (IndexError, KeyError, StopIteration, TypeError, ValueError) as error:
        raise UserError(f"the number {key!r} cannot be told: {type(error).__name__}: {error}") from error
