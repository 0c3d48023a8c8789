"""The results of experiments in a folder, found by what their JSON files say and never by the names of files."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from e3rl.experiments.catalogue import family_of
from e3rl.types import UserError


class Result(NamedTuple):
    """One experiment, as far as it has been run."""

    path: Path
    """Its JSON file."""
    about: dict[str, Any]
    """What that says."""

    @property
    def experiment(self) -> str:
        """Such as lock/h5."""
        name: str = self.about["experiment"]
        return name

    @property
    def table(self) -> Path:
        """The rows lie beside the JSON."""
        path = self.path.with_suffix(".csv")
        if not path.is_file():
            raise UserError(f"{path} is missing, its .json is there")
        return path


def results_in(folder: Path, *families: str) -> list[Result]:
    """The experiments of these families in `folder`, of any if none is named."""
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            about = json.loads(path.read_text())
        except ValueError as error:
            raise UserError(f"{path} is damaged: {error}") from error
        name = about.get("experiment") if isinstance(about, dict) else None
        if isinstance(name, str) and (not families or family_of(name) in families):
            found.append(Result(path, about))
    return found
