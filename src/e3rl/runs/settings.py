"""Settings are frozen dataclasses: these check their fields when they are made and change them by text."""

import dataclasses
import math
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin

from e3rl.types import UserError

Settings = TypeVar("Settings")

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


def check(
    settings: Any,
    positive: Collection[str] = (),
    above_zero: Collection[str] = (),
    at_most_one: Collection[str] = (),
) -> None:
    """Every field of its default's type, one of its options, finite and not negative; the named ones within their
    bounds."""
    for field in dataclasses.fields(settings):
        name, value = field.name, getattr(settings, field.name)
        kind: type = type(field.default)
        if not _fits(value, kind):
            raise UserError(f"{name} must be {_KINDS[kind]}, got {value!r}")
        if kind is float and not math.isfinite(value):
            raise UserError(f"{name} must be a finite number, got {value}")
        options = get_args(field.type) if get_origin(field.type) is Literal else ()
        if options and value not in options:
            raise UserError(f"{name} must be one of {', '.join(options)}, got {value!r}")
        if name in positive and value < 1:
            raise UserError(f"{name} must be at least 1, got {value}")
        if name in above_zero and value <= 0:
            raise UserError(f"{name} must be above 0, got {value}")
        if name in at_most_one and value > 1:
            raise UserError(f"{name} must be at most 1, got {value}")
        if isinstance(value, int | float) and value < 0:
            raise UserError(f"{name} must not be negative, got {value}")


def _fits(value: object, kind: type) -> bool:
    """A whole number is a number too; true and false are none."""
    return type(value) is kind or (kind is float and type(value) is int)


def changed(base: Settings, changes: Mapping[str, str]) -> Settings:
    """The settings with `key=value` changes given as text."""
    settings: Any = base
    kinds = {field.name: type(field.default) for field in dataclasses.fields(settings)}
    parsed: dict[str, Any] = {}
    for key, text in changes.items():
        if key not in kinds:
            close = get_close_matches(key, kinds, n=1)
            raise UserError(f"unknown setting {key!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
        parsed[key] = _parse(key, text, kinds[key])
    return dataclasses.replace(settings, **parsed)


def _parse(key: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise UserError(f"{key} must be {_KINDS[kind]}, got {text!r}")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError as error:
        raise UserError(f"{key} must be {_KINDS[kind]}, got {text!r}") from error
