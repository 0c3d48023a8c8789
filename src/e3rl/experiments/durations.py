"""How long experiments took, for people who think of running one: read from their results and kept with the package.

`python -m e3rl.experiments.durations results` reads them again.
"""

import csv
import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

KEPT = Path(__file__).with_name("durations.csv")


class Took(NamedTuple):
    seconds: float
    device: str


def durations() -> dict[str, Took]:
    """By experiment, of those that have been run."""
    with KEPT.open(newline="") as file:
        return {row["experiment"]: Took(float(row["seconds"]), row["device"]) for row in csv.DictReader(file)}


def measured(results: Path) -> dict[str, Took]:
    """The same from the files of `e3rl reproduce`: all seeds, one after the other or together, as they were run."""
    found = {}
    for path in sorted(results.glob("*/*.json")):
        about = json.loads(path.read_text())
        if isinstance(about, dict) and "experiment" in about and path.with_suffix(".csv").is_file():
            found[about["experiment"]] = Took(seconds_of(about, path.with_suffix(".csv")), device_of(about))
    return found


def device_of(about: dict[str, Any]) -> str:
    """Where it was computed, which is not where seeds of earlier commands are only put together."""
    earlier = about.get("earlier", [])
    seeds = {seed for each in earlier for seed in each["seeds"]}
    joined = seeds >= set(about["settings"]["seeds"]) if seeds else False
    own = [each["device"] for each in about.get("machines", ())] or [about.get("device")]
    devices = [each["device"] for each in earlier] + ([] if joined else own)
    return " and ".join(dict.fromkeys(filter(None, devices)))


def seconds_of(about: dict[str, Any], table: Path) -> float:
    if "seconds" in about:
        return float(about["seconds"])
    if "final" in about:  # a run for each seed
        return sum(final["seconds"] for final in about["final"].values())
    if "exploit" in about:  # all seeds together, counted from the start
        return max(verdict["seconds"] for verdict in about["exploit"])
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if "together" in rows[0]:
        return sum(float(row["seconds"]) / int(row["together"]) for row in rows)
    if "ratio" in rows[0] or about["device"] != "cpu":  # a clock that goes on, or all of them together
        return max(float(row["seconds"]) for row in rows)
    took_turns = {_case(row): float(row["seconds"]) for row in rows}
    return sum(took_turns.values())


def _case(row: dict[str, str]) -> tuple[str | None, ...]:
    """What tells the programs of a table apart. Both rewards of a seed may have shared one, and then say the same
    seconds; agents that are compared never did."""
    reward = row["reward"] if "agent" in row else row["seconds"]
    return row.get("agent"), row.get("repulsion"), row["seed"], reward


def main(results: Path) -> None:
    with KEPT.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["experiment", "seconds", "device"])
        table.writerows([name, round(took.seconds), took.device] for name, took in measured(results).items())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
