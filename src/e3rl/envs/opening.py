"""An environment opened once, and copied only as often as it is needed."""

import functools
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, cast

import gymnasium
from gymnasium.envs.registration import EnvSpec

from e3rl.envs.adapter import GymnasiumEnvironment, make
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.blame import RAISED, told
from e3rl.envs.playing.python_copies import PythonCopies
from e3rl.envs.spec import Spec, spec_of
from e3rl.types import UserError

Constructor = Callable[[], GymnasiumEnvironment]


def open_environment(env: Any, options: Mapping[str, Any] | None = None) -> "Opened":
    """Open what `make` takes: an id, with `options` for its constructor, or an environment already built."""
    return Opened(env, dict(options or {}))


class Opened:
    """An environment that has been built, or given, and everything opened from it since."""

    made: AbstractEnvironment | GymnasiumEnvironment
    """The environment; `copies` lends it out as the first of the first copies."""
    spec: Spec

    def __init__(self, env: Any, options: dict[str, Any]):
        self.made = make(env, **options)
        self._id = env if isinstance(env, str) else None
        self._options = options
        self._lent = False
        self._closing = ExitStack()
        if self._id is not None and isinstance(self.made, GymnasiumEnvironment):
            self._closing.callback(self.made.close)
        self.spec = spec_of(self.made, self._id)

    @property
    def functional(self) -> AbstractEnvironment | None:
        """The environment if it can be compiled, None if it lives in Python."""
        return self.made if isinstance(self.made, AbstractEnvironment) else None

    def copies(self, count: int, asynchronous: bool = False, copy_objects: bool = False) -> PythonCopies:
        """`count` copies of an environment that lives in Python, if `asynchronous` in processes of their own.

        An environment that was given as an object is a single copy whatever `count` says, unless `copy_objects` allows
        to make others from its id. Copies of a second call share nothing with those of the first, an object without
        `copy_objects` excepted.
        """
        if asynchronous and (self._id is None or self.functional is not None):
            raise UserError("only Gymnasium environments given by their id can be asynchronous")
        if isinstance(self.made, AbstractEnvironment):
            raise UserError(f"{self.spec.name} is compiled and has no copies in Python")
        again = self._constructor(self.made, copy_objects)
        if again is None and copy_objects and count > 1:
            raise UserError("an environment without an id cannot be copied: set copies=1, or register it")
        try:
            first = self.made
            if self._lent and again is not None:
                first = again()
                self._closing.callback(first.close)
            copies = PythonCopies(first, count, again, asynchronous=asynchronous)
        except BaseException:
            self.close()
            raise
        self._lent = True
        self._closing.callback(copies.close)
        return copies

    def _constructor(self, made: GymnasiumEnvironment, copy_objects: bool) -> Constructor | None:
        if self._id is not None:
            return cast(Constructor, functools.partial(make, self._id, **self._options))
        if copy_objects and made.env.spec is not None:
            return functools.partial(_from_spec, made.env.spec)
        return None

    def close(self) -> None:
        """Close all copies and the environment itself, but never one that was given as an object."""
        self._closing.close()


def _from_spec(spec: EnvSpec) -> GymnasiumEnvironment:
    try:
        return GymnasiumEnvironment(gymnasium.make(spec))
    except RAISED as error:
        raise UserError(f"{spec.id} cannot be copied, set copies=1: {told(error)}") from error
