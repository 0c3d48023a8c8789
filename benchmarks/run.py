"""Runs benchmarks by name on one CPU and prints one JSON object: rows, config and machine.

A benchmark NAME is a file NAME.py beside this one with a dictionary `CONFIG` and a function `rows()`. Each
row is {"name", "ours_s", "yardstick", "yardstick_s", "ratio"}: names start with `NAME/` and never change,
`ratio` is yardstick_s / ours_s (higher is better), and a row without a yardstick has null in the last three.
Other keys may follow; those that `CONFIG["columns"]` names hold several numbers each, and are shown in place of times.
With `--quick`, what the file's dictionary `QUICK` has takes the place of the same in `CONFIG`: seconds for minutes.
To add a benchmark, add its file and its name below.
"""

import copy
import importlib
import importlib.metadata
import json
import os
import platform
import sys
import time
from pathlib import Path

BENCHMARKS = (
    "start", "envs", "neural", "control", "dreem", "tabular", "baselines", "calibration", "scaling", "accelerator",
)  # fmt: skip
ON_ACCELERATORS = ("scaling", "accelerator")
"""Run on a GPU where there is one; the others are about one CPU."""
WITH_ALL_CPUS = ("accelerator",)
"""These wait for the compiler too, when they are run by themselves."""
PACKAGES = ("jax", "jaxlib", "numpy", "gymnasium", "mctx", "torch", "stable-baselines3")


def pin_to_one_cpu(accelerated: bool) -> int | None:
    """Has to come before jax is imported: XLA sizes its thread pool by the CPUs it may use."""
    if not accelerated:
        os.environ["JAX_PLATFORMS"] = "cpu"
    if not hasattr(os, "sched_setaffinity"):
        return None
    cpu = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpu})
    return cpu


def cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:  # torch is an extra
        return None


def main(arguments: list[str]) -> int:
    quick, names = "--quick" in arguments, [name for name in arguments if name != "--quick"]
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        print(
            f"e3rl: error: no benchmark {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}", file=sys.stderr
        )
        return 2
    if names and all(name in WITH_ALL_CPUS for name in names):
        pinned = None
    else:
        pinned = pin_to_one_cpu(all(name in ON_ACCELERATORS for name in names or BENCHMARKS))
    import e3rl
    from e3rl.runs.checkout import git_commit

    report: dict = {
        "rows": [],
        "config": {},
        "measured": {},
        "machine": {
            "cpu": cpu_model(),
            "cpus_used": "all" if pinned is None else 1,
            "python": platform.python_version(),
            "versions": {"e3rl": e3rl.__version__} | {name: version(name) for name in PACKAGES},
            "commit": git_commit(),
        },
    }
    for name in names or BENCHMARKS:
        benchmark, began = importlib.import_module(name), time.perf_counter()
        if quick and not hasattr(benchmark, "QUICK"):
            print(f"e3rl: {name} has no small version and is left out", file=sys.stderr)
            continue
        benchmark.CONFIG.update(benchmark.QUICK if quick else {})
        report["config"][name] = copy.deepcopy(benchmark.CONFIG)  # settings, before rows() adds what it found
        report["rows"] += benchmark.rows()
        report["measured"][name] = {
            key: value for key, value in benchmark.CONFIG.items() if key not in report["config"][name]
        } | {"wall_s": round(time.perf_counter() - began, 1)}
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
