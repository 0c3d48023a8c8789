"""Loops that need random numbers at every step, drawn for many steps at once.

Which rows a minibatch has takes a dozen small operations to draw, as long as much else of a small network's update. All
at once they cost next to nothing.
"""

from collections.abc import Callable
from typing import Any

import jax

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
