"""Seeds of a lock experiment that an earlier command has measured whole: they are not run again when more are asked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from e3rl.experiments.tables import Row, stored_rows
from e3rl.types import UserError

MADE = ("seeds", "command", "commit", "version", "jax", "device", "machine")
"""What is kept of how the seeds of a table came about."""


class Earlier(NamedTuple):
    """What they have in the tables, and by which commands and commits they were made."""

    seeds: tuple[int, ...] = ()
    rows: tuple[Row, ...] = ()
    curves: tuple[Row, ...] = ()
    """Of the returns while exploring."""
    explored: tuple[tuple[str, dict[str, float]], ...] = ()
    """Their mean by seed, of each reward."""
    made: tuple[dict[str, Any], ...] = ()

    def mean_return(self, reward: str) -> dict[str, float]:
        return dict(self.explored).get(reward, {})


def earlier_seeds(
    about: dict[str, Any], rows: list[Row], wanted: set[tuple[str, int]], curves: Path, kinds: dict[str, Any]
) -> Earlier:
    """Those that lack none of the `wanted` rewards and ratios, and whose returns while exploring are there too."""
    measured: dict[int, set[tuple[str, int]]] = {}
    for row in rows:
        measured.setdefault(row["seed"], set()).add((row["reward"], row["ratio"]))
    whole = [seed for seed, found in measured.items() if found >= wanted]
    told = curves.is_file() and "explore_return_mean" in about
    beside = stored_rows(curves, kinds) if whole and told else []
    rewards = {reward for reward, _ in wanted}
    seen = {(row["reward"], row["seed"]) for row in beside}
    seeds = tuple(sorted(seed for seed in whole if {(reward, seed) for reward in rewards} <= seen))
    if not seeds:
        return Earlier()
    explored = tuple(
        (reward, {str(seed): own[str(seed)] for seed in seeds})
        for reward, own in about["explore_return_mean"].items()
    )
    made = {key: about[key] for key in MADE if key in about} | {"seeds": list(seeds)}
    before = [one for one in about.get("earlier", ()) if set(one["seeds"]) <= set(seeds)]
    made["seeds"] = [seed for seed in seeds if not any(seed in one["seeds"] for one in before)]
    return Earlier(
        seeds,
        tuple(row for row in rows if row["seed"] in seeds),
        tuple(row for row in beside if row["seed"] in seeds),
        explored,
        (*before, made) if made["seeds"] else tuple(before),
    )


def together(parts: Sequence[Earlier]) -> Earlier:
    """All of them in one; an error where two have the same seed."""
    seeds = [seed for part in parts for seed in part.seeds]
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        raise UserError(f"measured twice: seeds {', '.join(map(str, twice))}")
    rewards = dict.fromkeys(reward for part in parts for reward, _ in part.explored)
    return Earlier(
        tuple(sorted(seeds)),
        tuple(row for part in parts for row in part.rows),
        tuple(row for part in parts for row in part.curves),
        tuple(
            (reward, {seed: mean for part in parts for seed, mean in part.mean_return(reward).items()})
            for reward in rewards
        ),
        tuple(one for part in parts for one in part.made),
    )
