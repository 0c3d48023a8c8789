"""Tables and curves of the mazes and control tasks (Figure 2, lower half) from the files of `e3rl reproduce`."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from e3rl.experiments.names import spread as numbers_of
from e3rl.neural.old_names import stored_config
from e3rl.reports.results import Result, results_in
from e3rl.reports.saving import save_figure
from e3rl.reports.statistics.intervals import interquartile_mean, spread, stratified_bootstrap
from e3rl.types import UserError

FAMILIES = ("maze", "mountaincar", "acrobot")
"""Of the experiments."""
TASKS = {"mountaincar": "MountainCar", "acrobot": "Acrobot"}
VARIANTS = {
    "e3rl": "Neural-E³",
    "e3rl-few": "Neural-E³, few episodes",
    "ends": "Neural-E³, ends by itself",
    "paper": "Neural-E³, the paper's settings",
    "paper-rounds": "Neural-E³, the paper's settings and rounds",
    "steadied": "Neural-E³, the paper's settings, steadied",
    "paper-ue2": "UE², the paper's settings",
    "nearest": "Neural-E³, priority by the nearest node",
    "ue2": "UE²",
}
"""What stands last in an experiment's id, for people."""
DODGE = 1.2
"""Episodes between the marks of two experiments at one budget, which would otherwise hide each other."""
COLOURS = ("#3b6fb6", "#c0392b", "#2e8b57", "#8e5ea2", "#d08c2f", "#6b7b8c", "#7d4e2d")


def found(folder: Path) -> list[Result]:
    """The experiments of a folder that have exploited at least once, in the order of their names."""
    known = [result for result in results_in(folder, *FAMILIES) if "exploit" in result.about]
    return sorted(known, key=lambda result: _order(result.experiment))


def table(folder: Path) -> str:
    """A line per experiment and budget: the seeds' mean greedy returns, median and range; what exploration collected
    after its first epoch, which is uniform, and in its last."""
    told = "seeds  return: median (worst to best)   interquartile mean [95%]      goal reached  optimum  "
    lines = [("experiment", "episodes", f"{told}exploring (last epoch)")]
    for result in found(folder):
        size, epochs = explored(result)
        verdicts = result.about["exploit"]
        for budget in sorted({verdict["budget"] for verdict in verdicts}):
            own = [verdict for verdict in verdicts if verdict["budget"] == budget]
            means = [verdict["return_mean"] for verdict in own]
            middle = stratified_bootstrap(interquartile_mean, [np.array(means, float)]).text()
            reached = f"{min(v['reached'] for v in own):.0%} to {max(v['reached'] for v in own):.0%}"
            optima = [v["optimal_return_mean"] for v in own if "optimal_return_mean" in v]
            optimum = f"{np.median(optima):.2f}" if optima else ""
            exploring = exploring_words(epochs[:, : budget // size])
            told = f"{len(own):>5}  {spread(means):<31} {middle:<28} {reached:>12}  {optimum:>7}  {exploring}"
            lines.append((result.experiment, budget_words(own), told))
    wide, long = (max(len(line[i]) for line in lines) for i in (0, 1))
    return "\n".join(f"{name:<{wide}} {episodes:>{long}}  {told}" for name, episodes, told in lines)


EXPLORING = ": exploring"


def draw(folder: Path) -> Path:
    """Returns while exploring, one panel per environment, and what the exploit phase reaches after each budget."""
    experiments = found(folder)
    if not experiments:
        raise UserError(f"{folder} holds no results of mazes or control tasks")
    tasks = list(dict.fromkeys(task_of(result.experiment) for result in experiments))
    most = max(sum(task_of(one.experiment) == task for one in experiments) for task in tasks)
    figure = Figure(figsize=(4.2 * len(tasks), 3.4 + 0.2 * most), layout="constrained")
    for axes, task in zip(
        np.atleast_1d(figure.subplots(1, len(tasks), squeeze=False)[0]), tasks, strict=True
    ):
        own = [result for result in experiments if task_of(result.experiment) == task]
        for i, (result, colour) in enumerate(zip(own, COLOURS, strict=False)):
            _panel(axes, result, colour, DODGE * (i - (len(own) - 1) / 2))
        axes.set_title(task)
        axes.set_xlabel("exploration episodes (dashed: exploring, dots: exploiting)", fontsize=8)
        axes.set_ylabel("return")
        lines = {text: line for line, text in zip(*axes.get_legend_handles_labels(), strict=True)}
        shown = {
            text.removesuffix(EXPLORING): line for text, line in lines.items() if text.endswith(EXPLORING)
        }
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.2)}
        axes.legend(list(shown.values()), list(shown), frameon=False, fontsize=8, **below)
    path = folder / "returns.png"
    save_figure(figure, path, dpi=120)
    return path


def _panel(axes: Axes, result: Result, colour: str, aside: float) -> None:
    size, curves = explored(result)
    episodes = size * np.arange(1, curves.shape[1] + 1)
    name = label_of(result.experiment)
    usual, low, high = middle_and_range(curves)
    axes.plot(episodes, usual, color=colour, linestyle="--", label=f"{name}{EXPLORING}")
    axes.fill_between(episodes, low, high, color=colour, alpha=0.15)
    by_place = marks_of(result.about["exploit"])
    means = list(by_place.values())
    middle = [float(np.median(values)) for values in means]
    below = [mid - min(values) for mid, values in zip(middle, means, strict=True)]
    above = [max(values) - mid for mid, values in zip(middle, means, strict=True)]
    places = np.array(list(by_place)) + aside
    axes.errorbar(
        places, middle, [below, above], fmt="o", color=colour, capsize=3, label=f"{name}: exploiting"
    )


def marks_of(verdicts: Sequence[dict[str, Any]]) -> dict[float, list[float]]:
    """The seeds' greedy returns by how many episodes they had played, in the median where each ended by itself."""
    found = {}
    for budget in sorted({verdict["budget"] for verdict in verdicts}):
        own = [verdict for verdict in verdicts if verdict["budget"] == budget]
        played = float(np.median([_explored_in(verdict) + verdict.get("practised", 0) for verdict in own]))
        found[played] = [verdict["return_mean"] for verdict in own]
    return found


def exploring_words(epochs: Float[np.ndarray, "seeds epochs"]) -> str:
    """What was collected while exploring after the first epoch, where there were more, and in the last."""
    planned = epochs[:, 1:] if epochs.shape[1] > 1 else epochs
    return f"{np.nanmean(planned):.1f} ({np.mean(last_of(epochs)):.1f})"


def budget_words(verdicts: Sequence[dict[str, Any]]) -> str:
    """The exploration episodes of some seeds: the same for all, or the least and most if each ended by itself. Those of
    practice stand beside them."""
    explored = numbers_of([_explored_in(verdict) for verdict in verdicts])
    practised = [verdict["practised"] for verdict in verdicts if "practised" in verdict]
    return f"{explored}, practice {numbers_of(practised)}" if practised else explored


def _explored_in(verdict: dict[str, Any]) -> int:
    found: int = verdict.get("explored", verdict["budget"])
    return found


def middle_and_range(
    epochs: Float[np.ndarray, "seeds epochs"],
) -> tuple[Float[np.ndarray, " epochs"], Float[np.ndarray, " epochs"], Float[np.ndarray, " epochs"]]:
    """Over the seeds that still explored."""
    return np.nanmedian(epochs, axis=0), np.nanmin(epochs, axis=0), np.nanmax(epochs, axis=0)


def last_of(epochs: Float[np.ndarray, "seeds epochs"]) -> Float[np.ndarray, " seeds"]:
    """Each seed's last epoch."""
    return np.array([own[np.isfinite(own)][-1] for own in epochs])


def explored(result: Result) -> tuple[int, Float[np.ndarray, "seeds epochs"]]:
    """Exploration episodes of an epoch, and the mean returns of the epochs, NaN where a seed had ended."""
    path = result.table
    try:
        size = stored_config(result.about["config"]).explore.per_epoch
    except (KeyError, TypeError, UserError) as error:
        raise UserError(f"{result.path} is damaged: config: {error}") from error
    try:
        with path.open(newline="") as file:
            rows = [row for row in csv.DictReader(file) if row["phase"] == "explore"]
        seeds = sorted({row["seed"] for row in rows})
        returns = [[float(row["return"]) for row in rows if row["seed"] == seed] for seed in seeds]
        by_epoch = [_by_epoch(own, size) for own in returns]
        longest = max(map(len, by_epoch))
        return size, np.array([own + [np.nan] * (longest - len(own)) for own in by_epoch])
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def _by_epoch(returns: Sequence[float], size: int) -> list[float]:
    return [float(np.mean(returns[start : start + size])) for start in range(0, len(returns), size)]


def task_of(experiment: str) -> str:
    """MountainCar for mountaincar/e3rl, maze, 10 × 10 for maze/10-ue2."""
    family, _, rest = experiment.partition("/")
    size = rest.partition("-")[0]
    return f"maze, {size} × {size}" if family == "maze" else TASKS.get(family, family)


def label_of(experiment: str) -> str:
    """Neural-E³ for mountaincar/e3rl, UE² for maze/10-ue2."""
    family, _, rest = experiment.partition("/")
    variant = rest.partition("-")[2] if family == "maze" else rest
    return VARIANTS.get(variant, variant)


def _order(experiment: str) -> tuple[str, int, str]:
    family, _, rest = experiment.partition("/")
    size, _, name = rest.partition("-")
    return (family, int(size), name) if size.isdecimal() else (family, 0, rest)
