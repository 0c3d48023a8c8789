"""A run's folder: config.json, metrics.csv, summary.json and checkpoint/."""

import csv
import io
import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from e3rl._version import __version__
from e3rl.runs.checkpoint import (
    commit_file,
    discard_staged,
    load_arrays,
    save_tree,
    stage_file,
    staged,
    tree_bytes,
    write_file,
)
from e3rl.types import UserError

FORMAT = 2
"""Of config.json and what belongs to it; runs of earlier versions have none."""
COLUMNS = (
    "phase", "episode", "env_steps", "return", "length", "disagreement", "model_loss", "seconds", "v_explore"
)  # fmt: skip


class RunFolder:
    """One seed's results on disk. What is written is written whole, so an interrupted run loses at most the episodes
    since its last checkpoint, and those are repeated exactly on resuming."""

    def __init__(self, path: Path):
        self.path = path
        self.rows: list[list[str]] = []

    @property
    def state(self) -> Path:
        return self.path / "checkpoint" / "state.safetensors"

    @property
    def policy(self) -> Path:
        return self.path / "checkpoint" / "policy.safetensors"

    def begin(self, description: dict[str, Any], resume: bool) -> bool:
        """Start the folder, or take up the run that is in it; True when there is a checkpoint to go on from."""
        config = self.path / "config.json"
        if not config.exists():
            self.write_config(description)
            return False
        if not resume:
            raise UserError(
                f"{self.path} already holds a run: give --resume to go on with it, or another --out"
            )
        stored = read_json(config)
        refuse_earlier(self.path, stored)
        for key, value in json.loads(json.dumps(description)).items():
            if stored.get(key) != value:
                raise UserError(f"{self.path} holds another run: {_difference(key, stored.get(key), value)}")
        return self.state.exists()

    def write_config(self, description: dict[str, Any]) -> None:
        about = {**description, "format": FORMAT, "version": __version__, "commit": git_commit()}
        write_json(self.path / "config.json", about)

    def keep_rows(self, count: int) -> None:
        """On resuming: the first `count` rows stand, later ones are made again."""
        self.rows = [list(row.values()) for row in read_metrics(self.path)[:count]]
        if len(self.rows) < count:
            raise UserError(f"{self.path / 'metrics.csv'} has {len(self.rows)} rows, the checkpoint {count}")

    def add_row(self, **values: Any) -> None:
        self.rows.append([_text(values[name]) for name in COLUMNS])

    def write_rows(self) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([COLUMNS, *self.rows])
        write_file(self.path / "metrics.csv", text.getvalue().encode())

    def stage_checkpoint(self, tree: Any, **about: Any) -> None:
        """Rows first: a checkpoint never knows of more episodes than the table."""
        self.write_rows()
        stage_file(self.state, tree_bytes(tree, rows=len(self.rows), **about))

    def about_checkpoint(self) -> dict[str, Any]:
        return load_arrays(self.state)[1]

    def add_later_rows(self, other: "RunFolder") -> None:
        """The rows of a run that went on after this one."""
        episodes, steps, seconds = self.until()
        for row in read_metrics(other.path):
            later = {
                "episode": str(episodes + int(row["episode"])),
                "env_steps": str(steps + int(row["env_steps"])),
                "seconds": _text(seconds + float(row["seconds"])),
            }
            self.rows.append([{**row, **later}[name] for name in COLUMNS])
        self.write_rows()

    def until(self) -> tuple[int, int, float]:
        """Episodes, steps and seconds so far."""
        if not self.rows:
            return 0, 0, 0.0
        last = dict(zip(COLUMNS, self.rows[-1], strict=True))
        return int(last["episode"]), int(last["env_steps"]), float(last["seconds"])

    def finish(self, policy: Any, summary: dict[str, Any]) -> None:
        self.write_rows()
        save_tree(self.policy, policy)
        self.write_summary(summary)

    def write_summary(self, summary: dict[str, Any]) -> None:
        write_json(self.path / "summary.json", summary)

    def summary(self) -> dict[str, Any] | None:
        path = self.path / "summary.json"
        return read_json(path) if path.exists() else None


def checkpoint_together(folders: Sequence[RunFolder], trees: Sequence[Any], abouts: Sequence[Any]) -> None:
    """One checkpoint of several seeds: complete on the disk for all of them before it counts for any."""
    try:
        for folder, tree, about in zip(folders, trees, abouts, strict=True):
            folder.stage_checkpoint(tree, **about)
    except BaseException:
        for folder in folders:
            discard_staged(folder.state)
        raise
    for folder in folders:
        commit_file(folder.state)


def complete_checkpoints(folders: Sequence[RunFolder]) -> None:
    """Finish what `checkpoint_together` had begun to commit when it was killed."""
    epochs = [
        folder.about_checkpoint().get("epoch", 0) if folder.state.exists() else -1 for folder in folders
    ]
    for folder, epoch in zip(folders, epochs, strict=True):
        waiting = staged(folder.state)
        if epoch < max(epochs) and waiting.is_file() and load_arrays(waiting)[1].get("epoch") == max(epochs):
            commit_file(folder.state)
        discard_staged(folder.state)
        if not folder.state.exists():
            raise UserError(
                f"{folder.path} has no checkpoint, but other seeds of this run do: resume those alone"
            )


def seed_folders(folder: Path) -> list[Path]:
    """The runs of several seeds, in the order of the seeds."""
    found = [path.parent for path in folder.glob("seed*/config.json")]
    return sorted(found, key=lambda path: (len(path.name), path.name))


def refuse_earlier(path: Path, about: dict[str, Any]) -> None:
    """An error for a run whose settings and checkpoints are those of an earlier version."""
    if about.get("format") != FORMAT:
        raise UserError(
            f"{path} holds a run of an earlier version ({about.get('version', 'unknown')}), which this one cannot take "
            "up: train again with another --out; its metrics and summary stay readable"
        )


def read_metrics(path: Path) -> list[dict[str, str]]:
    """The rows of a run's metrics.csv."""
    table = path / "metrics.csv"
    if not table.is_file():
        raise UserError(f"{path} holds no run: metrics.csv is missing")
    try:
        with table.open(newline="") as file:
            header, *rows = list(csv.reader(file))
        if tuple(header) != COLUMNS:
            raise ValueError(f"its columns are {', '.join(header)}")
        return [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    except (ValueError, csv.Error) as error:
        raise UserError(f"{table} is damaged: {error}") from error


def write_json(path: Path, value: Any) -> None:
    write_file(path, (json.dumps(value, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{path.parent} holds no run: {path.name} is missing")
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} is damaged: it holds no JSON object")
    return value


def git_commit() -> str | None:
    """The commit of the checkout this package runs from; None where it is installed without one."""
    if named := os.environ.get("E3RL_COMMIT"):  # for copies of a checkout without its history
        return named
    source = Path(__file__).parents[3]
    if not (source / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=source, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout.strip() or None


def _text(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _difference(key: str, stored: Any, given: Any) -> str:
    """The first place where two descriptions differ, such as `config.hidden is 64 there, 50 was given`."""
    if isinstance(stored, dict) and isinstance(given, dict):
        for name in sorted(stored.keys() | given.keys()):
            if stored.get(name) != given.get(name):
                return _difference(f"{key}.{name}", stored.get(name), given.get(name))
    return f"{key} is {stored!r} there, {given!r} was given"
