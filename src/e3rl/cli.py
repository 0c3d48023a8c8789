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
from e3rl.types import UserError

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


def train(args: argparse.Namespace) -> int:
    from e3rl.experiments.runner import algorithm, environment
    from e3rl.experiments.runner import train as train_runs
    from e3rl.neural.config import configured
    from e3rl.neural.progress import LiveLine
    from e3rl.reports.learning import draw_runs

    given = {key: _value(text) for key, text in _pairs(args.env_options, "--env").items()}
    for option in ("horizon", "antishaped", "size"):
        if (value := getattr(args, option)) is not None:
            given[option] = value
    env, options = environment(args.env, given)
    config = algorithm(args.algo, configured(args.config, _pairs(args.set, "--set")))
    if args.seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {args.seeds}")
    seeds = range(args.seed, args.seed + args.seeds)
    out = args.out or Path("runs") / "-".join(
        [args.env.replace("/", "-"), args.algo, *map(_slug, given.items())]
    )
    with LiveLine(quiet=args.json) as watch:
        paths, summaries = train_runs(env, options, config, seeds, out, args.resume, watch)
    picture = draw_runs(paths, out / "learning.png")
    if args.json:
        print(json.dumps({"runs": summaries, "figure": str(picture)}))
        return 0
    for path, summary in zip(paths, summaries, strict=True):
        print(_verdict(summary), f"({path})")
    print(f"picture: {picture}")
    print(f"next: e3rl evaluate {paths[0]} --episodes 1000")
    return 0


def _pairs(items: Sequence[str], option: str) -> dict[str, str]:
    """`key=value` arguments as a dictionary."""
    for item in items:
        if "=" not in item:
            raise UserError(f"{option} takes key=value, got {item!r}")
    return {key: value for key, _, value in (item.partition("=") for item in items)}


def _value(text: str) -> Any:
    """An environment option as JSON where it reads as such (5, 0.1, true), otherwise as text."""
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except ValueError:
        return text


def _slug(option: tuple[str, Any]) -> str:
    key, value = option
    return key if value is True else f"{key}{value}"


def _verdict(summary: dict[str, Any]) -> str:
    """One line about how well a run exploits."""
    mean, (low, high) = summary["exploit_return_mean"], summary["exploit_return_ci"]
    text = f"seed {summary['seed']}: return {mean:.3f} (95% interval {low:.3f} to {high:.3f})"
    optimum = summary.get("optimal_return")
    if optimum:
        text += f", {mean / optimum:.0%} of the optimum {optimum:.3f}"
    return (
        f"{text}, after {summary['explore_episodes']} exploration episodes, {summary['wall_seconds']:.0f} s"
    )


def evaluate(args: argparse.Namespace) -> int:
    from e3rl.neural.agent import NeuralE3
    from e3rl.reports.statistics import mean_interval

    agent = NeuralE3.load(args.run_folder)
    returns = agent.evaluate(args.episodes)
    mean, low, high = mean_interval(returns)
    optimum = getattr(agent.env, "optimal_return", None)
    report = {
        "episodes": args.episodes,
        "return_mean": mean,
        "return_ci": [low, high],
        "optimal_return": optimum,
        "share_of_optimum": mean / optimum if optimum else None,
    }
    if args.json:
        print(json.dumps(report))
        return 0
    against = f", {mean / optimum:.1%} of the optimum {optimum:.3f}" if optimum else ""
    print(
        f"{args.episodes} greedy episodes: return {mean:.3f} (95% interval {low:.3f} to {high:.3f}){against}"
    )
    return 0


def reproduce(args: argparse.Namespace) -> int:
    from e3rl.experiments.lock import EXPERIMENTS, run

    if args.experiment is None:
        if args.json:
            print(json.dumps({"experiments": list(EXPERIMENTS)}))
        else:
            print("\n".join(EXPERIMENTS))
        return 0
    seeds = [int(seed) for seed in args.seeds.split(",")] if args.seeds else []
    rows = run(args.experiment, args.out, lambda line: print(line, file=sys.stderr, flush=True), seeds)
    if args.json:
        print(json.dumps({"rows": rows}))
    return 0


def report(args: argparse.Namespace) -> int:
    from e3rl.neural.run_folder import RunFolder
    from e3rl.reports.learning import draw_runs

    folder = args.run_folder
    paths = [folder] if (folder / "config.json").exists() else sorted(folder.glob("seed*"))
    if not paths:
        raise UserError(f"{folder} holds no run")
    picture = draw_runs(paths, folder / "learning.png")
    summaries = [summary for path in paths if (summary := RunFolder(path).summary())]
    if args.json:
        print(json.dumps({"runs": summaries, "figure": str(picture)}))
        return 0
    for summary in summaries:
        print(_verdict(summary))
    print(f"picture: {picture}")
    return 0


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

    sub = command("train", train, "Train an agent: explore, then exploit.")
    sub.add_argument("env", metavar="ENV", help="lock, maze, mountaincar, acrobot, or a Gymnasium id")
    sub.add_argument("--algo", choices=["neural-e3", "ue2"], default="neural-e3")
    sub.add_argument("--horizon", type=int, help="levels of the lock")
    sub.add_argument("--antishaped", action="store_true", default=None, help="misleading rewards in the lock")
    sub.add_argument("--size", type=int, help="side of the maze")
    sub.add_argument(
        "--env", dest="env_options", nargs="+", default=[], action="extend", metavar="KEY=VALUE",
        help="other options of the environment",
    )  # fmt: skip
    sub.add_argument("--seed", type=int, default=0, help="the first seed")
    sub.add_argument("--seeds", type=int, default=1, help="how many seeds to train in one program")
    sub.add_argument("--config", default="e3rl", help="named settings, such as e3rl or paper-lock-h10")
    sub.add_argument(
        "--set", nargs="+", default=[], action="extend", metavar="KEY=VALUE", help="change settings"
    )
    sub.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default: under runs/)")
    sub.add_argument("--resume", action="store_true", help="go on with the run in --out")

    sub = command("evaluate", evaluate, "Play greedy episodes with a trained agent.")
    sub.add_argument("run_folder", type=Path, metavar="DIR")
    sub.add_argument("--episodes", type=int, default=100)

    sub = command("reproduce", reproduce, "Run an experiment by its id; without one, list the ids.")
    sub.add_argument("experiment", nargs="?", metavar="ID")
    sub.add_argument("--out", type=Path, default=Path("results/lock"), metavar="DIR")
    sub.add_argument("--seeds", metavar="N,N,...", help="other seeds than the experiment's own")

    sub = command("report", report, "Draw a run's learning curve and where it went.")
    sub.add_argument("run_folder", type=Path, metavar="DIR")
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
        if not isinstance(error, UserError | OSError):
            raise
        print("e3rl: error:", " ".join(str(error).split()), file=sys.stderr)
        return USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())
