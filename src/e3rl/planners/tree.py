"""A search tree that grows by several nodes at a time, each by all of its actions; and what is read off a tree.

mctx tries one action of one node in a playout. On an accelerator such a search takes as long as its playouts are many,
however small the models are. But UCB1 tries every action of a node before it goes deeper, so here they are tried
together, in one call of the models. Several nodes may be chosen before any of them is: what is under way counts as
visited and not as a loss (Liu et al., 2020, "Watch the Unobserved"), which sends the next one elsewhere without
pretending to know an outcome.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mctx
from jaxtyping import Array, Bool, Float, Int

ROOT, NOBODY = mctx.Tree.ROOT_INDEX, mctx.Tree.UNVISITED
Line = Int[Array, " H"]
"""Actions from the root on, and `NOBODY` after the last."""


class Child(NamedTuple):
    """What an action of a node leads to."""

    reward: Float[Array, "..."]
    discount: Float[Array, "..."]
    """The chance to go on; after 0 nothing counts, and nothing is looked for."""
    value: Float[Array, "..."]
    embedding: Any


class Counts(NamedTuple):
    """The part of a tree that playouts change on their way back to the root."""

    node_values: Float[Array, " N"]
    node_visits: Int[Array, " N"]
    children_values: Float[Array, "N A"]
    children_visits: Int[Array, "N A"]


def ucb1(
    q: Float[Array, " A"],
    visits: Int[Array, " A"],
    parent: Int[Array, ""],
    constant: float,
    ties: Float[Array, " A"],
    closed: Bool[Array, " A"] | bool = False,
) -> Int[Array, ""]:
    """The action to try next: an untried one first, ties in the order of `ties`."""
    tries = visits.astype(jnp.float32)
    bonus = jnp.sqrt(jnp.log(jnp.maximum(parent.astype(jnp.float32), 1.0)) / jnp.maximum(tries, 1.0))
    score = jnp.where(tries == 0, jnp.inf, q + constant * bonus)
    score = jnp.where(closed, -jnp.inf, score)
    return jnp.argmax(jnp.where(score == jnp.max(score), ties, -1.0)).astype(jnp.int32)


def nodes_of(playouts: int, batch: int, actions: int) -> int:
    """The root, its children, and those of every batch, until at least `playouts` actions have been tried."""
    return 1 + actions + rounds_of(playouts, batch, actions) * batch * actions


def rounds_of(playouts: int, batch: int, actions: int) -> int:
    return -(-max(playouts - actions, 0) // (batch * actions))


def grow(
    root: Any,
    expand: Callable[[Any], Child],
    ties: Float[Array, "N A"],
    constant: float,
    playouts: int,
    batch: int,
    line: Line | None = None,
) -> mctx.Tree:
    """A tree from the embedding `root`, first by the root alone and then by `batch` nodes at a time; `expand` tells
    every action's `Child` of an embedding. The first nodes are those along `line`. With a leading axis 1, as mctx's."""
    nodes, actions = ties.shape
    every = jnp.arange(actions, dtype=jnp.int32)

    def descend(tree: mctx.Tree, under_way: Int[Array, "N A"], along: Bool[Array, ""] | bool) -> tuple:
        """From the root to a node that has no children yet."""

        def down(state: tuple) -> tuple:
            node, depth, under_way = state
            children = tree.children_index[node]
            # Where somebody is already on the way to a child without children, there is nothing more to do.
            closed = (under_way[node] > 0) & (tree.children_index[children, 0] == NOBODY)
            visits = tree.children_visits[node] + under_way[node]
            parent = tree.node_visits[node] + jnp.sum(under_way[node], dtype=jnp.int32)
            action = ucb1(tree.qvalues(node), visits, parent, constant, ties[node], closed)
            if line is not None:
                action = jnp.where(along, line[depth], action)
            return children[action], depth + 1, under_way.at[node, action].add(actions)

        start = (jnp.int32(ROOT), jnp.int32(0), under_way)
        node, _, under_way = jax.lax.while_loop(
            lambda state: tree.children_index[state[0], 0] != NOBODY, down, start
        )
        return node, under_way

    def choose(tree: mctx.Tree, index: Int[Array, ""]) -> Int[Array, " batch"]:
        def one(walker: Int[Array, ""], carry: tuple) -> tuple:
            chosen, under_way = carry
            along = False if line is None else (walker == 0) & (index < jnp.sum(line != NOBODY))
            node, under_way = descend(tree, under_way, along)
            return chosen.at[walker].set(node), under_way

        nothing = jnp.zeros((nodes, actions), jnp.int32)
        chosen: Array
        chosen, _ = jax.lax.fori_loop(0, batch, one, (jnp.zeros(batch, jnp.int32), nothing))
        return chosen

    def add(tree: mctx.Tree, chosen: Int[Array, " n"], free: Int[Array, ""] | int) -> mctx.Tree:
        """Expand the chosen nodes into the places from `free` on, and count the outcomes up to the root."""
        count = chosen.shape[0]
        found = jax.vmap(expand)(jax.tree.map(lambda leaf: leaf[chosen], tree.embeddings))
        above, via = tree.parents[chosen], tree.action_from_parent[chosen]
        final = (chosen != ROOT) & (tree.children_discounts[above, via] == 0.0)
        order = jnp.arange(count)
        again = jnp.any((chosen[:, None] == chosen[None]) & (order[:, None] > order[None]), axis=1)
        new = jnp.where(final | again, nodes, chosen)  # what lies past the end is dropped
        places = free + order[:, None] * actions + every
        places = jnp.where((final | again)[:, None], nodes, places)
        tree = tree.replace(
            parents=tree.parents.at[places].set(chosen[:, None], mode="drop"),
            action_from_parent=tree.action_from_parent.at[places].set(every, mode="drop"),
            raw_values=tree.raw_values.at[places].set(found.value, mode="drop"),
            node_values=tree.node_values.at[places].set(found.value, mode="drop"),
            node_visits=tree.node_visits.at[places].set(1, mode="drop"),
            embeddings=jax.tree.map(
                lambda all_nodes, some: all_nodes.at[places].set(some, mode="drop"),
                tree.embeddings,
                found.embedding,
            ),
            children_index=tree.children_index.at[new].set(places, mode="drop"),
            children_rewards=tree.children_rewards.at[new].set(found.reward, mode="drop"),
            children_discounts=tree.children_discounts.at[new].set(found.discount, mode="drop"),
            children_values=tree.children_values.at[new].set(found.value, mode="drop"),
            children_visits=tree.children_visits.at[new].set(1, mode="drop"),
        )
        # Where nothing is left to expand, what is known happens again, so that the search turns elsewhere.
        told = jnp.mean(found.reward + found.discount * found.value, axis=1)
        told = jnp.where(final, tree.node_values[chosen], told)
        counts = Counts(*(getattr(tree, name) for name in Counts._fields))
        counts = jax.lax.fori_loop(
            0,
            count,
            lambda i, counts: back_up(tree, counts, chosen[i], told[i], jnp.where(again[i], 0, actions)),
            counts,
        )
        return tree.replace(**counts._asdict())

    def batched(index: Int[Array, ""], tree: mctx.Tree) -> mctx.Tree:
        free = 1 + actions + index * batch * actions
        return add(tree, choose(tree, index), free)

    tree = add(_only(root, nodes, actions), jnp.zeros(1, jnp.int32), 1)
    tree = jax.lax.fori_loop(0, rounds_of(playouts, batch, actions), batched, tree)
    grown: mctx.Tree = jax.tree.map(lambda leaf: leaf[None], tree)
    return grown


def back_up(
    tree: mctx.Tree, counts: Counts, node: Int[Array, ""], outcome: Float[Array, ""], times: Int[Array, ""]
) -> Counts:
    """`outcome`, the mean of so many from `node` on, counted there and in every node on the way to the root."""

    def count(counts: Counts, node: Int[Array, ""], outcome: Float[Array, ""]) -> Counts:
        visits = counts.node_visits[node]
        mean = counts.node_values[node] + (outcome - counts.node_values[node]) * (times / (visits + times))
        return counts._replace(
            node_values=counts.node_values.at[node].set(mean),
            node_visits=counts.node_visits.at[node].set(visits + times),
        )

    def up(state: tuple) -> tuple:
        counts, node, outcome = state
        parent, action = tree.parents[node], tree.action_from_parent[node]
        outcome = tree.children_rewards[parent, action] + tree.children_discounts[parent, action] * outcome
        counts = count(counts, parent, outcome)
        counts = counts._replace(
            children_values=counts.children_values.at[parent, action].set(counts.node_values[node]),
            children_visits=counts.children_visits.at[parent, action].add(times),
        )
        return counts, parent, outcome

    start = (count(counts, node, outcome), node, outcome)
    counted: Counts = jax.lax.while_loop(lambda state: state[1] != ROOT, up, start)[0]
    return counted


def _only(root: Any, nodes: int, actions: int) -> mctx.Tree:
    """The tree of its root, with room for so many nodes."""
    each, of_each = jnp.zeros(nodes), jnp.zeros((nodes, actions))
    nobody = jnp.full(nodes, NOBODY, jnp.int32)
    return mctx.Tree(
        node_visits=each.astype(jnp.int32).at[ROOT].set(1),
        raw_values=each,
        node_values=each,
        parents=nobody,
        action_from_parent=nobody,
        children_index=jnp.full((nodes, actions), NOBODY, jnp.int32),
        children_prior_logits=of_each,
        children_values=of_each,
        children_visits=of_each.astype(jnp.int32),
        children_rewards=of_each,
        children_discounts=of_each,
        embeddings=jax.tree.map(
            lambda leaf: jnp.zeros((nodes, *leaf.shape), leaf.dtype).at[ROOT].set(leaf), root
        ),
        root_invalid_actions=jnp.zeros(actions),
        extra_data=None,
    )


def sequences(tree: mctx.Tree) -> tuple[Int[Array, " N"], Float[Array, " N"]]:
    """Of every node but the root: the first action on the way to it, and the return of that way with the node's own
    value at its end."""
    parents, via = tree.parents[0], tree.action_from_parent[0]
    rewards, discounts = tree.children_rewards[0], tree.children_discounts[0]

    def follow(carry: tuple, node: Int[Array, ""]) -> tuple:
        total, weight, first = carry
        parent, action = parents[node], via[node]
        reached = total[parent] + weight[parent] * rewards[parent, action]
        onwards = weight[parent] * discounts[parent, action]
        root_action = jnp.where(parent == ROOT, action, first[parent])
        carry = (total.at[node].set(reached), weight.at[node].set(onwards), first.at[node].set(root_action))
        full = jnp.where(parent == tree.NO_PARENT, -jnp.inf, reached + onwards * tree.raw_values[0, node])
        return carry, (root_action, full)

    nodes = parents.shape[0]
    start = (jnp.zeros(nodes), jnp.ones(nodes), jnp.zeros(nodes, via.dtype))
    first: Array
    full: Array
    _, (first, full) = jax.lax.scan(follow, start, jnp.arange(1, nodes))
    return first, full


def best_sequence(tree: mctx.Tree) -> Float[Array, " A"]:
    """For each root action, the largest return of any action sequence in the tree that begins with it."""
    first, full = sequences(tree)
    return jnp.full(tree.num_actions, -jnp.inf).at[first].max(full)


def line_after(tree: mctx.Tree, action: Int[Array, ""], horizon: int) -> Line:
    """What follows `action` in the best sequence that begins with it."""
    first, full = sequences(tree)
    end = 1 + jnp.argmax(jnp.where(first == action, full, -jnp.inf)).astype(jnp.int32)
    parents, via = tree.parents[0], tree.action_from_parent[0]

    def up(state: tuple) -> tuple:
        node, line = state
        return parents[node], jnp.roll(line, 1).at[0].set(via[node])

    nothing = jnp.full(horizon + 1, NOBODY, jnp.int32)
    line: Array = jax.lax.while_loop(lambda state: state[0] != ROOT, up, (end, nothing))[1]
    return line[1:]
