"""How an experiment's results lie on disk: NAME.csv, and NAME.json with everything needed to repeat it."""

import csv
import dataclasses
import io
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from e3rl.experiments.provenance import provenance, reproduce_command, this_machine
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.old_names import stored_config
from e3rl.runs.checkpoint import write_file
from e3rl.runs.folder import read_json, write_json
from e3rl.runs.settings import as_dict
from e3rl.types import UserError

Row = dict[str, Any]
UNFINISHED = "unfinished"
"""Folders of what is under way, was interrupted or has failed."""


def refuse_seeds(seeds: Sequence[int]) -> None:
    """An error for numbers that are no seeds."""
    if not all(0 <= seed < 2**31 for seed in seeds):
        raise UserError(f"seeds must be from 0 to 2**31 − 1, got {', '.join(map(str, seeds))}")


def table_path(out: Path, name: str) -> Path:
    return out / f"{name.replace('/', '-')}.csv"


def unfinished_runs(out: Path, name: str) -> Path:
    """Where the run folders of an experiment lie until its results are whole: what was interrupted goes on there."""
    return out / UNFINISHED / name.replace("/", "-")


def note_machine(out: Path, name: str, earlier: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """This machine works on an experiment from now on. What its results say of that: nothing, unless it goes on with
    what another one has left, or adds to results of which `earlier` was said; then all, in the order in which they
    began."""
    path, here = unfinished_runs(out, name) / "machines.json", this_machine()
    machines = read_json(path)["machines"] if path.is_file() else []
    if not machines and earlier:
        machines = earlier.get("machines") or [{key: earlier.get(key) for key in here}]
    if here not in machines:
        machines = [*machines, here]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, {"machines": machines})
    return {"machines": machines} if len(machines) > 1 else {}


def forget_runs(out: Path, name: str) -> None:
    """The results are whole: the run folders are not needed any more."""
    runs = unfinished_runs(out, name)
    shutil.rmtree(runs, ignore_errors=True)
    with suppress(OSError):  # others are still under way there
        runs.parent.rmdir()


def write_rows(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_file(path, text.getvalue().encode())


def write_table(path: Path, columns: Sequence[str], rows: Sequence[Row], about: dict[str, Any]) -> None:
    """The rows, and beside them `about` with what made them."""
    write_rows(path, columns, rows)
    made = provenance(about.get("command", reproduce_command(about["experiment"])))
    write_json(path.with_suffix(".json"), json.loads(json.dumps({**about, **made})))


def stored_table(
    path: Path, kinds: Mapping[str, Callable[[str], Any]]
) -> tuple[dict[str, Any], list[Row]] | None:
    """What `write_table` wrote, its rows as they were; None where there is nothing, or half of it after a kill."""
    if not (path.is_file() and path.with_suffix(".json").is_file()):
        return None
    return read_json(path.with_suffix(".json")), stored_rows(path, kinds)


def stored_rows(path: Path, kinds: Mapping[str, Callable[[str], Any]]) -> list[Row]:
    """What `write_rows` wrote."""
    try:
        with path.open(newline="") as file:
            return [{name: kind(row[name]) for name, kind in kinds.items()} for row in csv.DictReader(file)]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{path} is damaged: {type(error).__name__}: {error}") from error


def measured_before(
    path: Path,
    kinds: Mapping[str, Callable[[str], Any]],
    config: NeuralE3Config,
    alike: Callable[[dict[str, Any]], bool],
) -> tuple[dict[str, Any], list[Row]]:
    """What is said about the same experiment, and its rows; nothing where another configuration made them, or settings
    of the experiment that are not `alike`."""
    stored = stored_table(path, kinds)
    if stored is None:
        return {}, []
    about, rows = stored
    try:
        same = stored_config(about["config"]) == config and alike(about["settings"])
    except (KeyError, TypeError, UserError):
        same = False
    return (about, rows) if same else ({}, [])


def about_cell(
    name: str,
    experiment: Any,
    config: NeuralE3Config,
    seeds: Sequence[int],
    asked: Sequence[int],
    smoke: bool,
) -> dict[str, Any]:
    """What a table says about itself: how it is made again, of which settings and seeds."""
    return {
        "command": reproduce_command(name, asked, smoke),
        "experiment": name,
        "settings": {**dataclasses.asdict(experiment), "seeds": list(seeds)},
        "config": as_dict(config),
    }


def truth(text: str) -> bool:
    """A cell that was True or False."""
    if text not in ("True", "False"):
        raise ValueError(f"neither True nor False: {text!r}")
    return text == "True"
