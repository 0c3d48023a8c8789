"""Every experiment by its id, and how it is run."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e3rl.experiments import (
    baselines,
    deterministic,
    lock,
    perfect_model,
    practised,
    reach,
    repulsion,
    stopping,
    unified,
)
from e3rl.runs.settings import Settings

Run = Callable[..., list[dict[str, Any]]]
"""(id, folder, who hears of it, seeds) -> rows; where it can be made small also smoke=True."""

EXPERIMENTS: dict[str, Run] = {
    **dict.fromkeys(lock.LOCK_EXPERIMENTS, lock.run),
    **dict.fromkeys(deterministic.DETERMINISTIC_EXPERIMENTS, deterministic.run),
    **dict.fromkeys(practised.PRACTISED_EXPERIMENTS, practised.run),
    **dict.fromkeys(baselines.BASELINE_EXPERIMENTS, baselines.run),
    **dict.fromkeys(reach.REACH_EXPERIMENTS, reach.run),
    **dict.fromkeys(stopping.STOPPING_EXPERIMENTS, stopping.run),
    **dict.fromkeys(repulsion.REPULSION_EXPERIMENTS, repulsion.run),
    **dict.fromkeys(unified.UNIFIED_EXPERIMENTS, unified.run),
    **dict.fromkeys(perfect_model.PERFECT_MODEL_EXPERIMENTS, perfect_model.run),
}

CELLS: dict[str, Any] = {
    **dict.fromkeys(lock.LOCK_EXPERIMENTS, lock),
    **dict.fromkeys(deterministic.DETERMINISTIC_EXPERIMENTS, deterministic),
    **dict.fromkeys(practised.PRACTISED_EXPERIMENTS, practised),
    **dict.fromkeys(baselines.BASELINE_EXPERIMENTS, baselines),
    **dict.fromkeys(stopping.STOPPING_EXPERIMENTS, stopping),
}
"""The modules of those that know whether they are done, can be interrupted and made small, by id."""
IS_DONE: dict[str, Callable[..., bool]] = {name: module.is_done for name, module in CELLS.items()}
"""(id, folder, seeds, smoke) -> whether the results are there."""

SETTINGS: dict[str, Any] = {
    **lock.LOCK_EXPERIMENTS,
    **deterministic.DETERMINISTIC_EXPERIMENTS,
    **practised.PRACTISED_EXPERIMENTS,
    **baselines.BASELINE_EXPERIMENTS,
    **reach.REACH_EXPERIMENTS,
    **stopping.STOPPING_EXPERIMENTS,
    **repulsion.REPULSION_EXPERIMENTS,
    **unified.UNIFIED_EXPERIMENTS,
    **perfect_model.PERFECT_MODEL_EXPERIMENTS,
}


def about(experiment: str) -> str:
    """What an experiment is, in a line: its settings say so, or the first words of the module that runs it."""
    own = getattr(SETTINGS.get(experiment), "about", None)
    if own is not None:
        return own
    first = (inspect.getdoc(inspect.getmodule(EXPERIMENTS[experiment])) or "").partition("\n\n")[0]
    return " ".join(first.split())


def config_of(cell: str) -> Settings:
    """All settings of a cell, its budget included."""
    module = CELLS[cell]
    found: Settings = module.config_of(module.experiment_of(cell))
    return found


def family_of(experiment: str) -> str:
    """lock for lock/h5 and lock-paper/h5, mountaincar for mountaincar/e3rl, and so on."""
    return experiment.partition("/")[0].partition("-")[0]


FOLDERS = {
    "mountaincar": "control", "acrobot": "control", "repulsion": "unified", "environments": "figures/figure1",
    "ellipsoids": "dreem", "predictions": "figures/figure5", "perfect": "control",
}  # fmt: skip
"""Of families whose results lie in another folder than that of their name."""


def results_folder(experiment: str, root: Path = Path("results")) -> Path:
    """Where the results of an experiment lie in this repository, or under another folder in the same order."""
    family = family_of(experiment)
    return root / FOLDERS.get(family, family)
