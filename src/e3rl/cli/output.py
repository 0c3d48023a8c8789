"""Tables and numbers as the commands print them."""

import contextlib
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

LEAST_WIDTH = 30
"""Characters of the last column, which takes what the others leave; where they leave less it stands below them."""


@contextlib.contextmanager
def stdout_kept(for_json: bool) -> Iterator[None]:
    """What an environment prints, in processes of its own too, goes to stderr: stdout is kept for one JSON object."""
    if not for_json:
        yield
        return
    sys.stdout.flush()
    with contextlib.ExitStack() as back, contextlib.redirect_stdout(sys.stderr):
        with contextlib.suppress(OSError):  # a closed one needs no keeping
            ours = os.dup(1)
            os.dup2(2, 1)
            back.callback(os.close, ours)
            back.callback(os.dup2, ours, 1)
        yield


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

    screen = Screen()
    *widths, wanted = (max(map(len, column)) + 1 for column in zip(header, *rows, strict=True))
    if screen.width - sum(widths) >= min(LEAST_WIDTH, wanted):
        screen.print(grid)
        return
    for *names, last in (header, *rows):
        print("  ".join(filter(None, names)))
        if last:
            print(textwrap.indent(textwrap.fill(last, screen.width - 4), "    "))


def short(value: Any) -> str:
    """Large numbers as powers of ten."""
    if value is None:
        return ""
    return (
        f"{value:.4g}"
        if isinstance(value, float) or (isinstance(value, int) and value >= 10**6)
        else str(value)
    )
