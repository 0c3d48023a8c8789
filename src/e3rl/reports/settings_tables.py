"""Every setting with its default, what it may be and what it means, and every preset with what it changes: read from
the classes that have them, for the command line and for the documentation."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from e3rl.experiments.agents import AGENTS
from e3rl.registry import Registry
from e3rl.runs.settings import Settings


class Row(NamedTuple):
    """One setting, as `--set` takes it."""

    path: str
    value: str
    default: str
    options: tuple[str, ...]
    """What it may be, where that is one of some words."""
    bounds: str
    """What it may be, where that is a number."""
    meaning: str
    """With the paper's symbol and table, where it has one."""

    @property
    def allowed(self) -> str:
        return ", ".join(self.options) or self.bounds


def rows(settings: Settings, prefix: str = "", within_parts: bool = True) -> Iterator[Row]:
    """A row for each setting, those of groups by their whole path and, `within_parts`, those of the parts chosen."""
    yield from _rows(settings, type(settings)(), prefix, within_parts)


def _rows(settings: Settings, usual: Settings, prefix: str, within_parts: bool) -> Iterator[Row]:
    hints = get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        path, about = f"{prefix}{field.name}", field.metadata
        value, default = getattr(settings, field.name), getattr(usual, field.name)
        registry: Registry | None = about.get("registry")
        if registry is not None:
            chosen, usually = (registry.name_of(type(each)) for each in (value, default))
            yield Row(path, chosen, usually, tuple(registry), "", about["meaning"])
            if within_parts:
                own = default if type(value) is type(default) else type(value)()
                yield from _rows(value, own, f"{path}.", within_parts)
        elif isinstance(value, Settings):
            yield from _rows(value, default, f"{path}.", within_parts)
        else:
            options, bounds = _allowed(value, hints[field.name], about)
            yield Row(path, shown(value), shown(default), options, bounds, about["meaning"])


def _allowed(value: Any, hint: Any, about: Mapping[str, Any]) -> tuple[tuple[str, ...], str]:
    if get_origin(hint) is Literal:
        return get_args(hint), ""
    if isinstance(value, bool):
        return ("true", "false"), ""
    low = f"≥ {about['at_least']}" if about["above"] is None else f"> {about['above']}"
    high = "" if about["at_most"] == math.inf else f", ≤ {about['at_most']}"
    return (), f"{'a whole number' if isinstance(value, int) else 'a number'} {low}{high}"


def shown(value: Any) -> str:
    """A value as `--set` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def summary(part: type) -> str:
    """What a class is, in the first words of its docstring."""
    return " ".join((part.__doc__ or "").split("\n\n")[0].split())


def differences(settings: Settings) -> dict[str, str]:
    """What has to be set to come from the defaults to `settings`, by path."""
    return {row.path: row.value for row in rows(settings) if row.value != row.default}


def departures(ours: Settings, theirs: Settings) -> Iterator[tuple[str, str, str]]:
    """Where two configurations differ: the setting and both values, nothing where a part does not have it."""
    both = [{row.path: row.value for row in rows(each)} for each in (ours, theirs)]
    for path in dict.fromkeys((*both[0], *both[1])):
        one, other = (values.get(path, "") for values in both)
        if one != other:
            yield path, one, other


def parts_of(kind: type[Settings]) -> dict[str, Registry]:
    """The parts that can be chosen, by the name of their setting."""
    fields = dataclasses.fields(kind)
    return {field.name: field.metadata["registry"] for field in fields if "registry" in field.metadata}


def agents_by_settings() -> dict[type[Settings], list[str]]:
    found: dict[type[Settings], list[str]] = {}
    for name, agent in AGENTS.items():
        found.setdefault(agent.settings, []).append(name)
    return found


def presets_of(kind: type[Settings]) -> dict[str, Settings]:
    """The named settings of one class, of all the agents that have it."""
    return {
        name: preset
        for agent in AGENTS.values()
        if agent.settings is kind
        for name, preset in agent.presets.items()
    }
