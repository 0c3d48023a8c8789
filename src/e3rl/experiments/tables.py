"""How an experiment's results lie on disk: NAME.csv, and NAME.json with everything needed to repeat it."""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax

from e3rl._version import __version__
from e3rl.runs.checkpoint import write_file
from e3rl.runs.folder import git_commit, write_json
from e3rl.types import UserError


def refuse_seeds(seeds: Sequence[int]) -> None:
    """An error for numbers that are no seeds."""
    if not all(0 <= seed < 2**31 for seed in seeds):
        raise UserError(f"seeds must be from 0 to 2**31 − 1, got {', '.join(map(str, seeds))}")


def table_path(out: Path, name: str) -> Path:
    return out / f"{name.replace('/', '-')}.csv"


def write_table(
    path: Path, columns: Sequence[str], rows: Sequence[dict[str, Any]], about: dict[str, Any]
) -> None:
    """The rows, and beside them `about` with the version, the commit and the device."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    table = csv.DictWriter(text, columns, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    write_file(path, text.getvalue().encode())
    made = {
        "version": __version__,
        "commit": git_commit(),
        "jax": jax.__version__,
        "device": jax.devices()[0].device_kind,
    }
    write_json(path.with_suffix(".json"), json.loads(json.dumps({**about, **made})))
