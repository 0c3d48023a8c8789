"""Whether what an environment shows belongs to its space: at a glance, and where it does not, why."""

import contextlib
from collections.abc import Callable
from operator import le
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

FEW = 8
"""Entries up to which plain Python compares faster than NumPy."""


def surely_member(space: gymnasium.Space) -> Callable[[Any], bool]:
    """A test that costs a microsecond or two and that no observation with a `violation` passes. Some without one do not
    pass it either: those, and spaces for which there is no such test, have to be looked at closely."""
    match space:
        case spaces.Box():
            dtype, shape = np.dtype(space.dtype), space.shape
            low, high = space.low, space.high
            if dtype.kind == "f":  # infinities are within the bounds of a space that has none
                finite = np.finfo(dtype)
                low, high = np.maximum(low, finite.min), np.minimum(high, finite.max)

            few = len(shape) == 1 and 0 < low.size <= FEW
            least, most = (low.tolist(), high.tolist()) if few else ([], [])

            def inside(obs: Any) -> bool:
                if type(obs) is not np.ndarray or obs.dtype != dtype or obs.shape != shape:
                    return False
                if few:  # where NumPy takes longer to begin than to end
                    values = obs.tolist()
                    return all(map(le, least, values)) and all(map(le, values, most))
                return bool(np.count_nonzero((obs >= low) & (obs <= high)) == obs.size)

            return inside
        case spaces.Discrete():
            first, end = int(space.start), int(space.start + space.n)
            return lambda obs: type(obs) in (int, np.int64) and bool(first <= obs < end)
    return lambda obs: False


def as_array(value: Any) -> np.ndarray | None:
    with contextlib.suppress(TypeError, ValueError):
        return np.asarray(value)
    return None


def violation(space: gymnasium.Space, obs: Any, name: str = "observation") -> str | None:
    """Why `obs` is no member of `space`, None if it is one.

    Kinder than `space.contains` on precision (float64 where float32 was promised), stricter on infinities,
    which no model can be fitted to.
    """
    match space:
        case spaces.Dict():
            if not isinstance(obs, dict) or obs.keys() != space.spaces.keys():
                return f"{name} must be a dict with the keys {list(space.spaces)}, got {obs!r}"
            found = (violation(part, obs[key], f"{name}[{key!r}]") for key, part in space.spaces.items())
        case spaces.Tuple():
            if not isinstance(obs, tuple) or len(obs) != len(space.spaces):
                return f"{name} must be a tuple of {len(space.spaces)}, got {obs!r}"
            found = (violation(part, obs[i], f"{name}[{i}]") for i, part in enumerate(space.spaces))
        case _:
            return _leaf_violation(space, obs, name)
    return next((message for message in found if message is not None), None)


def _leaf_violation(space: gymnasium.Space, obs: Any, name: str) -> str | None:
    value = as_array(obs)
    if value is None or value.dtype.kind not in "biuf":
        return f"{name} must be an array of numbers, got {obs!r}"
    if value.shape != space.shape:
        return f"{name} has shape {value.shape}, the space {space} has {space.shape}"
    dtype = np.dtype(space.dtype)
    if value.dtype.kind == "f" and dtype.kind != "f":
        return f"{name} has dtype {value.dtype}, the space {space} has {dtype}: {obs!r}"
    with np.errstate(over="ignore"):
        # At the promised precision, lest a float64 on the bound count as beyond the bound's float32.
        rounded = value.astype(dtype) if dtype.kind == "f" else value
    bad = np.asarray(~np.isfinite(rounded))
    if bad.any():
        return f"{_entry(name, bad)} is {value[bad][0]}"
    low, high = _limits(space)
    bad = np.asarray((rounded < low) | (rounded > high))
    if bad.any():
        return f"{_entry(name, bad)} is {value[bad][0]}, outside the space {space}"
    return None


def _entry(name: str, bad: np.ndarray) -> str:
    """The name of the first bad entry."""
    place = ", ".join(str(i) for i in np.argwhere(bad)[0])
    return f"{name}[{place}]" if place else name


def _limits(space: gymnasium.Space) -> tuple[Any, Any]:
    match space:
        case spaces.Box():
            return space.low, space.high
        case spaces.Discrete():
            return space.start, space.start + space.n - 1
        case spaces.MultiDiscrete():
            return space.start, space.start + space.nvec - 1
    return 0, 1
