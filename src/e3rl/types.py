"""Shared types. Axis letters in shape annotations, everywhere in the package:

E ensemble members, K particles per member, H time steps of an episode, A actions, D observation entries,
N nodes or transitions held, B a batch of independent items.
"""

import functools
import zlib
from typing import NamedTuple, TypeAlias

import jax
import jaxtyping
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, Shaped

Key: TypeAlias = PRNGKeyArray
Keys: TypeAlias = jaxtyping.Key[Array, " _"]
"""One key per lane or episode."""
Action: TypeAlias = Int[Array, ""]
Reward: TypeAlias = Float[Array, ""]
Flag: TypeAlias = Bool[Array, ""]


def key_for(key: Key, name: str, index: int | Int[Array, ""] = 0) -> Key:
    """The seed's key for one named use at one epoch; resuming needs no other state."""
    return jax.random.fold_in(jax.random.fold_in(key, zlib.crc32(name.encode()) & 0x7FFFFFFF), index)


@functools.cache
def blank_key() -> jax.ShapeDtypeStruct:
    """The shape of a key; once, because JAX forgets nothing of what `eval_shape` finds about a function of its own."""
    return jax.eval_shape(jax.random.key, 0)


class Trajectory(NamedTuple):
    """One episode, padded to the time limit H; `valid` marks the steps that happened."""

    obs: Shaped[Array, "H *obs"]
    action: Int[Array, " H"]
    reward: Float[Array, " H"]
    next_obs: Shaped[Array, "H *obs"]
    terminated: Bool[Array, " H"]
    truncated: Bool[Array, " H"]
    valid: Bool[Array, " H"]


class UserError(ValueError):
    """Something a person can cause and mend. The command line prints its one line and exits with code 2."""
