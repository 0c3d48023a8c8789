"""A run's folder: config.json, metrics.csv, summary.json and checkpoint/."""

import csv
import io
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from e3rl import __version__
from e3rl.neural.checkpoint import load_arrays, save_tree, write_file
from e3rl.types import UserError

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
            write_json(config, {**description, "version": __version__, "commit": git_commit()})
            return False
        if not resume:
            raise UserError(
                f"{self.path} already holds a run: give --resume to go on with it, or another --out"
            )
        stored = read_json(config)
        for key, value in json.loads(json.dumps(description)).items():
            if stored.get(key) != value:
                raise UserError(f"{self.path} holds another run: {_difference(key, stored.get(key), value)}")
        return self.state.exists()

    def keep_rows(self, count: int) -> None:
        """On resuming: the first `count` rows stand, later ones are made again."""
        with (self.path / "metrics.csv").open(newline="") as file:
            self.rows = list(csv.reader(file))[1 : count + 1]
        if len(self.rows) < count:
            raise UserError(f"{self.path / 'metrics.csv'} has {len(self.rows)} rows, the checkpoint {count}")

    def add_row(self, **values: Any) -> None:
        self.rows.append([_text(values[name]) for name in COLUMNS])

    def write_rows(self) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([COLUMNS, *self.rows])
        write_file(self.path / "metrics.csv", text.getvalue().encode())

    def checkpoint(self, tree: Any, **about: Any) -> None:
        """Rows first: a checkpoint never knows of more episodes than the table."""
        self.write_rows()
        save_tree(self.state, tree, rows=len(self.rows), **about)

    def about_checkpoint(self) -> dict[str, Any]:
        return load_arrays(self.state)[1]

    def finish(self, policy: Any, summary: dict[str, Any]) -> None:
        self.write_rows()
        save_tree(self.policy, policy)
        write_json(self.path / "summary.json", summary)

    def summary(self) -> dict[str, Any] | None:
        path = self.path / "summary.json"
        return read_json(path) if path.exists() else None


def write_json(path: Path, value: Any) -> None:
    write_file(path, (json.dumps(value, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{path.parent} holds no run: {path.name} is missing")
    try:
        return json.loads(path.read_text())
    except ValueError as error:
        raise UserError(f"{path} is damaged: {error}") from error


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
