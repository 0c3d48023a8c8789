"""`e3rl train`, `evaluate`, `reproduce` and `report`."""

import argparse
import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e3rl.cli.output import interval_text, verdict
from e3rl.types import UserError

LONGEST_NAME = 200
"""Characters of a folder's name before its seeds; file systems stop at 255."""


def train(args: argparse.Namespace) -> int:
    from e3rl.baselines import running
    from e3rl.baselines.agent import AGENTS
    from e3rl.experiments import runner
    from e3rl.neural.progress import LiveLine
    from e3rl.reports.learning import draw_runs

    _keep_compiled_programs()
    given = {key: _value(text) for key, text in _pairs(args.env_options, "--env").items()}
    for option in ("horizon", "antishaped", "size"):
        if (value := getattr(args, option)) is not None:
            given[option] = value
    env, options = runner.environment(args.env, given)
    changes = _pairs(args.set, "--set")
    if args.seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {args.seeds}")
    if not 0 <= args.seed <= 2**31 - args.seeds:
        raise UserError(f"--seed must be from 0 to 2**31 − 1, got {args.seed}")
    seeds = range(args.seed, args.seed + args.seeds)
    out = args.out or _default_folder(args, given, changes, seeds)
    if args.asynchronous and args.algo in AGENTS:
        raise UserError(f"--async is not for {args.algo}: it steps the copies of its environment in turn")
    with LiveLine(quiet=args.json) as watch:
        if args.algo in AGENTS:
            baseline = running.configured(args.algo, env, args.config, changes)
            found = running.train(args.algo, env, options, baseline, seeds, out, args.resume, watch)
        else:
            config = runner.settings(env, options, args.algo, args.config, changes)
            found = runner.train(env, options, config, seeds, out, args.resume, watch, args.asynchronous)
    paths, summaries = found
    picture = draw_runs(paths, out / "learning.png")
    if args.json:
        print(json.dumps({"runs": summaries, "figure": str(picture)}))
        return 0
    for path, summary in zip(paths, summaries, strict=True):
        print(verdict(summary), f"({path})")
    print(f"picture: {picture}")
    print(f"next: e3rl evaluate {shlex.quote(str(paths[0]))} --episodes 1000")
    return 0


def _keep_compiled_programs() -> None:
    """Compiling takes longer than a short run: what was compiled once is kept for the next time."""
    import jax

    if getattr(jax.config, "jax_compilation_cache_dir", None) is None:
        try:
            home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        except RuntimeError:  # a user without a home, as in some containers
            return
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


def _default_folder(
    args: argparse.Namespace, options: dict[str, Any], settings: dict[str, str], seeds: range
) -> Path:
    """Under runs/, named after everything that sets one `e3rl train` apart from another."""
    named = [] if args.config == "auto" else [args.config]
    words = [args.env, args.algo, *map(_word, options.items()), *named, *map(_word, settings.items())]
    name = re.sub(r"[^\w.+-]+", "-", "-".join(words), flags=re.ASCII)
    if len(name) > LONGEST_NAME:
        name = f"{name[: LONGEST_NAME // 2]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    last = f"seed{seeds[0]}" if len(seeds) == 1 else f"seeds{seeds[0]}-{seeds[-1]}"
    return Path("runs") / f"{name}-{last}"


def _word(option: tuple[str, Any]) -> str:
    key, value = option
    return key if value is True else f"{key}{value}"


def _seed_folders(folder: Path) -> list[Path]:
    """The runs of several seeds, in the order of the seeds."""
    found = [path.parent for path in folder.glob("seed*/config.json")]
    return sorted(found, key=lambda path: (len(path.name), path.name))


def evaluate(args: argparse.Namespace) -> int:
    from e3rl.baselines import running
    from e3rl.baselines.agent import AGENTS
    from e3rl.neural.agent import NeuralE3
    from e3rl.neural.run_folder import read_json
    from e3rl.neural.statistics import mean_interval

    folder = args.run_folder
    if not (folder / "config.json").exists() and (seeds := _seed_folders(folder)):
        raise UserError(f"{folder} holds the runs of several seeds: evaluate one, such as {seeds[0]}")
    algo = read_json(folder / "config.json").get("algo")
    agent = running.load(folder) if algo in AGENTS else NeuralE3.load(folder)
    returns = agent.evaluate(args.episodes)
    mean, low, high = mean_interval(returns)
    interval = [low, high] if len(returns) > 1 else None  # a single episode has no interval
    known = getattr(agent.env, "optimal_return", None)
    optimum = known if isinstance(known, float) else None  # a maze's depends on where it starts
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
    print(f"{args.episodes} greedy episodes: return {mean:.3f}{interval_text(interval)}{against}")
    return 0


def reproduce(args: argparse.Namespace) -> int:
    from e3rl.experiments import baselines, deterministic, lock

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if args.experiment is None:
        names = [*lock.EXPERIMENTS, *deterministic.EXPERIMENTS, *baselines.EXPERIMENTS, "dreem"]
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
    out = args.out or _results_folder(args.experiment)
    try:
        seeds = [int(seed) for seed in args.seeds.split(",")] if args.seeds else []
    except ValueError as error:
        raise UserError(f"--seeds takes whole numbers such as 5,6,7, got {args.seeds!r}") from error
    owners = [known for known in (lock, deterministic, baselines) if args.experiment in known.EXPERIMENTS]
    if not owners:
        raise UserError(f"unknown experiment {args.experiment!r}; `e3rl reproduce` lists them")
    rows = owners[0].run(args.experiment, out, say, seeds)
    if args.json:
        print(json.dumps({"rows": rows}))
    return 0


def _results_folder(experiment: str) -> Path:
    """results/lock for lock/h5 and lock-paper/h5, results/control for mountaincar/..., and so on."""
    family = experiment.partition("/")[0].partition("-")[0]
    return Path("results") / {"mountaincar": "control", "acrobot": "control"}.get(family, family)


def report(args: argparse.Namespace) -> int:
    from e3rl.neural.run_folder import RunFolder
    from e3rl.reports.learning import draw_runs
    from e3rl.reports.run_pictures import draw_extra

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
    if any(any(folder.glob(f"{task}-*.csv")) for task in ("maze", "mountaincar", "acrobot")):
        from e3rl.reports import deterministic

        picture, text = deterministic.draw(folder), deterministic.table(folder)
        shown = (
            json.dumps({"table": text, "figure": str(picture)})
            if args.json
            else f"{text}\npicture: {picture}"
        )
        print(shown)
        return 0
    if any(folder.glob("baselines-*.csv")):
        from e3rl.reports import baselines

        text, figures = baselines.table(folder), list(map(str, baselines.draw(folder)))
        pictures = [f"picture: {path}" for path in figures]
        shown = json.dumps({"table": text, "figures": figures})
        print(shown if args.json else "\n".join([text, *pictures]))
        return 0
    if any(folder.glob("planning-*.csv")):
        from e3rl.reports import planning

        text = planning.table(folder)
        print(json.dumps({"table": text}) if args.json else text)
        return 0
    paths = [folder] if (folder / "config.json").exists() else _seed_folders(folder)
    if not paths:
        raise UserError(f"{folder} holds no run")
    picture = draw_runs(paths, folder / "learning.png")
    more = draw_extra(folder)
    summaries = [summary for path in paths if (summary := RunFolder(path).summary())]
    if args.json:
        print(json.dumps({"runs": summaries, "figure": str(picture), "figures": list(map(str, more))}))
        return 0
    for summary in summaries:
        print(verdict(summary))
    for drawn in (picture, *more):
        print(f"picture: {drawn}")
    return 0
