"""The folders of several seeds, side by side in one."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from e3rl.runs.checkpoint import load_arrays, staged
from e3rl.runs.folder import RunFolder, visible
from e3rl.types import UserError


def seed_folders(folder: Path) -> list[Path]:
    """The runs of several seeds, in the order of the seeds."""
    found = [path.parent for path in folder.glob("seed*/config.json")]
    return sorted(found, key=lambda path: (len(path.name), path.name))


def refuse_mixture(out: Path, paths: Sequence[Path]) -> None:
    """One folder holds either one run or the folders of several seeds, and nothing else's."""
    if paths == [out]:
        if any(out.glob("seed*/config.json")):
            raise UserError(f"{out} already holds the runs of several seeds: give another --out for one")
    elif (out / "config.json").exists():
        raise UserError(f"{out} already holds the run of one seed: give another --out for several")
    elif not seed_folders(out):
        others = [name for name in visible(out) if not re.fullmatch(r"seed\d+", name)]
        if others:
            raise UserError(
                f"{out} is not empty and holds no runs ({others[0]} is there): give another --out"
            )
    for path in paths:
        RunFolder(path).refuse_foreign()


def what_is_kept(folders: Sequence[RunFolder]) -> str:
    """Of runs that were interrupted before their training, or after it."""
    if all(folder.is_finished for folder in folders):
        return f"training is complete, in {', '.join(str(folder.path) for folder in folders)}"
    places = [str(folder.path) for folder in folders if folder.state.exists()]
    by = "its last checkpoint" if len(places) == 1 else "their last checkpoints"
    return f"saved in {', '.join(places)} by {by}" if places else "nothing to save yet"


def left_apart(folders: Sequence[RunFolder]) -> bool:
    """Whether there is no epoch from which all seeds could go on together, as when each was trained by itself."""
    return not set.intersection(*map(_epochs, folders))


def _epochs(folder: RunFolder) -> set[int]:
    """Of its checkpoint, and of one that only waits to be committed."""
    found = {folder.epoch}
    with suppress(UserError):  # none, or a torn one
        found.add(int(load_arrays(staged(folder.state))[1].get("epoch", 0)))
    return found
