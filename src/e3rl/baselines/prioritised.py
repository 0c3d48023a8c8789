"""Prioritised experience replay (Schaul et al. 2016), proportional variant: a sum tree in fixed arrays."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from e3rl.replay import Transitions
from e3rl.types import Key

SMALLEST_ERROR = 1e-6
"""Added to every error, so that no transition is lost for ever."""
FANOUT = 4
"""Children of a node."""


class SumTree(NamedTuple):
    """Every node is the sum of its `FANOUT` children: a wide tree, because a step up or down costs much the same
    however many children it looks at. Level 0 is the root alone, the last level has the leaves; node i has the children
    FANOUT·i, FANOUT·i + 1, ... of the level below, or none where that ends before and the node is 0 for ever."""

    levels: tuple[Float[Array, " nodes"], ...]

    @staticmethod
    def empty(capacity: int) -> "SumTree":
        sizes = [-(-capacity // FANOUT)]  # of the levels above the leaves, in families that are whole
        while sizes[-1] > 1:
            sizes.append(-(-sizes[-1] // FANOUT))
        return SumTree((jnp.zeros(1), *(jnp.zeros(FANOUT * size) for size in reversed(sizes))))

    @property
    def total(self) -> Float[Array, ""]:
        return self.levels[0][0]

    def leaves(self, index: Int[Array, " B"]) -> Float[Array, " B"]:
        return self.levels[-1][index]

    def update(self, index: Int[Array, " B"], priority: Float[Array, " B"]) -> "SumTree":
        """Set leaves and sum again upwards from them. Where an index comes twice, one of its priorities stands."""
        below = self.levels[-1].at[index].set(priority)
        levels, node = [below], index
        for level in self.levels[-2::-1]:
            node = node // FANOUT
            # From the children rather than by the difference, which would drift.
            below = level.at[node].set(jnp.sum(_families(below)[node], axis=-1))
            levels.append(below)
        return SumTree(tuple(reversed(levels)))

    def find(self, mass: Float[Array, " B"]) -> Int[Array, " B"]:
        """The leaves at which the running sum of priorities first exceeds each `mass` in [0, total)."""
        node = jnp.zeros(mass.shape, jnp.int32)
        place = jnp.arange(FANOUT, dtype=jnp.int32)
        for level in self.levels[1:]:
            priority = _families(level)[node]
            before = jnp.cumsum(priority, axis=-1) - priority
            # Rounding may leave a mass beyond the last leaf with any priority: never enter an empty subtree.
            possible = (priority > 0.0) & (mass[:, None] >= before)
            child = jnp.max(jnp.where(possible, place, 0), axis=-1)
            mass = mass - jnp.sum(jnp.where(place == child[:, None], before, 0.0), axis=-1)
            node = FANOUT * node + child
        return node

    def sample(self, key: Key, batch: int) -> Int[Array, " {batch}"]:
        """Leaves in proportion to their priorities, one from each of `batch` equal strata of the total."""
        strata = jnp.arange(batch, dtype=jnp.float32) + jax.random.uniform(key, (batch,))
        return self.find(strata * (self.total / batch))


def _families(level: Float[Array, " nodes"]) -> Float[Array, "parents children"]:
    return level.reshape(-1, FANOUT)


class PrioritisedReplay(NamedTuple):
    """A ring of transitions, drawn with probability ∝ (|δ| + tiny)^α by their last temporal-difference error δ."""

    rows: Transitions
    tree: SumTree
    position: Int[Array, ""]
    """Where the next transition goes."""
    size: Int[Array, ""]
    ceiling: Float[Array, ""]
    """The largest priority so far, that of transitions without an error yet."""

    @staticmethod
    def empty(capacity: int, shape: tuple[int, ...]) -> "PrioritisedReplay":
        # Arrays of their own each: a buffer that appears twice cannot be updated in place.
        def count() -> Int[Array, " N"]:
            return jnp.zeros(capacity, jnp.int32)

        rows = Transitions(
            obs=jnp.zeros((capacity, *shape)),
            action=count(),
            time=count(),
            reward=jnp.zeros(capacity),
            next_obs=jnp.zeros((capacity, *shape)),
            terminated=jnp.zeros(capacity, bool),
        )
        zero = jnp.array(0, jnp.int32)
        return PrioritisedReplay(rows, SumTree.empty(capacity), zero, zero + 0, jnp.array(1.0, jnp.float32))

    def append(self, new: Transitions) -> "PrioritisedReplay":
        """Add rows over the oldest ones, at the highest priority."""
        capacity, count = self.rows.action.shape[0], new.action.shape[0]
        slot = (self.position + jnp.arange(count, dtype=jnp.int32)) % capacity
        rows = jax.tree.map(lambda old, row: old.at[slot].set(row.astype(old.dtype)), self.rows, new)
        tree = self.tree.update(slot, jnp.broadcast_to(self.ceiling, (count,)))
        size = jnp.minimum(self.size + count, capacity)
        return PrioritisedReplay(rows, tree, (self.position + count) % capacity, size, self.ceiling)

    def sample(
        self, key: Key, batch: int, beta: Float[Array, ""]
    ) -> tuple[Transitions, Int[Array, " {batch}"], Float[Array, " {batch}"]]:
        """Rows, where they are, and their importance weights (N·P)^−β over the largest of the batch."""
        index = self.tree.sample(key, batch)
        chance = self.tree.leaves(index) / self.tree.total
        weight = (self.size.astype(jnp.float32) * chance) ** -beta
        rows = jax.tree.map(lambda leaf: leaf.at[index].get(mode="promise_in_bounds"), self.rows)
        # Always so, but what is written there then has to wait for the weights, which read the leaves: otherwise the
        # compiler makes two copies of all leaves at every update.
        index = jnp.where(weight > 0.0, index, 0)
        return rows, index, weight / jnp.max(weight)

    def prioritise(
        self, index: Int[Array, " B"], error: Float[Array, " B"], alpha: float
    ) -> "PrioritisedReplay":
        """The errors just found at `index` become those rows' priorities."""
        priority = (jnp.abs(error) + SMALLEST_ERROR) ** alpha
        ceiling = jnp.maximum(self.ceiling, jnp.max(priority))
        return self._replace(tree=self.tree.update(index, priority), ceiling=ceiling)
