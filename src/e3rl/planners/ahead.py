"""mctx's search, for devices that are quick at much and slow at much in turn.

Playouts are one after the other, as in the paper: whoever goes next has seen what the last one found. But what an
action of a node leads to does not depend on who tries it first, so the models are asked about all actions of a node at
once, the first time somebody stands there. Other playouts then only read. The tree is the one that mctx would have
grown, node by node.

A GPU also takes long over walks down and up a tree. Every node therefore keeps the way that leads to it, so that a walk
is a few steps over all nodes.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mctx
from jaxtyping import Array, Bool, Float, Int

from e3rl.planners.tree import NOBODY, ROOT, Child, Line, ucb1


class Way(NamedTuple):
    """From the root to every node; `NOBODY` beyond it."""

    nodes: Int[Array, "N D"]
    actions: Int[Array, "N D"]
    depth: Int[Array, " N"]


class Known(NamedTuple):
    """What the actions of a node lead to, tried or not."""

    asked: Bool[Array, " N"]
    reward: Float[Array, "N A"]
    discount: Float[Array, "N A"]
    value: Float[Array, "N A"]


class Counted(NamedTuple):
    """What playouts change."""

    played: Int[Array, ""]
    children: Int[Array, "N A"]
    visits: Int[Array, " N"]
    """A node's own, and so those of the action that leads to it."""
    values: Float[Array, " N"]
    raw: Float[Array, " N"]
    way: Way


class Walk(NamedTuple):
    """Down to a node, and the action that is to be tried there."""

    passed: Bool[Array, " N"]
    end: Int[Array, ""]
    action: Int[Array, ""]


def search(
    root: Any,
    expand: Callable[[Any], Child],
    ties: Float[Array, "N A"],
    constant: float,
    playouts: int,
    max_depth: int,
    line: Line | None = None,
) -> mctx.Tree:
    """The tree after so many playouts; `expand` tells every action's `Child` of an embedding. A `line` of actions is
    tried first. With a leading axis 1, as mctx's."""
    nodes, actions = playouts + 1, ties.shape[1]
    every_node, every_step = jnp.arange(nodes), jnp.arange(max_depth)

    def tried(known: Known, now: Counted) -> tuple[Array, Array]:
        """What every action is worth, and how often it was tried."""
        there = now.children != NOBODY
        child = jnp.where(there, now.children, 0)
        return known.reward + known.discount * now.values[child], jnp.where(there, now.visits[child], 0)

    def walk(known: Known, now: Counted) -> Walk:
        """Every node has an action that it would choose; those are passed to which all nodes before them send."""
        q, visits = tried(known, now)
        chosen = jax.vmap(ucb1, in_axes=(0, 0, 0, None, 0))(q, visits, now.visits, constant, ties)
        way = now.way
        if line is not None:
            along = now.played < jnp.sum(line != NOBODY)
            chosen = jnp.where(along, line[jnp.minimum(way.depth, max_depth - 1)], chosen)
        sends = (chosen[way.nodes] == way.actions) | (every_step >= way.depth[:, None])
        passed = jnp.all(sends, axis=1) & (now.visits > 0) & (way.depth < max_depth)
        end = jnp.argmax(jnp.where(passed, way.depth, -1)).astype(jnp.int32)
        return Walk(passed, end, chosen[end])

    def play(known: Known, now: Counted, where: Walk) -> Counted:
        """A playout that ends where the walk does: one more node, or at the largest depth once more the same."""
        passed, end, action = where
        depth, child = now.way.depth[end], now.children[end, action]
        place = jnp.where(child == NOBODY, now.played + 1, child)
        nodes_passed = now.way.nodes[end]
        taken = jnp.where(every_step == depth, action, now.way.actions[end])
        nodes_passed = jnp.where(every_step == depth, end, nodes_passed)
        on = every_step <= depth
        reward = jnp.where(on, known.reward[nodes_passed, taken], 0.0)
        discount = jnp.where(on, known.discount[nodes_passed, taken], 1.0)
        value = known.value[end, action]
        returns = discounted(reward, discount, value)
        mean = (now.values * now.visits + returns[jnp.minimum(now.way.depth, max_depth - 1)]) / (
            now.visits + 1.0
        )
        values = jnp.where(passed, mean, now.values)
        here = every_node == place
        way = Way(
            jnp.where(here[:, None], jnp.where(on, nodes_passed, ROOT), now.way.nodes),
            jnp.where(here[:, None], jnp.where(on, taken, NOBODY), now.way.actions),
            jnp.where(here, depth + 1, now.way.depth),
        )
        return Counted(
            now.played + 1,
            jnp.where((every_node == end)[:, None] & (jnp.arange(actions) == action), place, now.children),
            now.visits + passed + here,
            jnp.where(here, value, values),
            jnp.where(here, value, now.raw),
            way,
        )

    def ask(known: Known, embeddings: Any, now: Counted, node: Int[Array, ""]) -> tuple[Known, Any]:
        """The models, about all actions of a node."""
        last = jnp.maximum(now.way.depth[node] - 1, 0)
        above, via = now.way.nodes[node, last], now.way.actions[node, last]
        here = jax.tree.map(
            lambda first, later: jnp.where(node == ROOT, first, later[above, jnp.maximum(via, 0)]),
            root,
            embeddings,
        )
        reward, discount, value, after = expand(here)
        known = Known(
            known.asked.at[node].set(True),
            known.reward.at[node].set(reward),
            known.discount.at[node].set(discount),
            known.value.at[node].set(value),
        )
        return known, jax.tree.map(lambda kept, new: kept.at[node].set(new), embeddings, after)

    def on(state: tuple) -> Bool[Array, ""]:
        return state[2].played < playouts

    def ask_and_play(state: tuple) -> tuple:
        known, embeddings, now, where = state
        known, embeddings = ask(known, embeddings, now, where.end)

        def goes_on(state: tuple[Counted, Walk]) -> Bool[Array, ""]:
            now, where = state
            return (now.played < playouts) & known.asked[where.end]

        def playout(state: tuple[Counted, Walk]) -> tuple[Counted, Walk]:
            now = play(known, *state)
            return now, walk(known, now)

        now, where = jax.lax.while_loop(goes_on, playout, (now, where))
        return known, embeddings, now, where

    known, now = _nothing(nodes, actions, max_depth)
    blank = jax.eval_shape(expand, root).embedding
    embeddings = jax.tree.map(lambda leaf: jnp.zeros((nodes, *leaf.shape), leaf.dtype), blank)
    state = (known, embeddings, now, walk(known, now))
    known, _, now, _ = jax.lax.while_loop(on, ask_and_play, state)
    return _as_mctx(known, now, *tried(known, now))


def discounted(
    reward: Float[Array, " D"], discount: Float[Array, " D"], value: Float[Array, ""]
) -> Float[Array, " D"]:
    """G_d = r_d + γ_d G_{d+1}, with `value` after the last step. As sums of products, where nothing waits for the step
    before."""
    steps = jnp.arange(reward.shape[0])
    from_on = jax.vmap(lambda d: before(jnp.where(steps >= d, discount, 1.0)))(
        steps
    )  # [d, j]: Π γ_i, d ≤ i < j
    later = steps >= steps[:, None]
    return jnp.sum(jnp.where(later, from_on * reward, 0.0), axis=1) + from_on[:, -1] * discount[-1] * value


def before(discount: Float[Array, " D"]) -> Float[Array, " D"]:
    """The product of all discounts before each."""
    steps = jnp.arange(discount.shape[0])
    return jnp.prod(jnp.where(steps < steps[:, None], discount, 1.0), axis=1)


def _nothing(nodes: int, actions: int, max_depth: int) -> tuple[Known, Counted]:
    """A tree of its root, of which nothing is known."""
    each, of_each = jnp.zeros(nodes), jnp.zeros((nodes, actions))
    way = Way(
        jnp.full((nodes, max_depth), ROOT, jnp.int32),
        jnp.full((nodes, max_depth), NOBODY, jnp.int32),
        jnp.zeros(nodes, jnp.int32),
    )
    nobody = jnp.full((nodes, actions), NOBODY, jnp.int32)
    visits = each.astype(jnp.int32).at[ROOT].set(1)
    known = Known(each.astype(bool), of_each, of_each, of_each)
    return known, Counted(jnp.array(0, jnp.int32), nobody, visits, each, each, way)


def _as_mctx(known: Known, now: Counted, q: Float[Array, "N A"], visits: Int[Array, "N A"]) -> mctx.Tree:
    there = now.children != NOBODY
    last = jnp.maximum(now.way.depth - 1, 0)[:, None]
    below_root = (now.way.depth > 0) & (now.visits > 0)
    above, via = (
        jnp.where(below_root, jnp.take_along_axis(row, last, axis=1)[:, 0], NOBODY)
        for row in (now.way.nodes, now.way.actions)
    )
    tree = mctx.Tree(
        node_visits=now.visits,
        raw_values=now.raw,
        node_values=now.values,
        parents=above,
        action_from_parent=via,
        children_index=now.children,
        children_prior_logits=jnp.zeros_like(q),
        children_values=jnp.where(there, now.values[jnp.maximum(now.children, 0)], 0.0),
        children_visits=visits,
        children_rewards=jnp.where(there, known.reward, 0.0),
        children_discounts=jnp.where(there, known.discount, 0.0),
        embeddings=(),
        root_invalid_actions=jnp.zeros(q.shape[1]),
        extra_data=None,
    )
    grown: mctx.Tree = jax.tree.map(lambda leaf: leaf[None], tree)
    return grown
