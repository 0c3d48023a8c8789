"""Figure 3's combination locks (section 5.1): how many exploration episodes each horizon takes.

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

import jax
import jax.numpy as jnp
import numpy as np

from e3rl.envs.lock import CombinationLock
from e3rl.experiments.tables import table_path, write_table
from e3rl.neural.config import CONFIGS
from e3rl.neural.lanes import Lanes
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
    config: str = "e3rl"
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    changes: tuple[tuple[str, Any], ...] = ()
    """Settings that differ from the named config."""
    rewards: tuple[str, ...] = ("standard", "antishaped")


def _options(**changes: Any) -> LockExperiment:
    """One choice of planning, compared with the others by how much it has found after a small budget."""
    changes = {"planner": "mcts", "choice": "mean", "exploit_updates": 6_000, **changes}
    return LockExperiment(
        8, (8, 12, 16), seeds=(100, 101, 102), changes=tuple(changes.items()), rewards=("antishaped",)
    )


EXPERIMENTS: dict[str, LockExperiment] = {
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
    "planning/value": _options(planner="value"),
    "planning/uniform": _options(planner="uniform"),
    "planning/mcts": _options(),
    "planning/mcts-leaf-zero": _options(leaf="zero"),
    "planning/mcts-leaf-rollout": _options(leaf="rollout"),
    "planning/mcts-choice-best": _options(choice="best"),
    "planning/mcts-choice-visits": _options(choice="visits"),
    "planning/mcts-own-noise": _options(common_noise=False),
    "planning/mcts-no-samples": _options(from_samples=False),
    "planning/mcts-distance-mean": _options(distance="mean"),
    "planning/mcts-distance-hellinger": _options(distance="hellinger"),
    "planning/value-distance-mean": _options(planner="value", distance="mean"),
    "planning/value-distance-hellinger": _options(planner="value", distance="hellinger"),
    "planning/value-no-prior": _options(planner="value", prior_weight=0.0),
    "planning/value-input": _options(planner="value", conditioning="input"),
    "planning/value-exploit-dqn": _options(planner="value", exploit="dqn", exploit_updates=30_000),
}


def run(name: str, out: Path, say: Callable[[str], None], seeds: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Run one experiment, write `out`/NAME.csv and .json after every budget, return its rows."""
    if name not in EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}; known: {', '.join(EXPERIMENTS)}")
    experiment = EXPERIMENTS[name]
    seeds = tuple(seeds) or experiment.seeds
    if not all(0 <= seed < 2**31 for seed in seeds):
        raise UserError(f"seeds must be from 0 to 2**31 − 1, got {', '.join(map(str, seeds))}")
    changes = {**dict(experiment.changes), "explore_ratio": max(experiment.ratios)}
    config = dataclasses.replace(CONFIGS[experiment.config], **changes)
    cases = [(reward, seed) for reward in experiment.rewards for seed in seeds]
    locks = [
        CombinationLock(experiment.horizon, antishaped=reward == "antishaped", seed=seed)
        for reward, seed in cases
    ]
    env = jax.tree.map(lambda *leaves: jnp.stack(leaves), *locks)
    keys = jax.vmap(jax.random.key)(jnp.array([seed for _, seed in cases]))
    lanes = Lanes(locks[0], config)
    budgets = {ratio * experiment.horizon: ratio for ratio in experiment.ratios}
    if config.episodes_per_epoch != 1:
        raise UserError("budgets are counted in episodes: episodes_per_epoch must be 1")

    started, rows = time.perf_counter(), []
    paid = np.zeros(len(cases), int)
    models, value, replay = lanes.init(keys)
    for t in range(max(budgets)):
        epoch = jnp.full(len(cases), t)
        policy, _ = lanes.plan(models, value, replay, keys, epoch)
        value = policy.value
        replay, collected = lanes.collect(env, policy, replay, keys, epoch)
        models, _ = lanes.update_models(models, replay, keys, epoch)
        paid += np.asarray(collected.returns)[:, 0] > 2.0
        if t + 1 not in budgets:
            continue
        exploit = lanes.exploit(models, replay, keys)
        returns = np.asarray(lanes.evaluate(env, exploit, keys, config.evaluation_episodes))
        seconds = round(time.perf_counter() - started, 1)
        for lane, (reward, seed) in enumerate(cases):
            mean, optimum = float(returns[lane].mean()), locks[lane].optimal_return
            solved = mean >= SOLVED * optimum
            entry = (
                name, experiment.horizon, reward, seed, budgets[t + 1], t + 1, round(mean, 6), optimum, solved,
                int(paid[lane]), seconds,
            )  # fmt: skip
            rows.append(dict(zip(COLUMNS, entry, strict=True)))
        write(name, out, rows, experiment, seeds, dataclasses.asdict(config))
        say(f"{name} {budgets[t + 1]}H ({t + 1} episodes), {seconds:.0f} s: {tally(rows, t + 1)}")
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
