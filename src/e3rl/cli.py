"""The `e3rl` command. Each subcommand is one function that takes its parsed options and returns an exit code.

Exit codes: 0 done, 2 for anything a person can mend (one line on stderr), 130 when interrupted. With `--json`
a command prints one JSON object on stdout and nothing else there. What a subcommand alone needs is imported
inside its function, so that `e3rl --help` stays quick.
"""

import argparse
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from e3rl import __version__

USAGE_ERROR = 2
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """argparse, with errors on a single line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"e3rl: error: {message} (see `{self.prog} --help`)\n")


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
    _table(
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
    from e3rl.types import UserError

    script = Path(__file__).parents[2] / "benchmarks" / "run.py"
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
    _table(
        ["benchmark", "ours", "theirs", "ratio", "yardstick"],
        [
            [
                row["name"],
                _seconds(row["ours_s"]),
                _seconds(row["yardstick_s"]),
                "" if row["ratio"] is None else f"{row['ratio']:.1f}×",
                row["yardstick"] or "",
            ]
            for row in report["rows"]
        ],
    )
    for name, config in report["config"].items():
        print(f"{name}: {config['unit']}")
    return 0


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g} s"


def _save_benchmarks(folder: Path, report: dict[str, Any]) -> None:
    """One file per benchmark: a row's name starts with its benchmark's."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, config in report["config"].items():
        rows = [row for row in report["rows"] if row["name"].startswith(f"{name}/")]
        saved = {"rows": rows, "config": config, "machine": report["machine"]}
        (folder / f"{name}.json").write_text(json.dumps(saved, indent=2) + "\n")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in header:
        table.add_column(name, no_wrap=name != header[-1], overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="e3rl", description="Explicit explore-exploit reinforcement learning: DREEM and Neural-E³."
    )
    top.add_argument("--version", action="version", version=f"e3rl {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], summary: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=summary, description=summary)
        sub.set_defaults(run=run)
        sub.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        return sub

    sub = command("envs", envs, "List the environments; draw them.")
    sub.add_argument(
        "--draw", type=Path, metavar="DIR", help="write the panels of the paper's Figure 1 as PNG"
    )

    sub = command("bench", bench, "Time the library against its yardsticks on one CPU (needs a checkout).")
    sub.add_argument(
        "names", nargs="*", metavar="NAME", help="which benchmarks, such as `envs` (default: all)"
    )
    sub.add_argument("--out", type=Path, metavar="DIR", help="also save each benchmark as DIR/NAME.json")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    try:
        args = parser().parse_args(argv)
        code = args.run(args)
        sys.stdout.flush()
        return code
    except SystemExit as exit_:  # argparse's way out: --help and usage errors
        return int(exit_.code or 0)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has gone (`e3rl envs | head`); a closed stdout must not fail again at interpreter exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ValueError) as error:
        from e3rl.types import UserError

        if not isinstance(error, UserError | OSError):
            raise
        print("e3rl: error:", " ".join(str(error).split()), file=sys.stderr)
        return USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())
