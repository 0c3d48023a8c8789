"""`e3rl train` and `e3rl evaluate`."""

import argparse
import hashlib
import json
import re
import shlex
import sys
from collections.abc import Collection, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e3rl.cli.errors import explained, tell
from e3rl.cli.output import stdout_kept
from e3rl.runs.summary import interval_text, verdict
from e3rl.signals import noted
from e3rl.types import UserError

if TYPE_CHECKING:
    from e3rl.runs.agent import AbstractAgent

SHORT_NAMES = {
    "lock": "e3rl/CombinationLock-v0",
    "maze": "e3rl/Maze-v0",
    "mountaincar": "e3rl/MountainCar-v0",
    "acrobot": "e3rl/Acrobot-v1",
    "keydoor": "e3rl/KeyDoor-v0",
    "riverswim": "e3rl/RiverSwim-v0",
}
OWN_OPTIONS = {"horizon": ("lock",), "antishaped": ("lock",), "size": ("maze", "keydoor")}
"""Options of `e3rl train` that belong to some environments alone."""
LONGEST_NAME = 200
"""Characters of a folder's name before its seeds; file systems stop at 255."""


@noted(lambda: "training had not begun")
def train(args: argparse.Namespace) -> int:
    from e3rl.envs.registration import suggestion
    from e3rl.experiments.agents import AGENTS
    from e3rl.runs.kept_programs import keep_compiled_programs
    from e3rl.runs.progress import LiveLine
    from e3rl.runs.train import train as train_seeds

    keep_compiled_programs()
    import_from_here()
    _find_env(args)
    if args.algo != "auto":
        AGENTS.called(args.algo)
    given = {key: _value(text) for key, text in _pairs(args.env_options, "--env").items()}
    flags = {name: value for name in OWN_OPTIONS if (value := getattr(args, name)) is not None}
    env = environment(args.env, flags)
    given |= flags
    if args.seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {args.seeds}")
    if not 0 <= args.seed <= 2**31 - args.seeds:
        raise UserError(f"--seed must be from 0 to 2**31 − 1, got {args.seed}")
    seeds = range(args.seed, args.seed + args.seeds)
    changes = _pairs(args.set, "--set")
    why = ""
    if args.algo == "auto":
        named = [name for name, known in AGENTS.items() if args.config in known.presets]
        if args.config != "auto" and not named:
            every = [preset for known in AGENTS.values() for preset in known.presets]
            hint = suggestion(args.config, every) or "; `e3rl settings` lists them all"
            raise UserError(f"unknown config {args.config!r}{hint}")
        with stdout_kept(args.json):
            args.algo, why = (named[0], "") if named else _suited(env, given)
    agent = AGENTS.called(args.algo)
    if args.help_settings:
        return _show_settings(agent, env, given, args.config, changes, args.json)
    out = args.out if args.out is not None else _default_folder(args, given, changes, seeds)
    with stdout_kept(args.json), LiveLine(quiet=args.json) as watch:
        watch.notes += [why] if why and not args.json else []
        paths, summaries = train_seeds(
            agent,
            env,
            given,
            args.config,
            seeds,
            out,
            resume=args.resume,
            watch=watch,
            asynchronous=args.asynchronous,
            changes=changes,
            say=lambda line: watch.notes.append(f"e3rl: {line}"),
            heir=AGENTS.called(agent.hands_over_to) if agent.hands_over_to else None,
            log=args.log,
            apart=True,
        )
    with noted(lambda: f"training is complete, in {out}"):
        if args.json:
            picture = _picture(paths, out)
            print(json.dumps({"runs": summaries, "figure": None if picture is None else str(picture)}))
            return 0
        for path, summary in zip(paths, summaries, strict=True):
            print(verdict(summary, agent.explores_first), f"({path})", flush=True)
        picture = _picture(paths, out)
        if picture is not None:
            print(f"picture: {picture}")
        print(f"next: e3rl evaluate {shlex.quote(str(paths[0]))} --episodes 1000")
        return 0


def _picture(paths: Sequence[Path], out: Path) -> Path | None:
    """The picture of a run whose results stand, whatever becomes of it."""
    from e3rl.reports.learning import draw_runs

    try:
        return draw_runs(paths, out / "learning.png")
    except (UserError, OSError, MemoryError) as error:
        tell(f"no picture: {explained(error)}")
        return None


def _find_env(args: argparse.Namespace) -> None:
    """ENV, where it stands behind `--set a=1` or `--env a=1`, which would take it for one more of theirs."""
    for words in (args.set, args.env_options):
        loose = [word for word in words if "=" not in word]
        if args.env is None and loose:
            args.env = loose[0]
            words.remove(loose[0])
    if args.env is None:
        raise UserError("the following arguments are required: ENV (see `e3rl train --help`)")


def import_from_here() -> None:
    """`my_package:Mine-v0` may lie in the current folder, which an installed command does not look into by itself."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


def _show_settings(
    agent: type["AbstractAgent"],
    env: str,
    options: dict[str, Any],
    config: str,
    changes: dict[str, str],
    as_json: bool,
) -> int:
    """What training would be set to."""
    from e3rl.cli.settings import show
    from e3rl.envs.opening import open_environment
    from e3rl.runs.renamed import current_names

    with stdout_kept(as_json), closing(open_environment(env, options)) as opened:
        chosen = agent.configured(opened, config)
        now, _ = current_names(chosen, changes, agent.renamed)
        settings = agent.configured(opened, chosen, now)
    return show(settings, f"{agent.algo} for {env}", as_json)


def _suited(env: str, options: dict[str, Any]) -> tuple[str, str]:
    """The algorithm for an environment, where nobody names one, and a line that says why."""
    from e3rl.envs.opening import open_environment
    from e3rl.experiments.agents import suited_agent

    with closing(open_environment(env, options)) as opened:
        algo, why = suited_agent(opened)
    return algo, f"{env}: {why} → {algo}; force another with --algo"


def environment(name: str, flags: Collection[str]) -> str:
    """The id of the environment called `name` on the command line, to which the flags given must belong."""
    import gymnasium

    from e3rl.envs.registration import suggestion

    for option, owners in OWN_OPTIONS.items():
        if option in flags and SHORT_NAMES.get(name, name) not in {SHORT_NAMES[owner] for owner in owners}:
            raise UserError(f"--{option} belongs to {' and '.join(owners)}: {name} has no {option}")
    ours = {*SHORT_NAMES, *gymnasium.registry}
    if name.isalpha() and name not in ours and (hint := suggestion(name, list(SHORT_NAMES))):
        raise UserError(f"unknown environment {name!r}{hint}")
    return SHORT_NAMES.get(name, name)


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


def evaluate(args: argparse.Namespace) -> int:
    from e3rl.experiments.agents import load
    from e3rl.runs.seed_folders import seed_folders

    folder = args.run_folder
    if not (folder / "config.json").exists() and (seeds := seed_folders(folder)):
        raise UserError(f"{folder} holds the runs of several seeds: evaluate one, such as {seeds[0]}")
    import_from_here()
    with stdout_kept(args.json):
        agent = load(folder)
    with closing(agent):
        return _evaluate(agent, args)


def _evaluate(agent: "AbstractAgent", args: argparse.Namespace) -> int:
    from e3rl.reports.film import film, refuse_film
    from e3rl.runs.statistics import mean_interval

    with stdout_kept(args.json):
        if args.gif is not None:
            refuse_film(agent, args.gif)
        returns = agent.evaluate(args.episodes)
    mean, low, high = mean_interval(returns)
    interval = [low, high] if len(returns) > 1 else None  # a single episode has no interval
    optimum = agent.program.spec.optimal_return
    report = {
        "episodes": args.episodes,
        "return_mean": mean,
        "return_ci": interval,
        "optimal_return": optimum,
        "share_of_optimum": mean / optimum if optimum else None,
    }
    if args.json:
        if args.gif is not None:
            with stdout_kept(args.json):
                report |= {"film": str(args.gif), "film_return": film(agent, args.gif)}
        print(json.dumps(report))
        return 0
    against = f", {mean / optimum:.1%} of the optimum {optimum:.3f}" if optimum else ""
    print(f"{args.episodes} greedy episodes: return {mean:.3f}{interval_text(interval)}{against}")
    if args.gif is not None:  # after the result, which stands whatever becomes of the film
        print(f"film: {args.gif}, an episode with return {film(agent, args.gif):.3f}")
    return 0
