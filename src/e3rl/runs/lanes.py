"""Several seeds in one program: every array carries a leading axis of lanes, one for each seed."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp


def over_lanes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` for arguments whose arrays carry a leading axis of lanes; plain numbers are shared by all.

    On a GPU the lanes are one vmapped program; on a CPU, where that gains next to nothing, they take turns.
    """

    @eqx.filter_jit
    def compiled(*args: Any) -> Any:
        arrays, static = eqx.partition(args, eqx.is_array)

        def one_lane(arrays: Any) -> Any:
            return function(*eqx.combine(arrays, static))

        lanes = jax.tree.leaves(arrays)[0].shape[0]
        if lanes == 1:
            return as_lane(one_lane(lane_of(arrays)))
        if jax.default_backend() == "cpu":
            return jax.lax.map(one_lane, arrays)
        return jax.vmap(one_lane)(arrays)

    return compiled


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
