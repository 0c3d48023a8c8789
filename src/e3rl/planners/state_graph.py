"""Exact planning over the states that the members predict, where these can be told apart: bits, categories, ids.

From the state at hand on, breadth first, every action of every state is imagined once. What the members find most
likely together is the next state, and states met again are the same node. On this graph the utility is maximised by
value iteration. The plan is a walk along the best actions, dropped as soon as the world is not where it should be.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt32

from e3rl.models.base import Problem
from e3rl.models.ensemble import Ensemble, predict
from e3rl.planners.base import AbstractPlanner, Plan, Policy
from e3rl.runs.settings import setting
from e3rl.types import Key
from e3rl.values.imagined import Utility

NOWHERE = -1
AT_ONCE = {"cpu": 16}
"""Nodes expanded together, `MANY_AT_ONCE` on an accelerator."""
MANY_AT_ONCE = 128
PRECISION = 1e-4
"""Values are iterated until none changes by more."""


@dataclass(frozen=True)
class StateGraph(AbstractPlanner):
    """Value iteration over all states within reach; the best actions are carried out while the world follows."""

    open_loop: ClassVar[bool] = True
    estimate: ClassVar[Literal["free", "costly", "none"]] = "costly"

    nodes: int = setting(1_000, "States at most", at_least=2)
    discount: float = setting(0.95, "γ: how little a later gain counts", at_most=1)

    def plan(
        self,
        policy: Policy,
        obs: Shaped[Array, "*obs"],
        time: Int[Array, ""],
        key: Key,
        utility: Utility,
        problem: Problem,
    ) -> Plan:
        graph = grow(policy.models.members, policy.scale(obs), time, utility, self.nodes, problem.actions)
        left = problem.horizon - time
        q = action_values(graph, self.discount, left)
        actions, length, path = walk(graph, q, problem.horizon, left)
        return Plan(actions, length, jnp.max(q[0]), policy.scale.back(graph.states[path]))


class Graph(NamedTuple):
    """Nodes in the order in which they were found, the root first. Rows from `size` on are empty."""

    states: Float[Array, "N *obs"]
    hashes: UInt32[Array, "N 2"]
    next: Int[Array, "N A"]
    """The node that an action leads to, or `NOWHERE` where the episode ends or the graph does."""
    gain: Float[Array, "N A"]
    """The utility of a step; −∞ for actions of nodes that were not expanded."""
    alive: Float[Array, "N A"]
    """Chance that the episode goes on."""
    size: Int[Array, ""]
    expanded: Int[Array, ""]


def grow(
    ensemble: Ensemble,
    obs: Float[Array, "*obs"],
    time: Int[Array, ""],
    utility: Utility,
    nodes: int,
    actions: int,
) -> Graph:
    """All states within reach of `obs`, the nearest first, at most `nodes` of them."""
    every = jnp.arange(actions, dtype=jnp.int32)
    some = min(AT_ONCE.get(jax.default_backend(), MANY_AT_ONCE), nodes)

    def imagine(state: Float[Array, "*obs"], action: Int[Array, ""]) -> tuple:
        predicted = predict(ensemble, state, action, time)
        together = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), predicted)
        member = jax.tree.map(lambda leaf: leaf[0] if eqx.is_array(leaf) else leaf, ensemble)
        after = member.most_likely(together)
        return after, digest(after), utility(predicted), 1.0 - together.termination

    def expand(graph: Graph) -> Graph:
        rows = graph.expanded + jnp.arange(some, dtype=jnp.int32)
        there = rows < graph.size
        states = graph.states[jnp.minimum(rows, nodes - 1)]
        after, hashes, gain, alive = jax.vmap(jax.vmap(imagine, (None, 0)), (0, None))(states, every)
        after, hashes = after.reshape(-1, *obs.shape), hashes.reshape(-1, 2)
        goes_on = (there[:, None] & (alive > 0.5)).ravel()
        # The same state may be among the nodes already, or come up twice at once.
        known = jnp.all(hashes[:, None] == graph.hashes[None], axis=-1) & (jnp.arange(nodes) < graph.size)
        equal = jnp.all(hashes[:, None] == hashes[None], axis=-1) & goes_on
        first = jnp.argmax(equal, axis=1)
        is_known = jnp.any(known, axis=1)
        new = goes_on & ~is_known & (first == jnp.arange(len(first)))
        place = jnp.where(new, graph.size + jnp.cumsum(new, dtype=jnp.int32) - 1, nodes)
        found = jnp.where(is_known, jnp.argmax(known, axis=1).astype(jnp.int32), place[first])
        found = jnp.where(goes_on & (found < nodes), found, NOWHERE)
        at = jnp.where(there, rows, nodes)
        return Graph(
            graph.states.at[place].set(after, mode="drop"),
            graph.hashes.at[place].set(hashes, mode="drop"),
            graph.next.at[at].set(found.reshape(some, actions), mode="drop"),
            graph.gain.at[at].set(gain, mode="drop"),
            graph.alive.at[at].set(alive, mode="drop"),
            jnp.minimum(graph.size + jnp.sum(new, dtype=jnp.int32), nodes),
            jnp.minimum(graph.expanded + some, graph.size),
        )

    start = Graph(
        jnp.zeros((nodes, *obs.shape)).at[0].set(obs),
        jnp.zeros((nodes, 2), jnp.uint32).at[0].set(digest(obs)),
        jnp.full((nodes, actions), NOWHERE, jnp.int32),
        jnp.full((nodes, actions), -jnp.inf),
        jnp.zeros((nodes, actions)),
        jnp.array(1, jnp.int32),
        jnp.array(0, jnp.int32),
    )
    return jax.lax.while_loop(lambda graph: graph.expanded < graph.size, expand, start)


def digest(state: Float[Array, "*obs"]) -> UInt32[Array, " 2"]:
    """Two numbers that are equal for equal states, and for different ones with a chance of 2⁻⁶⁴."""
    bits = jax.lax.bitcast_convert_type(jnp.round(state * 65536.0).astype(jnp.int32).ravel(), jnp.uint32)
    # Odd, so that every bit of an entry counts.
    factors = np.random.default_rng(0).integers(2**32, size=(2, bits.size), dtype=np.uint32) | 1
    return jnp.sum(bits * jnp.asarray(factors), axis=1, dtype=jnp.uint32)


def action_values(graph: Graph, discount: float, steps: int | Int[Array, ""]) -> Float[Array, "N A"]:
    """Q(s, a) = u(s, a) + γ · (chance that it goes on) · max_a' Q(s', a'), for `steps` steps at most. What lies beyond
    the graph is worth nothing."""

    def backup(worth: Float[Array, " N"]) -> Float[Array, "N A"]:
        after = jnp.where(graph.next == NOWHERE, 0.0, worth[graph.next])
        return graph.gain + discount * graph.alive * after

    def sweep(carry: tuple) -> tuple:
        i, worth, _ = carry
        best = jnp.max(backup(worth), axis=1)
        better = jnp.where(best > -jnp.inf, best, 0.0)
        return i + 1, better, jnp.max(jnp.abs(better - worth))

    start = (jnp.array(0, jnp.int32), jnp.zeros(graph.gain.shape[0]), jnp.array(jnp.inf))
    _, worth, _ = jax.lax.while_loop(
        lambda carry: (carry[0] < steps - 1) & (carry[2] > PRECISION), sweep, start
    )
    return backup(worth)


def walk(
    graph: Graph, q: Float[Array, "N A"], longest: int, left: Int[Array, ""]
) -> tuple[Int[Array, " L"], Int[Array, ""], Int[Array, " L"]]:
    """The best actions from the root on, as far as the graph reaches and until a node comes up for the second time; how
    many they are, and the nodes to which they should lead."""
    best = jnp.argmax(q, axis=1).astype(jnp.int32)

    def step(carry: tuple) -> tuple:
        node, i, actions, path, been = carry
        actions, path = actions.at[i].set(best[node]), path.at[i].set(graph.next[node, best[node]])
        return graph.next[node, best[node]], i + 1, actions, path, been.at[node].set(True)

    def on(carry: tuple) -> Bool[Array, ""]:
        node, i, _, _, been = carry
        return (i < jnp.minimum(left, longest)) & (node != NOWHERE) & ~been[node]

    none = jnp.zeros(longest, jnp.int32)
    start = (jnp.array(0, jnp.int32), jnp.array(0, jnp.int32), none, none, jnp.zeros(len(q), bool))
    _, length, actions, path, _ = jax.lax.while_loop(on, step, start)
    return actions, length, path
