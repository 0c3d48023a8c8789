"""Parts by name: those of this package, and those that other people's packages offer as entry points.

A package adds a planner by an entry point of the group `e3rl.planners` (docs/extending.md); nothing here changes.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from e3rl.types import UserError

Part = TypeVar("Part")


class Registry(Mapping[str, Part], Generic[Part]):
    """Parts under their names, ours first. An entry point is loaded when its part is asked for and not before."""

    def __init__(self, kind: str, group: str, parts: Mapping[str, Part]):
        self.kind = kind
        """What one of the parts is, such as "planner"."""
        self.group = group
        """That of the entry points, such as "e3rl.planners"."""
        self._own = dict(parts)

    @cached_property
    def _offered(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=self.group)}

    def __getitem__(self, name: str) -> Part:
        if name in self._own:
            return self._own[name]
        point = self._offered[name]
        try:
            loaded: Part = point.load()
        except Exception as error:  # somebody else's package can raise anything
            package = point.dist.name if point.dist else point.value
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(
                f"{self.kind} {name!r} of the package {package} cannot be loaded: {reason}"
            ) from error
        return loaded

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in self._offered if name not in self._own)

    def __len__(self) -> int:
        return len({*self._own, *self._offered})

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in self._offered

    def called(self, name: Any) -> Part:
        """The part of that name, or one line that lists the names there are. A part that nobody has named is found
        where its module has been imported already: what a file says never imports one."""
        module, _, attribute = str(name).partition(":")
        if attribute and hasattr(sys.modules.get(module), attribute):
            unnamed: Part = getattr(sys.modules[module], attribute)
            return unnamed
        if name not in self:
            close = get_close_matches(str(name), list(self), n=1)
            hint = f"did you mean {close[0]!r}? known" if close else "known"
            raise UserError(f"unknown {self.kind} {name!r}; {hint}: {', '.join(self)}")
        return self[name]

    def name_of(self, part: object) -> str:
        """What a part is called here; one that nobody has named is called after its module and class."""
        for name in self:
            with suppress(UserError):  # a broken one of somebody else's is not it
                if self[name] is part:
                    return name
        return f"{getattr(part, '__module__', '')}:{getattr(part, '__qualname__', part)}"
