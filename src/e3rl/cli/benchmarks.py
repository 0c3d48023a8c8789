"""`e3rl bench`."""

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e3rl.cli.bench_changes import Changes, changes
from e3rl.cli.output import table
from e3rl.types import UserError


def bench(args: argparse.Namespace) -> int:
    """Benchmarks run in a process of their own, which pins itself to one CPU before it imports jax."""
    checkout = Path(__file__).parents[3]
    script = checkout / "benchmarks" / "run.py"
    if not script.is_file():
        raise UserError(
            "the benchmarks are not part of the installed package: run `e3rl bench` from a checkout"
        )
    recorded = checkout / "results" / "bench" / ("quick" if args.quick else "")
    quick = ["--quick"] if args.quick else []
    done = subprocess.run(
        [sys.executable, str(script), *quick, *args.names], stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        return done.returncode
    report = json.loads(done.stdout)
    against: Path = recorded if args.against is None else args.against
    found = changes(_recorded(against, list(report["config"])), report)
    if args.out is not None:
        _save(args.out, report, " ".join(["e3rl bench", *quick]))
    if args.json:
        print(json.dumps({**report, "changes": {"against": str(against), **found._asdict()}}))
        return 0
    _show(report)
    _tell(found, against)
    return 0


def _recorded(folder: Path, names: Sequence[str]) -> dict[str, Any]:
    """By benchmark: the last report that the folder has of it."""
    there = {name: folder / f"{name}.json" for name in names if (folder / f"{name}.json").is_file()}
    try:
        return {name: json.loads(path.read_text()) for name, path in there.items()}
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read what {folder} has recorded: {error}") from error


def _show(report: dict[str, Any]) -> None:
    timed = []
    for name, config in report["config"].items():
        rows = rows_of(name, report)
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


def _tell(found: Changes, against: Path) -> None:
    if not found.compared:
        print(f"nothing to compare with in {against}")
        return
    print(f"compared with {against}: {found.compared} rows")
    for word, listed in (("slower", found.slower), ("faster", found.faster)):
        for change in listed:
            print(f"{word}: {change['name']} {change['times']:.2f}× ({change['by']})")
    same = found.compared - len(found.slower) - len(found.faster)
    print(f"as fast as before, as far as can be told: {same} rows")
    for name in found.other_settings:
        print(f"not compared, measured with other settings: {name}")


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g} s"


def _several(values: Sequence[float | None]) -> str:
    return " ".join("–" if value is None else f"{value:.2g}" for value in values)


def rows_of(name: str, report: dict[str, Any]) -> list[dict[str, Any]]:
    """A row's name starts with its benchmark's."""
    return [row for row in report["rows"] if row["name"].startswith(f"{name}/")]


def _save(folder: Path, report: dict[str, Any], command: str) -> None:
    """One file per benchmark."""
    from e3rl.runs.folder import write_json

    for name, config in report["config"].items():
        about = {"command": f"{command} {name}", "config": config, "machine": report["machine"]}
        measured = {"measured": report["measured"][name]} if "measured" in report else {}
        write_json(folder / f"{name}.json", {"rows": rows_of(name, report), **about, **measured})
