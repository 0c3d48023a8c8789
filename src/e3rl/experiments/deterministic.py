"""Figure 2's mazes and control tasks (sections 5.2 and 5.3): what is collected while exploring, and what the exploit
phase is worth after so many exploration episodes.

Exploration runs once to the largest budget; at every smaller one the exploit phase is trained from what has been seen
so far and plays 100 greedy episodes. All seeds are lanes of one program.
"""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from e3rl.e3 import Epoch
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.maze import Maze
from e3rl.envs.registration import build
from e3rl.envs.spec import spec_of
from e3rl.experiments.names import settings_name, spread, task_name
from e3rl.experiments.smoke import BUDGET, SIZE, STEPS, smaller
from e3rl.experiments.tables import (
    about_cell,
    forget_runs,
    measured_before,
    note_machine,
    refuse_seeds,
    table_path,
    truth,
    unfinished_runs,
    write_table,
)
from e3rl.neural.agent import NeuralE3
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.presets import PRESETS
from e3rl.neural.slots import Episodes
from e3rl.neural.training import NeuralProgram
from e3rl.runs.folder import RunFolder
from e3rl.runs.lanes import compiling
from e3rl.runs.record import Record
from e3rl.runs.settings import changed, settings_of
from e3rl.runs.statistics import mean_interval
from e3rl.types import UserError

KINDS: dict[str, Callable[[str], Any]] = {
    "experiment": str, "seed": int, "phase": str, "budget": int, "episode": int, "return": float, "length": int,
    "reached": truth, "optimal_return": lambda text: float(text) if text else "",
}  # fmt: skip
COLUMNS = tuple(KINDS)
MAZE = "e3rl/Maze-v0"


@dataclass(frozen=True)
class DeterministicExperiment:
    env: str
    options: tuple[tuple[str, Any], ...]
    config: str
    budgets: tuple[int, ...]
    """Exploration episodes after which the exploit phase is trained and judged."""
    seeds: tuple[int, ...]
    changes: tuple[tuple[str, Any], ...] = ()
    """Settings that differ from the named config, by path."""
    ends: bool = False
    """Whether exploration may end by itself, at each seed's own time; the only budget is then a ceiling."""

    @property
    def about(self) -> str:
        """What it is, in a line."""
        changes = " ".join(f"{path}={value}" for path, value in self.changes)
        most = "at most " if self.ends else ""
        task = f"{task_name(self.env, dict(self.options))}, {most}{spread(self.budgets)} exploration episodes"
        return f"Neural-E³, {task}, {settings_name(self.config)}{changes and f' with {changes}'}"


def control(
    env: str,
    config: str,
    budgets: tuple[int, ...],
    changes: dict[str, Any] | None = None,
    ends: bool = False,
) -> DeterministicExperiment:
    differing = tuple((changes or {}).items())
    return DeterministicExperiment(env, (), config, budgets, (0, 1, 2, 3, 4), differing, ends)


def _maze(
    size: int, config: str, changes: dict[str, Any] | None = None, ends: bool = False
) -> DeterministicExperiment:
    options, differing = (("size", size),), tuple((changes or {}).items())
    return DeterministicExperiment(MAZE, options, config, (50,), (0, 1, 2), differing, ends)


DETERMINISTIC_EXPERIMENTS: dict[str, DeterministicExperiment] = {
    "mountaincar/e3rl": control("e3rl/MountainCar-v0", "e3rl-control", (20, 30, 50)),
    "mountaincar/e3rl-few": control("e3rl/MountainCar-v0", "e3rl-control", (5, 10, 15)),
    "mountaincar/nearest": control(
        "e3rl/MountainCar-v0", "e3rl-control", (50,), {"planner.frontier": "nearest"}
    ),
    "mountaincar/paper": control("e3rl/MountainCar-v0", "paper-control", (100,)),
    "mountaincar/steadied": control("e3rl/MountainCar-v0", "steadied-control", (100,)),
    "acrobot/e3rl": control("e3rl/Acrobot-v1", "e3rl-control", (20, 30, 50)),
    "acrobot/e3rl-few": control("e3rl/Acrobot-v1", "e3rl-control", (5, 10, 15)),
    "acrobot/paper": control("e3rl/Acrobot-v1", "paper-control", (100,)),
    "acrobot/steadied": control("e3rl/Acrobot-v1", "steadied-control", (100,)),
    "mountaincar/ends": control("e3rl/MountainCar-v0", "e3rl-control", (50,), ends=True),
    "acrobot/ends": control("e3rl/Acrobot-v1", "e3rl-control", (50,), ends=True),
    **{f"maze/{size}-e3rl": _maze(size, "e3rl-image", {"exploit.snap": True}) for size in (5, 10, 20)},
    **{f"maze/{size}-ends": _maze(size, "e3rl-image", {"exploit.snap": True}, True) for size in (5, 10, 20)},
    **{f"maze/{size}-paper": _maze(size, "paper-maze") for size in (5, 10, 20)},
    **{f"maze/{size}-pooled": _maze(size, "paper-maze", {"model.reward_head": "pooled"}) for size in (5, 10)},
    **{f"maze/{size}-paper-ue2": _maze(size, "paper-maze", {"planner": "uniform"}) for size in (5, 10, 20)},
    **{
        f"maze/{size}-ue2": _maze(size, "e3rl-image", {"exploit.snap": True, "planner": "uniform"})
        for size in (5, 10, 20)
    },
}


def experiment_of(name: str, smoke: bool = False) -> DeterministicExperiment:
    found = DETERMINISTIC_EXPERIMENTS[name]
    return small(found) if smoke else found


def small(found: DeterministicExperiment) -> DeterministicExperiment:
    """The same with short episodes, few of them, and one seed."""
    size = (("size", SIZE),) if found.env == MAZE else ()
    options = (*size, ("time_limit", STEPS))
    return dataclasses.replace(found, options=options, budgets=(BUDGET,), seeds=found.seeds[:1])


def config_of(experiment: DeterministicExperiment, smoke: bool = False) -> NeuralE3Config:
    """The settings. Unless it is about how exploration ends, every budget is explored to its end."""
    changes = {**dict(experiment.changes), "explore.episodes": max(experiment.budgets)}
    if not experiment.ends:
        changes["explore.epsilon_share"] = 0.0
    config = changed(PRESETS[experiment.config], changes)
    if not experiment.ends and "planner.tried" in settings_of(config):
        config = changed(config, {"planner.tried": 0.0})
    return smaller(config) if smoke else config


def is_done(name: str, out: Path, seeds: Sequence[int] = (), smoke: bool = False) -> bool:
    """Whether the results of all budgets lie there, made with today's settings."""
    experiment = experiment_of(name, smoke)
    judged = kept(table_path(out, name), experiment, config_of(experiment, smoke))[0].get("exploit", [])
    wanted = {(seed, budget) for seed in seeds or experiment.seeds for budget in experiment.budgets}
    return wanted <= {(verdict["seed"], verdict["budget"]) for verdict in judged}


def kept(
    path: Path, experiment: DeterministicExperiment, config: NeuralE3Config
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What was measured before with the same settings: what is said about it, and its rows."""
    options = json.loads(json.dumps(experiment.options))
    return measured_before(path, KINDS, config, lambda told: told["options"] == options)


def run(
    name: str, out: Path, say: Callable[[str], None], seeds: Sequence[int] = (), smoke: bool = False
) -> list[dict[str, Any]]:
    """Run one experiment, write `out`/NAME.csv and .json after every epoch, return its rows. One that was interrupted
    goes on where it was, one that is done is not run again."""
    experiment, asked = experiment_of(name, smoke), tuple(seeds)
    seeds = asked or experiment.seeds
    refuse_seeds(seeds)
    config = config_of(experiment, smoke)
    if any(budget % config.explore.per_epoch for budget in experiment.budgets):
        raise UserError(f"budgets must be whole epochs of {config.explore.per_epoch} episodes")
    about, rows = kept(table_path(out, name), experiment, config)
    if is_done(name, out, seeds, smoke):
        say(f"{name}: done before, {table_path(out, name)}")
        forget_runs(out, name)
        return rows
    same_seeds = about.get("settings", {}).get("seeds") == list(seeds)
    # By what they are about, so that an epoch that is repeated after an interruption counts once.
    table = {_about(row): row for row in rows} if same_seeds else {}
    judged = {(v["seed"], v["budget"]): v for v in about["exploit"]} if same_seeds else {}
    told = about_cell(name, experiment, config, seeds, asked, smoke) | note_machine(out, name)

    def take(new: list[dict[str, Any]], verdicts: list[dict[str, Any]], seconds: float) -> None:
        table.update({_about(row): row for row in new})
        judged.update({(v["seed"], v["budget"]): {**v, "seconds": seconds} for v in verdicts})
        for verdict in verdicts:  # an attempt that was given up may have explored longer
            for place in [place for place in table if _is_later(place, verdict)]:
                del table[place]
        write(out, list(table.values()), list(judged.values()), told)
        words = "; ".join(map(_phrase, verdicts)) or f"explored episodes up to {new[-1]['episode']}"
        say(f"{name}, {seconds:.0f} s: {words}")

    learn(name, experiment, config, seeds, unfinished_runs(out, name), take)
    forget_runs(out, name)
    return list(table.values())


def learn(
    name: str,
    experiment: DeterministicExperiment,
    config: NeuralE3Config,
    seeds: Sequence[int],
    runs: Path,
    take: Callable[[list[dict[str, Any]], list[dict[str, Any]], float], None],
) -> None:
    """Epoch by epoch `take` sees its rows, the verdicts on the exploit phase where a budget is reached, and the seconds
    so far. What was interrupted goes on from the folders in `runs`."""
    options, budgets = dict(experiment.options), experiment.budgets
    env = build(experiment.env, **options)
    program = NeuralProgram([env] * len(seeds), [spec_of(env)] * len(seeds), config, seeds)
    record = Record(
        seeds,
        [RunFolder(runs / f"seed{seed}") for seed in seeds],
        [NeuralE3.describe(experiment.env, options, seed, config) for seed in seeds],
    )

    per_epoch, whole = config.explore.per_epoch, config.explore.epochs(spec_of(env).horizon)

    def judged(t: int, models: Any, replay: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The greedy episodes after epoch t, and the verdicts on them."""
        agent, keys = program.agent, program.keys
        policy = agent.exploit(models, replay, keys)
        epoch, count = jnp.full(len(seeds), t), config.evaluation_episodes
        _, played = agent.exploit_episodes(program.env, policy, replay, keys, epoch, count)
        about = {"experiment": name, "phase": "exploit", "budget": (t + 1) * per_epoch}
        greedy = _rows(env, dict(enumerate(seeds)), played, 0, about)
        verdicts = [judge([row for row in greedy if row["seed"] == seed]) for seed in seeds]
        if experiment.ends:
            for verdict, episodes in zip(verdicts, record.episodes, strict=True):
                verdict["explored"] = int(episodes)
        return greedy, verdicts

    def after(epoch: Epoch) -> None:
        about = {"experiment": name, "phase": "explore", "budget": max(budgets)}
        exploring = {lane: seeds[lane] for lane in np.flatnonzero(~program.stopping.over).tolist()}
        rows = _rows(env, exploring, epoch.collected, epoch.t * per_epoch, about)
        verdicts: list[dict[str, Any]] = []
        if epoch.t + 1 < whole and (epoch.t + 1) * per_epoch in budgets:
            greedy, verdicts = judged(epoch.t, epoch.models, epoch.replay)
            rows += greedy
        take(rows, verdicts, round(record.read_clock(), 1))

    def last(models: Any, replay: Any, _: Any) -> None:
        record.save()  # exploiting takes a while: whoever interrupts it does not interrupt exploration
        take(*judged(whole - 1, models, replay), round(record.read_clock(), 1))

    with compiling() as helper:
        program.explore(record, True, last, after, helper)


def _is_later(place: tuple[Any, ...], verdict: dict[str, Any]) -> bool:
    """Whether a row, by what it is about, is of exploration after that of a verdict's seed had ended."""
    phase, _, seed, episode = place
    return phase == "explore" and seed == verdict["seed"] and episode > verdict.get("explored", math.inf)


def _about(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["phase"], row["budget"], row["seed"], row["episode"]


def _rows(
    env: AbstractEnvironment, seeds: dict[int, int], episodes: Episodes, before: int, about: dict[str, Any]
) -> list[dict[str, Any]]:
    """A row per episode of some lanes, and their seeds."""
    optima = None
    if isinstance(env, Maze):
        optima = np.asarray(
            jax.jit(jax.vmap(jax.vmap(lambda obs: env.optimal_return(env.state_of(obs)))))(episodes.start)
        )
    returns, lengths, reached = map(np.asarray, (episodes.returns, episodes.lengths, episodes.terminated))
    return [
        {
            **about,
            "seed": seed,
            "episode": before + i + 1,
            "return": round(float(returns[lane, i]), 6),
            "length": int(lengths[lane, i]),
            "reached": bool(reached[lane, i]),
            "optimal_return": "" if optima is None else round(float(optima[lane, i]), 6),
        }
        for lane, seed in seeds.items()
        for i in range(returns.shape[1])
    ]


def judge(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """One seed's greedy episodes after one budget."""
    returns = np.array([row["return"] for row in rows])
    mean, low, high = mean_interval(returns)
    found = {
        "seed": rows[0]["seed"],
        "budget": rows[0]["budget"],
        "return_mean": round(mean, 4),
        "return_ci": [round(low, 4), round(high, 4)],
        "return_min": float(returns.min()),
        "reached": float(np.mean([row["reached"] for row in rows])),
    }
    if rows[0]["optimal_return"] != "":
        found["optimal_return_mean"] = round(float(np.mean([row["optimal_return"] for row in rows])), 4)
    return found


def _phrase(verdict: dict[str, Any]) -> str:
    optimum = f" of {verdict['optimal_return_mean']:.2f}" if "optimal_return_mean" in verdict else ""
    episodes = verdict.get("explored", verdict["budget"])
    return (
        f"seed {verdict['seed']} after {episodes} episodes: return {verdict['return_mean']:.2f}{optimum}, "
        f"goal reached in {verdict['reached']:.0%}"
    )


def write(out: Path, rows: list[dict[str, Any]], judged: list[dict[str, Any]], about: dict[str, Any]) -> None:
    explored = [row for row in rows if row["phase"] == "explore"]
    more = {
        "exploit": judged,
        "explore_return_mean": {
            str(seed): float(np.mean([row["return"] for row in explored if row["seed"] == seed]))
            for seed in about["settings"]["seeds"]
        },
    }
    write_table(table_path(out, about["experiment"]), COLUMNS, rows, {**about, **more})
