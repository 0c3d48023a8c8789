"""Uniform noise from a counter hash, for kernels that need thousands of numbers at every step.

Threefry, JAX's own generator, takes a hundred operations for two numbers and writes them to memory: with fresh noise
for every node that was a quarter to a third of tree search. The hash takes a dozen for one number, which a compiler
fuses with whatever reads it. Noise is still a function of its key alone, so a run that is resumed draws what it would
have drawn. For noise in imagination only: keys go on being split, and worlds and networks drawn, by Threefry.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, UInt32

from e3rl.types import Key

GOLDEN = 0x9E3779B9
"""2³² over the golden ratio, odd: consecutive counters lie far apart."""


def mixed(x: UInt32[Array, "..."], between: UInt32[Array, ""] | int = 0) -> UInt32[Array, "..."]:
    """Chris Wellons' `triple32`, a bijection of 32 bits that is as good as random to statistical tests, with something
    added `between` its first two rounds."""
    x = (x ^ (x >> 17)) * jnp.uint32(0xED5AD4BB) + jnp.uint32(between)
    x = (x ^ (x >> 11)) * jnp.uint32(0xAC4C1B51)
    x = (x ^ (x >> 15)) * jnp.uint32(0x31848BAB)
    return x ^ (x >> 14)


def hashed(
    counter: UInt32[Array, "..."], first: UInt32[Array, ""], second: UInt32[Array, ""]
) -> UInt32[Array, "..."]:
    """32 bits of a counter and the two words of a key, mixed beforehand so that similar keys have nothing in common.

    One word is where the counter starts. With that alone all streams would be pieces of one sequence: the other makes
    it another sequence.
    """
    another = mixed(second ^ jnp.uint32(GOLDEN))
    return mixed(counter * jnp.uint32(GOLDEN) + mixed(first + another), another)


def uniform_noise(key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Numbers strictly between 0 and 1, of 23 bits: the n-th in row-major order is the hash of the key and n."""
    words = jax.random.key_data(key)
    counter = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    return uniform_of(hashed(counter, words[0], words[-1]))


def uniform_of(bits: UInt32[Array, "..."]) -> Float[Array, "..."]:
    # By way of signed integers, which every processor converts at once.
    return ((bits >> 9).astype(jnp.int32).astype(jnp.float32) + 0.5) * 2.0**-23
