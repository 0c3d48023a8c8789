"""Confirmatory runs: settings are frozen in a commit, then seeds that nobody has looked at are run once.

`python -m e3rl.experiments.confirm --freeze` writes the settings of the paper's cells to results/confirm/settings.json,
those of cells that are added later to another file beside it, to be committed; `e3rl reproduce FIGURE --confirm` runs
them; `python -m e3rl.experiments.confirm` checks by the git history that all of it happened in this order, and that
settings are still the same.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from e3rl.experiments.catalogue import EXPERIMENTS, config_of, family_of
from e3rl.experiments.figures import FIGURES
from e3rl.neural.old_names import stored_config
from e3rl.runs.checkout import CHANGED
from e3rl.runs.folder import read_json, write_json
from e3rl.runs.settings import as_dict
from e3rl.types import UserError

FOLDER = Path("results/confirm")
SEEDS, MAZE_SEEDS = tuple(range(500, 520)), tuple(range(500, 510))
LATER_SEEDS = {"baselines-mountaincar/dqn-weight-noise": tuple(range(520, 540))}
"""Of cells whose others were looked at before they were frozen."""
BESIDE = ("baselines-cartpole/dqn", "baselines-cartpole/ppo")
"""Of a task that the paper does not have, whose settings were changed after a look at seeds 0 to 4 too."""
CELLS = (*(cell for cell in FIGURES["all"].cells if cell in EXPERIMENTS), *BESIDE)
"""Pictures have no seeds to confirm them by."""


def seeds_of(cell: str) -> tuple[int, ...]:
    """The confirmatory seeds of a cell."""
    if cell in LATER_SEEDS:
        return LATER_SEEDS[cell]
    return MAZE_SEEDS if family_of(cell) == "maze" or cell.startswith("baselines-maze/") else SEEDS


def settings() -> dict[str, Any]:
    """Of every cell, as they are today."""
    found = {cell: {"seeds": seeds_of(cell), "config": as_dict(config_of(cell))} for cell in CELLS}
    plain: dict[str, Any] = json.loads(json.dumps(found))
    return plain


def frozen_files(folder: Path) -> list[Path]:
    """Each with the settings of the cells that were frozen together."""
    return sorted(folder.glob("settings*.json"))


def frozen_before(folder: Path) -> dict[str, tuple[Path, Any]]:
    """By cell, the file that has its settings, and these."""
    return {cell: (path, own) for path in frozen_files(folder) for cell, own in read_json(path).items()}


def faults(repository: Path, folder: Path = FOLDER) -> Iterator[str]:
    """Everything about the results of a folder that speaks against them, in words."""
    last = {}
    for path in frozen_files(repository / folder):
        name = path.relative_to(repository)
        commits = _commits(repository, name)
        if not commits or _git(repository, "status", "--porcelain", "--", str(name)):
            yield f"{name} is not committed as it is"
            return
        last[path] = commits[-1]
    if not last:
        yield f"{folder / 'settings.json'} is missing: no settings were frozen"
        return
    frozen = frozen_before(repository / folder)
    today = settings()
    for cell, (_, own) in frozen.items():
        if today.get(cell) != own:
            yield f"{cell}: its settings have changed since they were frozen"
    for path in sorted((repository / folder).rglob("*.json")):
        about = read_json(path)
        if "experiment" not in about:
            continue
        name, cell = path.relative_to(repository), about["experiment"]
        if cell not in frozen:
            yield f"{name}: the settings of {cell} were not frozen"
            continue
        where, own = frozen[cell]
        yield from (f"{name}: {fault}" for fault in _faults(repository, name, about, own, last[where]))


def _faults(
    repository: Path, path: Path, about: dict[str, Any], frozen: dict[str, Any], frozen_in: str
) -> Iterator[str]:
    """About one result, where `frozen_in` is the last commit that changed its cell's frozen settings."""
    made_by = about.get("commit")
    if _plain(about.get("config")) != _plain(frozen["config"]):
        yield "made with other settings than those frozen"
    if not set(map(int, _seeds(about))) <= set(frozen["seeds"]):
        yield f"made with other seeds than those kept for it: {', '.join(map(str, _seeds(about)))}"
    added_in = _commits(repository, path)
    if not added_in:
        yield "it is not committed"
        return
    if len(added_in) > 1:
        yield f"it was committed {len(added_in)} times: run once means once"
    if made_by is not None and made_by.endswith(CHANGED):
        yield f"made with changes that {made_by.removesuffix(CHANGED)[:12]} does not have"
        return
    if made_by is None or not _is_commit(repository, made_by):
        yield f"it does not say by which commit it was made ({made_by})"
        return
    if not _comes_before(repository, frozen_in, made_by):
        yield f"made by {made_by[:12]}, before settings were frozen in {frozen_in[:12]}"
    if made_by == added_in[0] or not _comes_before(repository, made_by, added_in[0]):
        yield f"made by {made_by[:12]}, which is not before {added_in[0][:12]}, where it was added"


def _plain(config: Any) -> Any:
    """Settings as they are written today."""
    try:
        return as_dict(stored_config(config))
    except (KeyError, TypeError, UserError):  # of a baseline
        return config


def _seeds(about: dict[str, Any]) -> list[int]:
    if "final" in about:
        return [int(seed) for seed in about["final"]]
    found: list[int] = about["settings"]["seeds"]
    return found


def _commits(repository: Path, path: Path) -> list[str]:
    """Those that changed a file, the first of them first."""
    return _git(repository, "log", "--reverse", "--format=%H", "--", str(path)).split()


def _comes_before(repository: Path, one: str, other: str) -> bool:
    """Whether a commit is another, or one that it builds on."""
    return _code(repository, "merge-base", "--is-ancestor", one, other) == 0


def _is_commit(repository: Path, name: str) -> bool:
    return _code(repository, "cat-file", "-e", f"{name}^{{commit}}") == 0


def _git(repository: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=repository, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"git {words[0]}: {done.stderr.strip()}")
    return done.stdout


def _code(repository: Path, *words: str) -> int:
    return subprocess.run(["git", *words], cwd=repository, capture_output=True, check=False).returncode


def main(words: list[str]) -> int:
    if words == ["--freeze"]:
        before, files = frozen_before(FOLDER), len(frozen_files(FOLDER))
        new = {cell: own for cell, own in settings().items() if cell not in before}
        path = FOLDER / (f"settings-{files + 1}.json" if files else "settings.json")
        if not new:
            print("all cells are frozen")
            return 0
        FOLDER.mkdir(parents=True, exist_ok=True)
        write_json(path, new)
        print(f"{path}: {len(new)} cells; commit it, then run them with --confirm")
        return 0
    if words:
        print("python -m e3rl.experiments.confirm takes --freeze or nothing", file=sys.stderr)
        return 2
    found = list(faults(Path.cwd()))
    for fault in found:
        print(fault)
    print(f"{len(found)} faults" if found else "settings came first, and are still the same")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
