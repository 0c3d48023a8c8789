"""`e3rl settings` and `e3rl train ENV --help-settings`."""

import argparse
import json
import shutil
import textwrap
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from e3rl.types import UserError

if TYPE_CHECKING:
    from e3rl.reports.settings_tables import Row
    from e3rl.runs.settings import Settings

NARROW, WIDE = 60, 110
"""Characters of a line, whatever the terminal."""


def settings(args: argparse.Namespace) -> int:
    """All settings; those of one algorithm; or those of one preset."""
    from e3rl.experiments.agents import AGENTS
    from e3rl.reports.settings_tables import agents_by_settings, presets_of

    name = args.name
    for kind in agents_by_settings():
        if name in (presets := presets_of(kind)):
            return show(presets[name], f"preset {name}", args.json)
    kinds = {kind: names for kind, names in agents_by_settings().items() if name is None or name in names}
    if not kinds:
        known = [*AGENTS, *(preset for kind in agents_by_settings() for preset in presets_of(kind))]
        close = get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? known" if close else "known"
        raise UserError(f"unknown preset or algorithm {name!r}; {hint}: {', '.join(known)}")
    if args.json:
        print(json.dumps({"algorithms": [_everything(kind, names) for kind, names in kinds.items()]}))
        return 0
    for kind, names in kinds.items():
        _print_everything(kind, names)
    return 0


def show(chosen: "Settings", called: str, as_json: bool) -> int:
    """Every setting that there is once the parts are chosen, and the presets to start from."""
    from e3rl.reports.settings_tables import presets_of, rows

    table, presets = list(rows(chosen)), list(presets_of(type(chosen)))
    if as_json:
        print(json.dumps({"of": called, "settings": list(map(_plain, table)), "presets": presets}))
        return 0
    _title(f"Settings of {called} (change them with --set KEY=VALUE)")
    _print_rows(table)
    _print("Presets, for --config: " + ", ".join(presets))
    _print("`e3rl settings` shows what the parts not chosen here can be set to.")
    return 0


def _everything(kind: "type[Settings]", names: list[str]) -> dict[str, Any]:
    from e3rl.reports.settings_tables import differences, parts_of, presets_of, rows

    return {
        "names": names,
        "settings": [_plain(row) for row in rows(kind(), within_parts=False)],
        "parts": {
            part: {
                name: [_plain(row) for row in rows(choice(), f"{part}.", False)]
                for name, choice in registry.items()
            }
            for part, registry in parts_of(kind).items()
        },
        "presets": {name: differences(preset) for name, preset in presets_of(kind).items()},
    }


def _print_everything(kind: "type[Settings]", names: list[str]) -> None:
    from e3rl.reports.settings_tables import differences, parts_of, presets_of, rows, summary

    _title(f"{', '.join(names)}: settings, whichever parts are chosen")
    _print_rows(rows(kind(), within_parts=False))
    for part, registry in parts_of(kind).items():
        for name, choice in registry.items():
            own = list(rows(choice(), f"{part}.", False))
            _title(f"{part}={name}" + ("" if own else ": no settings"))
            _print(summary(choice))
            _print_rows(own)
    _title(f"{', '.join(names)}: presets, for --config, and what differs in them from the defaults")
    for name, preset in presets_of(kind).items():
        _print(name)
        _print(_pairs(differences(preset)) or "nothing", "    ")
    print()


def _pairs(changes: Mapping[str, str]) -> str:
    return " ".join(f"{path}={value}" for path, value in changes.items())


def _plain(row: "Row") -> dict[str, str]:
    return {
        "path": row.path, "value": row.value, "default": row.default, "allowed": row.allowed, "meaning": row.meaning
    }  # fmt: skip


def _print_rows(table: "Iterable[Row]") -> None:
    for row in table:
        default = "" if row.value == row.default else f"   (default {row.default})"
        _print(f"{row.path}={row.value}{default}   {row.allowed}")
        _print(row.meaning, "    ")
    print()


def _title(text: str) -> None:
    print(text)
    print("─" * min(len(text), _width()))


def _print(text: str, indent: str = "") -> None:
    print(textwrap.fill(text, _width(), initial_indent=indent, subsequent_indent=indent or "        ",
                        break_long_words=False, break_on_hyphens=False))  # fmt: skip


def _width() -> int:
    return max(NARROW, min(WIDE, shutil.get_terminal_size().columns))
