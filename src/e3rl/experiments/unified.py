"""One phase or two (the paper's future work): the reward collected over the first 50H episodes of a lock.

Two phases explore, for some episodes or until exploration ends by itself, and then play greedily without learning any
more. One phase plays by the same planner, and learns, to the end. Every reward on the way counts. Solved is a lock
whose last 10H episodes brought 95% of the optimal return in the mean.
"""

import csv
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from e3rl.e3 import Epoch
from e3rl.envs.lock import CombinationLock
from e3rl.envs.spec import spec_of
from e3rl.experiments.lock import SOLVED
from e3rl.experiments.tables import refuse_seeds, table_path, write_table
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.presets import PRESETS
from e3rl.neural.training import NeuralProgram
from e3rl.runs.record import Record
from e3rl.runs.settings import as_dict, changed
from e3rl.types import UserError

RATIO = 50
"""Episodes that count, per level of the lock."""
MARKS = (10, 20, 30, 40, RATIO)
"""Where the reward so far is written down, in episodes per level."""
COLUMNS = (
    "experiment", "horizon", "agent", "reward", "seed", *(f"total_{ratio}h" for ratio in MARKS), "last_return",
    "optimal_return", "solved", "seconds",
)  # fmt: skip
Changes = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Agent:
    explore: int
    """Episodes per level before it only exploits."""
    changes: Changes = ()
    ends: bool = False
    """Whether exploration ends by itself, with `explore` as its ceiling."""


AGENTS = {
    "two-phases": Agent(12),
    "two-phases-ends": Agent(30, ends=True),
    "one-phase": Agent(RATIO, (("planner", "unified"),)),
    "one-phase-best": Agent(RATIO, (("planner", "unified"), ("planner.believed", "best"))),
    "one-phase-sampled": Agent(RATIO, (("planner", "unified"), ("planner.believed", "sampled"))),
}


@dataclass(frozen=True)
class UnifiedExperiment:
    horizon: int
    agents: tuple[str, ...] = ("two-phases", "two-phases-ends", "one-phase")
    seeds: tuple[int, ...] = (300, 301, 302, 303, 304)
    rewards: tuple[str, ...] = ("standard", "antishaped")

    @property
    def about(self) -> str:
        """What it is, in a line."""
        agents = ", ".join(self.agents)
        return f"Neural-E³, lock of {self.horizon} levels, reward over {RATIO}H episodes: {agents}"


UNIFIED_EXPERIMENTS = {
    **{f"unified/lock-h{horizon}": UnifiedExperiment(horizon) for horizon in (5, 10)},
    "unified/believed-h5": UnifiedExperiment(5, ("one-phase-best", "one-phase-sampled")),
}


def config_of(agent: Agent) -> NeuralE3Config:
    changes = {**dict(agent.changes), "explore.ratio": agent.explore}
    if not agent.ends:
        changes["explore.epsilon_share"] = 0.0
    return changed(PRESETS["e3rl"], changes)


def run(name: str, out: Path, say: Callable[[str], None], seeds: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Run one experiment, write `out`/NAME.csv and .json on the way. What is there already with the same settings is
    kept, so one that was interrupted goes on, and seeds may be added."""
    if name not in UNIFIED_EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}; known: {', '.join(UNIFIED_EXPERIMENTS)}")
    experiment = UNIFIED_EXPERIMENTS[name]
    seeds = tuple(seeds) or experiment.seeds
    refuse_seeds(seeds)
    about: dict[str, Any] = {
        "experiment": name,
        "settings": dataclasses.asdict(experiment),
        "configs": {agent: as_dict(config_of(AGENTS[agent])) for agent in experiment.agents},
    }
    path = table_path(out, name)
    rows = kept_rows(path, about)
    for agent in experiment.agents:
        done = {(row["reward"], int(row["seed"])) for row in rows if row["agent"] == agent}
        cases = [(reward, seed) for seed in seeds for reward in experiment.rewards]
        missing = [case for case in cases if case not in done]
        # Side by side on an accelerator; a CPU gains nothing by it.
        at_once = 1 if jax.default_backend() == "cpu" else max(len(missing), 1)
        for first in range(0, len(missing), at_once):
            rows += _measure(name, experiment.horizon, agent, missing[first : first + at_once])
            about["mean_total_reward"] = mean_totals(rows)
            write_table(path, COLUMNS, rows, about)
            say(f"{name} {agent}, reward in the mean so far: {about['mean_total_reward'][agent]}")
    return rows


def kept_rows(path: Path, about: dict[str, Any]) -> list[dict[str, Any]]:
    """What was measured before, of agents with the same settings."""
    if not (path.is_file() and path.with_suffix(".json").is_file()):
        return []
    before, now = json.loads(path.with_suffix(".json").read_text()), json.loads(json.dumps(about))
    if before.get("settings", {}).get("horizon") != now["settings"]["horizon"]:
        return []
    same = {
        agent for agent, config in now["configs"].items() if before.get("configs", {}).get(agent) == config
    }
    with path.open(newline="") as file:
        return [dict(row) for row in csv.DictReader(file) if row["agent"] in same]


def mean_totals(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Over seeds, by agent and reward."""
    found: dict[str, dict[str, float]] = {}
    for agent, reward in dict.fromkeys((row["agent"], row["reward"]) for row in rows):
        same = [row for row in rows if (row["agent"], row["reward"]) == (agent, reward)]
        totals = [float(row[f"total_{RATIO}h"]) for row in same]
        found.setdefault(agent, {})[reward] = round(float(np.mean(totals)), 2)
    return found


def _measure(name: str, horizon: int, agent: str, cases: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    """An agent's rows for some rewards and seeds, lanes of one program."""
    started, config = time.perf_counter(), config_of(AGENTS[agent])
    locks = [CombinationLock(horizon, antishaped=reward == "antishaped", seed=seed) for reward, seed in cases]
    program = NeuralProgram(locks, [spec_of(lock) for lock in locks], config, [seed for _, seed in cases])
    returns = first_returns(program, RATIO * horizon)
    seconds, so_far = round(time.perf_counter() - started, 1), np.cumsum(returns, axis=1)
    last = returns[:, MARKS[-2] * horizon :].mean(axis=1)
    rows = []
    for lane, (reward, seed) in enumerate(cases):
        optimum = locks[lane].optimal_return
        totals = [round(float(so_far[lane, ratio * horizon - 1]), 4) for ratio in MARKS]
        entry = (
            name, horizon, agent, reward, seed, *totals, round(float(last[lane]), 4), optimum,
            bool(last[lane] >= SOLVED * optimum), seconds,
        )  # fmt: skip
        rows.append(dict(zip(COLUMNS, entry, strict=True)))
    return rows


def first_returns(program: NeuralProgram, episodes: int) -> Float[np.ndarray, "lanes {episodes}"]:
    """Of the episodes of exploring and then, where some are left, of greedy ones."""
    returns: list[list[float]] = [[] for _ in program.seeds]

    def note(epoch: Epoch) -> None:
        for lane in np.flatnonzero(~program.stopping.over):
            returns[lane] += np.asarray(epoch.collected.returns)[lane].tolist()

    def exploit(models: Any, replay: Any, v_explore: Any) -> None:
        left = episodes - min(map(len, returns))
        if left > 0:
            policy = program.agent.exploit(models, replay, program.keys)
            for own, greedy in zip(returns, program.evaluate(policy, left), strict=True):
                own += greedy.tolist()

    program.explore(Record(program.seeds), False, exploit, note)
    return np.array([own[:episodes] for own in returns])
