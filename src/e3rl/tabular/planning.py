"""Exact planning on a table: backward induction over the outcomes seen, compiled once for each size of table.

Arrays are padded to powers of two, so that a growing table is compiled for a few sizes and not for every one.
Sweeps end early once they change nothing any more, as where episodes are short and their limit is long.
"""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int16

from e3rl.tabular.posterior import Table

LEAST_ROWS = 64


class Model(NamedTuple):
    """One table to plan on, padded."""

    successor: Int[Array, "S A K"]
    """The row S, past the last, where there is none or the episode ends: its value is 0."""
    chance: Float[Array, "S A K"]
    gain: Float[Array, "S A"]
    """What a step is worth at once; −∞ for what is not to be done."""
    leap: Float[Array, "S A"]
    """The chance of what is not known, which is worth `worth` for every step that is left."""


class Planned(NamedTuple):
    policy: Int16[Array, "n S"]
    """The best action of every state for the next n time steps."""
    value: Float[Array, " S"]


def padded(
    table: Table,
    chance: Float[np.ndarray, "S A K"],
    gain: np.ndarray,
    leap: np.ndarray,
    seen: Int[np.ndarray, "S A K"] | None = None,
) -> Model:
    """The table's successors, or others, with these chances, gains and leaps."""
    states, outcomes = table.states, chance.shape[-1]
    rows = max(LEAST_ROWS, 1 << (states - 1).bit_length())
    width = 1 << (outcomes - 1).bit_length()
    successor = np.full((rows, table.actions, width), rows, np.int32)
    seen = table.successor[:states] if seen is None else seen
    successor[:states, :, :outcomes] = np.where(seen < 0, rows, seen)
    full = np.zeros((rows, table.actions, width), np.float32)
    full[:states, :, :outcomes] = chance
    gains, leaps = np.zeros((2, rows, table.actions), np.float32)
    gains[:states], leaps[:states] = gain, leap
    return Model(jnp.asarray(successor), jnp.asarray(full), jnp.asarray(gains), jnp.asarray(leaps))


@partial(jax.jit, static_argnames="keep")
def backward_induction(
    model: Model,
    steps: Int[Array, ""],
    worth: Float[Array, ""],
    floor: Float[Array, ""],
    keep: int,
    worst: Float[Array, ""] | float = -math.inf,
) -> Planned:
    """The best values with `steps` steps to go, and the best actions of the first `keep` of them.

    Q(s, a) = gain + Σ chance · V(s') + leap · worth · (steps left after this one). A state in which nothing may be
    done is worth `floor` for every step that is left, but not less than `worst`.
    """
    rows = model.gain.shape[0]

    def sweep(carry: tuple) -> tuple:
        i, value, policy, _, _ = carry
        left = i.astype(jnp.float32)
        following = jnp.append(value, 0.0)[model.successor]
        q = model.gain + jnp.sum(model.chance * following, axis=-1) + model.leap * (worth * left)
        best = jnp.max(q, axis=-1)
        new = jnp.where(jnp.isfinite(best), best, jnp.maximum(floor * (left + 1.0), worst))
        place = steps - 1 - i
        chosen = jnp.argmax(q, axis=-1).astype(jnp.int16)
        # A place past the end is dropped.
        policy = policy.at[jnp.where(place < keep, place, keep)].set(chosen, mode="drop")
        return i + 1, new, policy, chosen, jnp.any(new != value) | (worth != 0.0)

    def goes_on(carry: tuple) -> Bool[Array, ""]:
        return (carry[0] < steps) & carry[-1]

    chosen = jnp.zeros(rows, jnp.int16)
    start = (
        jnp.array(0, jnp.int32),
        jnp.zeros(rows),
        jnp.zeros((keep, rows), jnp.int16),
        chosen,
        jnp.array(True),
    )
    done, value, policy, chosen, _ = jax.lax.while_loop(goes_on, sweep, start)
    # Where nothing changed any more, nothing would have.
    settled = jnp.arange(keep) < steps - done
    return Planned(jnp.where(settled[:, None], chosen, policy), value)


@jax.jit
def policy_value(
    model: Model,
    policy: Int16[Array, "n S"],
    steps: Int[Array, ""],
    floor: Float[Array, ""],
    worst: Float[Array, ""] | float = -math.inf,
) -> Float[Array, " S"]:
    """The value of a policy with `steps` steps to go; its last row serves from there on."""
    rows = model.gain.shape[0]
    each = jnp.arange(rows)

    # At and before these time steps the policy is always the same.
    same = jnp.cumprod(jnp.all(policy == policy[0], axis=1).astype(jnp.int32)) == 1

    def sweep(carry: tuple) -> tuple:
        i, value, _ = carry
        place = jnp.minimum(steps - 1 - i, policy.shape[0] - 1)
        action = policy[place]
        following = jnp.append(value, 0.0)[model.successor[each, action]]
        gain = model.gain[each, action]
        new = gain + jnp.sum(model.chance[each, action] * following, axis=-1)
        unknown = jnp.maximum(floor * (i.astype(jnp.float32) + 1.0), worst)
        new = jnp.where(jnp.isfinite(gain), new, unknown)
        return i + 1, new, jnp.any(new != value) | ~same[place]

    def goes_on(carry: tuple) -> Bool[Array, ""]:
        return (carry[0] < steps) & carry[-1]

    start = (jnp.array(0, jnp.int32), jnp.zeros(rows), jnp.array(True))
    value: Float[Array, " S"] = jax.lax.while_loop(goes_on, sweep, start)[1]
    return value
