"""The HTML around it all. Nothing is fetched: styles, script and pictures are in the file."""

import base64
import io
import json
import math
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, UnidentifiedImageError

from e3rl._version import __version__
from e3rl.reports.page.chart import Chart, Number, Series
from e3rl.reports.page.svg import draw
from e3rl.runs.checkout import CHANGED
from e3rl.runs.checkpoint import write_file
from e3rl.types import UserError

MADE = "<!-- made by `e3rl report` -->"
NAME = "report.html"


class Section(NamedTuple):
    name: str
    """Its anchor."""
    title: str
    html: str


def document(title: str, lead: str, sections: Sequence[Section], refresh: int | None = None) -> str:
    """A whole page; with `refresh` a browser loads it again after so many seconds."""
    own = files("e3rl.reports.page")
    style, script = (own.joinpath(f"page.{kind}").read_text() for kind in ("css", "js"))
    again = "" if refresh is None else f'<meta http-equiv="refresh" content="{refresh}">'
    links = "".join(f'<a href="#{one.name}">{escape(one.title)}</a>' for one in sections)
    body = "".join(
        f'<section id="{one.name}"><h2>{escape(one.title)}</h2>{one.html}</section>' for one in sections
    )
    return (
        f'<!doctype html>\n{MADE}\n<html lang="en"><head><meta charset="utf-8">{again}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{style}</style></head><body>'
        f"<h1>{escape(title)}</h1><p>{lead}</p><nav>{links}</nav>{body}"
        f'<p class="soft">Made by e3rl {escape(__version__)}, from the data alone.</p><script>{script}</script>'
        "</body></html>\n"
    )


def figure(chart: Chart, below: str = "") -> str:
    """A chart that can be read without a script; what the script needs stands beside it. HTML may stand below."""
    panels = "".join(draw(panel) for panel in chart.panels)
    data = [[_data(series) for series in panel.series] for panel in chart.panels]
    legend = "".join(
        f'<li class="{one.kind.strip()}" data-name="{escape(name)}" style="--c:{one.colour}">{escape(name)}</li>'
        for name, one in chart.legend.items()
    )
    scale = "log" if chart.log else "linear"
    return (
        f'<figure class="chart" id="{chart.name}" data-scale="{scale}"><h3>{escape(chart.title)}</h3>'
        f'<ul class="legend">{legend}</ul><div class="panels">{panels}</div>'
        f"<figcaption>{escape(chart.caption)}</figcaption>{below}"
        f'<script type="application/json">{safe_json(data)}</script></figure>'
    )


def _data(series: Series) -> dict[str, Any]:
    numbers = {"x": series.x, "y": series.middle, "low": series.low, "high": series.high}
    return {"name": series.name, **{key: [_short(value) for value in own] for key, own in numbers.items()}}


def _short(value: Number) -> float | None:
    return float(f"{value:.5g}") if math.isfinite(value) else None


def safe_json(value: Any) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")


def picture(path: Path, words: str, below: str = "") -> str:
    """A picture inside the page, without loss as WebP, which takes less than half of a PNG. HTML may stand below."""
    smaller = io.BytesIO()
    try:
        with Image.open(path) as drawn:
            drawn.convert("RGB").save(smaller, "WEBP", lossless=True, quality=100)
    except UnidentifiedImageError as error:
        raise UserError(f"{path} is no picture") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    data = base64.b64encode(smaller.getvalue()).decode()
    return (
        f'<figure><img class="paper" alt="{escape(words)}" src="data:image/webp;base64,{data}">'
        f"<figcaption>{escape(words)}{below}</figcaption></figure>"
    )


def table(head: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Rows of (class, cells of HTML); on a phone every row is a card."""
    body = "".join(
        f'<tr class="{kind}">'
        + "".join(
            f'<td data-head="{escape(name)}"{_own_class(name)}>{cell}</td>'
            for name, cell in zip(head, cells, strict=True)
        )
        + "</tr>"
        for kind, cells in rows
    )
    names = "".join(f"<th>{escape(name)}</th>" for name in head)
    inside = f"<thead><tr>{names}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="scroll"><table class="cards">{inside}</table></div>'


def _own_class(name: str) -> str:
    return ' class="verdict"' if name == "verdict" else ""


def folded(summary: str, value: Any) -> str:
    """Settings or the like, shown on demand."""
    return f"<details><summary>{escape(summary)}</summary><pre>{escape(json.dumps(value))}</pre></details>"


def shown_commit(commit: str | None) -> str:
    if commit is None:
        return "no known commit"
    return f"{commit[:8]} with changes" if commit.endswith(CHANGED) else commit[:8]


def write_page(folder: Path, text: str) -> Path:
    """`folder`/report.html, unless that is somebody's own."""
    path = folder / NAME
    if path.exists() and MADE not in path.read_text(errors="replace")[:200]:
        raise UserError(f"{path} was not made by this command; it is left alone")
    write_file(path, text.encode())
    return path
