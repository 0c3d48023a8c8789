"""A panel as an SVG picture. It is drawn twice, with a linear and with a logarithmic horizontal axis, of which the page
shows one; so it needs no script to be seen, and a script only to switch, to hide and to read values off."""

import math
from collections.abc import Callable, Sequence
from html import escape

from e3rl.reports.page.chart import Number, Panel, Series

WIDTH, HEIGHT = 420, 270
LEFT, RIGHT, TOP, BOTTOM = 62, 408, 26, 222
SCALES = ("linear", "log")


def draw(panel: Panel) -> str:
    """The whole panel. The script finds the ends of both axes in its data."""
    xs = [float(x) for series in panel.series for x in series.x]
    ys = [float(y) for one in panel.series for part in (one.middle, one.low, one.high) for y in part]
    ys += [panel.level[0]] if panel.level is not None else []
    ys = [y for y in ys if math.isfinite(y)]
    if not xs or not ys:
        return _frame(panel, '<text class="empty" x="233" y="126">not run</text>', "")
    smallest = min((x for x in xs if x > 0), default=1.0)
    ends = {"linear": (min(0.0, *xs), max(xs)), "log": (smallest, max(xs))}
    low, high = _padded(min(ys), max(ys))

    def place_y(y: Number) -> float:
        return BOTTOM - (BOTTOM - TOP) * (y - low) / (high - low)

    lines = "".join(
        f'<path class="grid" d="M{LEFT} {_n(place_y(y))}H{RIGHT}"/>'
        f'<text class="tick y" x="{LEFT - 6}" y="{_n(place_y(y) + 4)}">{_label(y)}</text>'
        for y in ticks(low, high)
    )
    if panel.level is not None:
        height, words = panel.level
        lines += f'<path class="level" d="M{LEFT} {_n(place_y(height))}H{RIGHT}"><title>{escape(words)}</title></path>'
    for scale in SCALES:
        lines += f'<g class="scale {scale}">{_scaled(panel.series, scale, *ends[scale], place_y)}</g>'
    data = " ".join(f'data-{scale}="{ends[scale][0]:g},{ends[scale][1]:g}"' for scale in SCALES)
    return _frame(panel, lines, data)


def _frame(panel: Panel, inside: str, data: str) -> str:
    words = f"{panel.title}: {panel.y_label} against {panel.x_label}"
    return (
        f'<svg class="panel" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(words)}" {data}>'
        f'<text class="title" x="{(LEFT + RIGHT) / 2:g}" y="16">{escape(panel.title)}</text>{inside}'
        f'<path class="axis" d="M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"/>'
        f'<text class="label" x="{(LEFT + RIGHT) / 2:g}" y="{HEIGHT - 8}">{escape(panel.x_label)}</text>'
        f'<text class="label" transform="translate(13 {(TOP + BOTTOM) / 2:g}) rotate(-90)">'
        f"{escape(panel.y_label)}</text>"
        "</svg>"
    )


def _scaled(
    every: Sequence[Series], scale: str, first: Number, last: Number, place_y: Callable[[Number], float]
) -> str:
    """Ticks of the horizontal axis, on which something is counted, and the series on it."""

    def place_x(x: Number) -> float:
        if scale == "linear":
            return LEFT + (RIGHT - LEFT) * (x - first) / ((last - first) or 1.0)
        span = math.log(last / first) if last > first else 1.0
        return LEFT + (RIGHT - LEFT) * max(0.0, math.log(max(x, first) / first)) / span

    shown = [x for x in ticks(first, last) if x.is_integer()] if scale == "linear" else powers(first, last)
    drawn = "".join(
        f'<text class="tick x" x="{_n(place_x(x))}" y="{BOTTOM + 16}">{_label(x)}</text>' for x in shown
    )
    return drawn + "".join(_series(one, place_x, place_y, i) for i, one in enumerate(every))


def _series(
    series: Series, place_x: Callable[[Number], float], place_y: Callable[[Number], float], index: int
) -> str:
    points = [
        (place_x(x), place_y(y)) for x, y in zip(series.x, series.middle, strict=True) if math.isfinite(y)
    ]
    drawn = ""
    if series.low:
        ranges = [
            (place_x(x), place_y(low), place_y(high))
            for x, low, high in zip(series.x, series.low, series.high, strict=True)
            if math.isfinite(low) and math.isfinite(high)
        ]
        if series.marks:
            drawn += "".join(
                f'<path class="bar" d="M{_n(x)} {_n(low)}V{_n(high)}"/>' for x, low, high in ranges
            )
        elif ranges:
            there = [(x, high) for x, _, high in ranges]
            back = [(x, low) for x, low, _ in reversed(ranges)]
            drawn += f'<path class="band" d="{_path([*there, *back])}Z"/>'
    drawn += f'<path class="line" d="{_path(points)}"/>' if points else ""
    if series.marks:
        # Later ones lie on earlier ones, and rings around all of them.
        radius = "6.5" if series.confirmatory else _n(max(2.5, 5 - 0.7 * index))
        drawn += "".join(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{radius}"/>' for x, y in points)
    return f'<g class="series{series.kind}" data-name="{escape(series.name)}" style="--c:{series.colour}">{drawn}</g>'


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points)


def ticks(low: Number, high: Number, most: int = 6) -> list[float]:
    """Round numbers from `low` to `high`, at most so many."""
    if high <= low:
        return [float(low)]
    rough = (high - low) / most
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * size for factor in (1, 2, 5, 10) if factor * size >= rough)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def powers(first: Number, last: Number) -> list[float]:
    """Powers of ten, and what lies between where there are few of them."""
    exponents = range(math.floor(math.log10(first)), math.ceil(math.log10(max(last, first))) + 1)
    for factors in ((1,), (1, 3), (1, 2, 5)):
        found = [factor * 10.0**e for e in exponents for factor in factors]
        found = [x for x in found if first * 0.999 <= x <= last * 1.001]
        if len(found) >= 3:
            break
    return found


def _padded(low: Number, high: Number) -> tuple[float, float]:
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin


def _n(value: Number) -> str:
    """Tenths of a pixel are enough."""
    return f"{value:.1f}".removesuffix(".0")


def _label(value: Number) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:g}" if abs(value) > 1e-12 else "0"


def thinned(count: int, most: int = 70) -> list[int]:
    """Which of many points to keep: evenly spread, the last one among them."""
    if count <= most:
        return list(range(count))
    return [round(i * (count - 1) / (most - 1)) for i in range(most)]
