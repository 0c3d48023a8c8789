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

    class Screen(Console):
        def on_broken_pipe(self) -> None:  # rich would leave with exit code 1
            raise BrokenPipeError

    Screen().print(grid)


def short(value: Any) -> str:
    """Large numbers as powers of ten."""
    if value is None:
        return ""
    return (
        f"{value:.4g}"
        if isinstance(value, float) or (isinstance(value, int) and value >= 10**6)
        else str(value)
    )
