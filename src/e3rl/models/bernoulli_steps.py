"""Many steps of a Bernoulli ensemble's particles as one program of a GPU.

The networks are so small that a GPU spends a rollout of tree search waiting: for every step, a dozen programs of
microseconds. Here some particles of a member stay where they are computed until all steps are taken, dice included, and
only their means are written down. `BernoulliDynamics.columns` and `draw_columns` say the same, a step at a time.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int, Int8, Shaped, UInt8, UInt32

from e3rl.models.base import RARELY_ENDS, ManySteps, Prediction, Taken, heeded
from e3rl.models.bernoulli import BernoulliDynamics
from e3rl.noise import hashed, uniform_of

ROWS, WARPS = 64, 4
"""Particles of one block, and how many threads share them."""
LEAST = 16
"""Matrix units take no smaller sides."""
ROOM = 96 * 1024
"""Bytes that every device of these generations has beside its matrix units, where operands are kept."""
OLDEST = 8.0
"""NVIDIA's compute capability."""
FLOAT = 4

Held = UInt8[Array, "E rows bytes"]
"""Particles as the device holds them: rows of bits, with room for what else a network tells of them."""


class Weights(NamedTuple):
    """Of all members, transposed and filled up with zeros."""

    observe: Float[Array, "E columns width"]
    hidden: Float[Array, "E width width"]
    hidden_bias: Float[Array, "E width"]
    head: Float[Array, "E width columns"]
    head_bias: Float[Array, "E columns"]


def side(length: int) -> int:
    """A device's arrays have sides that are powers of two."""
    return max(LEAST, 1 << (length - 1).bit_length())


def fits(bits: int, width: int) -> bool:
    """Whether this device takes networks of that size."""
    columns, units = side(bits + 2), side(width)
    operands = 2 * FLOAT * (max(ROWS, units) * columns + units * units)
    return operands <= ROOM and _generation() >= OLDEST


def _generation() -> float:
    """0 of a device that is none of NVIDIA's."""
    told = getattr(jax.devices()[0], "compute_capability", "")
    try:
        return float(told)
    except ValueError:
        return 0.0


class BernoulliSteps(ManySteps):
    """The members of an ensemble on the device, made once and asked often."""

    def __init__(self, ensemble: BernoulliDynamics, particles: int):
        weights = ensemble.weights
        self.members, self.width, self.bits = weights.observe.shape
        self.particles, self.ensemble = particles, ensemble
        self.columns, self.units = side(self.bits + 2), side(self.width)
        self.blocks = math.ceil(particles / ROWS)
        looked_at = eqx.filter_vmap(lambda one: heeded(jnp.ones(self.bits), one.heeds))(ensemble)
        self.weights = Weights(
            _filled(jnp.swapaxes(weights.observe * looked_at[:, None], 1, 2), self.columns, self.units),
            _filled(jnp.swapaxes(weights.hidden, 1, 2), self.units, self.units),
            _filled(weights.hidden_bias, self.units),
            _filled(jnp.swapaxes(weights.head, 1, 2), self.units, self.columns),
            _filled(weights.head_bias.at[:, -1].add(RARELY_ENDS), self.columns),
        )

    def hold(self, obs: Shaped[Array, " D"]) -> Held:
        """All particles at one observation."""
        row = jnp.packbits(_filled(obs.astype(jnp.uint8), self.columns))
        return jnp.broadcast_to(row, (self.members, self.blocks * ROWS, len(row)))

    def shown(self, held: Held) -> Int8[Array, "E D K"]:
        """The particles as planners know them."""
        rows = jnp.unpackbits(held[:, : self.particles], axis=-1, count=self.bits)
        return jnp.swapaxes(rows, 1, 2).astype(jnp.int8)

    def take(
        self,
        held: Held,
        actions: Int[Array, " T"],
        time: Int[Array, ""],
        dice: UInt32[Array, "T 2"],
        first: UInt32[Array, " T"],
        own: bool,
        count: Int[Array, ""],
    ) -> Taken:
        steps = actions.shape[0]
        times = time + jnp.arange(steps)
        weights = self.ensemble.weights
        entering = jnp.broadcast_to(weights.bias[:, None], (self.members, steps, self.width))
        gate = jnp.ones_like(entering)
        if weights.gate is None:
            assert weights.act is not None
            assert weights.clock is not None
            entering = entering + weights.act[:, actions] + weights.clock[:, times]
        else:
            gate = weights.gate[:, times, actions]
        entering, gate = (_filled(each, side(steps), self.units) for each in (entering, gate))

        member, own_rows = (lambda e, b: (e, 0, 0)), (lambda e, b: (e, b, 0))
        vector, everything = (lambda e, b: (e, 0)), (lambda e, b: (0,))
        in_specs = [
            pl.BlockSpec((1,), everything),
            pl.BlockSpec((steps,), everything),
            pl.BlockSpec((steps, 2), lambda e, b: (0, 0)),
            pl.BlockSpec((None, ROWS, self.columns), own_rows),
            *[pl.BlockSpec((None, side(steps), self.units), member)] * 2,
            pl.BlockSpec((None, self.columns, self.units), member),
            pl.BlockSpec((None, self.units, self.units), member),
            pl.BlockSpec((None, self.units), vector),
            pl.BlockSpec((None, self.units, self.columns), member),
            pl.BlockSpec((None, self.columns), vector),
        ]
        sums = (self.members, self.blocks, steps, 2, self.columns)
        out_specs = [
            pl.BlockSpec((None, ROWS, self.columns), own_rows),
            pl.BlockSpec((None, None, *sums[2:]), lambda e, b: (e, b, 0, 0, 0)),
        ]
        on_gpu = jax.devices()[0].platform != "cpu"  # elsewhere it is interpreted, for tests
        after, told = pl.pallas_call(
            self._kernel(own),
            grid=(self.members, self.blocks),
            in_specs=in_specs,
            out_specs=out_specs,
            out_shape=[
                jax.ShapeDtypeStruct((*held.shape[:2], self.columns), jnp.uint8),
                jax.ShapeDtypeStruct(sums, jnp.float32),
            ],
            compiler_params=triton.CompilerParams(num_warps=WARPS) if on_gpu else None,
            interpret=not on_gpu,
        )(count.reshape(1), first, dice, jnp.unpackbits(held, axis=-1), entering, gate, *self.weights)
        taken = (jnp.arange(steps) < count)[:, None, None]
        drawn, believed = (
            jnp.where(taken, jnp.swapaxes(jnp.sum(told[:, :, :, i], axis=1), 0, 1) / self.particles, 0.0)
            for i in (0, 1)
        )
        reward, termination = believed[..., self.bits], believed[..., self.bits + 1]
        said = Prediction(believed[..., : self.bits], reward, termination)
        return Taken(jnp.packbits(after, axis=-1), drawn[..., : self.bits], said)

    def _kernel(self, own: bool) -> Callable[..., None]:
        bits, particles, columns = self.bits, self.particles, self.columns
        per_member = bits * particles if own else 0

        def kernel(*refs: Any) -> None:
            count, first, dice, held, entering, gate, *weights, after, told = refs
            observe, hidden, hidden_bias, head, head_bias = weights
            member, block = pl.program_id(0), pl.program_id(1)
            column = jax.lax.broadcasted_iota(jnp.int32, (ROWS, columns), 1)
            particle = block * ROWS + jax.lax.broadcasted_iota(jnp.int32, (ROWS, columns), 0)
            is_one = particle < particles
            number = (member * per_member + column * particles + particle).astype(jnp.uint32)
            w_observe, w_hidden, w_head = observe[...], hidden[...], head[...]
            b_hidden, b_head = hidden_bias[...][None], head_bias[...][None]

            def step(t: Array, state: Array) -> Array:
                x = jnp.dot(state - 0.5, w_observe) + entering[t][None]
                x = jnp.maximum(x, 0.0) * gate[t][None]
                x = jnp.maximum(jnp.dot(x, w_hidden) + b_hidden, 0.0)
                out = jnp.dot(x, w_head) + b_head
                chance = jax.nn.sigmoid(out)
                uniform = uniform_of(hashed(number + first[t], dice[t, 0], dice[t, 1]))
                drawn = jnp.where((uniform < chance) & is_one & (column < bits), 1.0, 0.0)
                believed = jnp.where(is_one, jnp.where(column == bits, out, chance), 0.0)
                told[t, 0, :] = jnp.sum(drawn, axis=0)
                told[t, 1, :] = jnp.sum(believed, axis=0)
                return drawn

            state = step(jnp.int32(0), held[...].astype(jnp.float32))
            after[...] = state.astype(jnp.uint8)
            jax.lax.fori_loop(1, count[0], step, state)

        return kernel


def _filled(array: Array, *sides: int) -> Array:
    """With zeros up to these last sides."""
    kept = array.ndim - len(sides)
    more = [(0, 0)] * kept + [(0, to - at) for at, to in zip(array.shape[kept:], sides, strict=True)]
    return jnp.pad(array, more)
