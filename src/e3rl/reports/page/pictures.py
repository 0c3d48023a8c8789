"""The paper's figures that are pictures, each with how it was made and, where its run left numbers, a chart of them."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from e3rl.experiments.tables import UNFINISHED
from e3rl.reports import deterministic
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.page.chart import Chart, Panel, Series
from e3rl.reports.page.document import figure, picture
from e3rl.reports.page.made import made_by, repeated_by, took
from e3rl.types import UserError

BLUE, RED, *_ = deterministic.COLOURS
GREY = "#777777"

Told = Mapping[str, Any]
"""What a JSON file says."""


class Drawing(NamedTuple):
    file: str
    """By its name, wherever it lies below the folder."""
    data: str
    """Beside it, says how it was made."""
    words: str
    cell: str
    """What `e3rl reproduce` draws it by."""


class Plate(NamedTuple):
    """A figure of some drawings."""

    name: str
    """Its anchor; of a figure of the paper, what `e3rl reproduce` calls it."""
    title: str
    drawings: Sequence[Drawing]
    chart: Callable[[Sequence[Told]], Chart] | None = None


def _predictions(runs: Sequence[Told]) -> Chart:
    """How the models part, step by step."""
    panels = []
    for run in runs:
        steps = [row["step"] for row in run["steps"]]
        series = [
            Series(name, colour, steps, [row[key] for row in run["steps"]], marks=True)
            for key, name, colour in (
                ("largest_error", "largest error of a model", GREY),
                ("disagreement", "largest disagreement of two models", BLUE),
            )
        ]
        size = run["settings"]["options"]["size"]
        panels.append(Panel(f"maze, {size} × {size}", series, "step of the episode", "squared distance"))
    caption = (
        "All models start from the first frame and are given the actions that were taken. Where they part, at "
        "least one of them is wrong: disagreement tells of errors that only the environment could show."
    )
    return Chart("figure-5-chart", "Disagreement and error along the episode below", caption, panels)


def _ellipsoids(runs: Sequence[Told]) -> Chart:
    """What every round of DREEM leaves."""
    shown = [
        (f"φ = {run['phi']:.2g}{whose}", colour, run["rounds"])
        for one in runs
        for run, whose, colour in ((one["practical"], "", BLUE), (one["theorem"], ", the theorem's", RED))
        if run["rounds"]
    ]
    ratios = [
        Panel(
            title,
            [_by_round(name, colour, rounds, [row[key] for row in rounds]) for name, colour, rounds in shown],
            "round",
            "volume, of that before",
            (shown[0][2][0]["bound"], "at most so much, by Lemma 3") if shown else None,
        )
        for key, title in (("volume_ratio", "smallest ellipsoid"), ("sliced_ratio", "cut by the slab alone"))
    ]
    left = [
        Series(
            name,
            colour,
            [0, *(row["round"] for row in rounds)],
            [rounds[0]["models_before"], *(row["models_after"] for row in rounds)],
            marks=True,
        )
        for name, colour, rounds in shown
    ]
    caption = (
        "Every round cuts the ellipsoid around the models that are left: Lemma 3 lets it keep at most the share of its "
        "volume that is dashed."
    )
    panels = [*ratios, Panel("models left", left, "rounds done", "models")]
    return Chart("figure-3-chart", "What every round leaves", caption, panels)


def _by_round(name: str, colour: str, rounds: Sequence[Told], values: Sequence[float]) -> Series:
    return Series(name, colour, [row["round"] for row in rounds], values, marks=True)


PLATES = (
    Plate(
        "figure-1",
        "Figure 1: the environments",
        [
            Drawing(
                "environments.png",
                "environments.json",
                "A combination lock of 20 levels, two mazes of 10 × 10, MountainCar and Acrobot, drawn by themselves",
                "environments",
            )
        ],
    ),
    Plate(
        "figure-3",
        "Figure 3: Lemma 3's ellipsoids",
        [
            Drawing(
                "ellipsoids.png",
                "ellipsoid.json",
                "Two rounds of DREEM where misfit matrices have rank 2: ellipsoids around the models before a round, "
                "cut by its slab, and after it",
                "ellipsoids",
            )
        ],
        _ellipsoids,
    ),
    Plate(
        "figure-5",
        "Figure 5: predictions in a maze",
        [
            Drawing(
                "predictions.png",
                "predictions.json",
                "A maze of 10 × 10: what every model of the ensemble predicts, and where they part",
                "predictions",
            ),
            Drawing(
                "predictions-5.png",
                "predictions-5.json",
                "The same in a maze of 5 × 5, which a CPU learns",
                "predictions-5",
            ),
        ],
        _predictions,
    ),
    Plate(
        "propositions",
        "Propositions 1 to 3: ranks",
        [Drawing("ranks.png", "rank.json", "Ranks of misfit matrices and their bounds", "dreem")],
    ),
)


def plates(folder: Path, evidence: Evidence) -> str:
    """Those of which there is something below the folder."""
    return "".join(_plate(one, folder, evidence) for one in PLATES)


def found(folder: Path, name: str) -> Path | None:
    """A file by its name, the less deep first."""
    paths = (path for path in folder.rglob(name) if UNFINISHED not in path.relative_to(folder).parts)
    return min(paths, key=lambda path: (len(path.parts), path), default=None)


def _plate(plate: Plate, folder: Path, evidence: Evidence) -> str:
    told = {one.file: about for one in plate.drawings if (about := _told(one, folder)) is not None}
    chart = figure(plate.chart(list(told.values()))) if plate.chart is not None and told else ""
    drawn = "".join(_drawn(one, folder, told.get(one.file)) for one in plate.drawings)
    if not chart and not drawn:
        return ""
    head = f"<h3>{escape(plate.title)}</h3>{took(evidence, plate.name)}"
    return f'<figure class="plate" id="{plate.name}">{head}{chart}{drawn}</figure>'


def _told(drawing: Drawing, folder: Path) -> Told | None:
    """What stands beside the picture; others may have files of that name."""
    drawn = found(folder, drawing.file)
    path = found(folder, drawing.data) if drawn is None else drawn.with_name(drawing.data)
    return _read(path) if path is not None and path.is_file() else None


def _drawn(drawing: Drawing, folder: Path, about: Told | None) -> str:
    path = found(folder, drawing.file)
    return "" if path is None else picture(path, drawing.words, "".join(_made(drawing, about)))


def _made(drawing: Drawing, about: Told | None) -> Iterator[str]:
    said = about or {}
    yield f"<div>{repeated_by({'experiment': drawing.cell, **said})}</div>"
    yield f"<div>{escape(made_by(said) or 'commit and machine were not written down')}</div>"


def _read(path: Path) -> Told:
    try:
        said: Told = json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    return said
