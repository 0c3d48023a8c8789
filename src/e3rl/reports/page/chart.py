"""What a figure of the page shows."""

from collections.abc import Sequence
from typing import NamedTuple

Number = int | float


class Series(NamedTuple):
    """A line or some marks, with a range around them."""

    name: str
    colour: str
    x: Sequence[Number]
    middle: Sequence[float]
    low: Sequence[float] = ()
    """Empty where there is no range."""
    high: Sequence[float] = ()
    marks: bool = False
    dashed: bool = False
    confirmatory: bool = False
    """Of seeds that nobody had looked at: hollow marks, dotted lines."""

    @property
    def kind(self) -> str:
        """Its classes in the style of the page."""
        return "".join(f" {name}" for name in ("dashed", "confirmatory") if getattr(self, name))


class Panel(NamedTuple):
    title: str
    series: Sequence[Series]
    x_label: str
    y_label: str
    level: tuple[float, str] | None = None
    """A height that means something, such as the optimal return."""


class Chart(NamedTuple):
    name: str
    """Its anchor."""
    title: str
    caption: str
    panels: Sequence[Panel]
    log: bool = False
    """Whether its horizontal axis is logarithmic at first."""

    @property
    def figure(self) -> str:
        """What `e3rl reproduce` calls it, if it is one of the paper: figure-2a for figure-2a-standard."""
        return "-".join(self.name.split("-")[:2])

    @property
    def legend(self) -> dict[str, Series]:
        """One of each name."""
        return {series.name: series for panel in self.panels for series in panel.series}
