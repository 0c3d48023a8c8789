"""Exploration budgets of the lock experiments: a table and a figure from the files of `e3rl reproduce lock/...`."""

import csv
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from e3rl.experiments.lock import LOCK_EXPERIMENTS
from e3rl.experiments.names import settings_name
from e3rl.reports.results import results_in
from e3rl.reports.saving import save_figure
from e3rl.reports.statistics.intervals import Share
from e3rl.reports.statistics.waiting import Chosen, Waiting, smallest_budget
from e3rl.types import UserError

PAPER_RATIO = {5: 25, 10: 50, 15: 50, 20: 75}
"""App. C.1: "Number of Exploration Epochs", per step of the horizon."""
COLOURS = {"standard": "#3b6fb6", "antishaped": "#c0392b"}
WIDE = 40
"""Letters of a title that fit above a panel."""

KINDS = {
    "horizon": int, "reward": str, "seed": int, "ratio": int, "episodes": int, "return_mean": float,
    "optimal_return": float, "solved": str,
}  # fmt: skip
"""What the columns that reports read must hold."""

Row = dict[str, str]


def read_rows(folder: Path) -> dict[str, list[Row]]:
    """The rows of every lock experiment in `folder`, by experiment, shorter horizons first."""
    tables = {}
    for result in results_in(folder, "lock"):
        if rows := _read(result.table):
            tables[result.experiment] = rows
    if not tables:
        raise UserError(f"{folder} holds no results of lock experiments")
    return dict(sorted(tables.items(), key=lambda item: (int(item[1][0]["horizon"]), item[0])))


def _read(path: Path) -> list[Row]:
    """The rows of one experiment, each of them whole."""
    try:
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
        for row in rows:
            for column, kind in KINDS.items():
                kind(row[column])
            if row["solved"] not in ("True", "False"):
                raise ValueError(f"solved must be True or False, got {row['solved']!r}")
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{path} is damaged: {type(error).__name__}: {error}") from error
    return rows


def solved(rows: Sequence[Row], reward: str, ratio: int) -> tuple[int, int]:
    """Seeds solved, of how many, at one budget."""
    here = [row["solved"] == "True" for row in rows if row["reward"] == reward and int(row["ratio"]) == ratio]
    return sum(here), len(here)


def ratios(rows: Sequence[Row]) -> list[int]:
    return sorted({int(row["ratio"]) for row in rows})


def episodes_to_solve(rows: Sequence[Row], reward: str) -> Waiting:
    """The smallest budget that solved each seed, of those measured."""
    seeds = sorted({int(row["seed"]) for row in rows if row["reward"] == reward})
    own = [[row for row in rows if row["reward"] == reward and int(row["seed"]) == seed] for seed in seeds]
    first = [min((int(r["episodes"]) for r in of if r["solved"] == "True"), default=None) for of in own]
    return Waiting.of(first, [max(int(row["episodes"]) for row in of) for of in own])


def chosen_budget(rows: Sequence[Row], reward: str) -> Chosen:
    """In episodes per step of the horizon."""
    solved_by = {
        ratio: {
            int(row["seed"]): row["solved"] == "True"
            for row in rows
            if row["reward"] == reward and int(row["ratio"]) == ratio
        }
        for ratio in ratios(rows)
    }
    return smallest_budget(solved_by)


def table(folder: Path) -> str:
    """Seeds solved at each measured budget, standard / antishaped, and the budgets that this suggests, as Markdown."""
    tables = read_rows(folder)
    return f"{_by_budget(tables)}\n\n{_suggested(tables)}"


def _suggested(tables: Mapping[str, Sequence[Row]]) -> str:
    lines = [
        "| experiment | reward | solved at the largest budget [95%] | episodes until solved, of the budgets measured | "
        "smallest budget that solves every second seed | the other seeds there [95%] |",
        "|---|---|---|---|---|---|",
    ]
    for name, rows in tables.items():
        for reward in dict.fromkeys(row["reward"] for row in rows):
            at_last = Share(*solved(rows, reward, ratios(rows)[-1]))
            chosen = chosen_budget(rows, reward)
            budget, others = (
                ("–", "–") if chosen.budget is None else (f"{chosen.budget}H", str(chosen.solved))
            )
            taken = episodes_to_solve(rows, reward)
            lines.append(f"| {name} | {reward} | {at_last} | {taken} | {budget} | {others} |")
    return "\n".join(lines)


def _by_budget(tables: Mapping[str, Sequence[Row]]) -> str:
    lines = [
        "| experiment | seeds solved, standard / antishaped, by budget in episodes per step of the horizon |",
        "|---|---|",
    ]
    for name, rows in tables.items():
        cells = []
        for ratio in ratios(rows):
            standard, antishaped = (solved(rows, reward, ratio) for reward in COLOURS)
            cells.append(f"{ratio}H: {standard[0]}/{standard[1]}, {antishaped[0]}/{antishaped[1]}")
        lines.append(f"| {name} | {'; '.join(cells)} |")
    return "\n".join(lines)


def _title(experiment: str, horizon: int) -> str:
    """Such as "5 levels, the paper's settings"; ours go without saying."""
    words, known = [f"{horizon} levels"], LOCK_EXPERIMENTS.get(experiment)
    if known is not None:
        words += [] if known.noise_bits is None else [f"{known.noise_bits} noise bits"]
        words += ["two actions paid"] if known.rewarded_actions == 2 else []
        words += [settings_name(known.config)] if settings_name(known.config) != settings_name("e3rl") else []
        words += [f"{path}={value}" for path, value in known.changes]
    return ", ".join(words)


def draw_budgets(folder: Path) -> Path:
    """Share of seeds solved against the exploration budget, a panel per experiment, the paper's budget marked. The
    thin line lies on the thick one where both rewards fare alike."""
    tables = read_rows(folder)
    columns = min(3, len(tables))
    lines = -(-len(tables) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.6 * lines), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, (name, rows) in zip(panels, tables.items(), strict=False):
        horizon = int(rows[0]["horizon"])
        for width, (reward, colour) in zip((4.0, 1.3), COLOURS.items(), strict=True):
            shares = [solved(rows, reward, ratio) for ratio in ratios(rows)]
            values = [100 * hit / max(count, 1) for hit, count in shares]
            axes.plot(
                ratios(rows),
                values,
                "o-",
                color=colour,
                label=reward,
                linewidth=width,
                markersize=2 + 1.5 * width,
            )
        if horizon in PAPER_RATIO:
            axes.axvline(PAPER_RATIO[horizon], color="0.4", linestyle=":", label="the paper's budget")
        axes.set_title(textwrap.fill(_title(name, horizon), WIDE), fontsize=10)
        axes.set_ylim(-5, 105)
        axes.set_xlim(left=0)
        axes.set_xlabel("exploration episodes per level", fontsize=8)
        axes.set_ylabel("seeds solved, %", fontsize=8)
    for unused in panels[len(tables) :]:
        unused.remove()
    panels[0].legend(frameon=False, fontsize=7)
    out = folder / "budgets.png"
    save_figure(figure, out, dpi=120)
    return out
