"""Pictures of training runs: the learning curve with its switch from exploring to exploiting, and where the agent
went."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from e3rl.envs.lock import NUM_STATES
from e3rl.experiments.agents import AGENTS
from e3rl.experiments.names import algorithm_name, task_name
from e3rl.neural.agent import NeuralE3
from e3rl.neural.practice import exploration_starts
from e3rl.reports.saving import save_figure
from e3rl.runs.checkpoint import load_arrays
from e3rl.runs.folder import FORMAT, RunFolder, read_about, read_metrics
from e3rl.types import UserError

EXPLORE, PRACTICE, EXPLOIT = "#3b6fb6", "#8e6bb0", "#c0392b"
SHOWN = {"return": "return", "disagreement": "disagreement of the models", "length": "steps of the episode"}
"""Columns of metrics.csv that have a panel, and what is written beside it."""
MISSED, MISSED_COLOUR = "epsilon_hat", "#c77d11"
PHASES = ("explore", "practice", "exploit")


def draw_runs(paths: Sequence[Path], out: Path) -> Path:
    """One figure for one run, or for several seeds of the same one (median and range)."""
    about = read_about(paths[0])
    tables = [metrics_of(path) for path in paths]
    visits = [found for path in paths if (found := lock_visits(path)) is not None]
    figure = Figure(figsize=(11, 6.5 if visits else 3.6), layout="constrained")
    grid = figure.subplots(2 if visits else 1, 2, squeeze=False)
    has_models = any(np.isfinite(table["disagreement"]).any() for table in tables)
    _curve(grid[0, 0], tables, "return", paths)
    _curve(grid[0, 1], tables, "disagreement" if has_models else "length", [])
    if has_models:
        _what_may_be_missed(grid[0, 1], tables)
    if visits:
        shared = figure.add_subplot(grid[1, 0].get_subplotspec().get_gridspec()[1, :])
        for unused in grid[1]:
            unused.remove()
        _heat_map(shared, np.sum(visits, axis=0))
    seeds = f"{len(paths)} seed{'s' if len(paths) > 1 else ''}"
    unfinished = sum(RunFolder(path).summary() is None for path in paths)
    state = f" ({f'{unfinished} ' if len(paths) > 1 else ''}not finished)" if unfinished else ""
    task = task_name(about.get("env"), about.get("env_options"))
    figure.suptitle(f"{algorithm_name(about.get('algo'))}: {task}, {seeds}{state}", fontsize=11)
    out.parent.mkdir(parents=True, exist_ok=True)
    save_figure(figure, out, dpi=120)
    return out


def metrics_of(path: Path) -> dict[str, list[Any]]:
    rows = read_metrics(path)
    try:
        numbers = {name: [float(row[name]) for row in rows] for name in (*SHOWN, MISSED)}
    except ValueError as error:
        raise UserError(f"{path / 'metrics.csv'} is damaged: {error}") from error
    return {"phase": [row["phase"] for row in rows], **numbers}


def by_phase(tables: list[dict[str, list[Any]]], column: str) -> list[Float[np.ndarray, "seeds n"]]:
    """A column's values while exploring or training, while practising and while exploiting, a row for each seed. Seeds
    may explore for different times: a shorter one has no value (nan) in the end."""
    found = []
    for phase in PHASES:
        rows = [
            [
                value
                for name, value in zip(table["phase"], table[column], strict=True)
                if (name if name in PHASES else "explore") == phase
            ]
            for table in tables
        ]
        longest = max(map(len, rows))
        padded = [row + [np.nan] * (longest - len(row)) for row in rows]
        found.append(np.array(padded).reshape(len(rows), longest))
    return found


def _curve(axes: Axes, tables: list[dict[str, list[Any]]], column: str, paths: Sequence[Path]) -> None:
    each = by_phase(tables, column)
    values = np.concatenate(each, axis=1)
    explored = each[0].shape[1]
    before, count = explored + each[1].shape[1], values.shape[1]
    first = tables[0]["phase"][0] if tables[0]["phase"] else "explore"
    width = max(1, count // 40)
    episode = np.arange(1, count + 1)
    with some_seeds_missing():
        axes.plot(episode, np.nanmedian(values, axis=0), ".", color="0.75", markersize=3, label="episode")
    parts = (
        (0, explored, EXPLORE, first),
        (explored, before, PRACTICE, "practice"),
        (before, count, EXPLOIT, "exploit"),
    )
    for low, high, colour, name in parts:
        if high - low < 1:
            continue
        smooth = np.array([running_mean(row[low:high], width) for row in values])
        with some_seeds_missing():
            middle, lowest, highest = (part(smooth, axis=0) for part in (np.nanmedian, np.nanmin, np.nanmax))
        axes.plot(episode[low:high], middle, color=colour, label=f"{name} (mean of {width})")
        axes.fill_between(episode[low:high], lowest, highest, color=colour, alpha=0.2, linewidth=0)
    for switch in {explored, before}:
        axes.axvline(switch + 0.5, color="0.3", linestyle=":", linewidth=1)
    optimum = known_optimum(paths)
    if optimum is not None:
        axes.axhline(optimum, color="0.3", linestyle="--", linewidth=1, label="optimal return")
    axes.set_xlabel("episode")
    axes.set_ylabel(SHOWN[column])
    if paths:
        axes.legend(frameon=False, fontsize=8)


def _what_may_be_missed(axes: Axes, tables: list[dict[str, list[Any]]]) -> None:
    """ε̂ while exploring, with an axis of its own; nothing where nobody estimates it."""
    values = by_phase(tables, MISSED)[0]
    values = np.where(np.isfinite(values), values, np.nan)
    if np.isnan(values).all():
        return
    with some_seeds_missing():
        middle = np.nanmedian(values, axis=0)
    own = axes.twinx()
    own.plot(np.arange(1, len(middle) + 1), middle, color=MISSED_COLOUR, linewidth=1)
    own.set_yscale("symlog", linthresh=0.1)
    own.set_ylim(bottom=0.0)
    own.set_ylabel("ε̂: return that may still be missed", color=MISSED_COLOUR)
    own.tick_params(axis="y", colors=MISSED_COLOUR)


@contextmanager
def some_seeds_missing() -> Iterator[None]:
    """NumPy warns of episodes that no seed has a value for; they are left out of the picture."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def running_mean(row: Float[np.ndarray, " n"], width: int) -> Float[np.ndarray, " n"]:
    total = np.cumsum(np.concatenate([[0.0], row]))
    ends = np.arange(1, len(row) + 1)
    starts = np.maximum(ends - width, 0)
    return (total[ends] - total[starts]) / (ends - starts)


def known_optimum(paths: Sequence[Path]) -> float | None:
    summaries = [RunFolder(path).summary() for path in paths]
    found = [summary["optimal_return"] for summary in summaries if summary]
    return found[0] if found and found[0] is not None else None


def lock_visits(path: Path) -> Float[np.ndarray, "3 H"] | None:
    """How often each (state, level) of the lock was visited while exploring, from the replay buffer; None for other
    environments, for agents that keep no such buffer, and for runs of earlier versions."""
    about, folder = read_about(path), RunFolder(path)
    agent = AGENTS[about["algo"]] if about.get("algo") in AGENTS else None
    is_lock = str(about.get("env", "")).startswith("e3rl/CombinationLock")
    if not is_lock or agent is None or not issubclass(agent, NeuralE3) or about.get("format") != FORMAT:
        return None
    if not folder.state.is_file():
        return None
    arrays, said = load_arrays(folder.state)
    named = {
        name.rpartition(".")[2]: array for name, array in arrays.items() if "rows" in name or "size" in name
    }
    size = exploration_starts(named["time"][: int(named["size"])], said)[-1]
    latent = named["obs"][:size, :NUM_STATES].argmax(axis=1)
    time = named["time"][:size]
    visits = np.zeros((NUM_STATES, int(time.max(initial=0)) + 1))
    np.add.at(visits, (latent, time), 1)
    return visits


def _heat_map(axes: Axes, visits: Float[np.ndarray, "3 H"]) -> None:
    share = visits / visits.sum(axis=0, keepdims=True).clip(1)
    picture = axes.imshow(share, cmap="viridis", aspect="auto", vmin=0, vmax=1)
    axes.set_yticks(range(NUM_STATES), ["good state 1", "good state 2", "dead state"])
    axes.set_xlabel("level")
    axes.set_title(
        "Where exploration went: share of the visits to each level, and their number. In a good state two of the "
        "four actions lead on to\nthe next level's good states, two to its dead state; from there nothing leads "
        "back, and the reward at the end is lost.",
        fontsize=9,
        loc="left",
    )
    levels = visits.shape[1]
    ticks = range(0, levels, max(1, levels // 20))
    axes.set_xticks(ticks, [str(level + 1) for level in ticks])
    if levels <= 20:
        for state, level in np.ndindex(*visits.shape):
            colour = "white" if share[state, level] < 0.6 else "black"
            axes.text(
                level,
                state,
                f"{int(visits[state, level])}",
                ha="center",
                va="center",
                color=colour,
                fontsize=7,
            )
    assert axes.figure is not None
    axes.figure.colorbar(picture, ax=axes, fraction=0.025, pad=0.01)
