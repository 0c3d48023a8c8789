"""Figure 2's combination locks (section 5.1): how many exploration episodes each horizon takes.

Exploration runs once to the largest budget; at every smaller one the exploit phase is trained from what has been seen
so far and evaluated on 100 greedy episodes. Both rewards and all seeds are lanes of one program.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from e3rl.e3 import Epoch
from e3rl.envs.lock import CombinationLock
from e3rl.envs.spec import spec_of
from e3rl.experiments.names import settings_name, spread
from e3rl.experiments.tables import refuse_seeds, table_path, write_table
from e3rl.neural.presets import PRESETS
from e3rl.neural.training import NeuralProgram
from e3rl.runs.record import Record
from e3rl.runs.settings import as_dict, changed
from e3rl.types import UserError

SOLVED = 0.95
"""Solved: mean return of the evaluation episodes at least this share of the optimal return."""
COLUMNS = (
    "experiment", "horizon", "reward", "seed", "ratio", "episodes", "return_mean", "optimal_return", "solved",
    "paid_episodes", "seconds",
)  # fmt: skip


@dataclass(frozen=True)
class LockExperiment:
    horizon: int
    ratios: tuple[int, ...]
    """Exploration budgets, in episodes per step of the horizon."""
    config: str = "e3rl-budgets"
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    changes: tuple[tuple[str, Any], ...] = ()
    """Settings that differ from the named config, by path."""
    rewards: tuple[str, ...] = ("standard", "antishaped")

    @property
    def about(self) -> str:
        """What it is, in a line."""
        changes = " ".join(f"{path}={value}" for path, value in self.changes)
        rewards = "" if len(self.rewards) > 1 else f" ({self.rewards[0]})"
        budgets = spread(self.ratios)
        lock = f"lock of {self.horizon} levels{rewards}, {budgets} episodes per level"
        return f"Neural-E³, {lock}, {changes or settings_name(self.config)}"


def _options(planner: str = "mcts", **changes: Any) -> LockExperiment:
    """One choice of planning, compared with the others by how much it has found after a small budget."""
    chosen: dict[str, Any] = {"planner": planner, "exploit.value.updates": 6_000}
    if planner == "mcts":
        chosen["planner.choice"] = "mean"
    chosen |= {name.replace("__", "."): value for name, value in changes.items()}
    return LockExperiment(
        8, (8, 12, 16), seeds=(100, 101, 102), changes=tuple(chosen.items()), rewards=("antishaped",)
    )


def _compared(horizon: int, planner: str, **changes: Any) -> LockExperiment:
    """One way to compare the members' states, against the others at equal episodes."""
    chosen = {"planner": planner, "exploit.value.updates": 6_000}
    chosen |= {name.replace("__", "."): value for name, value in changes.items()}
    ratios = (6, 8, 12) if horizon == 5 else (8, 12, 16)
    return LockExperiment(
        horizon,
        ratios,
        seeds=(200, 201, 202, 203, 204),
        changes=tuple(chosen.items()),
        rewards=("antishaped",),
    )


_COMPARED: dict[str, dict[str, Any]] = {
    "value": {"planner": "value"},
    "value-propagate-2": {"planner": "value", "planner__propagate": 2},
    "value-propagate-3": {"planner": "value", "planner__propagate": 3},
    "mcts": {"planner": "mcts"},
    "mcts-distance-joint": {"planner": "mcts", "utility": "joint"},
}

LOCK_EXPERIMENTS: dict[str, LockExperiment] = {
    "lock/h5": LockExperiment(5, (5, 8, 10, 12, 15, 20, 25)),
    "lock/h10": LockExperiment(10, (10, 12, 15, 20, 25, 30, 50)),
    "lock/h15": LockExperiment(15, (10, 12, 15, 20, 25, 30, 50)),
    "lock/h20": LockExperiment(20, (10, 12, 15, 20, 25, 30, 50, 75)),
    "lock/h50": LockExperiment(50, (10, 15, 20, 25, 30)),
    "lock-long/h50": LockExperiment(50, (20, 30, 40, 45), "e3rl-long"),
    "lock-paper/h5": LockExperiment(5, (25,), "paper-lock-h5"),
    "lock-paper/h10": LockExperiment(10, (50,), "paper-lock-h10"),
    "lock-paper/h15": LockExperiment(15, (50,), "paper-lock-h15"),
    "lock-paper/h20": LockExperiment(20, (75,), "paper-lock-h20"),
    "planning/value": _options("value"),
    "planning/uniform": _options("uniform"),
    "planning/mcts": _options(),
    "planning/mcts-leaf-zero": _options(planner__leaf="zero"),
    "planning/mcts-leaf-rollout": _options(planner__leaf="rollout"),
    "planning/mcts-choice-best": _options(planner__choice="best"),
    "planning/mcts-choice-visits": _options(planner__choice="visits"),
    "planning/mcts-own-noise": _options(planner__common_noise=False),
    "planning/mcts-no-samples": _options(planner__from_samples=False),
    "planning/mcts-distance-mean": _options(utility="mean"),
    "planning/mcts-distance-hellinger": _options(utility="hellinger"),
    "planning/value-distance-mean": _options("value", utility="mean"),
    "planning/value-distance-hellinger": _options("value", utility="hellinger"),
    "planning/value-no-prior": _options("value", fit__prior_weight=0.0),
    "planning/value-input": _options("value", model__conditioning="input"),
    "planning/value-exploit-dqn": _options("value", exploit="dqn", exploit__value__updates=30_000),
    **{f"planning-h{h}/{name}": _compared(h, **given) for h in (5, 8) for name, given in _COMPARED.items()},
}


def run(name: str, out: Path, say: Callable[[str], None], seeds: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Run one experiment, write `out`/NAME.csv and .json after every budget, return its rows."""
    if name not in LOCK_EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}; known: {', '.join(LOCK_EXPERIMENTS)}")
    experiment = LOCK_EXPERIMENTS[name]
    seeds = tuple(seeds) or experiment.seeds
    refuse_seeds(seeds)
    changes = {
        **dict(experiment.changes),
        "explore.ratio": max(experiment.ratios),
        "explore.epsilon_share": 0.0,
    }
    config = changed(PRESETS[experiment.config], changes)
    cases = [(reward, seed) for reward in experiment.rewards for seed in seeds]
    locks = [
        CombinationLock(experiment.horizon, antishaped=reward == "antishaped", seed=seed)
        for reward, seed in cases
    ]
    budgets = {ratio * experiment.horizon: ratio for ratio in experiment.ratios}
    if config.explore.per_epoch != 1:
        raise UserError("budgets are counted in episodes: explore.per_epoch must be 1")
    started, rows = time.perf_counter(), list[dict[str, Any]]()
    paid = np.zeros(len(cases), int)
    program = NeuralProgram(locks, [spec_of(lock) for lock in locks], config, [seed for _, seed in cases])

    def judge(epoch: Epoch) -> None:
        nonlocal paid
        paid = paid + (np.asarray(epoch.collected.returns)[:, 0] > 2.0)
        episodes = epoch.t + 1
        if episodes not in budgets:
            return
        policy = program.agent.exploit(epoch.models, epoch.replay, program.keys)
        returns = program.evaluate(policy, config.evaluation_episodes)
        seconds = round(time.perf_counter() - started, 1)
        for lane, (reward, seed) in enumerate(cases):
            mean, optimum = float(returns[lane].mean()), locks[lane].optimal_return
            solved = mean >= SOLVED * optimum
            entry = (
                name, experiment.horizon, reward, seed, budgets[episodes], episodes, round(mean, 6), optimum, solved,
                int(paid[lane]), seconds,
            )  # fmt: skip
            rows.append(dict(zip(COLUMNS, entry, strict=True)))
        write(name, out, rows, experiment, seeds, as_dict(config))
        say(f"{name} {budgets[episodes]}H ({episodes} episodes), {seconds:.0f} s: {tally(rows, episodes)}")

    program.explore(Record(program.seeds), False, lambda models, replay, v_explore: None, judge)
    return rows


def tally(rows: list[dict[str, Any]], episodes: int) -> str:
    """Seeds solved per reward at one budget."""
    parts = []
    for reward in dict.fromkeys(row["reward"] for row in rows):
        solved = [row["solved"] for row in rows if row["episodes"] == episodes and row["reward"] == reward]
        parts.append(f"{reward} solved {sum(solved)} of {len(solved)}")
    return ", ".join(parts)


def smallest_budget(rows: list[dict[str, Any]], reward: str) -> int | float:
    """The smallest measured ratio from which on every seed is solved at every larger budget too; inf if none is."""
    best: int | float = math.inf
    for ratio in sorted({row["ratio"] for row in rows}, reverse=True):
        solved = [row["solved"] for row in rows if row["ratio"] == ratio and row["reward"] == reward]
        if not solved or not all(solved):
            break
        best = ratio
    return best


def write(
    name: str,
    out: Path,
    rows: list[dict[str, Any]],
    experiment: LockExperiment,
    seeds: Sequence[int],
    config: dict[str, Any],
) -> None:
    about = {
        "experiment": name,
        "settings": {**dataclasses.asdict(experiment), "seeds": list(seeds)},
        "config": config,
        "smallest_ratio_solving_all_seeds": {
            reward: _finite(smallest_budget(rows, reward)) for reward in experiment.rewards
        },
        "solved": {
            str(episodes): tally(rows, episodes) for episodes in sorted({row["episodes"] for row in rows})
        },
    }
    write_table(table_path(out, name), COLUMNS, rows, about)


def _finite(value: int | float) -> int | float | None:
    return None if math.isinf(value) else value
