"""`e3rl train --algo dqn`: one environment, one baseline, one or several seeds, a folder for each."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from e3rl.baselines.agent import AGENTS, BaselineAgent, describe
from e3rl.baselines.compiled import CompiledProgram
from e3rl.baselines.config import BaselineConfig
from e3rl.baselines.config import configured as configured_from
from e3rl.baselines.host import HostProgram, copies_of
from e3rl.baselines.training import Training
from e3rl.envs.adapter import GymnasiumEnvironment, make
from e3rl.envs.base import AbstractEnvironment
from e3rl.neural.run_folder import RunFolder, read_json
from e3rl.neural.training import Watcher
from e3rl.types import UserError

LOCK = "e3rl/CombinationLock-v0"


def _agent(algo: str) -> type[BaselineAgent]:
    if algo not in AGENTS:
        raise UserError(f"unknown baseline {algo!r}; known: {', '.join(AGENTS)}")
    return AGENTS[algo]


def configured(algo: str, env: str, name: str, changes: Mapping[str, str]) -> BaselineConfig:
    """The named settings of a baseline with `key=value` changes given as text; "auto" is e3rl's own, on the lock those
    that see the time step."""
    configs = _agent(algo).configs
    suited = f"e3rl-lock-{algo}" if env == LOCK else f"e3rl-{algo}"
    return configured_from(configs, suited if name == "auto" else name, changes)


def load(path: str | Path, env: Any = None) -> BaselineAgent:
    """The agent of a run folder, whichever baseline it is."""
    return _agent(read_json(Path(path) / "config.json").get("algo", "")).load(path, env)


def train(
    algo: str,
    env: str,
    env_options: Mapping[str, Any],
    config: BaselineConfig,
    seeds: Sequence[int],
    out: Path,
    resume: bool,
    watch: Watcher,
) -> tuple[list[Path], list[dict[str, Any]]]:
    """Train every seed; returns the run folders and their summaries. On an accelerator the seeds of a JAX environment
    are one program; on a CPU, where that gains nothing, they take turns.

    The lock of a seed is drawn from that seed unless the options name one.
    """
    _agent(algo).refuse_other(config)
    paths = [out] if len(seeds) == 1 else [out / f"seed{seed}" for seed in seeds]
    refuse_mixture(out, paths)
    options = [{"seed": seed, **env_options} if env == LOCK else dict(env_options) for seed in seeds]
    about = [describe(algo, env, own, seed, config) for own, seed in zip(options, seeds, strict=True)]
    folders = [RunFolder(path) for path in paths]
    made = make(env, **options[0])
    compiled = isinstance(made, AbstractEnvironment)
    size = len(seeds) if compiled and jax.default_backend() != "cpu" else 1
    summaries: list[dict[str, Any]] = []
    for start in range(0, len(seeds), size):
        part = slice(start, start + size)
        done = [folder.summary() for folder in folders[part]]
        if resume and all(done):
            for folder, description in zip(folders[part], about[part], strict=True):
                folder.begin(description, resume)
            summaries += [summary for summary in done if summary is not None]
            continue
        program, optima = _program(env, options[part], config, seeds[part])
        try:
            training = Training(program, config, seeds[part], folders[part], about[part], optima, watch)
            summaries += training.learn(resume)[1]
        finally:
            program.close()
    if not isinstance(made, AbstractEnvironment):
        made.close()
    return paths, summaries


def _program(
    env: str, options: Sequence[dict[str, Any]], config: BaselineConfig, seeds: Sequence[int]
) -> tuple[CompiledProgram | HostProgram, list[float | None]]:
    """The program of some seeds, and their environments' optimal returns where known."""
    algorithm = config.baseline()
    made = [make(env, **own) for own in options]
    optima = [getattr(one, "optimal_return", None) for one in made]
    optima = [optimum if isinstance(optimum, float) else None for optimum in optima]
    functional = [one for one in made if isinstance(one, AbstractEnvironment)]
    if functional:
        return CompiledProgram(algorithm, functional, seeds, config.clock), optima
    [alone] = (one for one in made if isinstance(one, GymnasiumEnvironment))
    envs = copies_of(alone, env, options[0], algorithm.copies)
    return HostProgram(algorithm, envs, seeds[0], config.clock), optima


def refuse_mixture(out: Path, paths: Sequence[Path]) -> None:
    """One folder holds either one run or the folders of several seeds."""
    if paths != [out] and (out / "config.json").exists():
        raise UserError(f"{out} already holds the run of one seed: give another --out for several")
    if paths == [out] and any(out.glob("seed*/config.json")):
        raise UserError(f"{out} already holds the runs of several seeds: give another --out for one")
