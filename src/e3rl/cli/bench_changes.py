"""What became slower or faster between two reports of `e3rl bench`."""

import statistics
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

BY_YARDSTICK = 1.4
"""Ratios to a yardstick that took turns with us in the same run: what changes less may be noise."""
BY_SECONDS = 1.8
"""Seconds are a matter of the machine and of what else it does, even after the yardsticks have been asked about it."""


class Changes(NamedTuple):
    compared: int
    """Rows of which there is a time in both."""
    slower: list[dict[str, Any]]
    """Worst first; `times` is how many times slower, `by` says what it was judged by."""
    faster: list[dict[str, Any]]
    other_settings: list[str]
    """Benchmarks that were recorded with other settings, and are not compared."""


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> Changes:
    """`before` has a report for each benchmark, `now` is one report of them all. Benchmarks that do not measure time
    (they name the `columns` that they do measure) are left out."""
    timed = {name for name, config in now["config"].items() if "columns" not in config and name in before}
    other = {name for name in timed if _differ(before[name]["config"], now["config"][name])}
    pairs = {
        name: list(_pairs(before[name]["rows"], now["rows"]))
        for name in now["config"]
        if name in timed - other
    }
    everywhere = _machine([pair for each in pairs.values() for pair in each], 1.0)
    slower, faster = list[dict[str, Any]](), list[dict[str, Any]]()
    for each in pairs.values():
        machine = _machine(each, everywhere)
        for old, new in each:
            times, by, threshold = _judged(old, new, machine)
            if times > threshold:
                slower.append({"name": new["name"], "times": times, "by": by})
            elif times * threshold < 1.0:
                faster.append({"name": new["name"], "times": 1.0 / times, "by": by})
    slower, faster = (sorted(part, key=lambda change: -change["times"]) for part in (slower, faster))
    return Changes(sum(map(len, pairs.values())), slower, faster, sorted(other))


def _differ(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether settings that both have differ."""
    return any(old[key] != new[key] for key in old.keys() & new.keys())


def _pairs(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Iterator[tuple[dict, dict]]:
    known = {row["name"]: row for row in old}
    return ((known[row["name"]], row) for row in new if row["name"] in known)


def _same_yardstick(old: dict[str, Any], new: dict[str, Any]) -> bool:
    return old["ratio"] is not None and new["ratio"] is not None and old["yardstick"] == new["yardstick"]


def _machine(pairs: list[tuple[dict, dict]], otherwise: float) -> float:
    """How many times longer yardsticks take than they did, which is not our doing."""
    asked = [new["yardstick_s"] / old["yardstick_s"] for old, new in pairs if _same_yardstick(old, new)]
    return statistics.median(asked) if asked else otherwise


def _judged(old: dict[str, Any], new: dict[str, Any], machine: float) -> tuple[float, str, float]:
    """How many times slower, by what, and from where on it counts."""
    if _same_yardstick(old, new):
        by = f"{old['ratio']:.3g}× to {new['ratio']:.3g}× {new['yardstick']}"
        return old["ratio"] / new["ratio"], by, BY_YARDSTICK
    by = f"{old['ours_s']:.3g} s to {new['ours_s']:.3g} s where yardsticks take {machine:.2f} times as long"
    return new["ours_s"] / old["ours_s"] / machine, by, BY_SECONDS
