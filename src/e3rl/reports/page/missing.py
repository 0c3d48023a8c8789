"""Cells without results on the page: failed, begun, or never run, each with the command that makes it."""

from collections.abc import Callable, Iterable, Mapping
from html import escape
from pathlib import Path

from e3rl.experiments import catalogue
from e3rl.experiments.catalogue import EXPERIMENTS, family_of
from e3rl.experiments.failed import Failed, failures_under
from e3rl.experiments.figures import FIGURES
from e3rl.experiments.provenance import reproduce_command
from e3rl.experiments.tables import UNFINISHED
from e3rl.reports.drawn import DRAWN
from e3rl.reports.page.document import shown_commit, table
from e3rl.reports.page.pictures import found
from e3rl.reports.results import Result

OTHERS = "Of no figure of the paper"


def missing(folder: Path, named: Mapping[str, Result], whole: bool) -> str:
    """Of a folder with all results, every cell of the paper is expected; of one with some families, all of theirs."""
    failed = {one.experiment: one for one in failures_under(folder)}
    families = {family_of(name) for name in named}
    expected = [name for name in (*EXPERIMENTS, *DRAWN) if family_of(name) in families]
    if whole:
        expected = list(dict.fromkeys((*FIGURES["all"].cells, *expected)))
    absent = [name for name in expected if name not in failed and not _is_there(name, folder, named)]
    begun = sorted(path.name for path in folder.rglob(f"{UNFINISHED}/*") if path.is_dir())
    parts = ["<h3>Failed</h3>", _failures(failed.values())] if failed else []
    if begun:
        words = "Begun and not finished; the same command goes on with them"
        parts.append(f"<p>{words}: {escape(', '.join(begun))}.</p>")
    for title, names in _by_figure(absent).items():
        parts += [f"<h3>{escape(title)}</h3>", never_run(names)]
    return "".join(parts) or "<p>Nothing: every experiment of these families has results.</p>"


def _is_there(name: str, folder: Path, named: Mapping[str, Result]) -> bool:
    if name in DRAWN:
        return all(found(folder, file) is not None for file in DRAWN[name].files)
    return name in named


def _by_figure(names: Iterable[str]) -> dict[str, list[str]]:
    """Each under the first figure that it belongs to."""
    groups: dict[str, list[str]] = {}
    for name in names:
        own = next((figure for figure, one in FIGURES.items() if name in one.cells), None)
        title = OTHERS if own is None else f"{own.replace('-', ' ').capitalize()}: {FIGURES[own].title}"
        groups.setdefault(title, []).append(name)
    return dict(sorted(groups.items(), key=lambda item: (item[0] == OTHERS, item[0])))


def _failures(failed: Iterable[Failed]) -> str:
    rows = [
        (
            "differs",
            (
                f"<strong>{escape(one.experiment)}</strong><div>{escape(what(one.experiment))}</div>",
                f'{escape(one.error)}<div class="soft">at {escape(shown_commit(one.commit))}</div>',
                f"<code>{escape(one.command)}</code>",
            ),
        )
        for one in failed
    ]
    return table(("experiment", "error", "the command that repeats it"), rows)


def never_run(names: Iterable[str], command: Callable[[str], str] = reproduce_command) -> str:
    rows = [
        ("", (escape(name), escape(what(name)), f"<code>{escape(command(name))}</code>")) for name in names
    ]
    return table(("experiment", "what it is", "the command that makes it"), rows)


def what(name: str) -> str:
    """An experiment or a picture, in a line."""
    if name in DRAWN:
        return DRAWN[name].about
    return catalogue.about(name) if name in EXPERIMENTS else ""
