"""`e3rl train`: one environment, one agent, one or several seeds, a folder for each."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from e3rl.envs.opening import Opened, open_environment
from e3rl.envs.registration import drawn_from_a_seed
from e3rl.runs.agent import AbstractAgent
from e3rl.runs.folder import RunFolder
from e3rl.runs.handover import HandOver
from e3rl.runs.logs import open_log
from e3rl.runs.progress import Watcher, nobody
from e3rl.runs.record import Record
from e3rl.runs.renamed import current_names
from e3rl.types import UserError


def train(
    agent: type[AbstractAgent],
    env: str,
    env_options: Mapping[str, Any],
    config: Any,
    seeds: Sequence[int],
    out: Path,
    resume: bool = False,
    watch: Watcher = nobody,
    asynchronous: bool = False,
    changes: Mapping[str, Any] | None = None,
    say: Callable[[str], None] = lambda line: None,
    heir: type[AbstractAgent] | None = None,
    log: str | None = None,
) -> tuple[list[Path], list[dict[str, Any]]]:
    """Train every seed, where they can in one program; returns the run folders and their summaries.

    `config` and `changes` are what `AbstractAgent.configured` takes; names of earlier versions are understood,
    and `say` hears what they are called now. An environment that is drawn from a seed, as a lock is, is drawn
    from the run's own unless the options name one. Where the agent hands over, the `heir` goes on in a folder of its
    own within the run's. `log` is what `AbstractAgent.learn` takes.
    """
    if log is not None:
        open_log(log)  # one that cannot be written is refused before anything is opened
    paths = [out] if len(seeds) == 1 else [out / f"seed{seed}" for seed in seeds]
    refuse_mixture(out, paths)
    options = [
        {"seed": seed, **env_options} if drawn_from_a_seed(env) else dict(env_options) for seed in seeds
    ]
    folders = [RunFolder(path) for path in paths]
    with ExitStack() as opened_now:

        def opened(i: int) -> Opened:
            return opened_now.enter_context(closing(open_environment(env, options[i])))

        first = opened(0)
        settings = agent.configured(first, config)
        now, lines = current_names(settings, changes or {}, agent.renamed)
        settings = agent.configured(first, settings, now)
        for line in lines:
            say(line)
        about = [agent.describe(env, own, seed, settings) for own, seed in zip(options, seeds, strict=True)]
        together = first.functional is not None and agent.share_a_program(settings)
        size = len(seeds) if together else 1
        summaries: list[dict[str, Any]] = []
        for start in range(0, len(seeds), size):
            part = range(start, min(start + size, len(seeds)))
            done = [summary for i in part if (summary := folders[i].summary()) is not None]
            if resume and len(done) == len(part):
                for i in part:
                    folders[i].begin(about[i], resume)
                summaries += done
                continue
            environments = [first if i == 0 else opened(i) for i in part]
            program = agent.make_program(environments, settings, [seeds[i] for i in part], asynchronous)
            try:
                record = Record(
                    [seeds[i] for i in part],
                    [folders[i] for i in part],
                    [about[i] for i in part],
                    watch,
                    log=None if log is None else open_log(log),
                )
                summaries += program.learn(record, resume)[1]
            except HandOver as reason:
                if heir is None:
                    raise
                [i] = part
                say(f"{reason.why} → {heir.algo} goes on with all {len(reason.steps.time):,} steps")
                with closing(open_environment(env, options[i])) as again:
                    summaries.append(go_on(heir, reason, again, folders[i], about[i], resume, watch, log))
            finally:
                program.close()
                for environment in environments:
                    environment.close()
    return paths, summaries


def go_on(
    heir: type[AbstractAgent],
    reason: HandOver,
    opened: Opened,
    folder: RunFolder,
    about: Mapping[str, Any],
    resume: bool,
    watch: Watcher,
    log: str | None = None,
) -> dict[str, Any]:
    """Another agent's run on the experience of one that handed over, within its folder; that one's rows and summary
    then tell of both."""
    config, program = heir.heir(opened, about["seed"], reason.steps)
    own = RunFolder(folder.path / heir.algo)
    description = heir.describe(about["env"], about["env_options"], about["seed"], config)
    try:
        opened_log = None if log is None else open_log(log)
        record = Record([about["seed"]], [own], [description], watch, log=opened_log)
        [summary] = program.learn(record, resume and (own.path / "config.json").exists())[1]
    finally:
        program.close()
    before, steps, seconds = folder.until()
    folder.add_later_rows(own)
    whole = {
        **summary,
        **about,
        "explore_episodes": before + summary["explore_episodes"],
        "total_episodes": before + summary["total_episodes"],
        "wall_seconds": round(seconds + summary["wall_seconds"], 3),
        "handed_over": {
            "to": heir.algo,
            "why": reason.why,
            "folder": heir.algo,
            "after_episodes": before,
            "after_steps": steps,
        },
    }
    folder.write_summary(whole)
    return whole


def refuse_mixture(out: Path, paths: Sequence[Path]) -> None:
    """One folder holds either one run or the folders of several seeds."""
    if paths != [out] and (out / "config.json").exists():
        raise UserError(f"{out} already holds the run of one seed: give another --out for several")
    if paths == [out] and any(out.glob("seed*/config.json")):
        raise UserError(f"{out} already holds the runs of several seeds: give another --out for one")
