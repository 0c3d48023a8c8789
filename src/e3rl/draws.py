"""Random numbers that are asked for in many places, drawn at once; and loops that need some at every step.

Which rows a minibatch has takes a dozen small operations to draw, as long as much else of a small network's update. All
at once they cost next to nothing.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from e3rl.types import Key

BLOCK = 500
"""Steps that are drawn for together: of all steps of a long loop the draws would take more memory than the rest."""


def scan_drawn(
    step: Callable[[Any, Any], tuple[Any, Any]], draw: Callable[[Any], Any], start: Any, inputs: Any
) -> tuple[Any, Any]:
    """`jax.lax.scan` of step(carry, draw(input))."""
    count = jax.tree.leaves(inputs)[0].shape[0]
    length = max(size for size in range(1, BLOCK + 1) if count % size == 0)

    def block(carry: Any, inputs: Any) -> tuple[Any, Any]:
        return jax.lax.scan(step, carry, jax.vmap(draw)(inputs))

    if length == count:
        return block(start, inputs)
    blocks = jax.tree.map(lambda leaf: leaf.reshape(-1, length, *leaf.shape[1:]), inputs)
    carry, outputs = jax.lax.scan(block, start, blocks)
    return carry, jax.tree.map(lambda leaf: leaf.reshape(count, *leaf.shape[2:]), outputs)


def normals(keys: dict[str, Key], shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """`jax.random.normal` for every name, the same numbers, from one call of the generator: it dominates the time that
    networks take to compile. What comes first out of a key does not depend on how much follows."""
    sizes = {name: math.prod(shape) for name, shape in shapes.items()}
    longest = max(sizes.values())
    rows = jax.vmap(lambda key: jax.random.normal(key, (longest,)))(
        jnp.stack([keys[name] for name in shapes])
    )
    return {
        name: row[: sizes[name]].reshape(shape)
        for row, (name, shape) in zip(rows, shapes.items(), strict=True)
    }
