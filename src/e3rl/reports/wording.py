"""Numbers as they stand in tables and sentences of the documentation."""

from collections.abc import Iterable, Sequence
from typing import Any


def row(*cells: Any) -> str:
    """Of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def head(*names: str) -> str:
    return f"{row(*names)}\n{'|---' * len(names)}|"


def signed(value: float, digits: int = 0) -> str:
    """With a minus as it is printed, and no zero below zero."""
    return f"{value:.{digits}f}".replace("-", "−") if round(value, digits) else f"{0:.{digits}f}"


def ends(values: Iterable[float], digits: int = 0) -> str:
    """Such as "8 to 16"."""
    told = list(values)
    return " to ".join(dict.fromkeys(signed(end, digits) for end in (min(told), max(told))))


def listed(words: Sequence[str], last: str = "and") -> str:
    """Such as "a, b and c"."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def duration(seconds: float | None) -> str:
    """To three digits: "25.5 ms", "1.55 s"; nothing where nothing was measured."""
    if seconds is None:
        return ""
    if seconds < 1.0:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 1e3 else f"{seconds:,.0f} s"


def times(ratio: float | None, digits: int = 1) -> str:
    """Such as "4.0×"."""
    return "" if ratio is None else f"{ratio:.{digits}f}×"
