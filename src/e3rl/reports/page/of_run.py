"""The page about a run, or about several seeds of one, which may still be going."""

import shlex
import time
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from e3rl.experiments.agents import AGENTS
from e3rl.experiments.names import algorithm_name, task_name
from e3rl.reports.learning import (
    EXPLOIT,
    EXPLORE,
    MISSED,
    MISSED_COLOUR,
    PRACTICE,
    SHOWN,
    by_phase,
    known_optimum,
    lock_visits,
    metrics_of,
    running_mean,
    some_seeds_missing,
)
from e3rl.reports.page.chart import Chart, Panel, Series
from e3rl.reports.page.document import Section, document, figure, folded, picture, table, write_page
from e3rl.reports.page.svg import thinned
from e3rl.reports.settings_tables import departures, shown
from e3rl.runs.folder import RunFolder, read_about
from e3rl.runs.summary import verdict
from e3rl.types import UserError

PICTURES = {
    "phase_plane": "where exploration went, and where the models disagree",
    "search_graph": "the graph that the planner searched last",
    "predictions": "what every model predicts, step by step, beside what happened",
}
"""Those of `e3rl report`, by the names of their files."""
REFRESH = 5
"""Seconds after which a browser looks again, while a run is going."""
STATES = ("good state 1", "good state 2", "dead state")


def page(folder: Path, paths: Sequence[Path], pictures: Sequence[Path] = (), refresh: bool = False) -> str:
    """`paths` are the runs in `folder`, `pictures` those drawn of them."""
    abouts = [read_about(path) for path in paths]
    begun = [path for path in paths if (path / "metrics.csv").exists()]
    tables = [table for path in begun if (table := metrics_of(path))["phase"]]
    sections = [Section("state", "How it stands", _state(paths))]
    if tables:
        charts = figure(_learning(tables, known_optimum(begun)))
        sections.append(Section("learning", "Learning", charts))
    went = _visits(begun) + "".join(
        picture(path, PICTURES[path.stem]) for path in pictures if path.stem in PICTURES
    )
    if went:
        sections.append(Section("where", "Where it went", went))
    sections.append(Section("repeat", "How to repeat it", _repeat(paths, abouts)))
    algo, env, options = (abouts[0].get(key) for key in ("algo", "env", "env_options"))
    title = f"{algorithm_name(algo)}: {task_name(env, options)}"
    lead = f"{len(paths)} seed{'s' * (len(paths) > 1)} in {escape(folder.name)}."
    lead += " Still going: this page renews itself." if refresh else ""
    return document(title, lead, sections, REFRESH if refresh else None)


def follow(folder: Path, paths: Sequence[Path], say: Callable[[str], None], every: float = REFRESH) -> None:
    """Write the page again and again until all runs have ended; the browser that shows it loads it again by itself.
    Pictures that take long are left for the end."""
    told = False
    while not all((path / "summary.json").exists() for path in paths):
        written = write_page(folder, page(folder, paths, refresh=True))
        if not told:
            say(
                f"open {written.resolve().as_uri()}; it renews itself until the run ends, Ctrl-C stops watching"
            )
            told = True
        time.sleep(every)


def _state(paths: Sequence[Path]) -> str:
    lines = []
    for path in paths:
        summary = RunFolder(path).summary()
        if summary is None:
            begun = (path / "metrics.csv").exists()
            episodes = len(metrics_of(path)["phase"]) if begun else 0
            lines.append(f"{path.name}: not finished, {episodes} episodes so far")
        else:
            agent = AGENTS[summary["algo"]] if summary.get("algo") in AGENTS else None
            lines.append(verdict(summary, agent is None or agent.explores_first))
    return "".join(f"<p>{escape(line)}</p>" for line in lines)


def _learning(tables: list[dict[str, list[Any]]], optimum: float | None) -> Chart:
    panels = []
    for column, words in SHOWN.items():
        values = by_phase(tables, column)
        if not any(np.isfinite(part).any() for part in values):
            continue
        level = (optimum, "optimal return") if column == "return" and optimum is not None else None
        panels.append(Panel(words, _phases(values), "episode", words, level))
    missed = by_phase(tables, MISSED)[0]
    if np.isfinite(missed).any():
        line = _line(
            "what may still be missed", MISSED_COLOUR, np.where(np.isfinite(missed), missed, np.nan), 0
        )
        panels.append(Panel("ε̂", [line], "episode", "return that may be missed"))
    many = len(tables) > 1
    caption = "Running means" + (", median of the seeds and the range from worst to best." if many else ".")
    return Chart("curves", "Episode by episode", caption, panels)


def _phases(values: Sequence[Float[np.ndarray, "seeds _"]]) -> list[Series]:
    width = max(1, sum(part.shape[1] for part in values) // 40)
    series, before = [], 0
    for part, name, colour in zip(
        values, ("exploring or training", "practice", "exploiting"), (EXPLORE, PRACTICE, EXPLOIT), strict=True
    ):
        if part.shape[1] and np.isfinite(part).any():
            smooth = np.array([running_mean(row, width) for row in part])
            series.append(_line(f"{name}, mean of {width}", colour, smooth, before))
        before += part.shape[1]
    return series


def _line(name: str, colour: str, values: Float[np.ndarray, "seeds n"], before: int) -> Series:
    with some_seeds_missing():
        parts = [part(values, axis=0) for part in (np.nanmedian, np.nanmin, np.nanmax)]
    kept = thinned(values.shape[1], 200)
    middle, low, high = ([float(part[i]) for i in kept] for part in parts)
    episodes = [before + i + 1 for i in kept]
    return Series(name, colour, episodes, middle, *((low, high) if len(values) > 1 else ((), ())))


def _visits(paths: Sequence[Path]) -> str:
    """Of a lock: how often each state of each level was visited while exploring."""
    found = [visits for path in paths if (visits := lock_visits(path)) is not None]
    if not found or len({visits.shape for visits in found}) > 1:
        return ""
    visits = np.sum(found, axis=0)
    share = visits / visits.sum(axis=0, keepdims=True).clip(1)
    cell, left = 34, 100
    drawn = ""
    for state, level in np.ndindex(*visits.shape):
        x, y, count = left + cell * level, cell * state, int(visits[state, level])
        drawn += (
            f"<g><title>level {level + 1}, {STATES[state]}: {count} visits, {share[state, level]:.0%}</title>"
            f'<rect x="{x}" y="{y}" width="{cell}" height="{cell}" opacity="{share[state, level]:.2f}"/>'
            f'<rect class="edge" x="{x}" y="{y}" width="{cell}" height="{cell}"/>'
            f'<text x="{x + cell / 2:g}" y="{y + 22}">{count}</text></g>'
        )
    names = "".join(
        f'<text class="name" x="0" y="{cell * i + 22}">{name}</text>' for i, name in enumerate(STATES)
    )
    levels = "".join(
        f'<text x="{left + cell * level + cell / 2:g}" y="{3 * cell + 18}">{level + 1}</text>'
        for level in range(visits.shape[1])
    )
    width, height = left + cell * visits.shape[1] + 4, 3 * cell + 26
    words = "Visits to the states of each level while exploring. From a dead state nothing leads back."
    return (
        f'<figure><div class="scroll"><svg class="heat" width="{width}" height="{height}" role="img" '
        f'aria-label="{words}">'
        f"{drawn}{names}{levels}</svg></div><figcaption>{words}</figcaption></figure>"
    )


def _repeat(paths: Sequence[Path], abouts: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            "",
            (
                escape(path.name),
                f"<code>{escape(command(path, about))}</code>",
                folded("configuration", about),
            ),
        )
        for path, about in zip(paths, abouts, strict=True)
    ]
    return table(("run", "the command that repeats it", "configuration"), rows)


def command(path: Path, about: dict[str, Any]) -> str:
    """`e3rl train` with all that this run was given, by the preset that is nearest to its settings."""
    words = [
        "e3rl",
        "train",
        str(about.get("env")),
        "--algo",
        str(about.get("algo")),
        "--seed",
        str(about.get("seed")),
    ]
    options = [f"{key}={shown(value)}" for key, value in (about.get("env_options") or {}).items()]
    words += ["--env", *options] if options else []
    try:
        agent = AGENTS[about["algo"]]
        config = agent.stored_config(path, about)
    except (KeyError, UserError):  # another package's agent, or settings of an earlier version
        return shlex.join(words)
    changes = {
        name: {key: ours for key, ours, _ in departures(config, preset) if ours != ""}
        for name, preset in agent.presets.items()
    }
    if changes:
        nearest = min(changes, key=lambda name: len(changes[name]))
        words += ["--config", nearest]
        own = [f"{key}={value}" for key, value in changes[nearest].items()]
        words += ["--set", *own] if own else []
    return shlex.join(words)
