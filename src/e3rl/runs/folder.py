"""A run's folder: config.json, metrics.csv, summary.json and checkpoint/."""

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from e3rl._version import __version__
from e3rl.runs.checkout import git_commit
from e3rl.runs.checkpoint import (
    append_file,
    commit_file,
    discard_staged,
    load_arrays,
    save_tree,
    stage_file,
    staged,
    tree_bytes,
    write_file,
)
from e3rl.runs.lock import FolderLock
from e3rl.types import UserError

FORMAT = 2
"""Of config.json and what belongs to it; runs of earlier versions have none."""
COLUMNS = (
    "phase", "episode", "env_steps", "return", "length", "disagreement", "model_loss", "seconds", "v_explore",
    "epsilon_hat",
)  # fmt: skip
Kinds = dict[str, tuple[type, ...]]
NUMBER = (int, float)
ABOUT: Kinds = {
    "algo": (str,),
    "env": (str, type(None)),
    "env_options": (dict,),
    "seed": (int,),
    "config": (dict,),
}
"""What config.json says, and as what."""
SUMMARY: Kinds = {
    "seed": (int,), "exploit_return_mean": NUMBER, "exploit_return_ci": (list, type(None)),
    "optimal_return": (*NUMBER, type(None)), "wall_seconds": NUMBER,
}  # fmt: skip
"""The least that summary.json says."""


class RunFolder:
    """One seed's results on disk. What is written is written whole, so an interrupted run loses at most the episodes
    since its last checkpoint, and those are repeated exactly on resuming."""

    def __init__(self, path: Path):
        self.path = path
        self.rows: list[list[str]] = []
        self._written: int | None = None
        """How many of them metrics.csv holds, and nothing else; None where that is not known."""
        self.lock = FolderLock(path)

    @property
    def state(self) -> Path:
        return self.path / "checkpoint" / "state.safetensors"

    @property
    def policy(self) -> Path:
        return self.path / "checkpoint" / "policy.safetensors"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.csv"

    def begin(self, description: dict[str, Any], resume: bool) -> bool:
        """Start the folder, or take up the run that is in it; True when there is a checkpoint to go on from.

        From then on nobody else can, until `lock` is released."""
        self.refuse_foreign()
        self.lock.acquire()
        try:
            return self._begin(description, resume)
        except BaseException:
            self.lock.release()
            raise

    def _begin(self, description: dict[str, Any], resume: bool) -> bool:
        if self.may_begin(description, resume):  # asked again: by now everything that is there stays as it is
            self.restart(description)
        return self.state.exists()

    def may_begin(self, description: dict[str, Any], resume: bool) -> bool:
        """Whether nothing has been learned here yet; an error where there is anything that stands in the way."""
        self.refuse_foreign()
        if self.is_fresh():
            return True
        self.check(description, resume)
        return False

    def restart(self, description: dict[str, Any]) -> None:
        """Begin at the beginning, whatever rows there were."""
        self.write_config(description)
        self.rows, self._written = [], None
        self.write_rows()

    def check(self, description: dict[str, Any], resume: bool) -> None:
        """An error unless the run that is here is the one described, and is to be gone on with."""
        if not resume:
            raise UserError(
                f"{self.path} already holds a run: give --resume to go on with it, or another --out"
            )
        stored = read_about(self.path)
        refuse_earlier(self.path, stored)
        for key, value in json.loads(json.dumps(description)).items():
            if stored.get(key) != value:
                raise UserError(f"{self.path} holds another run: {_difference(key, stored.get(key), value)}")

    def refuse_foreign(self) -> None:
        """An error where there are files that are no run's: those would be overwritten."""
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"{self.path} is a file: give a folder as --out")
        config = self.path / "config.json"
        if config.exists() or config.is_symlink():
            if "algo" not in read_about(self.path):
                raise UserError(f"{config} is not that of a run: give another --out")
            return
        first = next(visible(self.path), None)
        if first is not None:
            raise UserError(
                f"{self.path} is not empty and holds no run, since config.json is missing ({first} is there): give "
                "another --out"
            )

    def is_fresh(self) -> bool:
        """Whether nothing has been learned here: no checkpoint, no episode. A run that failed before that may be begun
        again with other settings."""
        kept = (self.state, self.policy, self.path / "summary.json")
        if any(path.exists() for path in kept):
            return False
        try:
            return not self.metrics.exists() or not read_metrics(self.path)
        except UserError:  # somebody's, whatever it is
            return False

    @property
    def is_finished(self) -> bool:
        """Whether everything that a finished run leaves is there; the policy of one that handed over is its heir's."""
        summary = self.summary()
        if summary is None or not self.metrics.is_file():
            return False
        handed = summary.get("handed_over")
        if isinstance(handed, dict):
            return RunFolder(self.path / str(handed.get("folder"))).policy.is_file()
        return self.policy.is_file()

    def what_resuming_does(self) -> str | None:
        """A word about anything but going on from a checkpoint of an unfinished run."""
        if self.is_fresh():
            return f"there is no run to resume in {self.path}: a new one begins"
        if self.summary() is not None:
            begin = "its checkpoint" if self.state.exists() else "the beginning"
            return f"the run in {self.path} is finished but files of it are missing: made again from {begin}"
        return None if self.state.exists() else f"{self.path} has no checkpoint yet: the run begins again"

    def write_config(self, description: dict[str, Any]) -> None:
        about = {**description, "format": FORMAT, "version": __version__, "commit": git_commit()}
        write_json(self.path / "config.json", about)

    def keep_rows(self, count: int) -> None:
        """On resuming: the first `count` rows stand, later ones are made again."""
        rows = [list(row.values()) for row in read_metrics(self.path)]
        if len(rows) < count:
            raise UserError(
                f"{self.metrics} has {len(rows)} rows, the checkpoint {count}: put the file back, or delete "
                f"{self.state.parent} and --resume begins again"
            )
        self.rows, self._written = rows[:count], None

    def add_row(self, **values: Any) -> None:
        self.rows.append([_text(values[name]) for name in COLUMNS])

    def column(self, name: str) -> list[float]:
        """The numbers of one column so far."""
        place = COLUMNS.index(name)
        return [float(row[place]) for row in self.rows]

    def write_rows(self, durably: bool = True) -> None:
        """Bring metrics.csv up to date. Rows that are new are added to its end; where rows had to go, it is replaced as
        a whole. `durably`, it also survives the loss of power."""
        done = self._written
        if done == len(self.rows) and not durably:
            return
        self._written = None  # until it is known to have gone well
        if done is None or done > len(self.rows):
            write_file(self.metrics, _csv([list(COLUMNS), *self.rows]))
        else:
            append_file(self.metrics, _csv(self.rows[done:]), durably)
        self._written = len(self.rows)

    def stage_checkpoint(self, tree: Any, **about: Any) -> None:
        """Rows first: a checkpoint never knows of more episodes than the table."""
        self.write_rows()
        stage_file(self.state, tree_bytes(tree, rows=len(self.rows), **about))

    def about_checkpoint(self) -> dict[str, Any]:
        return load_arrays(self.state)[1]

    @property
    def epoch(self) -> int:
        """After which its checkpoint was made; -1 without one."""
        return int(self.about_checkpoint().get("epoch", 0)) if self.state.exists() else -1

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
        if not path.exists():
            return None
        found = read_json(path)
        fault = _fault(found, SUMMARY)
        interval = found.get("exploit_return_ci")
        if fault is None and interval is not None and list(map(type, interval)) != [float, float]:
            fault = f"exploit_return_ci is {interval!r}"
        if fault is not None:
            raise UserError(f"{path} is damaged: {fault}; delete it, and --resume makes it again")
        return found


def checkpoint_together(folders: Sequence[RunFolder], trees: Sequence[Any], abouts: Sequence[Any]) -> None:
    """One checkpoint of several seeds: complete on the disk for all of them before it counts for any. Once it counts
    for one, it can be completed for the others."""
    try:
        for folder, tree, about in zip(folders, trees, abouts, strict=True):
            folder.stage_checkpoint(tree, **about)
        commit_file(folders[0].state)
    except BaseException:
        for folder in folders:
            discard_staged(folder.state)
        raise
    for folder in folders[1:]:
        commit_file(folder.state)


def complete_checkpoints(folders: Sequence[RunFolder]) -> None:
    """Finish what `checkpoint_together` had begun to commit when it was killed."""
    epochs = [folder.epoch for folder in folders]
    for folder, epoch in zip(folders, epochs, strict=True):
        waiting = staged(folder.state)
        if epoch < max(epochs) and waiting.is_file() and load_arrays(waiting)[1].get("epoch") == max(epochs):
            commit_file(folder.state)
        discard_staged(folder.state)
        if not folder.state.exists():
            raise UserError(
                f"{folder.path} has no checkpoint, but other seeds of this run do: resume those alone"
            )


def visible(folder: Path) -> Iterator[str]:
    """What lies in a folder, the files that hide themselves aside."""
    if folder.is_dir():
        yield from sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def refuse_earlier(path: Path, about: dict[str, Any]) -> None:
    """An error for a run whose settings and checkpoints are those of an earlier version."""
    if about.get("format") != FORMAT:
        raise UserError(
            f"{path} holds a run of an earlier version ({about.get('version', 'unknown')}), which this one cannot take "
            "up: train again with another --out; its metrics and summary stay readable"
        )


def read_metrics(path: Path) -> list[dict[str, str]]:
    """The rows of a run's metrics.csv; a last one that a kill has torn is not one."""
    table = path / "metrics.csv"
    if not table.is_file():
        raise UserError(
            f"{path} holds no run: metrics.csv is missing; put it back, or train again into another folder"
        )
    try:
        text = table.read_bytes().decode()
        header, *rows = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1])))
        if tuple(header) not in (COLUMNS, COLUMNS[:-1]):  # runs of earlier versions have no ε̂
            raise ValueError(f"its columns are {', '.join(header)}")
        missing = ["nan"] * (len(COLUMNS) - len(header))
        found = [dict(zip(COLUMNS, [*row, *missing], strict=True)) for row in rows]
        for row in found:
            for name in COLUMNS[1:]:
                float(row[name])
        return found
    except (ValueError, csv.Error) as error:
        raise UserError(f"{table} is damaged: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {table}: {error.strerror or error}") from error


def read_about(path: Path) -> dict[str, Any]:
    """A run's config.json, with what it says being what it should be; runs of earlier versions may say less."""
    about = read_json(path / "config.json")
    fault = _fault({key: about.get(key, kinds[0]()) for key, kinds in ABOUT.items()}, ABOUT)
    if fault is not None:
        raise UserError(f"{path / 'config.json'} is no configuration of a run: {fault}")
    return about


def _fault(found: dict[str, Any], kinds: Kinds) -> str | None:
    """What is missing or of the wrong kind, in words."""
    for name, allowed in kinds.items():
        if name not in found:
            return f"{name!r} is missing"
        if not isinstance(found[name], allowed) or isinstance(found[name], bool):
            return f"{name} is {found[name]!r}"
    return None


def write_json(path: Path, value: Any) -> None:
    write_file(path, (json.dumps(value, indent=2) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError(f"{path.parent} holds no run: {path.name} is missing")
    try:
        value = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is damaged: {error}") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} is damaged: it holds no JSON object")
    return value


def _csv(rows: list[list[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _text(value: Any) -> str:
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _difference(key: str, stored: Any, given: Any) -> str:
    """The first place where two descriptions differ, such as `config.hidden is 64 there, 50 was given`."""
    if isinstance(stored, dict) and isinstance(given, dict):
        for name in sorted(stored.keys() | given.keys()):
            if stored.get(name) != given.get(name):
                return _difference(f"{key}.{name}", stored.get(name), given.get(name))
    return f"{key} is {stored!r} there, {given!r} was given"
