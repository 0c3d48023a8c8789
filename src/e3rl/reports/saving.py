"""Pictures on the disk: whole or not at all, and an error that names the file."""

import io
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from e3rl.runs.checkpoint import write_file


def save_figure(figure: Figure, path: Path, **options: Any) -> Path:
    """Write a picture in the format that its name asks for."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=path.suffix[1:], **options)
    write_file(path, drawn.getvalue())
    return path
