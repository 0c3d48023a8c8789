"""`e3rl train`: one environment, one agent, one or several seeds, a folder for each."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from e3rl.envs.opening import Opened, open_environment
from e3rl.envs.registration import drawn_from_a_seed
from e3rl.runs.agent import AbstractAgent
from e3rl.runs.folder import RunFolder
from e3rl.runs.handover import HandOver
from e3rl.runs.logs import open_log
from e3rl.runs.progress import Watcher, nobody
from e3rl.runs.record import Record, seconds_between
from e3rl.runs.renamed import current_names
from e3rl.runs.seed_folders import left_apart, refuse_mixture, what_is_kept
from e3rl.runs.seeds_in_processes import Say, processors_each, room_for, train_in_processes
from e3rl.signals import noted
from e3rl.types import UserError

MOST_SEEDS = 10_000
"""In one call: each has a folder of its own."""


@dataclass(frozen=True)
class Runs:
    """Runs of one agent on one environment, all with the same settings, which differ in their seeds."""

    agent: type[AbstractAgent]
    env: str
    options: Sequence[dict[str, Any]]
    settings: Any
    seeds: Sequence[int]
    paths: Sequence[Path]
    resume: bool
    asynchronous: bool
    heir: type[AbstractAgent] | None
    log: str | None

    def about(self, i: int) -> dict[str, Any]:
        return self.agent.describe(self.env, self.options[i], self.seeds[i], self.settings)

    def is_finished(self, i: int) -> bool:
        """Whether there is nothing to do but to read its summary."""
        folder = RunFolder(self.paths[i])
        if not self.resume or not folder.is_finished:
            return False
        folder.check(self.about(i), self.resume)
        return True

    def left(self) -> list[int]:
        """Those that are not finished; an error where there is something else in the folder of any."""
        found = [i for i in range(len(self.seeds)) if not self.is_finished(i)]
        for i in found:
            RunFolder(self.paths[i]).may_begin(self.about(i), self.resume)
        return found

    def summary(self, i: int) -> dict[str, Any]:
        """That of one which is finished."""
        found = RunFolder(self.paths[i]).summary()
        assert found is not None
        return found

    def what_resuming_does(self, part: Iterable[int]) -> list[str]:
        lines = [RunFolder(self.paths[i]).what_resuming_does() for i in part if self.resume]
        return [line for line in lines if line is not None]

    def open(self, i: int) -> Opened:
        return open_environment(self.env, self.options[i])

    def train(
        self, part: Sequence[int], environments: Sequence[Opened], watch: Watcher, say: Say
    ) -> list[dict[str, Any]]:
        """Some of them in one program; their summaries."""
        folders = [RunFolder(self.paths[i]) for i in part]
        abouts = [self.about(i) for i in part]
        seeds = [self.seeds[i] for i in part]
        program = self.agent.make_program(environments, self.settings, seeds, self.asynchronous)
        try:
            log = None if self.log is None else open_log(self.log)
            with Record(seeds, folders, abouts, watch, log=log) as record:
                return program.learn(record, self.resume)[1]
        except HandOver as reason:
            if self.heir is None:
                raise
            [i] = part
            say(f"{reason.why} → {self.heir.algo} goes on with all {len(reason.steps.time):,} steps")
            with closing(self.open(i)) as again:
                return [go_on(self.heir, reason, again, folders[0], abouts[0], self.resume, watch, self.log)]
        finally:
            program.close()
            for environment in environments:
                environment.close()

    def train_one(self, i: int, watch: Watcher, say: Say) -> dict[str, Any]:
        """One by itself; its summary."""
        with closing(self.open(i)) as opened:
            [summary] = self.train([i], [opened], watch, say)
        return summary


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
    say: Say = lambda line: None,
    heir: type[AbstractAgent] | None = None,
    log: str | None = None,
    apart: bool = False,
) -> tuple[list[Path], list[dict[str, Any]]]:
    """Train every seed, where they can in one program; returns the run folders and their summaries.

    `config` and `changes` are what `AbstractAgent.configured` takes; names of earlier versions are understood,
    and `say` hears what they are called now. An environment that is drawn from a seed, as a lock is, is drawn
    from the run's own unless the options name one. Where the agent hands over, the `heir` goes on in a folder of its
    own within the run's. `log` is what `AbstractAgent.learn` takes. With `apart`, seeds on a CPU are trained in
    processes, as many as there are processors: what is registered or changed in this one alone is not known there.
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
    with noted(lambda: what_is_kept(list(map(RunFolder, paths)))), ExitStack() as opened_now:

        def opened(i: int) -> Opened:
            return opened_now.enter_context(closing(open_environment(env, options[i])))

        first = opened(0)
        settings = agent.configured(first, config)
        now, lines = current_names(settings, changes or {}, agent.renamed)
        settings = agent.configured(first, settings, now)
        for line in lines:
            say(line)
        runs = Runs(agent, env, options, settings, seeds, paths, resume, asynchronous, heir, log)
        if apart and not asynchronous and jax.default_backend() == "cpu":
            owned = processors_each(len(seeds))
            if len(owned) > 1:
                agent.refuse_too_large(first, settings)
                memory = sum(agent.memory(first, settings, 1, computing=False).values(), start=0.0)
                opened_now.close()
                return paths, _in_processes(runs, owned[: room_for(memory)], watch, say)
        size = len(seeds) if _share_a_program(runs, first) else 1
        agent.refuse_too_large(first, settings, size)
        summaries: list[dict[str, Any]] = []
        for start in range(0, len(seeds), size):
            part = range(start, min(start + size, len(seeds)))
            if all(runs.is_finished(i) for i in part):
                summaries += [runs.summary(i) for i in part]
                continue
            for line in runs.what_resuming_does(part):
                say(line)
            summaries += runs.train(part, [first if i == 0 else opened(i) for i in part], watch, say)
    return paths, summaries


def _share_a_program(runs: Runs, first: Opened) -> bool:
    """Whether all are trained in one. On a CPU that changes nothing for any of them, so those that were left at epochs
    of their own go on as they are."""
    if first.functional is None or not runs.agent.share_a_program(runs.settings):
        return False
    if not runs.resume or len(runs.seeds) == 1 or jax.default_backend() != "cpu":
        return True
    runs.left()
    return not left_apart(list(map(RunFolder, runs.paths)))


def _in_processes(runs: Runs, owned: Sequence[set[int]], watch: Watcher, say: Say) -> list[dict[str, Any]]:
    """Train those that are not finished, a process for each set of processors. What stands in the way of any is found
    before one begins."""
    left = runs.left()
    for folder in (RunFolder(runs.paths[i]) for i in left):
        if folder.state.exists():
            folder.keep_rows(folder.about_checkpoint()["rows"])
    seconds_between()
    for line in runs.what_resuming_does(left):
        say(line)
    new = train_in_processes(runs.train_one, {i: runs.seeds[i] for i in left}, owned, watch, say)
    return [new[i] if i in new else runs.summary(i) for i in range(len(runs.seeds))]


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
