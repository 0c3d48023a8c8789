"""`e3rl envs` and `e3rl bench`."""

import argparse
import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from e3rl.cli.output import table
from e3rl.types import UserError


def envs(args: argparse.Namespace) -> int:
    from e3rl.envs.registration import ENVIRONMENTS

    rows = [_describe(env_id, make) for env_id, make in ENVIRONMENTS.items()]
    report: dict[str, Any] = {"envs": rows}
    if args.draw is not None:
        from e3rl.reports.figure1 import draw_panels

        report["drawn"] = [str(path) for path in draw_panels(args.draw)]
    if args.json:
        print(json.dumps(report))
        return 0
    columns = ["id", "observations", "num_actions", "time_limit", "options"]
    table(
        ["id", "observations", "actions", "steps", "options"],
        [[_cell(row[name]) for name in columns] for row in rows],
    )
    for path in report.get("drawn", []):
        print(f"wrote {path}")
    return 0


def _describe(env_id: str, make: Callable[..., Any]) -> dict[str, Any]:
    """One environment with its default options, as plain JSON values."""
    env = make()
    space = env.observation_space
    parameters = inspect.signature(make).parameters.values()
    return {
        "id": env_id,
        "summary": (inspect.getdoc(make) or "").partition("\n")[0],
        "observations": f"{type(space).__name__} {'×'.join(map(str, space.shape)) or space.n}",
        "observation_space": str(space),
        "action_space": str(env.action_space),
        "num_actions": env.num_actions,
        "time_limit": env.time_limit,
        "options": {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty},
    }


def _cell(value: Any) -> str:
    return ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


def bench(args: argparse.Namespace) -> int:
    """Benchmarks run in a process of their own, which pins itself to one CPU before it imports jax."""
    script = Path(__file__).parents[3] / "benchmarks" / "run.py"
    if not script.is_file():
        raise UserError(
            "the benchmarks are not part of the installed package: run `e3rl bench` from a checkout"
        )
    done = subprocess.run([sys.executable, str(script), *args.names], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return done.returncode
    report = json.loads(done.stdout)
    if args.out is not None:
        _save_benchmarks(args.out, report)
    if args.json:
        print(json.dumps(report))
        return 0
    timed = []
    for name, config in report["config"].items():
        rows = _rows_of(name, report)
        if "columns" in config:
            header = ["benchmark", *config["columns"]]
            table(header, [[row["name"], *(_several(row[key]) for key in config["columns"])] for row in rows])
        else:
            timed += rows
    if timed:
        table(
            ["benchmark", "ours", "theirs", "ratio", "yardstick"],
            [
                [
                    row["name"],
                    _seconds(row["ours_s"]),
                    _seconds(row["yardstick_s"]),
                    "" if row["ratio"] is None else f"{row['ratio']:.1f}×",
                    row["yardstick"] or "",
                ]
                for row in timed
            ],
        )
    for name, config in report["config"].items():
        print(f"{name}: {config['unit']}")
    return 0


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g} s"


def _several(values: Sequence[float | None]) -> str:
    return " ".join("–" if value is None else f"{value:.2g}" for value in values)


def _rows_of(name: str, report: dict[str, Any]) -> list[dict[str, Any]]:
    """A row's name starts with its benchmark's."""
    return [row for row in report["rows"] if row["name"].startswith(f"{name}/")]


def _save_benchmarks(folder: Path, report: dict[str, Any]) -> None:
    """One file per benchmark."""
    from e3rl.runs.folder import write_json

    for name, config in report["config"].items():
        rows = _rows_of(name, report)
        about = {"command": f"e3rl bench {name}", "config": config, "machine": report["machine"]}
        write_json(folder / f"{name}.json", {"rows": rows, **about})
