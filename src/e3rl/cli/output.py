"""Tables and numbers as the commands print them."""

from collections.abc import Sequence
from typing import Any


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in header:
        grid.add_column(name, no_wrap=name != header[-1], overflow="fold")
    for row in rows:
        grid.add_row(*map(escape, row))
    Console().print(grid)


def verdict(summary: dict[str, Any], explores: bool) -> str:
    """One line about how well a run exploits, after episodes that were meant to explore or to learn."""
    mean, interval = summary["exploit_return_mean"], summary["exploit_return_ci"]
    text = f"seed {summary['seed']}: return {mean:.3f}{interval_text(interval)}"
    optimum = summary.get("optimal_return")
    if optimum:
        text += f", {mean / optimum:.0%} of the optimum {optimum:.3f}"
    kind = "exploration" if explores else "training"
    return f"{text}, after {summary['explore_episodes']} {kind} episodes, {summary['wall_seconds']:.0f} s"


def interval_text(bounds: Sequence[float] | None) -> str:
    return "" if bounds is None else f" (95% interval {bounds[0]:.3f} to {bounds[1]:.3f})"


def short(value: Any) -> str:
    """Large numbers as powers of ten."""
    if value is None:
        return ""
    return (
        f"{value:.4g}"
        if isinstance(value, float) or (isinstance(value, int) and value >= 10**6)
        else str(value)
    )
