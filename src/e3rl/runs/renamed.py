"""What settings of earlier versions are called now: one table for each agent, read here.

A path may say for which part it is meant: `exploit[dqn].value.batch` only where the exploiter is the one called dqn.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from e3rl.runs.settings import Settings, changed, settings_of
from e3rl.types import UserError

Table = Mapping[str, tuple[str, ...]]
_PART = re.compile(r"(\w+)\[(\w+)\]")


def current_names(
    settings: Settings, changes: Mapping[str, Any], table: Table
) -> tuple[dict[str, Any], list[str]]:
    """`changes` under today's names, and a line for each that had another one."""
    now: dict[str, Any] = {}
    lines = []
    # Parts first: which settings there are depends on them.
    for name, value in changes.items():
        if name in table and _chooses_a_part(settings, table[name]):
            now |= dict.fromkeys(table[name], value)
            lines.append(f"{name} is now called {table[name][0]}")
        elif name not in table:
            now[name] = value
    parts = {name: value for name, value in now.items() if _chooses_a_part(settings, (name,))}
    chosen = changed(settings, parts)
    there = set(settings_of(chosen))
    for name, value in changes.items():
        if name not in table or _chooses_a_part(settings, table[name]):
            continue
        paths = [
            path for entry in table[name] if (path := meant(chosen, entry)) in there and path is not None
        ]
        if not paths:
            called = " or ".join(dict.fromkeys(_PART.sub(r"\1", entry) for entry in table[name]))
            raise UserError(f"{name} is now called {called}, which the parts chosen here do not have")
        now |= {path: value for path in paths if path not in now}
        lines.append(f"{name} is now called {' and '.join(paths)}")
    return now, lines


def _chooses_a_part(settings: Settings, paths: tuple[str, ...]) -> bool:
    fields = {field.name: field for field in dataclasses.fields(settings)}
    return all(path in fields and "registry" in fields[path].metadata for path in paths)


def meant(settings: Settings, entry: str) -> str | None:
    """The path of an entry, None where another part is chosen than it is meant for."""
    found = _PART.match(entry)
    if found is None:
        return entry
    name, wanted = found.groups()
    [field] = [field for field in dataclasses.fields(settings) if field.name == name]
    if field.metadata["registry"].name_of(type(getattr(settings, name))) != wanted:
        return None
    return _PART.sub(r"\1", entry)
