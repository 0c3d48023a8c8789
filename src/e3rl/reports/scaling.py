"""How cost grows: a table with fitted exponents and a figure from the file that `e3rl bench scaling` saved.

`python -m e3rl.reports.scaling results/bench` prints the one and draws the other.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from e3rl.reports.saving import save_figure
from e3rl.reports.wording import duration
from e3rl.types import UserError

FILE, PICTURE = "scaling.json", "scaling.png"
BOUND = 0.25
"""A share of a peak that is worth calling a bound."""
KERNELS = {
    "plan": "tree search",
    "fit": "100 model updates",
    "epoch": "an epoch",
    "table": "a plan over a table",
}


class Curve(NamedTuple):
    """One kernel against one size."""

    kernel: str
    axis: str
    sizes: list[int]
    seconds: list[float]
    bytes: list[float]
    flops_share: list[float | None]
    """Of the rate of a large matrix product."""
    bytes_share: list[float | None]
    """Of the rate of a copy through memory."""

    @property
    def bound(self) -> str:
        """What the largest size comes near to; where that is neither, its many small steps take the time."""
        shares = {"arithmetic": self.flops_share[-1], "memory": self.bytes_share[-1]}
        known = {name: share for name, share in shares.items() if share is not None}
        if not known:
            return "–"
        largest = max(known, key=known.__getitem__)
        return largest if known[largest] >= BOUND else "latency"


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The slope of a line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0]) if len(sizes) > 1 else float("nan")


def read(folder: Path) -> tuple[list[Curve], dict[str, Any]]:
    """The curves, and what was found out about the machine."""
    path = folder / FILE
    try:
        saved = json.loads(path.read_text())
        curves = dict[str, list[dict[str, Any]]]()
        for row in saved["rows"]:
            curves.setdefault(row["kernel"], []).append(row)
        return [_curve(name, rows) for name, rows in curves.items()], saved["measured"]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is not what `e3rl bench scaling --out {folder}` saves") from error


def _curve(name: str, rows: list[dict[str, Any]]) -> Curve:
    kernel, _, axis = name.partition("/")
    shares = ([row[column] for row in rows] for column in ("flops_share", "bytes_share"))
    seconds, sizes = [row["ours_s"] for row in rows], [row["size"] for row in rows]
    return Curve(kernel, axis, sizes, seconds, [float(row["memory_bytes"]) for row in rows], *shares)


def table(folder: Path) -> Iterator[str]:
    """Markdown."""
    curves, machine = read(folder)
    peaks = machine["peaks"]
    names = (
        "kernel", "size", "time", "exponent of time (between the last two)", "memory", "exponent",
        f"of {peaks['gflops']:.0f} GFLOP/s", f"of {peaks['copy_gb_s']:.0f} GB/s", "bound",
    )  # fmt: skip
    yield f"| {' | '.join(names)} |"
    yield "|---" * len(names) + "|"
    for curve in curves:
        last = exponent(curve.sizes[-2:], curve.seconds[-2:])
        cells = (
            KERNELS.get(curve.kernel, curve.kernel),
            f"{curve.axis} = {curve.sizes[0]:,} to {curve.sizes[-1]:,}",
            f"{duration(curve.seconds[0])} to {duration(curve.seconds[-1])}",
            f"{exponent(curve.sizes, curve.seconds):.2f} ({last:.2f})",
            f"{_size(curve.bytes[0])} to {_size(curve.bytes[-1])}",
            f"{exponent(curve.sizes, curve.bytes):.2f}",
            _percent(curve.flops_share[-1]),
            _percent(curve.bytes_share[-1]),
            curve.bound,
        )
        yield f"| {' | '.join(cells)} |"


def _size(count: float) -> str:
    return f"{count / 1e6:.3g} MB"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}" if share < 0.1 else f"{share:.0%}"


def draw(folder: Path) -> Path:
    """Time and memory against each size, both axes logarithmic."""
    curves, machine = read(folder)
    axes = list(dict.fromkeys(curve.axis for curve in curves))
    figure = Figure(figsize=(2.6 * len(axes), 5.2), layout="constrained")
    panels = figure.subplots(2, len(axes), squeeze=False, sharey="row")
    for column, axis in enumerate(axes):
        for curve in curves:
            if curve.axis == axis:
                label = KERNELS.get(curve.kernel, curve.kernel)
                place = list(KERNELS).index(curve.kernel) if curve.kernel in KERNELS else 0
                for line, values in enumerate((curve.seconds, [count / 1e6 for count in curve.bytes])):
                    panel = panels[line, column]
                    slope = f"{label}: {exponent(curve.sizes, values):.2f}"
                    panel.loglog(
                        curve.sizes, values, marker="o", markersize=3, color=f"C{place}", label=slope
                    )
        sizes = sorted({size for curve in curves if curve.axis == axis for size in curve.sizes})
        for line in range(2):
            panels[line, column].set_xticks(
                sizes, [f"{size:.3g}".replace("e+0", "e") for size in sizes], fontsize=7
            )
            panels[line, column].set_xticks([], minor=True)
            panels[line, column].legend(fontsize=7, title="exponent", title_fontsize=7)
            panels[line, column].grid(alpha=0.3, which="major")
        panels[1, column].set_xlabel(axis)
    panels[0, 0].set_ylabel("seconds")
    panels[1, 0].set_ylabel("memory of the program, MB")
    figure.suptitle(f"How cost grows ({machine['device']})", fontsize=11)
    return save_figure(figure, folder / PICTURE, dpi=120)


def main(folder: Path) -> None:
    print("\n".join(table(folder)))
    print(f"picture: {draw(folder)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
