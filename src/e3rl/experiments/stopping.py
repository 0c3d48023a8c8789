"""Exploration that ends by itself: locks of several lengths and with several kinds of noise, Neural-E³'s defaults.

Every seed explores until its own estimate says that little is left to find, then exploits. On an accelerator all seeds,
with both rewards, are lanes of one program.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from e3rl.e3 import Epoch
from e3rl.envs.lock import CombinationLock
from e3rl.envs.spec import spec_of
from e3rl.experiments.lock import PAID, SOLVED
from e3rl.experiments.names import LOCK
from e3rl.experiments.smoke import BUDGET, LEVELS, smaller
from e3rl.experiments.tables import (
    Row,
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
from e3rl.neural.training import NeuralProgram
from e3rl.runs.folder import RunFolder, read_json
from e3rl.runs.lanes import compiling
from e3rl.runs.processors import processors
from e3rl.runs.record import Record
from e3rl.runs.settings import changed
from e3rl.types import UserError

KINDS: dict[str, Callable[[str], Any]] = {
    "experiment": str, "horizon": int, "reward": str, "seed": int, "episodes": int, "by_itself": truth,
    "epsilon_hat": float, "first_paid": int, "return_mean": float, "optimal_return": float, "solved": truth,
    "seconds": float,
}  # fmt: skip
COLUMNS = tuple(KINDS)
FRESH = tuple(range(350, 370))
Case: TypeAlias = tuple[str, int]
"""A reward and a seed."""


@dataclass(frozen=True)
class StoppingExperiment:
    horizon: int
    noise_bits: int | None = None
    noise: str = "always"
    config: str = "e3rl"
    seeds: tuple[int, ...] = FRESH
    rewards: tuple[str, ...] = ("standard", "antishaped")
    ratio: int | None = None
    """Episodes at most per level, where that is not the default."""
    repulsion: float = 0.0
    """Weight of what pushes members apart where there is no data."""

    @property
    def about(self) -> str:
        """What it is, in a line."""
        bits = self.horizon if self.noise_bits is None else self.noise_bits
        kind = {"always": "", "stirred": " stirred up by one action", "by_state": " in some states"}[
            self.noise
        ]
        repelled = ", members repelled" if self.repulsion else ""
        return (
            f"Neural-E³ until it ends by itself, lock of {self.horizon} levels with {bits} noise bits{kind}"
            f"{repelled}"
        )


STOPPING_EXPERIMENTS: dict[str, StoppingExperiment] = {
    **{f"stopping/h{horizon}": StoppingExperiment(horizon) for horizon in (5, 10, 15, 20)},
    **{
        f"stopping-protocol/h{horizon}": StoppingExperiment(horizon, seeds=(0, 1, 2, 3, 4))
        for horizon in (5, 10, 15, 20)
    },
    **{f"stopping/h10-bits{bits}": StoppingExperiment(10, bits) for bits in (0, 30, 100)},
    "stopping/h10-stirred": StoppingExperiment(10, 30, "stirred"),
    "stopping/h10-by-state": StoppingExperiment(10, 30, "by_state"),
    "stopping/h50": StoppingExperiment(50, ratio=15),
    "stopping/h100": StoppingExperiment(100, seeds=FRESH[:5], ratio=15),
    "stopping/h5-repelled": StoppingExperiment(5, seeds=FRESH[:10], repulsion=30.0),
}


def experiment_of(name: str, smoke: bool = False) -> StoppingExperiment:
    if name not in STOPPING_EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}; known: {', '.join(STOPPING_EXPERIMENTS)}")
    found = STOPPING_EXPERIMENTS[name]
    return dataclasses.replace(found, horizon=LEVELS, seeds=found.seeds[:1]) if smoke else found


def config_of(experiment: StoppingExperiment, smoke: bool = False) -> NeuralE3Config:
    config = changed(PRESETS[experiment.config], {"fit.repulsion": experiment.repulsion})
    if experiment.ratio is not None:
        config = changed(config, {"explore.ratio": experiment.ratio})
    return changed(smaller(config), {"explore.ratio": BUDGET}) if smoke else config


def is_done(name: str, out: Path, seeds: Sequence[int] = (), smoke: bool = False) -> bool:
    """Whether the results of all seeds lie there, made with today's settings."""
    return kept(name, out, seeds, smoke) is not None


def kept(name: str, out: Path, seeds: Sequence[int], smoke: bool) -> list[Row] | None:
    """What was measured before with the same settings, all seeds of it."""
    experiment = experiment_of(name, smoke)
    rows = _measured(table_path(out, name), experiment, config_of(experiment, smoke))
    wanted = {(reward, seed) for reward in experiment.rewards for seed in seeds or experiment.seeds}
    return rows if wanted <= {(row["reward"], row["seed"]) for row in rows} else None


def _measured(path: Path, experiment: StoppingExperiment, config: NeuralE3Config) -> list[Row]:
    """The rows that lie there, if they were made with these settings."""

    def alike(told: dict[str, Any]) -> bool:
        same = StoppingExperiment(**{**told, "seeds": (), "rewards": experiment.rewards})
        return same == dataclasses.replace(experiment, seeds=())

    return measured_before(path, KINDS, config, alike)[1]


def run(
    name: str, out: Path, say: Callable[[str], None], seeds: Sequence[int] = (), smoke: bool = False
) -> list[Row]:
    """Run one experiment, write `out`/NAME.csv and .json, return its rows. One that was interrupted goes on where it
    was, one that is done is not run again."""
    experiment, asked = experiment_of(name, smoke), tuple(seeds)
    seeds = asked or experiment.seeds
    refuse_seeds(seeds)
    if (done := kept(name, out, seeds, smoke)) is not None:
        say(f"{name}: done before, {table_path(out, name)}")
        forget_runs(out, name)
        return done
    config = config_of(experiment, smoke)
    about = about_cell(name, experiment, config, seeds, asked, smoke) | note_machine(out, name)
    cases = [(reward, seed) for seed in seeds for reward in experiment.rewards]
    so_far = unfinished_runs(out, name) / "so-far.csv"
    rows = _measured(so_far, experiment, config)
    about["seconds"] = read_json(so_far.with_suffix(".json")).get("seconds", 0.0) if rows else 0.0
    left = [case for case in cases if case not in {(row["reward"], row["seed"]) for row in rows}]
    for some in _together(left):
        rows += run_cases(name, experiment, config, some, unfinished_runs(out, name), say)
        about["seconds"] = round(about["seconds"] + rows[-1]["seconds"], 1)
        write_table(so_far, COLUMNS, rows, about)
    rows.sort(key=lambda row: (experiment.rewards.index(row["reward"]), row["seed"]))
    about["result"] = {reward: tally(rows, reward) for reward in experiment.rewards}
    write_table(table_path(out, name), COLUMNS, rows, about)
    forget_runs(out, name)
    for reward in experiment.rewards:
        say(f"{name} {reward}: {tally(rows, reward)}")
    return rows


def _together(cases: list[Case]) -> list[list[Case]]:
    """The cases that share a program: all of them on an accelerator; on a CPU, where lanes that are over would only be
    waited for, as many as there are processors."""
    count = len(processors()) if jax.default_backend() == "cpu" else len(cases)
    return [cases[start : start + count] for start in range(0, len(cases), count)]


def run_cases(
    name: str,
    experiment: StoppingExperiment,
    config: NeuralE3Config,
    cases: Sequence[Case],
    folder: Path,
    say: Callable[[str], None],
) -> list[Row]:
    """A row for each of some cases, lanes of one program."""
    options: list[dict[str, Any]] = [
        {
            "horizon": experiment.horizon,
            "antishaped": reward == "antishaped",
            "noise_bits": experiment.noise_bits,
            "noise": experiment.noise,
            "seed": seed,
        }
        for reward, seed in cases
    ]
    locks = [CombinationLock(**own) for own in options]
    program = NeuralProgram(locks, [spec_of(lock) for lock in locks], config, [seed for _, seed in cases])
    record = Record(
        program.seeds,
        [RunFolder(folder / f"{reward}-seed{seed}") for reward, seed in cases],
        [NeuralE3.describe(LOCK, own, own["seed"], config) for own in options],
    )

    def watch(epoch: Epoch) -> None:
        if (epoch.t + 1) % experiment.horizon == 0:
            left = int(np.sum(~program.stopping.over))
            about = f"{epoch.t + 1} episodes, {record.read_clock():.0f} s"
            paid = sum(_first_paid(folder) > 0 for folder in record.folders)
            say(f"{name} {about}: {left} of {len(cases)} still exploring, {paid} were paid")

    first_paid: list[int] = []

    def exploit(models: Any, replay: Any, _: Any) -> Any:
        first_paid.extend(map(_first_paid, record.folders))
        return program.exploit(record, models, replay)

    with compiling() as helper:
        _, _, summaries = program.explore(record, True, exploit, watch, helper)
    seconds, stopping = round(record.read_clock(), 1), program.stopping
    rows = []
    for lane, ((reward, seed), summary) in enumerate(zip(cases, summaries, strict=True)):
        mean, optimum = summary["exploit_return_mean"], locks[lane].optimal_return
        entry = (
            name, experiment.horizon, reward, seed, summary["explore_episodes"], bool(stopping.over[lane]),
            round(float(stopping.epsilon_hat[lane]), 4), first_paid[lane], round(mean, 6), optimum,
            mean >= SOLVED * optimum, seconds,
        )  # fmt: skip
        rows.append(dict(zip(COLUMNS, entry, strict=True)))
    return rows


def _first_paid(folder: RunFolder) -> int:
    """The first episode with the large reward, counted from 1; 0 where none had it."""
    return next((i for i, total in enumerate(folder.column("return"), 1) if total > PAID), 0)


def tally(rows: Sequence[Row], reward: str) -> str:
    """Seeds solved, and episodes per level until exploration ended."""
    own = [row for row in rows if row["reward"] == reward]
    levels = np.array([row["episodes"] / row["horizon"] for row in own])
    alone = sum(row["by_itself"] for row in own)
    return (
        f"solved {sum(row['solved'] for row in own)} of {len(own)}, ended by itself {alone}, after a median of "
        f"{np.median(levels):.1f}H episodes ({levels.min():.1f}H to {levels.max():.1f}H)"
    )
