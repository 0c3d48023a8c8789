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

    _keep_compiled_programs()
    given = {key: _value(text) for key, text in _pairs(args.env_options, "--env").items()}
    for option in ("horizon", "antishaped", "size"):
        if (value := getattr(args, option)) is not None:
            given[option] = value
    env, options = environment(args.env, given)
    config = algorithm(args.algo, configured(args.config, _pairs(args.set, "--set")))
    if args.seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {args.seeds}")
    if not 0 <= args.seed <= 2**31 - args.seeds:
        raise UserError(f"--seed must be from 0 to 2**31 − 1, got {args.seed}")
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


def _keep_compiled_programs() -> None:
    """Compiling takes longer than a short run: what was compiled once is kept for the next time."""
    import jax

    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        jax.config.update("jax_compilation_cache_dir", str(Path(home) / "e3rl" / "jax"))


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
    mean, interval = summary["exploit_return_mean"], summary["exploit_return_ci"]
    text = f"seed {summary['seed']}: return {mean:.3f}{_interval(interval)}"
    optimum = summary.get("optimal_return")
    if optimum:
        text += f", {mean / optimum:.0%} of the optimum {optimum:.3f}"
    return (
        f"{text}, after {summary['explore_episodes']} exploration episodes, {summary['wall_seconds']:.0f} s"
    )


def _interval(bounds: Sequence[float] | None) -> str:
    return "" if bounds is None else f" (95% interval {bounds[0]:.3f} to {bounds[1]:.3f})"


def evaluate(args: argparse.Namespace) -> int:
    from e3rl.neural.agent import NeuralE3
    from e3rl.reports.statistics import mean_interval

    agent = NeuralE3.load(args.run_folder)
    returns = agent.evaluate(args.episodes)
    mean, low, high = mean_interval(returns)
    interval = [low, high] if len(returns) > 1 else None  # a single episode has no interval
    optimum = getattr(agent.env, "optimal_return", None)
    report = {
        "episodes": args.episodes,
        "return_mean": mean,
        "return_ci": interval,
        "optimal_return": optimum,
        "share_of_optimum": mean / optimum if optimum else None,
    }
    if args.json:
        print(json.dumps(report))
        return 0
    against = f", {mean / optimum:.1%} of the optimum {optimum:.3f}" if optimum else ""
    print(f"{args.episodes} greedy episodes: return {mean:.3f}{_interval(interval)}{against}")
    return 0


def reproduce(args: argparse.Namespace) -> int:
    from e3rl.experiments.lock import EXPERIMENTS, run

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if args.experiment is None:
        names = [*EXPERIMENTS, "dreem"]
        print(json.dumps({"experiments": names}) if args.json else "\n".join(names))
        return 0
    if args.experiment == "dreem":
        from e3rl.experiments import dreem_results
        from e3rl.reports import dreem_figures

        out = args.out or Path("results/dreem")
        dreem_results.run(out, say)
        figures = [str(path) for path in dreem_figures.draw(out)]
        print(json.dumps({"figures": figures}) if args.json else "\n".join(figures))
        return 0
    out = args.out or Path("results") / args.experiment.partition("/")[0].partition("-")[0]
    try:
        seeds = [int(seed) for seed in args.seeds.split(",")] if args.seeds else []
    except ValueError as error:
        raise UserError(f"--seeds takes whole numbers such as 5,6,7, got {args.seeds!r}") from error
    rows = run(args.experiment, out, say, seeds)
    if args.json:
        print(json.dumps({"rows": rows}))
    return 0


def report(args: argparse.Namespace) -> int:
    from e3rl.neural.run_folder import RunFolder
    from e3rl.reports.learning import draw_runs

    folder = args.run_folder
    if any(folder.glob("lock*-h[0-9]*.csv")):
        from e3rl.reports.lock_budgets import draw_budgets, table

        picture, text = draw_budgets(folder), table(folder)
        print(
            json.dumps({"table": text, "figure": str(picture)})
            if args.json
            else f"{text}\npicture: {picture}"
        )
        return 0
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


def theory(args: argparse.Namespace) -> int:
    from e3rl.dreem.theory import constants

    found = constants(
        args.horizon, args.actions, args.rank, args.epsilon, args.delta, args.models, args.policies, args.beta
    )
    if args.json:
        print(json.dumps(found.as_dict()))
        return 0
    _table(
        ["constant", "value", "meaning"],
        [
            ["φ", f"{found.phi:.6g}", "models with a larger empirical misfit are eliminated"],
            ["T", f"{found.rounds:.6g}", "rounds at most"],
            ["n", f"{found.n:.6g}", "trajectories per step and round"],
            ["n, paper", f"{found.paper_n:.6g}", "the same for test functions that need the true model"],
            ["total", f"{found.total:.6g}", "trajectories: n · T · H, a set of its own for every step"],
            ["total, paper", f"{found.paper_total:.6g}", "trajectories: n · T, counted as in the paper"],
        ],
    )
    factors = ", ".join(f"{name} = {value:.3g}" for name, value in found.terms.items())
    print(f"n is the product of {factors}; {found.dominant} dominates")
    return 0


def dreem(args: argparse.Namespace) -> int:
    """Three modes: certify the theorem, measure how far below its n it works, or one run round by round."""
    from e3rl.dreem.certify import FAMILIES, certify, certify_all

    many = args.certify or args.below_theory
    if many and (args.n is not None or args.phi is not None):
        raise UserError("--n and --phi are for one run: --certify and --below-theory set them")
    if args.doubling and not args.certify:
        raise UserError("--doubling goes with --certify")
    if args.family == "all" and not many:
        raise UserError("--family all goes with --certify or --below-theory")
    names = list(FAMILIES) if args.family == "all" else [args.family]
    options = {
        "models": args.models, "extra_policies": args.policies, "epsilon": args.epsilon, "delta": args.delta,
        "seed": args.seed,
    }  # fmt: skip
    if args.below_theory:
        from e3rl.experiments.dreem_certify import below_theory, still_works

        rows = below_theory(
            args.out or Path("results/dreem"),
            lambda line: print(line, file=sys.stderr, flush=True),
            args.runs,
            names,
            **options,
        )
        works = still_works(rows, 1.0 - args.delta)
        if args.json:
            print(json.dumps({"rows": rows, "still_works": works}))
            return 0
        _table(
            ["family", "φ", "works down to n /", "n"],
            [[_short(row[key]) for key in ("family", "phi_rule", "largest_shrink", "n")] for row in works],
        )
        return 0
    if not args.certify:
        return _dreem_once(args, names[0])
    options["doubling"] = args.doubling
    found = (
        certify(names[0], args.runs, **options)
        if len(names) == 1
        else certify_all(names, args.runs, **options)
    )
    if args.out is not None:
        from e3rl.experiments.dreem_certify import save

        kept = found.get("families", [found])
        save("certify-doubling" if args.doubling else "certify", args.out, kept, options)
    if args.json:
        print(json.dumps(found))
        return 0
    columns = [
        "family",
        "runs",
        "failures",
        "true_model_eliminated",
        "rounds_max",
        "rounds_bound",
        "trajectories_max",
    ]
    _table(
        ["family", "runs", "failures", "M* eliminated", "rounds", "bound T", "trajectories"],
        [[_short(row[name]) for name in columns] for row in found.get("families", [found])],
    )
    for row in found.get("families", [found]):
        print(f"{row['family']}: models left after each round, on average:", *row["models_left_per_round"])
    return 0


def _dreem_once(args: argparse.Namespace, name: str) -> int:
    from e3rl.dreem.algorithm import Dreem, policy_return
    from e3rl.dreem.certify import make_problem

    problem = make_problem(name, args.models, args.policies, args.seed)
    agent = Dreem(
        problem.models,
        problem.policies,
        epsilon=args.epsilon,
        delta=args.delta,
        rank=problem.rank,
        n=args.n,
        phi=args.phi,
    )
    result = agent.learn(problem.env, args.seed)
    optimum, reached = problem.env.optimal_return, policy_return(problem.env, result.policy)
    if args.json:
        more = {"return": reached, "optimal_return": optimum, "n": agent.n, "phi": agent.phi, "family": name}
        print(json.dumps(result.as_dict() | more))
        return 0
    _table(
        ["round", "v_explore", "policy", "models before", "models left"],
        [
            [str(t), f"{row.v_explore:.4f}", str(row.policy), str(row.models_before), str(row.models_left)]
            for t, row in enumerate(result.rounds, 1)
        ],
    )
    end = "≤ ε/|A|: exploit" if result.finished else "but the rounds are used up"
    print(f"v_explore {result.v_explore:.4g} {end}; n = {agent.n:.3g}, φ = {agent.phi:.3g}")
    print(f"return {reached:.4f} of at most {optimum:.4f}, after {result.trajectories:.3g} trajectories")
    return 0


def _whole(text: str) -> int:
    """A whole number, 1e12 allowed."""
    try:
        return int(text) if text.isdecimal() else int(float(text))
    except (ValueError, OverflowError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from error


def _short(value: Any) -> str:
    """Large numbers as powers of ten."""
    if value is None:
        return ""
    return (
        f"{value:.4g}"
        if isinstance(value, float) or (isinstance(value, int) and value >= 10**6)
        else str(value)
    )


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
    sub.add_argument(
        "--out", type=Path, metavar="DIR", help="where to write (default: its folder under results/)"
    )
    sub.add_argument("--seeds", metavar="N,N,...", help="other seeds than the experiment's own")

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
    sub.add_argument("--out", type=Path, metavar="DIR", help="save the results as CSV and JSON")

    sub = command(
        "report", report, "Draw a run's learning curve and where it went, or a folder of lock results."
    )
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
