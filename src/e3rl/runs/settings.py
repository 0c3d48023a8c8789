"""Settings are frozen dataclasses, each beside the code that reads it: checked when made, changed by path and text.

A field is a number or a word (`setting`), a group of further settings (`group`), or a part chosen by name that brings
its own (`part`): `planner=graph planner.nodes=500`. What the chosen part does not have cannot be given.
"""

import dataclasses
import math
from abc import ABC
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import numpy as np

from e3rl.registry import Registry
from e3rl.types import UserError

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}
ALWAYS_THERE = object()
Given = TypeVar("Given", bound="Settings")
LARGEST = 2**63 - 1
"""Of whole numbers: what an array of them can hold."""


def setting(
    default: Any,
    meaning: str,
    *,
    at_least: int | float = 0,
    above: int | float | None = None,
    at_most: int | float = math.inf,
    before: Any = ALWAYS_THERE,
    in_turn: bool = False,
) -> Any:
    """A field with its meaning and its bounds. Numbers are not negative unless `at_least` says so. One that was added
    after results had been recorded says what those did `before` there was a choice. One that counts what is done
    `in_turn` takes time and not memory."""
    about = {"at_least": at_least, "above": above, "at_most": at_most, "before": before, "in_turn": in_turn}
    return dataclasses.field(default=default, metadata={"meaning": meaning, **about})


def group(default: "Settings", meaning: str) -> Any:
    """A field that is itself settings of one fixed type."""
    return dataclasses.field(default=default, metadata={"meaning": meaning})


def part(default: "Settings", registry: Registry, meaning: str) -> Any:
    """A field that is one of the parts in `registry`."""
    return dataclasses.field(default=default, metadata={"meaning": meaning, "registry": registry})


@dataclass(frozen=True)
class Settings(ABC):  # noqa: B024 - parts that extend it have abstract methods
    """The base of everything that can be set."""

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not (plain := as_plain(value)):
                value = plain
                object.__setattr__(self, field.name, value)
            _check(field, value, hints[field.name])
        self.check()

    def check(self) -> None:  # noqa: B027 - most have nothing more to check
        """Raise a `UserError` for what no bound of a single field can say."""


def _check(field: dataclasses.Field, value: Any, hint: Any) -> None:
    name, about = field.name, field.metadata
    default: Any = field.default
    if isinstance(default, Settings):
        registry: Registry | None = about.get("registry")
        if registry is None and not isinstance(value, type(default)):
            raise UserError(f"{name} must be {type(default).__name__}(...), got {value!r}")
        if registry is not None and not (isinstance(hint, type) and isinstance(value, hint)):
            raise UserError(f"{name} must be one of {', '.join(registry)}, got {value!r}")
        return
    kind = type(default)
    # A whole number is a number too; true and false are none.
    if not (type(value) is kind or (kind is float and type(value) is int)):
        raise UserError(f"{name} must be {_KINDS[kind]}, got {value!r}")
    options = get_args(hint) if get_origin(hint) is Literal else ()
    if options and value not in options:
        raise UserError(f"{name} must be one of {', '.join(options)}, got {value!r}")
    if kind is float and not math.isfinite(value):
        raise UserError(f"{name} must be a finite number, got {value}")
    if kind in (int, float):
        _check_bounds(name, value, about)


def _check_bounds(name: str, value: int | float, about: Mapping[str, Any]) -> None:
    above, at_least, at_most = about.get("above"), about.get("at_least", 0), about.get("at_most", math.inf)
    if above is not None and value <= above:
        raise UserError(f"{name} must be above {above}, got {value}")
    if value < at_least:
        words = "must not be negative" if at_least == 0 else f"must be at least {at_least}"
        raise UserError(f"{name} {words}, got {value}")
    if isinstance(value, int):
        at_most = min(at_most, LARGEST)
    if value > at_most:
        raise UserError(f"{name} must be at most {at_most}, got {value}")


def changed(settings: Given, changes: Mapping[str, Any]) -> Given:
    """`settings` with changes by path, given as text (`{"planner": "graph", "planner.nodes": "500"}`) or as values."""
    tree: dict[str, Any] = {}
    for path, value in changes.items():
        branch = tree
        *above, last = names = path.split(".")
        if "" in names:
            raise UserError(f"{path!r} is no setting: a name is missing before or after a dot")
        for name in above:
            branch = branch.setdefault(name, {})
        branch.setdefault(last, {})[""] = value
    return _changed(settings, tree, settings, "")


def as_plain(value: Any) -> Any:
    """A NumPy number, or an array of one, as Python's."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        return value.item()
    return value


def by_path(config: Mapping[Any, Any], prefix: str = "") -> dict[str, Any]:
    """Settings in a dictionary, which may hold others and name a part as `as_dict` does, as changes by path."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if not isinstance(name, str):
            raise UserError(f"settings are named by words, got {name!r}")
        if isinstance(value, Mapping):
            found |= by_path(value, f"{prefix}{name}.")
        elif name == "name" and prefix:
            found[prefix[:-1]] = value
        else:
            found[f"{prefix}{name}"] = value
    return found


def _changed(settings: Any, tree: Mapping[str, Any], top: Any, prefix: str, owner: str = "") -> Any:
    fields = {field.name: field for field in dataclasses.fields(settings)}
    new = {}
    for name, below in tree.items():
        if name not in fields:
            raise UserError(_unknown(settings, name, top, prefix, owner))
        path = f"{prefix}{name}"
        given = {key: value for key, value in below.items() if key != ""}
        value = getattr(settings, name)
        if "" in below:
            value = _parsed(path, below[""], fields[name], value)
        if given:
            if not isinstance(value, Settings):
                raise UserError(f"{path} is {_KINDS[type(value)]}: it has no setting {next(iter(given))!r}")
            registry: Registry | None = fields[name].metadata.get("registry")
            called = f"{name} {registry.name_of(type(value))!r}" if registry else name
            value = _changed(value, given, top, f"{path}.", called)
        new[name] = value
    return dataclasses.replace(settings, **new)


def _unknown(settings: Any, name: str, top: Any, prefix: str, owner: str) -> str:
    if owner:
        own = ", ".join(field.name for field in dataclasses.fields(settings)) or "none"
        return f"{owner} has no setting {name!r}; it has {own}"
    paths = list(settings_of(top))
    ends = [path for path in paths if path.rpartition(".")[2] == name]
    close = ends or get_close_matches(name, paths, n=1)
    if not close:
        by_end = {path.rpartition(".")[2]: path for path in reversed(paths)}
        close = [by_end[end] for end in get_close_matches(name, by_end, n=1)]
    return f"unknown setting {name!r}" + (f"; did you mean {' or '.join(map(repr, close))}?" if close else "")


def _parsed(path: str, value: Any, field: dataclasses.Field, current: Any) -> Any:
    """A value as it is, or as it was written."""
    if not isinstance(value, str):
        return value
    default: Any = field.default
    kind: Any = type(default)
    if isinstance(default, Settings):
        registry: Registry | None = field.metadata.get("registry")
        if registry is None:
            raise UserError(
                f"{path} is a group: set one of its own settings, such as {path}.{_first(current)}"
            )
        chosen = _chosen(registry, value)
        return current if type(current) is chosen else chosen()
    if kind is bool:
        if value.lower() not in ("true", "false"):
            raise UserError(f"{path} must be {_KINDS[kind]}, got {value!r}")
        return value.lower() == "true"
    try:
        if kind is int and not value.lstrip("+-").isdecimal() and float(value).is_integer():
            return int(float(value))  # 1e6 is a whole number
        return kind(value)
    except (ValueError, OverflowError) as error:
        raise UserError(f"{path} must be {_KINDS[kind]}, got {value!r}") from error


def _chosen(registry: Registry, name: Any) -> Any:
    """The part of that name, which may be anything where another package or a module's name says what it is."""
    found = registry.called(name)
    if not (isinstance(found, type) and issubclass(found, Settings)):
        raise UserError(f"{name} is no {registry.kind}")
    return found


def _first(settings: Settings) -> str:
    return next((field.name for field in dataclasses.fields(settings)), "")


def numbers_of(settings: Settings, prefix: str = "") -> Iterator[tuple[str, int, bool]]:
    """The whole numbers among the settings, by path, and whether they count what is done in turn."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, Settings):
            yield from numbers_of(value, f"{prefix}{field.name}.")
        elif isinstance(value, int) and not isinstance(value, bool):
            yield f"{prefix}{field.name}", value, field.metadata.get("in_turn", False)


def settings_of(settings: Settings, prefix: str = "") -> Iterator[str]:
    """The paths of everything that can be set, as the parts are chosen now."""
    for field in dataclasses.fields(settings):
        yield f"{prefix}{field.name}"
        value = getattr(settings, field.name)
        if isinstance(value, Settings):
            yield from settings_of(value, f"{prefix}{field.name}.")


def as_dict(settings: Settings) -> dict[str, Any]:
    """Plain values for JSON; a part says its own name. What is as it was before a setting existed is left out, so that
    the same settings are the same text whenever they were written."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value == field.metadata.get("before", ALWAYS_THERE):
            continue
        if isinstance(value, Settings):
            registry: Registry | None = field.metadata.get("registry")
            called = {} if registry is None else {"name": registry.name_of(type(value))}
            value = {**called, **as_dict(value)}
        found[field.name] = value
    return found


def from_dict(kind: type[Given], stored: Mapping[str, Any]) -> Given:
    """The settings that `as_dict` wrote. Anything else missing or unknown is an error: a default may have changed
    since."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    before = {name: field.metadata.get("before", ALWAYS_THERE) for name, field in fields.items()}
    stored = {**{name: value for name, value in before.items() if value is not ALWAYS_THERE}, **stored}
    odd = fields.keys() ^ stored.keys()
    if odd:
        raise UserError(f"{sorted(odd)[0]!r} is {'missing' if sorted(odd)[0] in fields else 'no setting'}")
    values = {}
    for name, field in fields.items():
        value = stored[name]
        if isinstance(field.default, Settings):
            if not isinstance(value, Mapping):
                raise UserError(f"{name} must be an object, got {value!r}")
            registry: Registry | None = field.metadata.get("registry")
            chosen = type(field.default) if registry is None else _chosen(registry, value.get("name"))
            value = from_dict(
                chosen, {key: item for key, item in value.items() if key != "name" or registry is None}
            )
        values[name] = value
    return kind(**values)
