"""A sweep: some settings, some seeds, a run folder for each, one table at the end.

Run with `python examples/sweep.py`, some minutes; interrupted, the same command goes on where it was. On a CPU the
quickest way is a process for each run, which `--workers` has as many of at a time as there are cores to spare.
"""

import argparse
import itertools
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import mean
from typing import Any

from e3rl import NeuralE3
from e3rl.runs.train import train

AGENT, ENV, OPTIONS = NeuralE3, "e3rl/CombinationLock-v0", {"horizon": 4, "antishaped": True}
GRID = {"explore.episodes": (20, 60), "fit.members": (2, 5)}
"""Settings by path, as `--set` takes them, and the values to try."""
SEEDS = (0, 1, 2)


def runs(out: Path) -> Iterator[tuple[dict[str, Any], int, Path]]:
    """Every run of the sweep: its settings, its seed, its folder."""
    for values in itertools.product(*GRID.values()):
        changes = dict(zip(GRID, values, strict=True))
        name = "-".join(f"{path}={value}" for path, value in changes.items())
        for seed in SEEDS:
            yield changes, seed, out / name / f"seed{seed}"


def one_run(changes: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """`resume` makes it start, go on, or only read its summary where it is finished."""
    _, [summary] = train(AGENT, ENV, OPTIONS, None, [seed], folder, resume=True, changes=changes)
    return summary


def main(out: Path, workers: int) -> None:
    planned = list(runs(out))
    if workers > 1:
        # Spawned: a process in which JAX has started must not be forked.
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            summaries = list(pool.map(one_run, *zip(*planned, strict=True)))
    else:
        summaries = [one_run(*run) for run in planned]
    returns: dict[str, list[float]] = {}
    for (_, _, folder), summary in zip(planned, summaries, strict=True):
        returns.setdefault(folder.parent.name, []).append(summary["exploit_return_mean"])
    for name, values in sorted(returns.items(), key=lambda item: -mean(item[1])):
        print(
            f"{name}: return {mean(values):.2f} ({min(values):.2f} to {max(values):.2f}), {len(values)} seeds"
        )


if __name__ == "__main__":  # processes import this file: what trains must not run again in each of them
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("runs/sweep"))
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    main(given.out, given.workers)
