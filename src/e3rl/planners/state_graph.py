"""Exact planning over the states that the members predict, where these can be told apart: bits, categories, ids.

From the state at hand on, breadth first, every action of every state is imagined once. What the members find most
likely together is the next state, and states met again are the same node. On this graph the utility is maximised by
value iteration. The graph is kept for the episode: where the world does something else than imagined, that is written
down as a fact and the rest stays; a state that is not in it begins another.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

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
FEW_AT_ONCE, MANY_AT_ONCE = 16, 128
"""Nodes expanded together, on a CPU and on an accelerator."""
PRECISION = 1e-3
"""Values are iterated until none changes by more than this share of the largest gain."""


@dataclass(frozen=True)
class StateGraph(AbstractPlanner):
    """Value iteration over all states within reach."""

    open_loop: ClassVar[bool] = True
    estimates: ClassVar[bool] = False

    nodes: int = setting(1_000, "States at most", at_least=2)
    discount: float = setting(0.95, "γ: how little a later gain counts", at_most=1)
    once: bool = setting(
        False,
        "An action taken in a state is worth nothing the next time, until the models are updated: for exploring, where "
        "a second look at the same thing tells nothing new",
    )
    chance: float = setting(
        0.0,
        "Share of actions that are uniformly random: what all members wrongly agree on is found out by accident only",
        at_most=1,
        before=0.0,
    )

    def memory(self, problem: Problem) -> "Memory":
        nothing = jnp.zeros(problem.shape)
        none = jnp.array(0, jnp.int32)
        graph = root(nothing, self.nodes, problem.actions)
        return Memory(graph._replace(size=none), jnp.zeros(self.nodes), none, none)

    def plan(
        self,
        policy: Policy,
        obs: Shaped[Array, "*obs"],
        time: Int[Array, ""],
        key: Key,
        utility: Utility,
        problem: Problem,
    ) -> Plan:
        return self.plan_on(policy, obs, time, key, utility, problem, self.memory(problem))

    def plan_on(
        self,
        policy: Policy,
        obs: Shaped[Array, "*obs"],
        time: Int[Array, ""],
        key: Key,
        utility: Utility,
        problem: Problem,
        memory: Any,
    ) -> Plan:
        scaled = policy.scale(obs)
        here, known = find(memory.graph, digest(scaled)[None])
        here, known = here[0], known[0] & (time > 0)
        seen, changed = note(memory, here, self.once)
        fresh = root(scaled, self.nodes, problem.actions)
        graph = jax.tree.map(lambda old, new: jnp.where(known, old, new), seen, fresh)
        graph = grow(graph, policy.models.members, time, utility)
        here = jnp.where(known, here, 0)
        # From old values those that are gone would fall only little by little.
        worth = jnp.where(known & ~changed, memory.worth, 0.0)
        worth = iterate(graph, worth, self.discount, jnp.where(known & ~changed, 0, problem.horizon))
        q = backup(graph, worth, self.discount)[here]
        action = jnp.argmax(q).astype(jnp.int32)
        if self.chance > 0.0:
            key_chance, key_action = jax.random.split(key)
            other = jax.random.randint(key_action, (), 0, problem.actions)
            action = jnp.where(jax.random.bernoulli(key_chance, self.chance), other, action)
        one = jnp.array(1, jnp.int32)
        return Plan(action[None], one, jnp.max(q), Memory(graph, worth, here, action))


class Graph(NamedTuple):
    """Nodes in the order in which they were found, the first one the state at hand when it was begun. Rows from `size`
    on are empty."""

    states: Float[Array, "N *obs"]
    hashes: UInt32[Array, "N 2"]
    next: Int[Array, "N A"]
    """The node that an action leads to, or `NOWHERE` where the episode ends or the graph does."""
    gain: Float[Array, "N A"]
    """The utility of a step."""
    alive: Float[Array, "N A"]
    """Chance that the episode goes on."""
    size: Int[Array, ""]
    expanded: Int[Array, ""]


class Memory(NamedTuple):
    """What is kept from one step of an episode to the next."""

    graph: Graph
    worth: Float[Array, " N"]
    """V of every node."""
    node: Int[Array, ""]
    """Where the last step was taken."""
    action: Int[Array, ""]


def root(state: Float[Array, "*obs"], nodes: int, actions: int) -> Graph:
    """A graph of one node that is not expanded yet."""
    return Graph(
        jnp.zeros((nodes, *state.shape)).at[0].set(state),
        jnp.zeros((nodes, 2), jnp.uint32).at[0].set(digest(state)),
        jnp.full((nodes, actions), NOWHERE, jnp.int32),
        jnp.zeros((nodes, actions)),
        jnp.zeros((nodes, actions)),
        jnp.array(1, jnp.int32),
        jnp.array(0, jnp.int32),
    )


def digest(state: Float[Array, "*obs"]) -> UInt32[Array, " 2"]:
    """Two numbers that are equal for equal states, and for different ones with a chance of about 2⁻⁶⁴."""
    whole = jnp.round(state * 65536.0).astype(jnp.int32).ravel()
    # Odd, so that every bit of an entry counts.
    factors = np.random.default_rng(0).integers(2**32, size=(2, whole.size), dtype=np.uint32) | np.uint32(1)
    bits = jax.lax.bitcast_convert_type(whole, jnp.uint32) * jnp.uint32(0x9E3779B1)
    bits ^= bits >> 15  # zeros and ones would otherwise use few bits of the factors
    return jnp.sum(bits * jnp.asarray(factors), axis=1, dtype=jnp.uint32)


def find(graph: Graph, hashes: UInt32[Array, "B 2"]) -> tuple[Int[Array, " B"], Bool[Array, " B"]]:
    """The nodes of states, and whether they are there at all."""
    equal = jnp.all(hashes[:, None] == graph.hashes[None], axis=-1)
    equal &= jnp.arange(len(graph.hashes)) < graph.size
    return jnp.argmax(equal, axis=1).astype(jnp.int32), jnp.any(equal, axis=1)


def note(memory: Memory, here: Int[Array, ""], once: bool) -> tuple[Graph, Bool[Array, ""]]:
    """The graph after the last action has led to node `here`, and whether that changes anything. What was hoped for
    from an end that did not come is not hoped for again."""
    graph, at = memory.graph, (memory.node, memory.action)
    surprise = graph.next[at] != here
    idle = once | (graph.next[at] == NOWHERE)
    gain = jnp.where(idle, 0.0, graph.gain[at])
    told = surprise | (gain != graph.gain[at])
    return graph._replace(
        next=graph.next.at[at].set(here), gain=graph.gain.at[at].set(gain), alive=graph.alive.at[at].set(1.0)
    ), told


def grow(graph: Graph, ensemble: Ensemble, time: Int[Array, ""], utility: Utility) -> Graph:
    """All states within reach of those that are there, the nearest first, as long as there is room."""
    nodes, actions = graph.next.shape
    shape = graph.states.shape[1:]
    every = jnp.arange(actions, dtype=jnp.int32)
    some = min(FEW_AT_ONCE if jax.default_backend() == "cpu" else MANY_AT_ONCE, nodes)

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
        after, hashes = after.reshape(-1, *shape), hashes.reshape(-1, 2)
        goes_on = (there[:, None] & (alive > 0.5)).ravel()
        # The same state may be among the nodes already, or come up twice at once.
        node, known = find(graph, hashes)
        equal = jnp.all(hashes[:, None] == hashes[None], axis=-1) & goes_on
        first = jnp.argmax(equal, axis=1)
        new = goes_on & ~known & (first == jnp.arange(len(first)))
        place = jnp.where(new, graph.size + jnp.cumsum(new, dtype=jnp.int32) - 1, nodes)
        found = jnp.where(known, node, place[first])
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

    return jax.lax.while_loop(lambda graph: graph.expanded < graph.size, expand, graph)


def backup(graph: Graph, worth: Float[Array, " N"], discount: float) -> Float[Array, "N A"]:
    """Q(s, a) = u(s, a) + γ · (chance that it goes on) · V(s'). What lies beyond the graph is worth nothing."""
    after = jnp.where(graph.next == NOWHERE, 0.0, worth[graph.next])
    return graph.gain + discount * graph.alive * after


def iterate(
    graph: Graph, worth: Float[Array, " N"], discount: float, sweeps: Int[Array, ""]
) -> Float[Array, " N"]:
    """V(s) = max_a Q(s, a), by at most so many sweeps over all nodes from `worth` on."""

    def sweep(carry: tuple) -> tuple:
        i, worth, _ = carry
        better = jnp.max(backup(graph, worth, discount), axis=1)
        return i + 1, better, jnp.max(jnp.abs(better - worth))

    enough = PRECISION * jnp.max(jnp.abs(graph.gain))

    def goes_on(carry: tuple) -> Bool[Array, ""]:
        return (carry[0] < sweeps) & (carry[2] > enough)

    start = (jnp.array(0, jnp.int32), worth, jnp.array(jnp.inf))
    found: Float[Array, " N"] = jax.lax.while_loop(goes_on, sweep, start)[1]
    return found
