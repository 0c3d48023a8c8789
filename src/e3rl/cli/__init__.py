"""The `e3rl` command. Each subcommand is one function that takes its parsed options and returns an exit code.

Exit codes: 0 done, 2 for anything a person can mend (one line on stderr), 130 when interrupted by Ctrl-C, 143 by
SIGTERM, 129 by SIGHUP. With `--json` a command prints one JSON object on stdout and nothing else there. What a
subcommand alone needs is imported inside its function, so that `e3rl --help` stays quick.
"""

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from e3rl._version import __version__
from e3rl.cli.benchmarks import bench
from e3rl.cli.dreem_theory import dreem, theory
from e3rl.cli.environments import envs
from e3rl.cli.errors import (
    explained,
    forget_stdout,
    interrupted,
    named_stdout,
    one_line,
    patient_warnings,
    revive_streams,
    tell,
    wants_debug,
)
from e3rl.cli.reproduction import reproduce
from e3rl.cli.results import report
from e3rl.cli.settings import settings
from e3rl.cli.training import evaluate, train
from e3rl.signals import INTERRUPTED, heeding

USAGE_ERROR = 2
MOST_WORKERS = 1_000


class Parser(argparse.ArgumentParser):
    """argparse, with errors on a single line."""

    def error(self, message: str) -> NoReturn:
        self.exit(USAGE_ERROR, f"e3rl: error: {one_line(message)} (see `{self.prog} --help`)\n")


def parser() -> argparse.ArgumentParser:
    top = Parser(
        prog="e3rl", description="Explicit explore-exploit reinforcement learning: DREEM and Neural-E³."
    )
    top.add_argument("--version", action="version", version=f"e3rl {__version__}")
    debug: dict[str, Any] = {
        "action": "store_true",
        "default": argparse.SUPPRESS,
        "help": "show the traceback of an error",
    }
    top.add_argument("--debug", **debug)
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], int], summary: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=summary, description=summary)
        sub.set_defaults(run=run)
        sub.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
        sub.add_argument("--debug", **debug)
        return sub

    sub = command("envs", envs, "List the environments; draw them.")
    sub.add_argument(
        "--draw", type=_folder, metavar="DIR", help="write the panels of the paper's Figure 1 as PNG"
    )

    sub = command(
        "bench",
        bench,
        "Time the library against its yardsticks, and judge its models, on one CPU (needs a checkout).",
    )
    sub.add_argument(
        "names", nargs="*", metavar="NAME", help="which benchmarks, such as `envs` (default: all)"
    )
    sub.add_argument("--out", type=_folder, metavar="DIR", help="also save each benchmark as DIR/NAME.json")
    sub.add_argument("--quick", action="store_true", help="each in a small version, all of them in 2 minutes")
    sub.add_argument(
        "--against",
        type=_folder,
        metavar="DIR",
        help="say what became slower or faster than DIR/NAME.json (default: results/bench, or its folder quick)",
    )

    sub = command("train", train, "Train an agent: explore, then exploit.")
    sub.add_argument(
        "env", nargs="?", metavar="ENV",
        help="lock, maze, mountaincar, acrobot, a Gymnasium id, or my_package:Mine-v0 for your own",
    )  # fmt: skip
    sub.add_argument(
        "--algo",
        default="auto",
        metavar="NAME",
        help="neural-e3, tabular-e3, ue2, dqn, ppo, ppo-rnd or another (default: what suits the environment)",
    )
    sub.add_argument("--horizon", type=int, help="levels of the lock")
    sub.add_argument("--antishaped", action="store_true", default=None, help="misleading rewards in the lock")
    sub.add_argument("--size", type=int, help="side of the maze, or of the room with key and door")
    sub.add_argument(
        "--env", dest="env_options", nargs="+", default=[], action="extend", metavar="KEY=VALUE",
        help="other options of the environment",
    )  # fmt: skip
    sub.add_argument("--seed", type=int, default=0, help="the first seed")
    sub.add_argument("--seeds", type=int, default=1, help="how many seeds to train, on all processors")
    sub.add_argument(
        "--config",
        default="auto",
        help="named settings, such as paper-lock-h10 (default: what suits the environment)",
    )
    sub.add_argument(
        "--set",
        nargs="+",
        default=[],
        action="extend",
        metavar="KEY=VALUE",
        help="change settings, such as planner=graph planner.nodes=500",
    )
    sub.add_argument(
        "--help-settings", action="store_true",
        help="do not train: show every setting of this command, with default, bounds and meaning",
    )  # fmt: skip
    sub.add_argument(
        "--async", dest="asynchronous", action="store_true",
        help="a process for each copy of a Gymnasium environment, for steps that take milliseconds",
    )  # fmt: skip
    sub.add_argument("--out", type=_folder, metavar="DIR", help="the run's folder (default: under runs/)")
    sub.add_argument("--resume", action="store_true", help="go on with the run in --out")
    sub.add_argument(
        "--log", choices=["tensorboard"],
        help="also write the rows of metrics.csv for TensorBoard (pip install 'e3rl[tensorboard]')",
    )  # fmt: skip

    sub = command("settings", settings, "List every setting and preset, or what one of them sets.")
    sub.add_argument("name", nargs="?", metavar="NAME", help="a preset, or an algorithm (default: all)")

    sub = command("evaluate", evaluate, "Play greedy episodes with a trained agent.")
    sub.add_argument("run_folder", type=_folder, metavar="DIR")
    sub.add_argument("--episodes", type=int, default=100)
    sub.add_argument(
        "--gif", type=Path, metavar="FILE", help="also film one greedy episode as an animated GIF"
    )

    sub = command(
        "reproduce",
        reproduce,
        "Run an experiment, a figure of the paper or all of it (`paper`) by its id; without one, list the ids.",
    )
    sub.add_argument(
        "experiment",
        nargs="?",
        metavar="ID",
        help="of an experiment or a figure; `claims` judges the paper by what is in results/",
    )
    sub.add_argument(
        "--list", action="store_true", help="list the ids, with what they are and how long they took"
    )
    sub.add_argument(
        "--out", type=_folder, metavar="DIR",
        help="where to write: an experiment's files there, a figure's in folders as under results/ (the default)",
    )  # fmt: skip
    sub.add_argument("--seeds", metavar="N,N,...", help="other seeds than the experiment's own")
    sub.add_argument(
        "--scale", choices=["paper", "smoke"], default="paper",
        help="smoke: the same cells with tiny budgets and one seed, to see that all of it runs (in runs/smoke)",
    )  # fmt: skip
    sub.add_argument(
        "--confirm", action="store_true", help="confirmatory seeds (500 to 519), into results/confirm"
    )
    sub.add_argument("--again", action="store_true", help="run what is done once more")
    sub.add_argument(
        "--parts", type=_folder, nargs="+", metavar="DIR",
        help="run nothing: put seeds together that other commands have measured into these folders (locks)",
    )  # fmt: skip
    sub.add_argument("--workers", type=_count, metavar="N", help="run so many cells at once, in processes")
    sub.add_argument("--on", choices=["ray"], help="run cells on a Ray cluster (pip install 'e3rl[ray]')")
    sub.add_argument("--address", help="of a running Ray cluster, or auto (default: start one here)")

    sub = command("theory", theory, "Print the constants of Theorem 1: φ, T, n and their totals.")
    for name, meaning in (
        ("horizon", "H"),
        ("actions", "|A|"),
        ("rank", "d, of the misfit matrices"),
        ("models", "|M|"),
        ("policies", "|Π|"),
    ):
        sub.add_argument(f"--{name}", type=int, required=True, metavar="N", help=meaning)
    sub.add_argument("--epsilon", type=float, required=True, help="how far from optimal, in (0, 1]")
    sub.add_argument("--delta", type=float, required=True, help="chance of failure, in (0, 1]")
    sub.add_argument("--beta", type=float, help="bound on the factorisation's row norms (default: 2√d)")

    sub = command("dreem", dreem, "Run DREEM on random problems; certify Theorem 1 with its own constants.")
    sub.add_argument(
        "--certify", action="store_true", help="many runs with the theorem's n; count the failures"
    )
    sub.add_argument(
        "--below-theory", action="store_true", help="measure how far below that n it still works"
    )
    sub.add_argument("--family", choices=["random", "low-rank", "factored", "tree", "all"], default="random")
    sub.add_argument("--runs", type=int, default=50, help="problems per family")
    sub.add_argument("--models", type=int, default=30, metavar="N", help="candidates, the true one included")
    sub.add_argument(
        "--policies",
        type=int,
        default=64,
        metavar="N",
        help="random policies beside each model's optimal one",
    )
    sub.add_argument("--epsilon", type=float, default=0.1)
    sub.add_argument("--delta", type=float, default=0.1)
    sub.add_argument("--n", type=_whole, help="trajectories per step and round (default: Theorem 1's)")
    sub.add_argument("--phi", type=float, help="largest misfit that a model may have (default: Theorem 1's)")
    sub.add_argument("--doubling", action="store_true", help="with --certify: without knowing the rank")
    sub.add_argument("--seed", type=int, default=0)
    sub.add_argument("--out", type=_folder, metavar="DIR", help="save the results as CSV and JSON")

    sub = command(
        "report",
        report,
        "Show a run, or results: tables, pictures, and a page for the browser (DIR/report.html).",
    )
    sub.add_argument("run_folder", type=_folder, metavar="DIR")
    sub.add_argument(
        "--watch",
        action="store_true",
        help="follow a run that is still going: the page is renewed until it ends",
    )
    return top


def _folder(text: str) -> Path:
    """The path of a folder, which has a name."""
    if not text:
        raise argparse.ArgumentTypeError("a folder's name is missing")
    if "\0" in text:
        raise argparse.ArgumentTypeError("a folder's name has no zeros in it")
    return Path(text)


def _count(text: str) -> int:
    """A whole number of at least one."""
    if not (text.isdecimal() and 0 < int(text) <= MOST_WORKERS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MOST_WORKERS}")
    return int(text)


def _whole(text: str) -> int:
    """A whole number, 1e12 allowed."""
    try:
        return int(text) if text.isdecimal() else int(float(text))
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from error


def main(argv: Sequence[str] | None = None) -> int:
    revive_streams()
    given = list(sys.argv[1:] if argv is None else argv)
    args = None
    try:
        with heeding():
            args = parser().parse_args(given)
            with patient_warnings(at_once=wants_debug(args)), named_stdout():
                code: int = args.run(args)
        return code
    except SystemExit as exit_:  # argparse's way out: --help and usage errors
        return int(exit_.code or 0)
    except KeyboardInterrupt as error:
        tell(interrupted(error, given), error if wants_debug(args) else None)
        return INTERRUPTED + getattr(error, "number", signal.SIGINT)
    except BrokenPipeError:  # the reader has gone (`e3rl envs | head`)
        forget_stdout()
        return 0
    except Exception as error:
        line = explained(error)
        if line is None:
            raise
        tell(f"error: {line}", error if wants_debug(args) else None)
        return USAGE_ERROR


def run() -> NoReturn:
    """The `e3rl` script."""
    leave(main())


def leave(code: int) -> NoReturn:
    """End the process; a signal that comes now does so without a word. After an interruption it ends at once: what is
    still being computed in other threads would crash while the interpreter takes itself apart."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if code > INTERRUPTED:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
