"""`e3rl train`: one environment, one algorithm, one or several seeds, a folder for each."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e3rl.baselines.running import refuse_mixture
from e3rl.envs.adapter import GymnasiumEnvironment, make
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.vector import HostEnvironments
from e3rl.neural.agent import describe
from e3rl.neural.choosing import prepare, suited_config
from e3rl.neural.config import NeuralE3Config, named
from e3rl.neural.run_folder import RunFolder
from e3rl.neural.settings import changed
from e3rl.neural.training import Training, Watcher
from e3rl.types import UserError

SHORT_NAMES = {
    "lock": "e3rl/CombinationLock-v0",
    "maze": "e3rl/Maze-v0",
    "mountaincar": "e3rl/MountainCar-v0",
    "acrobot": "e3rl/Acrobot-v1",
}
OWN_OPTIONS = {"horizon": "lock", "antishaped": "lock", "size": "maze"}
"""Options of `e3rl train` that belong to one environment."""


def environment(name: str, given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The id and options of the environment called `name` on the command line."""
    for option, owner in OWN_OPTIONS.items():
        if option in given and SHORT_NAMES.get(name, name) != SHORT_NAMES[owner]:
            raise UserError(f"--{option} belongs to {owner}: {name} has no {option}")
    return SHORT_NAMES.get(name, name), given


def settings(
    env: str, env_options: dict[str, Any], algo: str, config: str, changes: dict[str, str]
) -> NeuralE3Config:
    """The named settings, or for "auto" those that suit the environment, with `changes`. UE² is Neural-E³ with nobody
    planning its exploration (section 5.2)."""
    if config == "auto":
        made = make(env, **env_options)
        base = suited_config(made)
        if isinstance(made, GymnasiumEnvironment):
            made.close()
    else:
        base = named(config)
    chosen = changed(base, changes)
    return dataclasses.replace(chosen, planner="uniform") if algo == "ue2" else chosen


def train(
    env: str,
    env_options: dict[str, Any],
    config: NeuralE3Config,
    seeds: Sequence[int],
    out: Path,
    resume: bool,
    watch: Watcher,
    asynchronous: bool = False,
) -> tuple[list[Path], list[dict[str, Any]]]:
    """Train every seed, where they can in one program; returns the run folders and their summaries.

    The lock of a seed is drawn from that seed unless the options name one.
    """
    paths = [out] if len(seeds) == 1 else [out / f"seed{seed}" for seed in seeds]
    refuse_mixture(out, paths)
    options = [_with_seed(env, env_options, seed) for seed in seeds]
    about = [describe(env, own, seed, config) for own, seed in zip(options, seeds, strict=True)]
    folders = [RunFolder(path) for path in paths]
    # Otherwise each seed ends at its own time, or is stepped in Python.
    together = config.epsilon == 0 and config.exploit_rounds == 0 and _is_compiled(env, options[0])
    size = len(seeds) if together else 1
    summaries: list[dict[str, Any]] = []
    for start in range(0, len(seeds), size):
        part = slice(start, start + size)
        done = [summary for folder in folders[part] if (summary := folder.summary()) is not None]
        if resume and len(done) == len(folders[part]):
            for folder, description in zip(folders[part], about[part], strict=True):
                folder.begin(description, resume)
            summaries += done
            continue
        envs = [prepare(env, own, config, asynchronous)[0] for own in options[part]]
        try:
            training = Training(envs, config, seeds[part], folders[part], about[part], watch)
            summaries += training.learn(resume)[2]
        finally:
            for made in envs:
                if isinstance(made, HostEnvironments):
                    made.close()
    return paths, summaries


def _is_compiled(env: str, options: dict[str, Any]) -> bool:
    made = make(env, **options)
    if isinstance(made, GymnasiumEnvironment):
        made.close()
    return isinstance(made, AbstractEnvironment)


def _with_seed(env: str, options: dict[str, Any], seed: int) -> dict[str, Any]:
    return {"seed": seed, **options} if env == SHORT_NAMES["lock"] else dict(options)
