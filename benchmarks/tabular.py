"""Tabular E³ on grids of growing size: a step that is counted, a plan to explore, a plan to exploit.

Every state of an n × n grid is discovered and four actions in five are tried. The yardstick is the same backward
induction in vectorised NumPy, at a size where that takes seconds.
"""

import resource
import time

import numpy as np
from timing import seconds

from e3rl.tabular.minds import MOST, explore_model, plan_to_exploit, plan_to_explore, smoothed
from e3rl.tabular.posterior import Table

CONFIG = {
    "unit": "seconds: for a step, or for a plan of `steps` steps, on one CPU",
    "sides": [32, 100, 317],
    "compared": 32,
    "steps": 1000,
    "repeats": 3,
}
QUICK = {"sides": [32]}
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))


def explored(side: int) -> tuple[Table, float]:
    """The table of a grid, and the seconds that a step took."""
    table = Table(len(MOVES), 5, 0, side * side)
    rows = {(r, c): table.find(np.array([r, c], np.float32)) for r in range(side) for c in range(side)}
    steps, began = 0, time.perf_counter()
    for (r, c), row in rows.items():
        for action, (down, right) in enumerate(MOVES):
            if (7 * r + 3 * c + action) % 5 == 0:
                continue
            place = min(max(r + down, 0), side - 1), min(max(c + right, 0), side - 1)
            pays = float(place == (side - 1, side - 1))
            table.observe(row, action, pays, np.array(place, np.float32), terminated=False)
            steps += 1
    return table, (time.perf_counter() - began) / steps


def by_numpy(table: Table, steps: int) -> np.ndarray:
    """The values of the plan to explore."""
    successor, chance, gain, leap = (np.asarray(part) for part in explore_model(table))
    value = np.zeros(len(gain) + 1, np.float32)
    for left in range(steps):
        q = gain + np.sum(chance * value[successor], axis=-1) + leap * np.float32(MOST * left)
        value[:-1] = q.max(axis=-1)
    return value[:-1]


def rows() -> list[dict]:
    found, steps, repeats = [], CONFIG["steps"], CONFIG["repeats"]
    for side in CONFIG["sides"]:
        table, a_step = explored(side)
        runs = {
            "explore": lambda table=table: plan_to_explore(table, steps, 1).value.block_until_ready(),
            "exploit": lambda table=table: plan_to_exploit(
                table, smoothed(table), steps
            ).value.block_until_ready(),
        }
        if side == CONFIG["compared"]:
            runs["numpy"] = lambda table=table: by_numpy(table, steps)
        timed = {name: taken["median"] for name, taken in seconds(runs, repeats).items()}
        theirs = timed.pop("numpy", None)
        for name, ours in {"step": a_step, **timed}.items():
            compared = theirs if name == "explore" else None
            found.append(
                {
                    "name": f"tabular/{name}/S{side * side}",
                    "ours_s": ours,
                    "yardstick": compared and "NumPy",
                    "yardstick_s": compared,
                    "ratio": compared and compared / ours,
                    "peak_gb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
                }
            )
    return found
