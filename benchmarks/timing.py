"""Wall-clock timing of competitors side by side."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def _take_turns(runs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[tuple[float, Any]]]:
    """(seconds, result) of every repeat.

    Every competitor runs once unmeasured (compilation, caches), then they take turns, so that a busy moment
    of the machine meets all of them.
    """
    for run in runs.values():
        run()
    samples: dict[str, list[tuple[float, Any]]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            result = run()
            samples[name].append((time.perf_counter() - start, result))
    return samples


def _summary(times: list[float]) -> dict[str, float]:
    return {"median": statistics.median(times), "best": min(times)}


def seconds(runs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, dict[str, float]]:
    """Median and best seconds of each competitor; a run returns when its result is there."""
    samples = _take_turns(runs, repeats)
    return {name: _summary([taken for taken, _ in pairs]) for name, pairs in samples.items()}


def seconds_per_million(runs: dict[str, Callable[[], int]], repeats: int) -> dict[str, dict[str, float]]:
    """Median and best seconds per 1e6 steps of each competitor: a function that returns its number of steps."""
    samples = _take_turns(runs, repeats)
    return {
        name: _summary([taken / steps * 1e6 for taken, steps in pairs]) for name, pairs in samples.items()
    }


def sgemm_rate(size: int = 1024, repeats: int = 10) -> float:
    """Floating-point operations a second of numpy's single-precision matrix product: the best of the repeats."""
    matrix = np.random.default_rng(0).random((size, size), dtype=np.float32)
    return 2 * size**3 / seconds({"sgemm": lambda: matrix @ matrix}, repeats)["sgemm"]["best"]
