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
    def legend(self) -> dict[str, Series]:
        """One of each name."""
        return {series.name: series for panel in self.panels for series in panel.series}
