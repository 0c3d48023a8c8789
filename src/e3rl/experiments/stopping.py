"""Exploration that ends by itself: locks of several lengths and with several kinds of noise, Neural-E³'s defaults.

Every seed explores until its own estimate says that little is left to find, then exploits. All seeds, with both
rewards, are lanes of one program.
"""

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from e3rl.e3 import Epoch
from e3rl.envs.lock import CombinationLock
from e3rl.envs.spec import spec_of
from e3rl.experiments.lock import SOLVED
from e3rl.experiments.tables import refuse_seeds, table_path, write_table
from e3rl.neural.presets import PRESETS
from e3rl.neural.training import NeuralProgram
from e3rl.runs.record import Record
from e3rl.runs.settings import as_dict, changed
from e3rl.types import UserError

COLUMNS = (
    "experiment", "horizon", "reward", "seed", "episodes", "by_itself", "epsilon_hat", "first_paid", "return_mean",
    "optimal_return", "solved", "seconds",
)  # fmt: skip
FRESH = tuple(range(320, 340))


@dataclass(frozen=True)
class StoppingExperiment:
    horizon: int
    noise_bits: int | None = None
    noise: str = "always"
    config: str = "e3rl"
    ratio: int | None = None
    """Episodes at most per level, where that is not the default."""
    seeds: tuple[int, ...] = FRESH
    rewards: tuple[str, ...] = ("standard", "antishaped")

    @property
    def about(self) -> str:
        """What it is, in a line."""
        bits = self.horizon if self.noise_bits is None else self.noise_bits
        kind = {"always": "", "stirred": " stirred up by one action", "by_state": " in some states"}[
            self.noise
        ]
        return (
            f"Neural-E³ until it ends by itself, lock of {self.horizon} levels with {bits} noise bits{kind}"
        )


STOPPING_EXPERIMENTS: dict[str, StoppingExperiment] = {
    **{f"stopping/h{horizon}": StoppingExperiment(horizon) for horizon in (5, 10, 15, 20)},
    **{f"stopping/h10-bits{bits}": StoppingExperiment(10, bits) for bits in (0, 30, 100)},
    "stopping/h10-stirred": StoppingExperiment(10, 30, "stirred"),
    "stopping/h10-by-state": StoppingExperiment(10, 30, "by_state"),
    "stopping/h50": StoppingExperiment(50, ratio=15),
    "stopping/h100": StoppingExperiment(100, seeds=FRESH[:5], ratio=15),
}


def run(name: str, out: Path, say: Callable[[str], None], seeds: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Run one experiment, write `out`/NAME.csv and .json, return its rows."""
    if name not in STOPPING_EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}; known: {', '.join(STOPPING_EXPERIMENTS)}")
    experiment = STOPPING_EXPERIMENTS[name]
    seeds = tuple(seeds) or experiment.seeds
    refuse_seeds(seeds)
    config = PRESETS[experiment.config]
    if experiment.ratio is not None:
        config = changed(config, {"explore.ratio": experiment.ratio})
    cases = [(reward, seed) for reward in experiment.rewards for seed in seeds]
    locks = [
        CombinationLock(
            experiment.horizon,
            antishaped=reward == "antishaped",
            noise_bits=experiment.noise_bits,
            noise=experiment.noise,
            seed=seed,
        )
        for reward, seed in cases
    ]
    started = time.perf_counter()
    program = NeuralProgram(locks, [spec_of(lock) for lock in locks], config, [seed for _, seed in cases])
    stopping, first_paid = program.stopping, np.zeros(len(cases), int)

    def watch(epoch: Epoch) -> None:
        nonlocal stopping
        stopping = program.stopping
        paid = np.asarray(epoch.collected.returns).max(axis=1) > 2.0
        first_paid[(first_paid == 0) & paid & ~stopping.over] = epoch.t + 1
        if (epoch.t + 1) % experiment.horizon == 0:
            left = int(np.sum(~stopping.over))
            about = f"{epoch.t + 1} episodes, {time.perf_counter() - started:.0f} s"
            say(f"{name} {about}: {left} of {len(cases)} still exploring, {np.sum(first_paid > 0)} were paid")

    record = Record(program.seeds)
    _, _, summaries = program.explore(
        record, False, lambda models, replay, _: program.exploit(record, models, replay), watch
    )
    seconds = round(time.perf_counter() - started, 1)
    rows = []
    for lane, ((reward, seed), summary) in enumerate(zip(cases, summaries, strict=True)):
        mean, optimum = summary["exploit_return_mean"], locks[lane].optimal_return
        entry = (
            name, experiment.horizon, reward, seed, summary["explore_episodes"], bool(stopping.over[lane]),
            round(float(stopping.epsilon_hat[lane]), 4), int(first_paid[lane]), round(mean, 6), optimum,
            mean >= SOLVED * optimum, seconds,
        )  # fmt: skip
        rows.append(dict(zip(COLUMNS, entry, strict=True)))
    about = {
        "experiment": name,
        "settings": {**dataclasses.asdict(experiment), "seeds": list(seeds)},
        "config": as_dict(config),
        "result": {reward: tally(rows, reward) for reward in experiment.rewards},
    }
    write_table(table_path(out, name), COLUMNS, rows, about)
    for reward in experiment.rewards:
        say(f"{name} {reward}: {tally(rows, reward)}")
    return rows


def tally(rows: Sequence[dict[str, Any]], reward: str) -> str:
    """Seeds solved, and episodes per level until exploration ended."""
    own = [row for row in rows if row["reward"] == reward]
    levels = np.array([row["episodes"] / row["horizon"] for row in own])
    alone = sum(row["by_itself"] for row in own)
    return (
        f"solved {sum(row['solved'] for row in own)} of {len(own)}, ended by itself {alone}, after a median of "
        f"{np.median(levels):.1f}H episodes ({levels.min():.1f}H to {levels.max():.1f}H)"
    )
