"""The baselines beside Neural-E³ (Figure 2): a table and two figures from the files of `e3rl reproduce baselines-...`.

Neural-E³'s own results are read from the folders lock/ and control/ next to that of the baselines, where there are any.
"""

import csv
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from e3rl.envs.adapter import one_line
from e3rl.experiments.baselines import BASELINE_EXPERIMENTS
from e3rl.reports import deterministic, lock_budgets
from e3rl.reports.results import Result, results_in
from e3rl.reports.saving import save_figure
from e3rl.reports.statistics.intervals import interquartile_mean, spread, stratified_bootstrap
from e3rl.reports.statistics.waiting import Waiting
from e3rl.types import UserError

NEURAL, NEURAL_COLOUR = "Neural-E³", deterministic.COLOURS[0]
METHODS = {
    "dqn": ("DQN", deterministic.COLOURS[1]),
    "ppo": ("PPO", deterministic.COLOURS[2]),
    "ppo-rnd": ("PPO+RND", deterministic.COLOURS[3]),
    "e3rl-dqn": ("DQN, e3rl's settings", deterministic.COLOURS[4]),
    "dqn-long": ("DQN, more steps", "#e59a8f"),
    "ppo-rnd-long": ("PPO+RND, more steps", "#c4aed0"),
    "ppo-rnd-faster": ("PPO+RND, learns faster", "#8f7aa8"),
    "dqn-weight-noise": ("DQN, weight noise", "#1f9bb5"),
    "dqn-long-weight-noise": ("DQN, weight noise, more steps", "#8fcfda"),
}
"""Label and colour of what stands last in an experiment's id."""
REWARDS = ("standard", "antishaped")
TASKS = deterministic.TASKS
WIDTHS = {"dqn": 4.0, "ppo": 2.4, "ppo-rnd": 1.1, "e3rl-dqn": 1.1}
"""Of the lines: a thin one lies on a thick one where both are the same."""
HEADER = (
    "experiment", "seeds", "greedy return: median (worst to best)", "interquartile mean [95%]", "optimum",
    "training episodes", "large reward or goal: seeds, first episode", "mean of 100 above", "seeds [95%], episodes",
    "seconds a seed",
)  # fmt: skip
NOTHING = "–"
LEAST = 5
"""Episodes that a point of a curve stands for, or more."""
CAPTION = (
    "Median over seeds and the range from worst to best. Baselines: return while training; after its last "
    "episode a seed goes on with its greedy return. Neural-E³: greedy return after so many episodes of exploring."
)


class Curve(NamedTuple):
    """Returns of several seeds after the same numbers of episodes."""

    episodes: Float[np.ndarray, " n"]
    returns: Float[np.ndarray, "seeds n"]


class Measured(NamedTuple):
    """One experiment, as far as it has been run."""

    name: str
    finals: list[dict[str, Any]]
    """What every seed had learned at the end."""
    curve: Curve
    """Of those that finished an episode of training."""

    @property
    def task(self) -> str:
        """lock, mountaincar and so on."""
        return self.name.partition("/")[0].removeprefix("baselines-")

    @property
    def place(self) -> tuple[int, str]:
        """Horizon and reward of a lock."""
        horizon, reward, _ = self.name.partition("/")[2].split("-", 2)
        return int(horizon.removeprefix("h")), reward

    @property
    def method(self) -> str:
        rest = self.name.partition("/")[2]
        return rest.split("-", 2)[2] if self.task == "lock" else rest


def found(folder: Path) -> list[Measured]:
    """The experiments of a folder, in the order in which `e3rl reproduce` lists them."""
    order = {name: i for i, name in enumerate(BASELINE_EXPERIMENTS)}
    measured = [measure(result) for result in results_in(folder, "baselines")]
    if not measured:
        raise UserError(f"{folder} holds no results of the baselines' experiments")
    return sorted(measured, key=lambda one: (order.get(one.name, len(order)), one.name))


def measure(result: Result) -> Measured:
    """One experiment's files."""
    table = result.table
    try:
        final = result.about["final"]
        if not final:
            raise ValueError("there are no seeds in it")
        one = Measured(result.experiment, list(final.values()), _curve(table, final))
        _cells(one)
    except (AttributeError, KeyError, OSError, TypeError, ValueError, csv.Error) as error:
        raise UserError(
            f"{result.path} and its table are not those of `e3rl reproduce baselines-...`: "
            f"{type(error).__name__}: {one_line(error)}"
        ) from error
    return one


def _curve(path: Path, final: dict[str, dict[str, Any]]) -> Curve:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    curves, ends = [], []
    for seed, one in final.items():
        points = [(row["episode"], row["return_mean"]) for row in rows if row["seed"] == seed]
        if not points and one["episodes"] > 0:
            raise ValueError(f"the table has no rows of seed {seed}")
        if points:
            curves.append(_smooth(*np.array(points, float).T))
            ends.append(one["return_mean"])
    return together(curves, ends) if curves else Curve(np.zeros(0), np.zeros((0, 0)))


def _smooth(episodes: Float[np.ndarray, " n"], returns: Float[np.ndarray, " n"]) -> Float[np.ndarray, "2 m"]:
    """Stretches of less than `LEAST` episodes merged."""
    group = np.unique(np.ceil(episodes / LEAST), return_inverse=True)[1]
    count = np.diff(episodes, prepend=0.0)
    ends = np.flatnonzero(np.diff(group, append=-1))
    return np.stack([episodes[ends], np.bincount(group, count * returns) / np.bincount(group, count)])


def together(seeds: Sequence[Float[np.ndarray, "2 _"]], finals: Sequence[float]) -> Curve:
    """Curves of (episodes, returns) on the episodes of all of them. Training counts steps, so that good seeds see more
    episodes than bad ones: one that ends earlier goes on with what it is worth at the end."""
    first = max(episodes[0] for episodes, _ in seeds)
    every = np.unique(np.concatenate([episodes for episodes, _ in seeds]))
    every = every[every >= first]
    returns = [
        np.interp(every, episodes, returns, right=final)
        for (episodes, returns), final in zip(seeds, finals, strict=True)
    ]
    return Curve(every, np.stack(returns))


def table(folder: Path) -> str:
    """A line per experiment, as Markdown."""
    lines = [" | ".join(HEADER), *(" | ".join(_cells(one)) for one in found(folder))]
    head, *body = (f"| {line} |" for line in lines)
    return "\n".join([head, "|---" * len(HEADER) + "|", *body])


def _cells(one: Measured) -> tuple[str, ...]:
    returns = [final["return_mean"] for final in one.finals]
    optima = [final["optimal_return"] for final in one.finals if final["optimal_return"] is not None]
    return (
        one.name,
        str(len(one.finals)),
        spread(returns),
        stratified_bootstrap(interquartile_mean, [np.array(returns, float)]).text(),
        f"{np.median(optima):.2f}" if optima else NOTHING,
        _range([final["episodes"] for final in one.finals]),
        _first_found(one.finals),
        f"{np.median([final['bar'] for final in one.finals]):.4g}",
        str(episodes_to_bar(one.finals)),
        f"{np.median([final['seconds'] for final in one.finals]):.1f}",
    )


def _range(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def episodes_to_bar(finals: Sequence[dict[str, Any]]) -> Waiting:
    """Until the mean of a hundred episodes was above the bar."""
    return Waiting.of([final["over_bar"] for final in finals], [final["episodes"] for final in finals])


def _first_found(finals: Sequence[dict[str, Any]]) -> str:
    """How many seeds met what there is to find, and the earliest; nothing is said where that is not known."""
    if "first_found" not in finals[0]:
        return NOTHING
    when = [final["first_found"] for final in finals if final["first_found"] is not None]
    count = f"{len(when)} of {len(finals)}"
    return f"{count}, first at {min(when):,}" if when else count


def draw(folder: Path) -> list[Path]:
    """lock.png and control.png, each where there is something to show."""
    measured = found(folder)
    beside = folder.resolve().parent
    figures = {
        "lock": _draw_lock([one for one in measured if one.task == "lock"], beside / "lock"),
        "control": _draw_control([one for one in measured if one.task in TASKS], beside / "control"),
    }
    written = []
    for name, figure in figures.items():
        if figure is not None:
            written.append(folder / f"{name}.png")
            save_figure(figure, written[-1], dpi=130)
    return written


def _draw_lock(measured: Sequence[Measured], neural: Path) -> Figure | None:
    if not measured:
        return None
    horizons = sorted({one.place[0] for one in measured})
    rewards = [reward for reward in REWARDS if any(one.place[1] == reward for one in measured)]
    figure, grid = _grid(len(rewards), len(horizons), sharex=True, sharey="row")
    budgets = lock_budgets.read_rows(neural) if results_in(neural, "lock") else {}
    for (row, column), axes in np.ndenumerate(grid):
        place = horizons[column], rewards[row]
        own = [one for one in measured if one.place == place]
        _draw_methods(axes, own)
        rows = [each for each in budgets.get(f"lock/h{place[0]}", ()) if each["reward"] == place[1]]
        _draw_budgets(axes, [(int(each["episodes"]), float(each["return_mean"])) for each in rows])
        optima = [final["optimal_return"] for one in own for final in one.finals]
        optima += [float(each["optimal_return"]) for each in rows]
        for optimum in optima[:1]:
            axes.axhline(optimum, color="0.3", linestyle="--", linewidth=0.8, label="optimal return")
        if row == 0:
            axes.set_title(f"{place[0]} levels", fontsize=11)
        if column == 0:
            axes.set_ylabel(f"{place[1]} rewards\nreturn")
    return _finished(figure, grid)


def _draw_control(measured: Sequence[Measured], neural: Path) -> Figure | None:
    tasks = [task for task in TASKS if any(one.task == task for one in measured)]
    if not tasks:
        return None
    figure, grid = _grid(1, len(tasks))
    exploited = {result.experiment: result.about["exploit"] for result in deterministic.found(neural)}
    for axes, task in zip(grid[0], tasks, strict=True):
        _draw_methods(axes, [one for one in measured if one.task == task])
        for settings, label, filled in (
            ("e3rl", NEURAL, True),
            ("steadied", f"{NEURAL}, the paper's settings, steadied", False),
        ):
            verdicts = exploited.get(f"{task}/{settings}", ())
            points = [(verdict["budget"], verdict["return_mean"]) for verdict in verdicts]
            _draw_budgets(axes, points, label, filled)
        axes.set_title(TASKS[task], fontsize=11)
    grid[0, 0].set_ylabel("return")
    return _finished(figure, grid)


def _grid(rows: int, columns: int, **sharing: Any) -> tuple[Figure, np.ndarray]:
    size = max(6.0, 1.2 + 3.4 * columns), 1.1 + 2.5 * rows
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **sharing)


def _draw_methods(axes: Axes, measured: Sequence[Measured]) -> None:
    """The median over seeds of what is collected while training, and the range from worst to best."""
    for one in measured:
        if not one.curve.episodes.size:
            continue
        label, colour = METHODS.get(one.method, (one.method, "0.5"))
        episodes, returns = one.curve
        axes.plot(
            episodes,
            np.median(returns, axis=0),
            color=colour,
            linewidth=WIDTHS.get(one.method, 1.5),
            label=label,
        )
        axes.fill_between(
            episodes, returns.min(axis=0), returns.max(axis=0), color=colour, alpha=0.18, linewidth=0
        )


def _draw_budgets(
    axes: Axes, points: Sequence[tuple[int, float]], label: str = NEURAL, filled: bool = True
) -> None:
    """What Neural-E³'s exploit phase is worth after so many episodes: median of the seeds, worst to best."""
    budgets = sorted({budget for budget, _ in points})
    if not budgets:
        return
    values = [[value for at, value in points if at == budget] for budget in budgets]
    middle = np.array([np.median(own) for own in values])
    below = middle - [min(own) for own in values]
    above = [max(own) for own in values] - middle
    axes.errorbar(
        budgets,
        middle,
        [below, above],
        fmt="o-",
        color=NEURAL_COLOUR,
        markerfacecolor=NEURAL_COLOUR if filled else "white",
        markersize=4,
        linewidth=1.5,
        elinewidth=1.0,
        capsize=2.5,
        label=label,
        zorder=3,
    )


def _finished(figure: Figure, grid: np.ndarray) -> Figure:
    """Logarithmic episodes, one legend for all panels, empty panels said to be so."""
    named: dict[str, Any] = {}
    for axes in grid.flat:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.grid(color="0.92", linewidth=0.6)
        axes.set_axisbelow(True)
        handles, labels = axes.get_legend_handles_labels()
        named |= {label: handle for label, handle in zip(labels, handles, strict=True) if label not in named}
        if not handles:
            axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center", color="0.5")
    for axes in grid[-1]:
        axes.set_xlabel("episodes")
    order = sorted(named, key=lambda label: not label.startswith(NEURAL))
    width = figure.get_figwidth()
    handles, columns = [named[label] for label in order], min(len(order), round(width / 2.8))
    figure.legend(handles, order, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)
    figure.suptitle(textwrap.fill(CAPTION, round(13 * width)), fontsize=10)
    return figure
