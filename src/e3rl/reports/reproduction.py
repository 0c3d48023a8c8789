"""What docs/reproduce.md shows that is made from code: the map from figures to commands, and the paper's tables beside
the presets. `python -m e3rl.reports.reproduction docs/reproduce.md` brings the page up to date."""

import sys
from collections.abc import Iterator
from pathlib import Path

from e3rl.experiments.figures import FIGURES
from e3rl.experiments.paper_tables import (
    DEPARTURES,
    NO_SETTING,
    NO_SWITCH,
    TABLES,
    UNLIKE_THE_TEXT,
    UNSAID,
    WITH_IDS,
    Row,
    value_at,
)
from e3rl.reports.settings_tables import shown
from e3rl.runs.checkpoint import write_file

BEGIN, END = "<!-- made by e3rl.reports.reproduction: {} -->", "<!-- end -->"


def figures() -> Iterator[str]:
    yield "| figure | command | cells | what it is |\n|---|---|---|---|"
    for name, figure in FIGURES.items():
        yield f"| {name} | `e3rl reproduce {name}` | {len(figure.cells)} | {figure.title} |"


def tables() -> Iterator[str]:
    yield "| table | preset | hyperparameter | the paper's | the preset's |\n|---|---|---|---|---|"
    for title, (presets, rows) in TABLES.items():
        called = (
            f"`{presets[0]}`"
            if len(presets) == 1
            else f"`{presets[0]}` to `-{presets[-1].rpartition('-')[2]}`"
        )
        for row in rows:
            yield f"| {title} | {called} | {row.name} | {shown(row.final)} | {_ours(presets, row)} |"


def _ours(presets: tuple[str, ...], row: Row) -> str:
    """The values of all settings that a row is about, and why one differs."""
    if not row.settings:
        return NO_SETTING[row.name]
    told = []
    for path in row.settings:
        values = dict.fromkeys(shown(value_at(preset, path)) for preset in presets)
        departure = DEPARTURES.get((presets[0], path))
        told.append(f"`{path}` {', '.join(values)}{f' ({departure.why})' if departure else ''}")
    return "; ".join(told)


def departures() -> Iterator[str]:
    yield "What the tables leave out:\n"
    yield from (f"- `{preset}`: {source}." for preset, source in UNSAID.items())
    yield "\nWhere presets depart from the text:\n"
    yield from (f"- `{preset}`: {what}." for preset, what in UNLIKE_THE_TEXT.items())
    yield "\nDepartures that are measured, under ids of their own:\n"
    yield from (f"- `{ids}`: {what}." for ids, what in WITH_IDS.items())
    yield "\nWhat no setting turns off:\n"
    yield from (f"- {line}" for line in NO_SWITCH)


PARTS = {"figures": figures, "tables": tables, "departures": departures}


def made(page: str) -> str:
    """The page with its parts as they are made today."""
    for name, part in PARTS.items():
        before, mark, rest = page.partition(BEGIN.format(name))
        assert mark, f"the page has lost its mark of {name}"
        after = rest.partition(END)[2]
        page = f"{before}{mark}\n{chr(10).join(part())}\n{END}{after}"
    return page


if __name__ == "__main__":
    path = Path(sys.argv[1])
    write_file(path, made(path.read_text()).encode())
