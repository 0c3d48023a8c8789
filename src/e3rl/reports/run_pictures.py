"""The pictures of a single run beside its learning curve, as far as they fit its environment."""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from e3rl.reports.control import phase_plane
from e3rl.reports.prediction_strip import prediction_strip
from e3rl.reports.recorded import Recorded, read_run
from e3rl.reports.saving import save_figure
from e3rl.reports.search_graph import search_graph
from e3rl.runs.seed_folders import seed_folders

PICTURES: dict[str, Callable[[Recorded], Figure | None]] = {
    "phase_plane": phase_plane,
    "search_graph": search_graph,
    "predictions": prediction_strip,
}
DPI = 130


def draw_extra(path: Path) -> list[Path]:
    """Write the pictures that fit the run in `path`, or its first seed where it holds several, into `path`."""
    runs = [path]
    if not (path / "config.json").is_file():
        runs = seed_folders(path)
    run = read_run(runs[0]) if runs else None
    if run is None:
        return []
    written = []
    for name, draw in PICTURES.items():
        figure = draw(run)
        if figure is not None:
            written.append(path / f"{name}.png")
            save_figure(figure, written[-1], dpi=DPI)
    return written
