"""Wall-clock timing of competitors side by side."""

import statistics
import time
from collections.abc import Callable


def seconds_per_million(runs: dict[str, Callable[[], int]], repeats: int) -> dict[str, dict[str, float]]:
    """Median and best seconds per 1e6 steps of each competitor: a function that returns its number of steps.

    Every competitor runs once unmeasured (compilation, caches), then they take turns, so that a busy moment
    of the machine meets all of them.
    """
    for run in runs.values():
        run()
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            steps = run()
            samples[name].append((time.perf_counter() - start) / steps * 1e6)
    return {name: {"median": statistics.median(times), "best": min(times)} for name, times in samples.items()}
