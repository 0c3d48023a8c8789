"""Prioritised experience replay (Schaul et al. 2016), proportional variant: a sum tree in one fixed array."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from e3rl.replay import Transitions
from e3rl.types import Key

SMALLEST_ERROR = 1e-6
"""Added to every error, so that no transition is lost for ever."""


class SumTree(NamedTuple):
    """A complete binary tree whose every node is the sum of its two children.

    Node 1 is the root, node i has the children 2i and 2i + 1, the leaves are the second half; node 0 is unused.
    """

    nodes: Float[Array, " nodes"]

    @staticmethod
    def empty(capacity: int) -> "SumTree":
        leaves = 1 << max(capacity - 1, 1).bit_length()
        return SumTree(jnp.zeros(2 * leaves))

    @property
    def total(self) -> Float[Array, ""]:
        return self.nodes[1]

    @property
    def depth(self) -> int:
        """Levels between the root and a leaf."""
        return self.nodes.shape[0].bit_length() - 2

    def leaves(self, index: Int[Array, " B"]) -> Float[Array, " B"]:
        return self.nodes[self.nodes.shape[0] // 2 + index]

    def update(self, index: Int[Array, " B"], priority: Float[Array, " B"]) -> "SumTree":
        """Set leaves and sum again upwards from them. Where an index comes twice, one of its priorities stands."""
        node = self.nodes.shape[0] // 2 + index

        def up(_: Int[Array, ""], carry: tuple) -> tuple:
            nodes, node = carry
            node = node // 2
            # From the children rather than by the difference, which would drift.
            return nodes.at[node].set(nodes[2 * node] + nodes[2 * node + 1]), node

        start = self.nodes.at[node].set(priority), node
        nodes, _ = jax.lax.fori_loop(0, self.depth, up, start, unroll=True)  # twice as fast on a CPU
        return SumTree(nodes)

    def find(self, mass: Float[Array, " B"]) -> Int[Array, " B"]:
        """The leaves at which the running sum of priorities first exceeds each `mass` in [0, total)."""

        def down(_: Int[Array, ""], carry: tuple) -> tuple:
            node, mass = carry
            left, right = self.nodes[2 * node], self.nodes[2 * node + 1]
            # Rounding may leave a mass beyond the last leaf with any priority: never enter an empty subtree.
            go_right = (mass >= left) & (right > 0.0)
            return 2 * node + go_right.astype(node.dtype), jnp.where(go_right, mass - left, mass)

        root = jnp.ones(mass.shape, jnp.int32)
        node, _ = jax.lax.fori_loop(0, self.depth, down, (root, mass))
        return node - self.nodes.shape[0] // 2

    def sample(self, key: Key, batch: int) -> Int[Array, " {batch}"]:
        """Leaves in proportion to their priorities, one from each of `batch` equal strata of the total."""
        strata = jnp.arange(batch, dtype=jnp.float32) + jax.random.uniform(key, (batch,))
        return self.find(strata * (self.total / batch))


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
        return jax.tree.map(lambda leaf: leaf[index], self.rows), index, weight / jnp.max(weight)

    def prioritise(
        self, index: Int[Array, " B"], error: Float[Array, " B"], alpha: float
    ) -> "PrioritisedReplay":
        """The errors just found at `index` become those rows' priorities."""
        priority = (jnp.abs(error) + SMALLEST_ERROR) ** alpha
        ceiling = jnp.maximum(self.ceiling, jnp.max(priority))
        return self._replace(tree=self.tree.update(index, priority), ceiling=ceiling)
