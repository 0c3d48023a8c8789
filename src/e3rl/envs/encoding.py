"""Observations of any supported Gymnasium space as one float32 array."""

import math
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal, NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Float, Int

from e3rl.types import UserError

Kind = Literal["binary", "categorical", "continuous"]


class Part(NamedTuple):
    """Entries `start` … `stop` − 1 of the flattened encoding, all of one kind."""

    kind: Kind
    start: int
    stop: int


class _Leaf(NamedTuple):
    """A space that is not a Dict or a Tuple, with where to find its value in the observation."""

    path: tuple[str | int, ...]
    space: gymnasium.Space
    sizes: tuple[tuple[Kind, int], ...]


class Encoding:
    """How observations of `space` become float32 arrays of `shape`.

    A Box keeps its values, but unsigned bytes are divided by their upper bound, so that images lie in [0, 1];
    Discrete and MultiDiscrete become one-hots, MultiBinary stays; the parts of a Dict (in Gymnasium's order)
    or a Tuple are laid end to end. A space that is a single image keeps its shape [h, w, c], channels last;
    everything else is a vector.
    """

    space: gymnasium.Space
    shape: tuple[int, ...]
    parts: tuple[Part, ...]
    """What the entries are, in order: one part per Box, MultiBinary and categorical variable."""
    low: Float[np.ndarray, "*shape"]
    """Lower bound of every encoded entry, −inf where there is none."""
    high: Float[np.ndarray, "*shape"]

    def __init__(self, space: gymnasium.Space):
        self.space = space
        self._leaves = tuple(_leaves(space, ()))
        parts: list[Part] = []
        for leaf in self._leaves:
            for kind, size in leaf.sizes:
                start = parts[-1].stop if parts else 0
                parts.append(Part(kind, start, start + size))
        self.parts = tuple(parts)
        size = parts[-1].stop if parts else 0
        if size == 0:
            raise UserError(f"the observation space {space} has no entries to encode")
        self.shape = _image_shape(space) or (size,)
        self._as_it_is = isinstance(space, spaces.Box) and self.shape == space.shape and _scale(space) == 1.0
        """Whether encoding is a matter of precision only."""
        bounds = [_bounds(leaf) for leaf in self._leaves]
        self.low = np.concatenate([low for low, _ in bounds]).reshape(self.shape)
        self.high = np.concatenate([high for _, high in bounds]).reshape(self.shape)

    @cached_property
    def signature(self) -> tuple:
        """Equal for encodings that are the same in everything."""
        return self.shape, self.parts, self.low.tobytes(), self.high.tobytes(), str(self.space)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Encoding) and self.signature == other.signature

    def __hash__(self) -> int:
        return hash(self.signature)

    def encode(self, obs: Any) -> Any:
        """The encoded observation: a NumPy array on the host, a JAX one where `obs` holds JAX values."""
        if self._as_it_is and type(obs) is np.ndarray:
            return obs.astype(np.float32)
        values = [_lookup(obs, leaf.path) for leaf in self._leaves]
        xp = jnp if any(isinstance(value, jax.Array) for value in values) else np
        flat = [_encode(xp, leaf.space, value) for leaf, value in zip(self._leaves, values, strict=True)]
        joined = flat[0] if len(flat) == 1 else xp.concatenate(flat)
        return joined.reshape(self.shape)


def _leaves(space: gymnasium.Space, path: tuple[str | int, ...]) -> Iterator[_Leaf]:
    match space:
        case spaces.Dict():
            for key, part in space.spaces.items():
                yield from _leaves(part, (*path, key))
        case spaces.Tuple():
            for i, part in enumerate(space.spaces):
                yield from _leaves(part, (*path, i))
        case spaces.Box():
            yield _Leaf(
                path, space, (("binary" if _is_binary(space) else "continuous", math.prod(space.shape)),)
            )
        case spaces.MultiBinary():
            yield _Leaf(path, space, (("binary", math.prod(space.shape)),))
        case spaces.Discrete():
            yield _Leaf(path, space, (("categorical", int(space.n)),))
        case spaces.MultiDiscrete():
            yield _Leaf(path, space, tuple(("categorical", int(n)) for n in space.nvec.ravel()))
        case _:
            where = f" (at {'.'.join(map(str, path))})" if path else ""
            raise UserError(
                f"observation space {space}{where} is not supported: e3rl takes Box, Discrete, MultiBinary, "
                "MultiDiscrete, Dict and Tuple"
            )


def _is_binary(space: spaces.Box) -> bool:
    return np.issubdtype(space.dtype, np.integer) and bool(np.all(space.low == 0) and np.all(space.high == 1))


def _channels_first(space: gymnasium.Space) -> bool:
    """Whether an image has its channels on the first of three axes, assumed when that is the shortest."""
    shape = space.shape or ()
    return len(shape) == 3 and shape[0] < min(shape[1:])


def _image_shape(space: gymnasium.Space) -> tuple[int, ...] | None:
    if not isinstance(space, spaces.Box | spaces.MultiBinary):
        return None
    if isinstance(space, spaces.Box) and len(space.shape) == 2 and np.issubdtype(space.dtype, np.integer):
        return (*space.shape, 1)
    if len(space.shape) == 3:
        return (*space.shape[1:], space.shape[0]) if _channels_first(space) else space.shape
    return None


def _scale(space: spaces.Box) -> float:
    # A factor and not a divisor: compiled code divides by a constant that way, and the host must agree to the bit.
    return 1.0 / max(float(space.high.max()), 1.0) if space.dtype == np.uint8 else 1.0


def _flatten(xp: Any, space: gymnasium.Space, value: Any) -> Any:
    value = xp.asarray(value)
    if _channels_first(space):
        value = xp.moveaxis(value, 0, -1)
    return value.reshape(-1)


def _encode(xp: Any, space: gymnasium.Space, value: Any) -> Any:
    match space:
        case spaces.Box():
            flat, scale = _flatten(xp, space, value).astype(np.float32), _scale(space)
            return flat if scale == 1.0 else flat * np.float32(scale)
        case spaces.MultiBinary():
            return _flatten(xp, space, value).astype(np.float32)
        case spaces.Discrete():
            return _one_hots(xp, value, np.array([space.start]), np.array([space.n]))
        case spaces.MultiDiscrete():
            return _one_hots(xp, value, space.start.ravel(), space.nvec.ravel())
    raise AssertionError(space)


def _one_hots(xp: Any, value: Any, start: Int[np.ndarray, " n"], counts: Int[np.ndarray, " n"]) -> Any:
    """Concatenated one-hots: entry j of variable i is 1 where its value is start_i + j."""
    owner = np.repeat(np.arange(len(counts)), counts)
    meaning = np.concatenate([first + np.arange(n) for first, n in zip(start, counts, strict=True)])
    index = xp.asarray(value).reshape(-1).astype(np.int32)
    return (index[owner] == meaning.astype(np.int32)).astype(np.float32)


def _bounds(leaf: _Leaf) -> tuple[Float[np.ndarray, " D"], Float[np.ndarray, " D"]]:
    space = leaf.space
    if isinstance(space, spaces.Box):
        with np.errstate(over="ignore"):  # a bound beyond float32 becomes infinite: no bound
            return _encode(np, space, space.low), _encode(np, space, space.high)
    size = sum(size for _, size in leaf.sizes)
    return np.zeros(size, np.float32), np.ones(size, np.float32)


def _lookup(obs: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        obs = obs[step]
    return obs
