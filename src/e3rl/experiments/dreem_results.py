"""The data of docs/dreem.md under results/dreem/: ranks, ellipsoids and the lock."""

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e3rl.experiments import dreem_ellipsoid, dreem_lock, dreem_rank
from e3rl.runs.checkpoint import write_file
from e3rl.runs.folder import write_json


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_file(path, text.getvalue().encode())


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def run(out: Path, say: Callable[[str], None], neural: bool = True) -> None:
    """Write everything; some minutes on two cores, half of them Neural-E³'s, which `neural=False` leaves out."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "rank.json", {"rows": dreem_rank.run()})
    say("ranks written")
    practical, theorem = dreem_ellipsoid.run(), dreem_ellipsoid.run(theorem=True)
    write_json(out / "ellipsoid.json", {"practical": practical.summary(), "theorem": theorem.summary()})
    say("ellipsoids written")
    write_json(out / "lock-theorem.json", {"rows": [dreem_lock.theorem(h, 10) for h in (5, 10, 20)]})
    say("lock with the theorem's constants written")
    write_csv(out / "lock-rounds.csv", dreem_lock.shown_rounds())
    write_csv(out / "lock-sweep.csv", dreem_lock.sweep(say))
    if neural:
        write_csv(out / "lock-neural.csv", dreem_lock.neural_rounds(dreem_lock.SHOWN["horizon"]))
        say("Neural-E³ written")
