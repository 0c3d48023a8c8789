"""`e3rl train`: one environment, one agent, one or several seeds, a folder for each."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from e3rl.envs.opening import Opened, open_environment
from e3rl.envs.registration import drawn_from_a_seed
from e3rl.runs.agent import AbstractAgent
from e3rl.runs.folder import RunFolder, refuse_mixture, what_is_kept
from e3rl.runs.handover import HandOver
from e3rl.runs.logs import open_log
from e3rl.runs.progress import Watcher, nobody
from e3rl.runs.record import Record
from e3rl.runs.renamed import current_names
from e3rl.signals import noted
from e3rl.types import UserError

MOST_SEEDS = 10_000
"""In one call: each has a folder of its own."""


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
    if len(seeds) > MOST_SEEDS:
        raise UserError(f"--seeds must be at most {MOST_SEEDS}, got {len(seeds)}")
    paths = [out] if len(seeds) == 1 else [out / f"seed{seed}" for seed in seeds]
    refuse_mixture(out, paths)
    options = [
        {"seed": seed, **env_options} if drawn_from_a_seed(env) else dict(env_options) for seed in seeds
    ]
    folders = [RunFolder(path) for path in paths]
    with noted(lambda: what_is_kept(folders)), ExitStack() as opened_now:

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
        agent.refuse_too_large(first, settings, size)
        summaries: list[dict[str, Any]] = []
        for start in range(0, len(seeds), size):
            part = range(start, min(start + size, len(seeds)))
            if resume and all(folders[i].is_finished for i in part):
                for i in part:
                    folders[i].check(about[i], resume)
                    summaries += [summary for summary in [folders[i].summary()] if summary is not None]
                continue
            if resume:
                for line in filter(None, (folders[i].what_resuming_does() for i in part)):
                    say(line)
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
                with record:
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
    folder.lock.acquire()
    try:
        opened_log = None if log is None else open_log(log)
        with Record([about["seed"]], [own], [description], watch, log=opened_log) as record:
            [summary] = program.learn(record, resume and (own.path / "config.json").exists())[1]
        return _told_together(folder, own, heir, reason, about, summary)
    finally:
        folder.lock.release()
        program.close()


def _told_together(
    folder: RunFolder,
    own: RunFolder,
    heir: type[AbstractAgent],
    reason: HandOver,
    about: Mapping[str, Any],
    summary: dict[str, Any],
) -> dict[str, Any]:
    """The rows and the summary of both agents, in the folder of the first."""
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
