"""Members pushed apart where there is no data (the paper's future work): does disagreement then tell better
what was tried from what was not?

Actions are uniform, so that all weights of the repulsion see the same episodes. At several budgets the members are
asked about every action in every state of the lock that can be reached. The measure is the chance that they disagree
more about one that was never tried than about one that was (AUROC): ½ is guessing, 1 is perfect.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from e3rl.e3 import Epoch
from e3rl.envs.lock import DEAD, NUM_ACTIONS, NUM_STATES, CombinationLock
from e3rl.envs.spec import spec_of
from e3rl.experiments.tables import refuse_seeds, table_path, write_table
from e3rl.models.ensemble import Ensemble, predict
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.presets import PRESETS
from e3rl.neural.training import NeuralProgram
from e3rl.planners.utility import AbstractUtility
from e3rl.replay import Transitions
from e3rl.runs.record import Record
from e3rl.runs.settings import as_dict, changed
from e3rl.types import Key, UserError

COINS = 8
"""Draws of the coin bits in which every state is shown."""
COLUMNS = ("experiment", "horizon", "repulsion", "seed", "episodes", "untried", "auroc", "seconds")


@dataclass(frozen=True)
class RepulsionExperiment:
    horizon: int
    weights: tuple[float, ...] = (0.0, 30.0)
    ratios: tuple[int, ...] = (2, 4, 6)
    """Budgets, in episodes per level."""
    seeds: tuple[int, ...] = (300, 301, 302, 303, 304)

    @property
    def about(self) -> str:
        """What it is, in a line."""
        return (
            f"Repelled members: disagreement about untried and tried actions, lock of {self.horizon} levels"
        )


REPULSION_EXPERIMENTS = {f"repulsion/lock-h{horizon}": RepulsionExperiment(horizon) for horizon in (5, 10)}


def config_of(weight: float, ratio: int) -> NeuralE3Config:
    return changed(PRESETS["e3rl"], {"planner": "uniform", "fit.repulsion": weight, "explore.ratio": ratio})


def run(name: str, out: Path, say: Callable[[str], None], seeds: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Run one experiment, write `out`/NAME.csv and .json after every weight, return its rows."""
    if name not in REPULSION_EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}; known: {', '.join(REPULSION_EXPERIMENTS)}")
    experiment = REPULSION_EXPERIMENTS[name]
    seeds = tuple(seeds) or experiment.seeds
    refuse_seeds(seeds)
    rows: list[dict[str, Any]] = []
    for weight in experiment.weights:
        rows += _measure(name, experiment, weight, seeds)
        about: dict[str, Any] = {
            "experiment": name,
            "settings": {**dataclasses.asdict(experiment), "seeds": list(seeds)},
            "configs": {str(w): as_dict(config_of(w, max(experiment.ratios))) for w in experiment.weights},
            "mean_auroc": mean_aurocs(rows),
        }
        write_table(table_path(out, name), COLUMNS, rows, about)
        say(f"{name} weight {weight}, AUROC by episodes: {about['mean_auroc'][str(weight)]}")
    return rows


def mean_aurocs(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Over seeds, by weight and episodes; seeds that had tried everything by then say nothing."""
    found: dict[str, dict[str, float]] = {}
    for weight, episodes in dict.fromkeys((row["repulsion"], row["episodes"]) for row in rows):
        same = [row for row in rows if (row["repulsion"], row["episodes"]) == (weight, episodes)]
        told = [row["auroc"] for row in same if row["auroc"] != ""]
        if told:
            found.setdefault(str(weight), {})[str(episodes)] = round(float(np.mean(told)), 4)
    return found


def _measure(
    name: str, experiment: RepulsionExperiment, weight: float, seeds: Sequence[int]
) -> list[dict[str, Any]]:
    horizon, started = experiment.horizon, time.perf_counter()
    config = config_of(weight, max(experiment.ratios))
    locks = [CombinationLock(horizon, seed=seed) for seed in seeds]
    program = NeuralProgram(locks, [spec_of(lock) for lock in locks], config, seeds)
    budgets, rows = {ratio * horizon for ratio in experiment.ratios}, list[dict[str, Any]]()

    def judge(epoch: Epoch) -> None:
        episodes = epoch.t + 1
        if episodes not in budgets:
            return
        for lane, seed in enumerate(seeds):
            members = jax.tree.map(lambda leaf, lane=lane: leaf[lane], epoch.models.members)
            past = jax.tree.map(lambda leaf, lane=lane: leaf[lane], epoch.replay)
            was = tried(past.rows, int(past.size), horizon)
            apart = disagreements(members, config.utility, locks[0].noise_bits, horizon, jax.random.key(seed))
            reachable = np.ones_like(was)
            reachable[0, DEAD] = False
            untried = int(np.sum(~was & reachable))
            told = round(auroc(apart[~was & reachable], apart[was]), 6) if untried else ""
            seconds = round(time.perf_counter() - started, 1)
            entry = (name, horizon, weight, seed, episodes, untried, told, seconds)
            rows.append(dict(zip(COLUMNS, entry, strict=True)))

    program.explore(Record(program.seeds), False, lambda *_: None, judge)
    return rows


def tried(rows: Transitions, size: int, horizon: int) -> Bool[np.ndarray, "H S A"]:
    """Which actions were taken in which state, at each level."""
    was = np.zeros((horizon, NUM_STATES, NUM_ACTIONS), bool)
    times, obs, actions = (np.asarray(leaf)[:size] for leaf in (rows.time, rows.obs, rows.action))
    was[times, obs[:, :NUM_STATES].argmax(axis=1), actions] = True
    return was


def disagreements(
    members: Ensemble, utility: AbstractUtility, noise_bits: int, horizon: int, key: Key
) -> Float[np.ndarray, "H S A coins"]:
    """About every action in every state, whatever the coins show."""
    coins = jax.random.bernoulli(key, shape=(COINS, noise_bits)).astype(jnp.float32)

    def one(time: Array, state: Array, action: Array, coins: Float[Array, " bits"]) -> Float[Array, ""]:
        obs = jnp.concatenate([jax.nn.one_hot(state, NUM_STATES), coins])
        return utility.disagreement(predict(members, obs, action, time))

    every: Callable[..., Array] = one
    for axis in reversed(range(4)):
        every = jax.vmap(every, in_axes=tuple(0 if axis == at else None for at in range(4)))
    sizes = (horizon, NUM_STATES, NUM_ACTIONS)
    return np.asarray(eqx.filter_jit(every)(*(jnp.arange(size) for size in sizes), coins))


def auroc(positive: Float[np.ndarray, "..."], negative: Float[np.ndarray, "..."]) -> float:
    """The chance that one of the first is above one of the second; ties count half."""
    above = positive.reshape(-1, 1) > negative.reshape(-1)
    level = positive.reshape(-1, 1) == negative.reshape(-1)
    return float(np.mean(above + 0.5 * level))
