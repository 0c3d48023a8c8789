"""Several seeds in one program: every array carries a leading axis of lanes, one for each seed."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float

from e3rl.runs.processors import processors

QUICKLY: dict[str, Any] = {"xla_backend_optimization_level": 1}
"""On a CPU programs compile sooner by it and are as fast: most of their time is in library calls."""
COMPILES = "compiles ahead"
"""What the threads of a helper are called."""
AT_ONCE = 6
"""Programs that are compiled side by side for an accelerator."""


def lane_by_lane() -> bool:
    """Whether lanes are calls of one program, as on a CPU, and not one program together."""
    return jax.default_backend() == "cpu"


class OverLanes:
    """A function, compiled for arguments whose arrays carry a leading axis of lanes; plain numbers are shared by all.

    On a GPU the lanes are one vmapped program. On a CPU, where that gains next to nothing, each is a call of the
    program of one lane, on all processors: what becomes of a seed does not depend on how many there are.
    """

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]):
        def compiled(*args: Any) -> Any:
            arrays, static = eqx.partition(args, eqx.is_array)

            def one_lane(arrays: Any) -> Any:
                return function(*eqx.combine(arrays, static))

            if _lanes(arrays) == 1:
                return _strong(as_lane(one_lane(lane_of(arrays))))
            return _strong(jax.vmap(one_lane)(arrays))

        compiled.__name__ = function.__name__  # which logs and profiles say
        jit: Any = eqx.filter_jit  # whose annotations leave out what it hands on to JAX
        self._compiled = jit(compiled, compiler_options=options)
        self._seen: set[tuple] = set()
        """Plain numbers for which there is a program of one lane."""
        self._coming: dict[tuple, Future] = {}
        """Programs that a helper compiles, or will, by their plain numbers."""

    def __call__(self, *args: Any, over: Bool[np.ndarray, " lanes"] | None = None) -> Any:
        """Of lanes that are `over` nobody looks at the result: on a CPU they cost nothing."""
        lanes = _lanes(eqx.filter(args, eqx.is_array))
        if lanes > 1 and lane_by_lane():
            wanted = range(lanes) if over is None else np.flatnonzero(~over).tolist()
            return self._in_threads(args, lanes, wanted)
        coming = self._coming.pop(_plain(args), None)
        if coming is not None and not coming.cancel():
            coming.exception()  # waits; what was wrong comes up again, here
        return self._compiled(*args)

    def compile_ahead(self, helper: Executor, *args: Any) -> None:
        """For arguments of these shapes, by a `helper`; not where such arguments come first."""
        like = jax.tree.map(_like, args)

        def compile_it() -> None:
            self._compiled.lower(*like).compile()  # JAX finds it when the function is called

        self._coming[_plain(args)] = helper.submit(compile_it)

    def _in_threads(self, args: tuple, lanes: int, wanted: Sequence[int]) -> Any:
        all_lanes = by_single_lane(args, lanes)
        each, done = [all_lanes[lane] for lane in wanted], []
        if _plain(args) not in self._seen:  # compiled here, and not by every thread for itself
            done.append(self(*each[0]))
            self._seen.add(_plain(args))
        pool = ThreadPoolExecutor(min(len(each), len(processors())))
        try:
            done += pool.map(lambda one: jax.block_until_ready(self._compiled(*one)), each[len(done) :])
        finally:
            pool.shutdown(cancel_futures=True)
        found = dict(zip(wanted, done, strict=True))
        return joined([found.get(lane, done[0]) for lane in range(lanes)])


def _plain(args: tuple) -> tuple:
    """The plain numbers among arguments: for each there is a program."""
    return tuple(arg for arg in args if isinstance(arg, int | float))


def _like(leaf: Any) -> Any:
    """What is as good to compile for as an array of this shape, or its first lane, and takes no room."""
    if not isinstance(leaf, jax.ShapeDtypeStruct | jax.Array):
        return leaf
    shape = (1, *leaf.shape[1:]) if lane_by_lane() else leaf.shape
    if _is_key(leaf):
        return jnp.broadcast_to(jax.random.key(0), shape)
    return np.broadcast_to(np.zeros((), leaf.dtype), shape)


@contextmanager
def compiling() -> Iterator[Executor | None]:
    """A helper that compiles while something else is done, if there is a processor to spare: one program after the
    other where the processors do the work too, several at once for an accelerator."""
    count = min(len(processors()) - 1, 1 if lane_by_lane() else AT_ONCE)
    if count < 1:
        yield None
        return
    helper = ThreadPoolExecutor(count, thread_name_prefix=COMPILES)
    try:
        yield helper
    finally:
        helper.shutdown(wait=False, cancel_futures=True)


def over_lanes(function: Callable[..., Any]) -> OverLanes:
    return OverLanes(function, QUICKLY if lane_by_lane() else {})


def _lanes(arrays: Any) -> int:
    count: int = jax.tree.leaves(arrays)[0].shape[0]
    return count


def by_single_lane(tree: Any, lanes: int) -> list[Any]:
    """Each seed's part of `tree`, as that of a program of one lane. By way of the host, where a part is a view: nothing
    is compiled for it."""

    def cut(leaf: Any) -> list[Any]:
        if not eqx.is_array(leaf):
            return [leaf] * lanes
        if _is_key(leaf):
            return [leaf[lane : lane + 1] for lane in range(lanes)]
        host = np.asarray(leaf)
        return [jax.device_put(host[lane : lane + 1]) for lane in range(lanes)]

    leaves, structure = jax.tree.flatten(tree)
    parts = zip(*map(cut, leaves), strict=True)
    return [jax.tree.unflatten(structure, part) for part in parts]


def _is_key(leaf: Array | jax.ShapeDtypeStruct) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _strong(tree: Any) -> Any:
    """The same with types that no other gives way to: JAX compiles anew where a Python number had made one weak."""
    return jax.tree.map(lambda leaf: leaf if _is_key(leaf) else leaf.astype(leaf.dtype), tree)


def joined(trees: Sequence[Any]) -> Any:
    """The opposite of `by_single_lane`."""

    def join(*leaves: Array) -> Array:
        if _is_key(leaves[0]):
            return jnp.concatenate(leaves)
        return jax.device_put(np.concatenate([np.asarray(leaf) for leaf in leaves]))

    return jax.tree.map(join, *trees)


def unless_over(over: Bool[np.ndarray, " lanes"], new: Any, old: Any) -> Any:
    """What has become of it in the lanes that go on: `new`, and in those that are over `old`."""
    return _unless(jnp.asarray(over), new, old) if over.any() else new


@eqx.filter_jit
def _unless(over: Bool[Array, " lanes"], new: Any, old: Any) -> Any:
    def choose(new: Array, old: Array) -> Array:
        return jnp.where(over.reshape(-1, *[1] * (new.ndim - 1)), old, new)

    return jax.tree.map(choose, new, old)


@jax.jit
def norms(network: Any) -> Float[Array, " lanes"]:
    """How large each seed's weights are, in all."""
    return jax.vmap(optax.tree.norm)(eqx.filter(network, eqx.is_inexact_array))


def lane_of(tree: Any, lane: int = 0) -> Any:
    """One seed's part of `tree`."""
    return jax.tree.map(lambda leaf: leaf[lane], tree)


def as_lane(tree: Any) -> Any:
    """The tree of one seed as that of a program of one lane."""
    return jax.tree.map(lambda leaf: leaf[None], tree)


def side_by_side(trees: Sequence[Any]) -> Any:
    """The trees of several seeds as lanes."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def by_lane(tree: Any, lanes: int) -> list[Any]:
    """Each seed's part of `tree`, on the host."""
    host = jax.device_get(tree)
    return [lane_of(host, lane) for lane in range(lanes)]


def seed_keys(seeds: Sequence[int]) -> Any:
    """A key for each seed."""
    return jax.vmap(jax.random.key)(jnp.asarray(seeds))
