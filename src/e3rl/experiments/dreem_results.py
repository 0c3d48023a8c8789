"""The data of docs/dreem.md under results/dreem/: ranks, ellipsoids and the lock."""

import csv
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e3rl.experiments import dreem_ellipsoid, dreem_lock, dreem_rank
from e3rl.experiments.provenance import provenance
from e3rl.experiments.tables import write_rows
from e3rl.neural.presets import PRESETS
from e3rl.runs.folder import write_json
from e3rl.runs.settings import as_dict

COMMAND = "e3rl reproduce dreem"
SEED = 0
THEOREM_HORIZONS, THEOREM_SEEDS = (5, 10, 20), 10


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write_about(path: Path, config: dict[str, Any], found: dict[str, Any], command: str = COMMAND) -> None:
    """The JSON of a result, or beside a table of the same name, with what made it."""
    write_json(path.with_suffix(".json"), {**found, "config": config, **provenance(command)})


def write_csv(path: Path, rows: list[dict[str, Any]], config: dict[str, Any]) -> None:
    write_rows(path, list(rows[0]), rows)
    write_about(path, config, {})


def write_ellipsoids(out: Path, command: str = COMMAND) -> None:
    out.mkdir(parents=True, exist_ok=True)
    practical, theorem = dreem_ellipsoid.run(SEED), dreem_ellipsoid.run(SEED, theorem=True)
    config = {
        "models": dreem_ellipsoid.MODELS, "room": dreem_ellipsoid.ROOM, "horizon": dreem_ellipsoid.HORIZON,
        "epsilon": dreem_ellipsoid.EPSILON, "rank": 2, "n": dreem_ellipsoid.N, "phi": dreem_ellipsoid.PHI,
        "seed": SEED,
    }  # fmt: skip
    found = {"practical": practical.summary(), "theorem": theorem.summary()}
    write_about(out / "ellipsoid.json", config, found, command)


def run(out: Path, say: Callable[[str], None], neural: bool = True) -> None:
    """Write everything; some minutes on two cores, half of them Neural-E³'s, which `neural=False` leaves out."""
    out.mkdir(parents=True, exist_ok=True)
    settings = [dataclasses.asdict(setting) for setting in dreem_rank.SETTINGS]
    ranks = {"horizon": dreem_rank.HORIZON, "seed": SEED, "settings": settings}
    write_about(out / "rank.json", ranks, {"rows": dreem_rank.run(SEED)})
    say("ranks written")
    write_ellipsoids(out)
    say("ellipsoids written")
    rows = [dreem_lock.theorem(horizon, THEOREM_SEEDS) for horizon in THEOREM_HORIZONS]
    theorem: dict[str, Any] = {"horizons": THEOREM_HORIZONS, "seeds": THEOREM_SEEDS}
    theorem |= {"epsilon": dreem_lock.EPSILON, "delta": dreem_lock.DELTA}
    write_about(out / "lock-theorem.json", theorem, {"rows": rows})
    say("lock with the theorem's constants written")
    given = {"phi": dreem_lock.PHI, "epsilon": dreem_lock.EPSILON, "rounds": dreem_lock.ROUNDS}
    write_csv(out / "lock-rounds.csv", dreem_lock.shown_rounds(), {**given, **dreem_lock.SHOWN})
    sweep = {**given, "n": dreem_lock.SWEEP, "seeds": dreem_lock.SWEEP_SEEDS}
    write_csv(out / "lock-sweep.csv", dreem_lock.sweep(say), sweep)
    if neural:
        horizon = dreem_lock.SHOWN["horizon"]
        config = {"horizon": horizon, **as_dict(PRESETS["e3rl"])}
        write_csv(out / "lock-neural.csv", dreem_lock.neural_rounds(horizon), config)
        say("Neural-E³ written")
