"""Cells of a sweep that failed: why, and what repeats them. It lies beside the runs they left, until a run is whole."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from e3rl.experiments.provenance import reproduce_command
from e3rl.experiments.tables import UNFINISHED, unfinished_runs
from e3rl.runs.checkout import git_commit
from e3rl.runs.folder import write_json


class Failed(NamedTuple):
    experiment: str
    error: str
    command: str
    commit: str | None


def _note(out: Path, cell: str) -> Path:
    runs = unfinished_runs(out, cell)
    return runs.with_name(f"{runs.name}.json")


def note_failure(out: Path, cell: str, error: str, seeds: Sequence[int] = (), smoke: bool = False) -> None:
    path = _note(out, cell)
    with suppress(OSError):  # the disk may be what failed; the sweep says so at its end in any case
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, Failed(cell, error, reproduce_command(cell, seeds, smoke), git_commit())._asdict())


def forget_failure(out: Path, cell: str) -> None:
    path = _note(out, cell)
    path.unlink(missing_ok=True)
    with suppress(OSError):  # there is none, or others are still under way there
        path.parent.rmdir()


def failures_under(folder: Path) -> Iterator[Failed]:
    """All that are noted below `folder`; a note that a kill has left half is nobody's."""
    for path in sorted(folder.rglob(f"{UNFINISHED}/*.json")):
        with suppress(OSError, TypeError, ValueError):
            yield Failed(**json.loads(path.read_text()))
