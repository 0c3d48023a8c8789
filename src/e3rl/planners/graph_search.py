"""DeterministicPlanner: best-first search over the members' predictions for deterministic dynamics (App. B.2.1).

A node holds the state that each member predicts after the action sequence leading to it. The node expanded next is the
one whose mean state was farthest from everything in the graph when it was inserted: near-duplicates wait, as visited
states do in a breadth-first search. All children of a node are inserted at once, so that expansion i always fills rows
1 + iA, …, (i + 1)A of fixed arrays, the same rows in every lane of a `vmap`.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from e3rl.models.base import Problem, within_bounds
from e3rl.models.ensemble import Ensemble
from e3rl.planners.base import AbstractPlanner, Plan, Policy
from e3rl.planners.tried import unknown_share
from e3rl.replay import Replay
from e3rl.runs.settings import setting
from e3rl.types import Key
from e3rl.values.imagined import Utility

NO_PARENT = -1
NO_ACTION = -1
NO_LIMIT = 2**31 - 1
FEW_ENTRIES = 16
"""Observations of at most so many entries have their distances written out entry by entry, in one fused pass."""


Frontier = Literal["nearest", "root"]


@dataclass(frozen=True)
class GraphSearch(AbstractPlanner):
    """Best-first search; the actions that lead to the node of most utility per step are carried out without looking."""

    open_loop: ClassVar[bool] = True
    estimates: ClassVar[bool] = False

    nodes: int = setting(
        2_000,
        "N_max of App. B.2.1. The paper's loop asks for room before it expands a node, not before it inserts a child, "
        "so the graph ends with all children of its last expansion: 1 + ⌈(N_max − 1) / A⌉ · A nodes",
        at_least=2,
    )
    frontier: Frontier = setting(
        "nearest",
        "From where a node's priority is measured: the nearest node, as in the algorithm's text, or the root, as in "
        "the released code for control, which drives the search outwards",
    )
    exit_utility: float = setting(
        0.0,
        "The search also ends once a node's utility per step exceeds this, as in the released code; 0 searches on",
    )
    top_share: float = setting(
        0.0,
        "Return a random one of the best nodes, this share of all, as the released code does with 0.01; 0: the best. A "
        "plan that ends where it began, as at a wall, would otherwise be found again and again",
        at_most=1,
    )
    snap: bool = setting(
        False,
        "Round predicted states to zeros and ones: an error of a few hundredths then vanishes at every step instead of "
        "growing along a plan of fifty. For exploiting: exploration is drawn by just this growth",
    )

    tried: float = setting(
        0.0,
        "What episodes met counts as unknown as far as it is above this quantile of the disagreement about transitions "
        "in the replay buffer, which were tried; exploration can then end by itself. 0 counts nothing",
        at_most=1,
        before=0.0,
    )

    @property
    def calibrated(self) -> bool:
        return self.tried > 0.0

    def met_unknown(
        self, along: Float[Array, "n H"], utility: Utility, members: Ensemble, replay: Replay
    ) -> Float[Array, "n H"]:
        if self.tried == 0.0:
            return super().met_unknown(along, utility, members, replay)
        return unknown_share(along, utility, members, replay, self.tried)

    def expansions(self, actions: int) -> int:
        return -(-(self.nodes - 1) // actions)

    def plan(
        self,
        policy: Policy,
        obs: Shaped[Array, "*obs"],
        time: Int[Array, ""],
        key: Key,
        utility: Utility,
        problem: Problem,
    ) -> Plan:
        """Within the episode's time; `key` matters only with `top_share`."""
        scaled, left = policy.scale(obs), problem.horizon - time
        graph = search(policy.models.members, scaled, time, utility, self, problem.actions, left)
        return path_to(graph, best_node(graph, key, self.top_share), problem.horizon)


class Graph(NamedTuple):
    """𝒱. Node i is the i-th insertion, 0 the root. Rows from `size` on are empty, which happens only to a search that
    ran out of nodes to expand or left early."""

    parent: Int[Array, " N"]
    action: Int[Array, " N"]
    """The last of v.π; the others are those of the nodes on the way from the root."""
    depth: Int[Array, " N"]
    """|v.π|."""
    states: Float[Array, "N E *obs"]
    """v.s_i, member by member."""
    mean: Float[Array, "N *obs"]
    """v.ŝ; infinite where predictions are not finite."""
    utility: Float[Array, " N"]
    """v.utility, summed along the path; −∞ where predictions are not finite."""
    priority: Float[Array, " N"]
    """v.priority; −∞ once expanded, and from the start where the episode is predicted to end or nothing is finite."""
    size: Int[Array, ""]


class _Node(NamedTuple):
    """What an expansion reads. It is taken out as soon as it is known: a loop that read the big arrays again after
    writing to them would have to copy them in every round."""

    row: Int[Array, ""]
    priority: Float[Array, ""]
    alive: Bool[Array, ""]
    """False: there is nothing to expand, and what follows is not inserted."""
    depth: Int[Array, ""]
    utility: Float[Array, ""]
    states: Float[Array, "E ..."]


class _Search(NamedTuple):
    parent: Int[Array, " N"]
    depth: Int[Array, " N"]
    states: Float[Array, "N E *obs"]
    mean: Float[Array, "D N"]
    """Entry by entry, for a pass over contiguous memory; +∞, far from everything, where there is no node."""
    utility: Float[Array, " N"]
    priority: Float[Array, " N"]
    """Squared: the order is the same."""
    size: Int[Array, ""]
    chosen: _Node
    """argmax_v v.priority, to be expanded next."""


def search(
    ensemble: Ensemble,
    obs: Float[Array, "*obs"],
    time: Int[Array, ""],
    utility: Utility,
    settings: GraphSearch,
    actions: int,
    deepest: int | Int[Array, ""] = NO_LIMIT,
) -> Graph:
    """𝒱 grown from `obs` at step `time`: the loop of Algorithm DeterministicPlanner. Nodes at depth `deepest`, where
    the episode's time is over, are not expanded."""
    members = jax.tree.leaves(ensemble)[0].shape[0]
    expansions = settings.expansions(actions)
    slots = 1 + expansions * actions

    def to_nearest(mean: Float[Array, "A D"], nodes: Float[Array, "D N"]) -> Float[Array, " A"]:
        """Squared distance to the nearest node inserted before, elder siblings included."""
        elder = jnp.tril(jnp.ones((actions, actions), bool), -1)
        siblings = jnp.where(elder, _squared_distances(mean, mean.T), jnp.inf)
        return jnp.minimum(_smallest(_squared_distances(mean, nodes)), jnp.min(siblings, axis=1))

    def away_from_root(mean: Float[Array, "A D"]) -> Float[Array, " A"]:
        return _squared_distances(mean, obs.reshape(-1, 1))[:, 0]

    def expand(i: Int[Array, ""], now: _Search) -> _Search:
        node = now.chosen

        def every_action(member: Ensemble, state: Float[Array, "*obs"]) -> tuple:
            predicted = member.every_action(state, time + node.depth, actions)
            states = within_bounds(jax.vmap(member.most_likely)(predicted))
            return jnp.round(states) if settings.snap else states, predicted

        states, predicted = eqx.filter_vmap(every_action, out_axes=1)(ensemble, node.states)  # [A, E, …]
        mean = jnp.mean(states, axis=1).reshape(actions, -1)
        total = node.utility + jax.vmap(utility)(predicted)
        ends = (jnp.mean(predicted.termination, axis=1) > 0.5) | (node.depth + 1 >= deepest)

        distance = away_from_root(mean) if settings.frontier == "root" else to_nearest(mean, now.mean)
        sound = node.alive & jnp.isfinite(distance) & jnp.isfinite(total)
        total = jnp.where(sound, total, -jnp.inf)
        at = 1 + i * actions

        def insert(array: Array, rows: Array, axis: int = 0) -> Array:
            return jax.lax.dynamic_update_slice_in_dim(array, rows, at, axis)

        left = jnp.where(node.alive, -jnp.inf, node.priority)
        expanded = jax.lax.dynamic_update_index_in_dim(now.priority, left, node.row, 0)
        after = now._replace(
            parent=insert(now.parent, jnp.where(node.alive, jnp.full(actions, node.row), NO_PARENT)),
            depth=insert(now.depth, jnp.full(actions, node.depth + 1)),
            states=insert(now.states, states),
            mean=insert(now.mean, jnp.where(sound[:, None], mean, jnp.inf).T, axis=1),
            utility=insert(now.utility, total),
            priority=insert(expanded, jnp.where(sound & ~ends, distance, -jnp.inf)),
            size=now.size + jnp.where(node.alive, actions, 0),
        )
        chosen = _choose(after)
        if settings.exit_utility > 0.0:
            good = total / (node.depth + 1).astype(jnp.float32) > settings.exit_utility
            chosen = chosen._replace(alive=chosen.alive & node.alive & ~jnp.any(good))
        return after._replace(chosen=chosen)

    empty = jnp.arange(slots) > 0
    root = _Node(
        jnp.array(0, jnp.int32),
        jnp.array(jnp.inf),
        jnp.array(True),
        jnp.array(0, jnp.int32),
        jnp.array(0.0),
        jnp.broadcast_to(obs, (members, *obs.shape)),
    )
    start = _Search(
        parent=jnp.full(slots, NO_PARENT, jnp.int32),
        depth=jnp.zeros(slots, jnp.int32),
        states=jnp.zeros((slots, members, *obs.shape)).at[0].set(obs),
        mean=jnp.where(empty, jnp.inf, obs.reshape(-1, 1)),
        utility=jnp.where(empty, -jnp.inf, 0.0),
        priority=jnp.where(empty, -jnp.inf, jnp.inf),
        size=jnp.array(1, jnp.int32),
        chosen=root,
    )
    end = jax.lax.fori_loop(0, expansions, expand, start)
    every = jnp.tile(jnp.arange(actions, dtype=jnp.int32), expansions)
    return Graph(
        parent=end.parent,
        action=jnp.concatenate([jnp.array([NO_ACTION], jnp.int32), every]),
        depth=end.depth,
        states=end.states,
        mean=end.mean.T.reshape(slots, *obs.shape),
        utility=end.utility,
        priority=jnp.where(end.priority > 0.0, jnp.sqrt(end.priority), end.priority),
        size=end.size,
    )


def path_to(graph: Graph, node: Int[Array, ""], longest: int) -> Plan:
    """The actions that lead to `node`, at most `longest`, and its utility per step."""

    def climb(carry: tuple) -> tuple:
        node, actions = carry
        actions = actions.at[graph.depth[node] - 1].set(graph.action[node], mode="drop")  # beyond `longest`
        return graph.parent[node], actions

    start = (node, jnp.zeros(longest, jnp.int32))
    actions: Array
    _, actions = jax.lax.while_loop(lambda carry: graph.depth[carry[0]] > 0, climb, start)
    depth = graph.depth[node]
    return Plan(actions, jnp.minimum(depth, longest), graph.utility[node] / depth.astype(jnp.float32))


def best_node(graph: Graph, key: Key, top_share: float) -> Int[Array, ""]:
    """argmax_v v.utility / |v.π| over all nodes but the root, or a random one of the best `top_share` of them."""
    per_step = graph.utility[1:] / jnp.maximum(graph.depth[1:], 1).astype(jnp.float32)
    if top_share == 0.0:
        return 1 + jnp.argmax(per_step).astype(jnp.int32)
    count = jnp.floor(top_share * (graph.size - 1).astype(jnp.float32)).astype(jnp.int32)
    rank = jax.random.randint(key, (), 0, jnp.maximum(count, 1))
    return 1 + jnp.argsort(-per_step)[rank].astype(jnp.int32)


def _choose(now: _Search) -> _Node:
    row = _first_largest(now.priority)

    def at(array: Array) -> Array:
        return jax.lax.dynamic_index_in_dim(array, row, keepdims=False)

    priority = at(now.priority)
    return _Node(row, priority, priority > -jnp.inf, at(now.depth), at(now.utility), at(now.states))


def _squared_distances(points: Float[Array, "A D"], nodes: Float[Array, "D N"]) -> Float[Array, "A N"]:
    if len(nodes) > FEW_ENTRIES:
        return jnp.sum((points.T[:, :, None] - nodes[:, None, :]) ** 2, axis=0)
    total = (points[:, :1] - nodes[0]) ** 2
    for d in range(1, len(nodes)):
        total += (points[:, d : d + 1] - nodes[d]) ** 2
    return total


# Floats that are not negative, and −∞ below them, are ordered as the integers of the same bits. Among 2,000 of them XLA
# finds the largest five times faster as integers: a comparison of floats has to heed NaN.


def _first_largest(values: Float[Array, " N"]) -> Int[Array, ""]:
    bits = jax.lax.bitcast_convert_type(values, jnp.int32)
    index = jnp.arange(len(values), dtype=jnp.int32)
    return jnp.min(jnp.where(bits == jnp.max(bits), index, len(values) - 1))


def _smallest(values: Float[Array, "A N"]) -> Float[Array, " A"]:
    bits = jax.lax.bitcast_convert_type(values, jnp.int32)
    return jax.lax.bitcast_convert_type(jnp.min(bits, axis=1), jnp.float32)
