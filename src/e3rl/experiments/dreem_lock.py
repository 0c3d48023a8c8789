"""DREEM on the combination lock, beside Neural-E³ on the same locks.

DREEM sees the latent state and is given the class of all locks; Neural-E³ sees the state among coin flips and is given
nothing. What is compared is how the two spend episodes, not which is better.
"""

import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from e3rl.dreem.eliminate import RealizabilityError
from e3rl.dreem.lock.lock_class import lock_class, models_left
from e3rl.dreem.lock.run import LOCK_BETA, LOCK_RANK, LockRun, dreem_on_lock, reward_span
from e3rl.dreem.theory import constants
from e3rl.envs.lock import NUM_ACTIONS, CombinationLock
from e3rl.experiments.lock import SOLVED
from e3rl.neural.agent import NeuralE3
from e3rl.runs.folder import read_metrics

PHI = 0.3
"""Between the noise of a few dozen samples and 0.4, the smallest misfit of a wrong key at the first level, whose two
states have half of the mass each: two actions swapped move 1.6 of mass each, over four actions and half the time."""
EPSILON = 0.05
"""With standard rewards, what `SOLVED` allows."""
DELTA = 0.1
ROUNDS = 100
SWEEP = {5: (4, 8, 16, 32, 64, 128), 10: (8, 16, 32, 64, 128), 20: (16, 32, 64, 128)}
"""Trajectories per round and step, by horizon."""
SWEEP_SEEDS = {5: 20, 10: 20, 20: 5}
SHOWN = {"horizon": 5, "n": 64}
"""The run that is shown round by round beside Neural-E³."""
REWARDS = ("standard", "antishaped")


def make_lock(horizon: int, reward: str, seed: int) -> CombinationLock:
    return CombinationLock(horizon, antishaped=reward == "antishaped", seed=seed)


def sweep_row(horizon: int, reward: str, n: int, seed: int) -> dict[str, Any]:
    """One run of DREEM; a run that eliminated every model counts as failed."""
    row: dict[str, Any] = {"horizon": horizon, "reward": reward, "n": n, "seed": seed}
    try:
        run = dreem_on_lock(make_lock(horizon, reward, seed), n, PHI, EPSILON, ROUNDS, seed)
    except RealizabilityError:
        return row | {"solved": False, "kept": False, "finished": False, "rounds": "", "episodes": ""}
    return row | {
        "solved": run.value >= SOLVED * run.optimal_value,
        "kept": run.true_model_kept,
        "finished": run.finished,
        "rounds": len(run.rounds),
        "episodes": run.episodes,
    }


def sweep(say: Callable[[str], None]) -> list[dict[str, Any]]:
    rows = []
    for horizon, sizes in SWEEP.items():
        for n in sizes:
            new = [
                sweep_row(horizon, reward, n, seed)
                for reward in REWARDS
                for seed in range(SWEEP_SEEDS[horizon])
            ]
            rows += new
            say(f"lock H={horizon}, n={n}: solved {sum(row['solved'] for row in new)} of {len(new)}")
    return rows


def theorem(horizon: int, seeds: int, epsilon: float = EPSILON, delta: float = DELTA) -> dict[str, Any]:
    """DREEM with Theorem 1's own φ and n; every deterministic time-dependent policy of the good states is in Π."""
    models = models_left(lock_class(make_lock(horizon, "standard", 0)).everything())
    given = constants(
        horizon, NUM_ACTIONS, LOCK_RANK, epsilon, delta, models, NUM_ACTIONS ** (2 * horizon), LOCK_BETA
    )
    locks = [make_lock(horizon, reward, seed) for reward in REWARDS for seed in range(seeds)]
    runs = [dreem_on_lock(lock, given.n, given.phi, epsilon, seed=k) for k, lock in enumerate(locks)]
    return {
        "horizon": horizon,
        "epsilon": epsilon,
        "delta": delta,
        "log10_models": math.log10(models),
        "phi": given.phi,
        "n": given.n,
        "rounds_bound": given.rounds,
        "runs": len(runs),
        "failures": sum(
            run.value < run.optimal_value - epsilon * reward_span(lock)
            for run, lock in zip(runs, locks, strict=True)
        ),
        "true_model_eliminated": sum(not run.true_model_kept for run in runs),
        "rounds_max": max(len(run.rounds) for run in runs),
        "episodes_max": max(run.episodes for run in runs),
    }


def dreem_rounds(run: LockRun, reward: str) -> list[dict[str, Any]]:
    """A row per round: what was known before it, and at the end."""
    rows, episodes = [], 0
    for t, entry in enumerate(run.rounds):
        rows.append(_round(reward, t, episodes, entry.v_explore, entry.models_before))
        episodes += entry.episodes
    return [*rows, _round(reward, len(run.rounds), episodes, run.v_explore, run.models_left)]


def _round(reward: str, t: int, episodes: int, v_explore: float, models: int) -> dict[str, Any]:
    return {
        "reward": reward,
        "round": t,
        "episodes": episodes,
        "v_explore": round(v_explore, 9) + 0.0,
        "log10_models": round(math.log10(models), 6),
    }


def shown_rounds() -> list[dict[str, Any]]:
    rows = []
    for reward in REWARDS:
        lock = make_lock(SHOWN["horizon"], reward, 0)
        rows += dreem_rounds(dreem_on_lock(lock, SHOWN["n"], PHI, EPSILON, ROUNDS), reward)
    return rows


def neural_rounds(horizon: int, seed: int = 0, rewards: Sequence[str] = REWARDS) -> list[dict[str, Any]]:
    """Neural-E³ on the same lock: its estimate of v_explore and its return, an exploration episode a row."""
    rows = []
    for reward in rewards:
        with tempfile.TemporaryDirectory() as folder:
            NeuralE3(make_lock(horizon, reward, seed), seed=seed).learn(folder, progress=False)
            for entry in read_metrics(Path(folder)):
                if entry["phase"] == "explore":
                    kept = {key: entry[key] for key in ("episode", "v_explore", "return")}
                    rows.append({"reward": reward, **kept})
    return rows
