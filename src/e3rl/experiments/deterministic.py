"""Figure 3's mazes and control tasks (sections 5.2 and 5.3): what is collected while exploring, and what the exploit
phase is worth after so many exploration episodes.

Exploration runs once to the largest budget; at every smaller one the exploit phase is trained from what has been seen
so far and plays 100 greedy episodes. All seeds are lanes of one program.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.maze import Maze
from e3rl.envs.registration import build
from e3rl.experiments.tables import table_path, write_table
from e3rl.neural.config import CONFIGS, NeuralE3Config
from e3rl.neural.lanes import Episodes, Lanes
from e3rl.neural.statistics import mean_interval
from e3rl.types import UserError

COLUMNS = (
    "experiment", "seed", "phase", "budget", "episode", "return", "length", "reached", "optimal_return"
)  # fmt: skip


@dataclass(frozen=True)
class Experiment:
    env: str
    options: tuple[tuple[str, Any], ...]
    config: str
    budgets: tuple[int, ...]
    """Exploration episodes after which the exploit phase is trained and judged."""
    seeds: tuple[int, ...]
    changes: tuple[tuple[str, Any], ...] = ()
    """Settings that differ from the named config."""


def _control(env: str, config: str, budgets: tuple[int, ...], **changes: Any) -> Experiment:
    return Experiment(env, (), config, budgets, (0, 1, 2, 3, 4), tuple(changes.items()))


def _maze(size: int, config: str, **changes: Any) -> Experiment:
    return Experiment("e3rl/Maze-v0", (("size", size),), config, (50,), (0, 1, 2), tuple(changes.items()))


EXPERIMENTS: dict[str, Experiment] = {
    "mountaincar/e3rl": _control("e3rl/MountainCar-v0", "e3rl-control", (20, 30, 50)),
    "mountaincar/nearest": _control("e3rl/MountainCar-v0", "e3rl-control", (50,), frontier="nearest"),
    "mountaincar/paper": _control("e3rl/MountainCar-v0", "paper-control", (100,)),
    "acrobot/e3rl": _control("e3rl/Acrobot-v1", "e3rl-control", (20, 30, 50)),
    **{f"maze/{size}-e3rl": _maze(size, "e3rl-image", snap=True) for size in (5, 10, 20)},
    **{f"maze/{size}-paper": _maze(size, "paper-maze") for size in (5, 10, 20)},
    **{f"maze/{size}-ue2": _maze(size, "e3rl-image", snap=True, planner="uniform") for size in (5, 10, 20)},
}


def run(name: str, out: Path, say: Callable[[str], None], seeds: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Run one experiment, write `out`/NAME.csv and .json after every budget, return its rows."""
    experiment = EXPERIMENTS[name]
    seeds = tuple(seeds) or experiment.seeds
    if not all(0 <= seed < 2**31 for seed in seeds):
        raise UserError(f"seeds must be from 0 to 2**31 − 1, got {', '.join(map(str, seeds))}")
    changes = {**dict(experiment.changes), "explore_episodes": max(experiment.budgets)}
    config = dataclasses.replace(CONFIGS[experiment.config], **changes)
    if any(budget % config.episodes_per_epoch for budget in experiment.budgets):
        raise UserError(f"budgets must be whole epochs of {config.episodes_per_epoch} episodes")
    env = build(experiment.env, **dict(experiment.options))
    rows: list[dict[str, Any]] = []
    judged: list[dict[str, Any]] = []
    for new, verdicts, seconds in learning(name, env, config, seeds, experiment.budgets):
        rows += new
        judged += [{**verdict, "seconds": seconds} for verdict in verdicts]
        if verdicts:
            write(name, out, rows, judged, experiment, seeds, config)
        told = "; ".join(map(_phrase, verdicts)) or f"explored episodes up to {new[-1]['episode']}"
        say(f"{name}, {seconds:.0f} s: {told}")
    return rows


def learning(
    name: str, env: AbstractEnvironment, config: NeuralE3Config, seeds: Sequence[int], budgets: Sequence[int]
) -> Iterator[tuple[list[dict[str, Any]], list[dict[str, Any]], float]]:
    """Epoch by epoch: its rows, the verdicts on the exploit phase where a budget is reached, the seconds so far."""
    lanes = Lanes(env, config)
    keys = jax.vmap(jax.random.key)(jnp.array(seeds))
    envs = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(seeds)), env)
    started = time.perf_counter()
    models, value, replay = lanes.init(keys)
    for t in range(lanes.epochs):
        epoch, done = jnp.full(len(seeds), t), t * config.episodes_per_epoch
        policy, _ = lanes.plan(models, value, replay, keys, epoch)
        value = policy.value
        replay, collected = lanes.collect(envs, policy, replay, keys, epoch)
        models, _ = lanes.update_models(models, replay, keys, epoch)
        about = {"experiment": name, "phase": "explore", "budget": max(budgets)}
        rows, verdicts = _rows(env, seeds, collected, done, about), []
        done += config.episodes_per_epoch
        if done in budgets:
            exploit = lanes.exploit(models, replay, keys)
            _, played = lanes.exploit_episodes(envs, exploit, replay, keys, epoch, config.evaluation_episodes)
            greedy = _rows(env, seeds, played, 0, {"experiment": name, "phase": "exploit", "budget": done})
            rows += greedy
            verdicts = [_verdict([row for row in greedy if row["seed"] == seed]) for seed in seeds]
        yield rows, verdicts, round(time.perf_counter() - started, 1)


def _rows(
    env: AbstractEnvironment, seeds: Sequence[int], episodes: Episodes, before: int, about: dict[str, Any]
) -> list[dict[str, Any]]:
    """A row per seed and episode."""
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
        for lane, seed in enumerate(seeds)
        for i in range(returns.shape[1])
    ]


def _verdict(rows: list[dict[str, Any]]) -> dict[str, Any]:
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
    return (
        f"seed {verdict['seed']} after {verdict['budget']} episodes: return {verdict['return_mean']:.2f}{optimum}, "
        f"goal reached in {verdict['reached']:.0%}"
    )


def write(
    name: str,
    out: Path,
    rows: list[dict[str, Any]],
    judged: list[dict[str, Any]],
    experiment: Experiment,
    seeds: Sequence[int],
    config: NeuralE3Config,
) -> None:
    about = {
        "experiment": name,
        "settings": {**dataclasses.asdict(experiment), "seeds": list(seeds)},
        "config": dataclasses.asdict(config),
        "exploit": judged,
        "explore_return_mean": {
            str(seed): float(
                np.mean([row["return"] for row in rows if row["seed"] == seed and row["phase"] == "explore"])
            )
            for seed in seeds
        },
    }
    write_table(table_path(out, name), COLUMNS, rows, about)
