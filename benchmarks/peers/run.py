"""e3rl's DQN and PPO beside Stable-Baselines3's: returns with intervals, environment steps per second.

    python benchmarks/peers/run.py [--libraries e3rl sb3] [--algos dqn ppo] [--envs CartPole-v1 ...] [--seeds 0 1 ...]
                                   [--steps N] [--out results/peers]

Every run is one file OUT/runs/ENV-ALGO-LIBRARY-seedN.json; a run whose file is there is not repeated. At the end, and
with `--report` alone, all runs found become OUT/summary.json and OUT/summary.csv.
"""

import argparse
import csv
import dataclasses
import importlib
import importlib.metadata
import json
import math
import os
import platform
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np
from settings import CONFIGS, TASKS, config_of

from e3rl.reports.statistics.intervals import mean_within
from e3rl.runs.checkout import git_commit

LIBRARIES = {"e3rl": "ours", "sb3": "theirs"}
PACKAGES = {"e3rl": ("jax", "numpy"), "sb3": ("stable-baselines3", "torch", "gymnasium", "numpy")}
ALGOS = tuple(sorted({algo for algo, _ in CONFIGS}))
RETURNS = {"CartPole": (0.0, 500.0), "Acrobot": (-500.0, 0.0), "lock": (0.0, 5.0)}
"""What a mean return can be; intervals end there."""
MEASURES = ("return_mean", "last_training_returns_mean", "steps_per_second", "seconds")


def write(path: Path, content: Any) -> None:
    """Whole or not at all: a killed run leaves no half file to be taken for a result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n")
    part.replace(path)


def report(out: Path) -> list[dict[str, Any]]:
    """A row per environment and algorithm, both libraries side by side, over the seeds that both have."""
    found: dict[tuple, dict[int, dict[str, Any]]] = defaultdict(dict)
    for path in sorted((out / "runs").glob("*.json")):
        one = json.loads(path.read_text())
        found[one["env"], one["algo"], one["requested_steps"], one["library"]][one["seed"]] = one
    rows = []
    for env, algo, steps in sorted({key[:3] for key in found}):
        runs = {library: found.get((env, algo, steps, library), {}) for library in LIBRARIES}
        filled = [set(seeds) for seeds in runs.values() if seeds]
        seeds = sorted(set.intersection(*filled))
        if not seeds:
            continue
        row: dict[str, Any] = {"env": env, "algo": algo, "steps": steps, "seeds": seeds}
        for library, by_seed in runs.items():
            for measure in MEASURES:
                values = [
                    by_seed[seed][measure] for seed in seeds if by_seed and by_seed[seed][measure] is not None
                ]
                row[f"{library}_{measure}"] = float(np.mean(values)) if values else math.nan
                if measure == "return_mean":
                    bounds = (
                        mean_within(values, *RETURNS[env.partition("-")[0]])[1:]
                        if values
                        else (math.nan,) * 2
                    )
                    row[f"{library}_return_low"], row[f"{library}_return_high"] = bounds
        row["speed_ratio"] = row["e3rl_steps_per_second"] / row["sb3_steps_per_second"]
        row["below"] = row["e3rl_return_mean"] < row["sb3_return_low"]
        row["above"] = row["e3rl_return_mean"] > row["sb3_return_high"]
        rows.append({key: None if isinstance(x, float) and math.isnan(x) else x for key, x in row.items()})
    write(out / "summary.json", {"rows": rows})
    if rows:
        with (out / "summary.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows({**row, "seeds": " ".join(map(str, row["seeds"]))} for row in rows)
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    def number(value: float | None) -> str:
        return "–" if value is None else f"{value:,.1f}"

    for row in rows:
        sides = (
            f"{library} {number(row[f'{library}_return_mean'])} "
            f"[{number(row[f'{library}_return_low'])}, {number(row[f'{library}_return_high'])}] "
            f"at {number(row[f'{library}_steps_per_second'])} steps/s"
            for library in LIBRARIES
        )
        print(
            f"{row['env']} {row['algo']}, {len(row['seeds'])} seeds: {'; '.join(sides)}; ×{number(row['speed_ratio'])}"
        )


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="e3rl's DQN and PPO beside Stable-Baselines3's")
    parser.add_argument("--libraries", nargs="+", choices=tuple(LIBRARIES), default=list(LIBRARIES))
    parser.add_argument("--algos", nargs="+", choices=ALGOS, default=list(ALGOS))
    parser.add_argument("--envs", nargs="+", choices=tuple(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(range(5)))
    parser.add_argument("--steps", type=int, help="instead of each task's own budget, to try things out")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[2] / "results" / "peers")
    parser.add_argument("--report", action="store_true", help="only gather the runs that are there")
    options = parser.parse_args(arguments)
    cases = [
        (env, algo, library, seed)
        for env in options.envs for algo in options.algos for seed in options.seeds for library in options.libraries
        if (algo, env) in CONFIGS
    ]  # fmt: skip
    for env, algo, library, seed in [] if options.report else cases:
        budget = "" if options.steps is None else f"-{options.steps}"
        path = options.out / "runs" / f"{env}-{algo}-{library}-seed{seed}{budget}.json"
        if path.exists():
            continue
        result = importlib.import_module(LIBRARIES[library]).run(algo, env, seed, options.steps)
        requested = options.steps or CONFIGS[algo, env].total_steps
        about = {"env": env, "algo": algo, "library": library, "seed": seed, "requested_steps": requested}
        made = {name: importlib.metadata.version(name) for name in PACKAGES[library]} | {
            "commit": git_commit()
        }
        repeat = (
            f"python benchmarks/peers/run.py --libraries {library} --algos {algo} --envs {env} --seeds {seed}"
        )
        told = {
            "command": repeat + ("" if options.steps is None else f" --steps {options.steps}"),
            "config": dataclasses.asdict(config_of(algo, env, options.steps)),
            "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        }
        write(path, about | result | told | {"made_with": made})
        print(
            f"{path.stem}: {result['return_mean']:.1f}, {result['steps_per_second']:,.0f} steps/s", flush=True
        )
    show(report(options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
