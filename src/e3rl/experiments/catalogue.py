"""Every experiment by its id, and how it is run."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from e3rl.experiments import baselines, deterministic, lock, reach, repulsion, stopping, unified

Run = Callable[..., list[dict[str, Any]]]

EXPERIMENTS: dict[str, Run] = {
    **dict.fromkeys(lock.LOCK_EXPERIMENTS, lock.run),
    **dict.fromkeys(deterministic.DETERMINISTIC_EXPERIMENTS, deterministic.run),
    **dict.fromkeys(baselines.BASELINE_EXPERIMENTS, baselines.run),
    **dict.fromkeys(reach.REACH_EXPERIMENTS, reach.run),
    **dict.fromkeys(stopping.STOPPING_EXPERIMENTS, stopping.run),
    **dict.fromkeys(repulsion.REPULSION_EXPERIMENTS, repulsion.run),
    **dict.fromkeys(unified.UNIFIED_EXPERIMENTS, unified.run),
}


SETTINGS: dict[str, Any] = {
    **lock.LOCK_EXPERIMENTS,
    **deterministic.DETERMINISTIC_EXPERIMENTS,
    **baselines.BASELINE_EXPERIMENTS,
    **reach.REACH_EXPERIMENTS,
    **stopping.STOPPING_EXPERIMENTS,
    **repulsion.REPULSION_EXPERIMENTS,
    **unified.UNIFIED_EXPERIMENTS,
}


def about(experiment: str) -> str:
    """What an experiment is, in a line: its settings say so, or the first words of the module that runs it."""
    own = getattr(SETTINGS.get(experiment), "about", None)
    if own is not None:
        return own
    first = (inspect.getdoc(inspect.getmodule(EXPERIMENTS[experiment])) or "").partition("\n\n")[0]
    return " ".join(first.split())


def family_of(experiment: str) -> str:
    """lock for lock/h5 and lock-paper/h5, mountaincar for mountaincar/e3rl, and so on."""
    return experiment.partition("/")[0].partition("-")[0]


def results_folder(experiment: str) -> Path:
    """Where the results of an experiment lie in this repository."""
    family = family_of(experiment)
    return Path("results") / {"mountaincar": "control", "acrobot": "control", "repulsion": "unified"}.get(
        family, family
    )
