"""Figure 2's combination locks (section 5.1): how many exploration episodes each horizon takes.

Exploration runs once to the largest budget; at every smaller one the exploit phase is trained from what has been seen
so far and evaluated on 100 greedy episodes. Both rewards and all seeds are lanes of one program.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from e3rl.e3 import Epoch
from e3rl.envs.lock import CombinationLock
from e3rl.envs.spec import spec_of
from e3rl.experiments.curves import stretches
from e3rl.experiments.earlier import Earlier, earlier_seeds, together
from e3rl.experiments.names import LOCK, settings_name, spread
from e3rl.experiments.smoke import BUDGET, LEVELS, smaller
from e3rl.experiments.tables import (
    about_cell,
    forget_runs,
    measured_before,
    note_machine,
    refuse_seeds,
    table_path,
    truth,
    unfinished_runs,
    write_rows,
    write_table,
)
from e3rl.neural.agent import NeuralE3
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.presets import PRESETS
from e3rl.neural.training import NeuralProgram
from e3rl.runs.folder import RunFolder
from e3rl.runs.record import Record
from e3rl.runs.settings import changed
from e3rl.types import UserError

SOLVED = 0.95
"""Solved: mean return of the evaluation episodes at least this share of the optimal return."""
PAID = 2.0
"""A return above this has the large reward in it."""
KINDS: dict[str, Callable[[str], Any]] = {
    "experiment": str, "horizon": int, "reward": str, "seed": int, "ratio": int, "episodes": int,
    "return_mean": float, "optimal_return": float, "solved": truth, "paid_episodes": int, "seconds": float,
}  # fmt: skip
COLUMNS = tuple(KINDS)
CURVE_KINDS: dict[str, Callable[[str], Any]] = {
    "experiment": str, "reward": str, "seed": int, "episode": int, "return_mean": float,
}  # fmt: skip
EXPLORING = tuple(CURVE_KINDS)
"""Of the table of returns while exploring, which lies beside: means of a hundred stretches of episodes."""


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
    noise_bits: int | None = None
    """Of an observation; as many as there are levels if nobody says."""
    rewarded_actions: int = 1
    """Of the last level's: one as in the paper's text, or two as in its code."""

    @property
    def measures(self) -> set[tuple[str, int]]:
        """What is measured of every seed: rewards and ratios."""
        return {(reward, ratio) for reward in self.rewards for ratio in self.ratios}

    @property
    def about(self) -> str:
        """What it is, in a line."""
        changes = " ".join(f"{path}={value}" for path, value in self.changes)
        rewards = "" if len(self.rewards) > 1 else f" ({self.rewards[0]})"
        bits = "" if self.noise_bits is None else f", {self.noise_bits} noise bits"
        bits += ", two actions paid" if self.rewarded_actions == 2 else ""
        budgets = spread(self.ratios)
        lock = f"lock of {self.horizon} levels{rewards}{bits}, {budgets} episodes per level"
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

_GROWN: dict[str, dict[str, Any]] = {
    "one-by-one": {},
    "one-by-one-reuse": {"planner.reuse": True},
    "batch-1": {"planner.batch": 1},
    "batch-4": {"planner.batch": 4},
    "batch-4-reuse": {"planner.batch": 4, "planner.reuse": True},
}


def _grown(changes: dict[str, Any]) -> LockExperiment:
    """One way to grow the search tree, against the others at equal playouts and episodes."""
    few = {"planner": "mcts", "planner.particles": 20, "exploit.value.updates": 3_000}
    chosen = tuple((few | changes).items())
    return LockExperiment(5, (8, 12), seeds=(200, 201, 202), changes=chosen, rewards=("antishaped",))


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
    "lock-paper-longer/h10": LockExperiment(10, (50, 75), "paper-lock-h10"),
    "lock-paper-5bits/h10": LockExperiment(10, (50,), "paper-lock-h10", noise_bits=5),
    "lock-paper-5bits/h15": LockExperiment(15, (50,), "paper-lock-h15", noise_bits=5),
    "lock-paper-5bits/h20": LockExperiment(20, (75,), "paper-lock-h20", noise_bits=5),
    "lock-released/h5": LockExperiment(5, (25,), "paper-lock-h5", noise_bits=5, rewarded_actions=2),
    "lock-released/h10": LockExperiment(10, (50,), "paper-lock-h10", noise_bits=5, rewarded_actions=2),
    "lock-released/h15": LockExperiment(15, (50,), "paper-lock-h15", noise_bits=5, rewarded_actions=2),
    "lock-released/h20": LockExperiment(20, (75,), "paper-lock-h20", noise_bits=5, rewarded_actions=2),
    "lock-halved/h5": LockExperiment(5, (25,), "paper-lock-h5", changes=(("model.reward_weight", 0.5),)),
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
    **{f"planning-tree/{name}": _grown(changes) for name, changes in _GROWN.items()},
    "planning/value-exploit-mcts": _options("value", exploit="mcts"),
    **{f"planning-h{h}/{name}": _compared(h, **given) for h in (5, 8) for name, given in _COMPARED.items()},
}


def experiment_of(name: str, smoke: bool = False) -> LockExperiment:
    if name not in LOCK_EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}; known: {', '.join(LOCK_EXPERIMENTS)}")
    found = LOCK_EXPERIMENTS[name]
    if not smoke:
        return found
    return dataclasses.replace(found, horizon=LEVELS, ratios=(BUDGET,), seeds=found.seeds[:1])


def config_of(experiment: LockExperiment, smoke: bool = False) -> NeuralE3Config:
    changes = {
        **dict(experiment.changes),
        "explore.ratio": max(experiment.ratios),
        "explore.epsilon_share": 0.0,
    }
    config = changed(PRESETS[experiment.config], changes)
    return smaller(config) if smoke else config


def is_done(name: str, out: Path, seeds: Sequence[int] = (), smoke: bool = False) -> bool:
    """Whether the results of all budgets lie there, made with today's settings."""
    experiment = experiment_of(name, smoke)
    wanted = {
        (reward, seed, ratio) for reward, ratio in experiment.measures for seed in seeds or experiment.seeds
    }
    about, rows = kept(table_path(out, name), experiment, config_of(experiment, smoke))
    # Those of earlier versions do not say what was collected while exploring.
    return "explore_return_mean" in about and wanted <= {
        (row["reward"], row["seed"], row["ratio"]) for row in rows
    }


def kept(
    path: Path, experiment: LockExperiment, config: NeuralE3Config
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What was measured before with the same settings: what is said about it, and its rows."""

    def alike(told: dict[str, Any]) -> bool:
        lock = (told["horizon"], told.get("noise_bits"), told.get("rewarded_actions", 1))
        return lock == (experiment.horizon, experiment.noise_bits, experiment.rewarded_actions)

    return measured_before(path, KINDS, config, alike)


def run(
    name: str, out: Path, say: Callable[[str], None], seeds: Sequence[int] = (), smoke: bool = False
) -> list[dict[str, Any]]:
    """Run one experiment, write `out`/NAME.csv and .json after every budget, return its rows. One that was interrupted
    goes on where it was, one that is done is not run again."""
    experiment, asked = experiment_of(name, smoke), tuple(seeds)
    seeds = asked or experiment.seeds
    refuse_seeds(seeds)
    config = config_of(experiment, smoke)
    if config.explore.per_epoch != 1:
        raise UserError("budgets are counted in episodes: explore.per_epoch must be 1")
    about, rows = kept(table_path(out, name), experiment, config)
    if is_done(name, out, seeds, smoke):
        say(f"{name}: done before, {table_path(out, name)}")
        forget_runs(out, name)
        return rows
    earlier = earlier_seeds(about, rows, experiment.measures, curves_path(out, name), CURVE_KINDS)
    seeds = tuple(seed for seed in seeds if seed not in earlier.seeds)
    cases = [(reward, seed) for reward in experiment.rewards for seed in seeds]
    rows = [row for row in rows if row["seed"] not in earlier.seeds]
    if {(row["reward"], row["seed"]) for row in rows} != set(cases):
        rows = []
    unusual = {} if experiment.noise_bits is None else {"noise_bits": experiment.noise_bits}
    unusual |= {} if experiment.rewarded_actions == 1 else {"rewarded_actions": experiment.rewarded_actions}
    options: list[dict[str, Any]] = [
        {"horizon": experiment.horizon, "antishaped": reward == "antishaped", **unusual, "seed": seed}
        for reward, seed in cases
    ]
    locks = [CombinationLock(**own) for own in options]
    budgets = {ratio * experiment.horizon: ratio for ratio in experiment.ratios}
    program = NeuralProgram(locks, [spec_of(lock) for lock in locks], config, [seed for _, seed in cases])
    runs = unfinished_runs(out, name)
    record = Record(
        program.seeds,
        [RunFolder(runs / f"{reward}-seed{seed}") for reward, seed in cases],
        [NeuralE3.describe(LOCK, own, own["seed"], config) for own in options],
    )

    told = _told(name, experiment, config, seeds, earlier, smoke) | note_machine(out, name)

    def judge(episodes: int, models: Any, replay: Any) -> None:
        if episodes not in budgets or any(row["episodes"] == episodes for row in rows):
            return
        explored = np.array([folder.column("return") for folder in record.folders])
        policy = program.agent.exploit(models, replay, program.keys)
        returns = program.evaluate(policy, config.evaluation_episodes)
        seconds = round(record.read_clock(), 1)
        for lane, (reward, seed) in enumerate(cases):
            mean, optimum = float(returns[lane].mean()), locks[lane].optimal_return
            solved = mean >= SOLVED * optimum
            paid = int(np.sum(explored[lane] > PAID))
            entry = (
                name, experiment.horizon, reward, seed, budgets[episodes], episodes, round(mean, 6), optimum, solved,
                paid, seconds,
            )  # fmt: skip
            rows.append(dict(zip(COLUMNS, entry, strict=True)))
        write(out, rows, told, dict(zip(cases, explored, strict=True)), earlier)
        say(f"{name} {budgets[episodes]}H ({episodes} episodes), {seconds:.0f} s: {tally(rows, episodes)}")

    whole = config.explore.epochs(experiment.horizon)

    def after(epoch: Epoch) -> None:
        if epoch.t + 1 < whole:
            judge(epoch.t + 1, epoch.models, epoch.replay)

    def last(models: Any, replay: Any, _: Any) -> None:
        record.save()  # exploiting takes a while: whoever interrupts it does not interrupt exploration
        judge(whole, models, replay)

    program.explore(record, True, last, after)
    forget_runs(out, name)
    return [*earlier.rows, *rows]


def put_together(name: str, out: Path, parts: Sequence[Path]) -> list[dict[str, Any]]:
    """The results in `out` with those of seeds that other commands have measured whole, each into a folder of its own:
    at once, on one machine or on several."""
    experiment = experiment_of(name)
    config = config_of(experiment)
    found = []
    for folder in (out, *parts):
        about, rows = kept(table_path(folder, name), experiment, config)
        one = earlier_seeds(about, rows, experiment.measures, curves_path(folder, name), CURVE_KINDS)
        if folder is not out and not one.seeds:
            raise UserError(f"{folder} has no whole seed of {name} with today's settings")
        found.append(one)
    earlier = together(found)
    write(out, [], _told(name, experiment, config, (), earlier, False), {}, earlier)
    return list(earlier.rows)


def _told(
    name: str,
    experiment: LockExperiment,
    config: NeuralE3Config,
    seeds: Sequence[int],
    earlier: Earlier,
    smoke: bool,
) -> dict[str, Any]:
    all_seeds = tuple(sorted((*earlier.seeds, *seeds)))
    unlike = all_seeds != experiment.seeds
    told = about_cell(name, experiment, config, all_seeds, all_seeds if unlike else (), smoke)
    return told | ({"earlier": earlier.made} if earlier.made else {})


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


def curves_path(out: Path, name: str) -> Path:
    path = table_path(out, name)
    return path.with_name(f"{path.stem}-exploring.csv")


def write(
    out: Path,
    rows: list[dict[str, Any]],
    about: dict[str, Any],
    explored: dict[tuple[str, int], Float[np.ndarray, " n"]],
    earlier: Earlier,
) -> None:
    """The table, what is said about it, and beside it the returns of exploring, by reward and seed."""
    name, rewards = about["experiment"], about["settings"]["rewards"]
    curves, rows = curves_path(out, name), [*earlier.rows, *rows]
    points = [
        dict(zip(EXPLORING, (name, reward, seed, *point), strict=True))
        for (reward, seed), returns in explored.items()
        for point in stretches(returns.tolist())
    ]
    write_rows(curves, EXPLORING, [*earlier.curves, *points])
    more = {
        "smallest_ratio_solving_all_seeds": {
            reward: _finite(smallest_budget(rows, reward)) for reward in rewards
        },
        "solved": {
            str(episodes): tally(rows, episodes) for episodes in sorted({row["episodes"] for row in rows})
        },
        "explore_return_mean": {
            reward: earlier.mean_return(reward)
            | {str(seed): round(float(own.mean()), 5) for (of, seed), own in explored.items() if of == reward}
            for reward in rewards
        },
        "more_tables": [curves.name],
    }
    write_table(table_path(out, name), COLUMNS, rows, {**about, **more})


def _finite(value: int | float) -> int | float | None:
    return None if math.isinf(value) else value
