"""Monte-Carlo tree search over the ensemble for stochastic dynamics (appendix B.2.2), on top of mctx.

A node is an [E, *obs, K] tensor of particles, ν'_{e,k} ~ M_e(ν_{e,k}, a): K samples of what each member predicts after
the action sequence that leads to the node. The paper leaves several choices open: they are the options of
`TreeSearch`.
"""

import dataclasses
from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mctx
from jaxtyping import Array, Float, Int, Shaped

from e3rl.models.base import Problem, within_bounds
from e3rl.models.ensemble import Ensemble
from e3rl.models.fit import ModelSet
from e3rl.planners.base import AbstractPlanner, Plan, Policy, single
from e3rl.planners.value import fitted
from e3rl.replay import Replay
from e3rl.runs.settings import group, setting
from e3rl.types import Action, Key
from e3rl.values.imagined import Utility, ValueFit
from e3rl.values.network import QNetwork
from e3rl.values.update import QState

Leaf = Literal["zero", "rollout", "value"]
Choice = Literal["best", "mean", "visits"]


@dataclass(frozen=True)
class TreeSearch(AbstractPlanner):
    """UCB1 over action sequences; the first action of the plan is taken, then everything is planned again."""

    playouts: int = setting(200, 'App. C.1: "MCTS playouts"', at_least=1)
    particles: int = setting(100, 'K of App. B.2.2 (App. C.1: "MCTS samples")', at_least=1)
    ucb: float = setting(1.0, "The constant of UCB1")
    leaf: Leaf = setting(
        "value",
        "What a new leaf is worth beyond its own reward: nothing (zero), a uniformly random rollout to the horizon, or "
        "a value fitted in imagination, at its particles",
    )
    choice: Choice = setting(
        "best",
        "Which first action is returned: that of the best sequence seen, of the best mean value, or the most visited "
        "(visits)",
    )
    common_noise: bool = setting(
        True,
        "The same uniform noise for every member and playout (fresh at every depth), so that members differ in what "
        "they believe and not in their dice; it is also drawn once per call instead of once per node",
    )
    from_samples: bool = setting(
        True,
        "Score the empirical distribution of the particles, as the paper does; otherwise the members' mean predictions",
    )
    value: ValueFit = group(ValueFit(), "How the value at the leaves is fitted, for leaf=value")

    def fresh(self, problem: Problem, key: Key) -> QState | None:
        return self.value.fresh(problem, key) if self.leaf == "value" else None

    def prepare(
        self,
        value: QState | None,
        models: ModelSet,
        replay: Replay,
        utility: Utility,
        problem: Problem,
        key: Key,
    ) -> QState | None:
        if self.leaf != "value":
            return None
        return fitted(value, self.value, models, replay, utility, problem, key)

    def plan(
        self,
        policy: Policy,
        obs: Shaped[Array, "*obs"],
        time: Int[Array, ""],
        key: Key,
        utility: Utility,
        problem: Problem,
    ) -> Plan:
        members = policy.models.members
        # Of deterministic members all particles but one would be the same.
        settings = dataclasses.replace(self, particles=1) if members.noise_shape == (0,) else self
        network = None if policy.value is None else policy.value.online
        found = search(
            members,
            network,
            policy.scale(obs),
            time,
            key,
            utility,
            settings,
            problem.horizon,
            problem.actions,
        )
        return single(found.action, found.value)


class Node(NamedTuple):
    particles: Shaped[Array, "E *obs K"]
    time: Int[Array, ""]


class Found(NamedTuple):
    action: Action
    value: Float[Array, ""]
    """What the plan is worth from here on, the estimate of v_explore (or v_exploit): of the best sequence seen, or of
    the chosen action's playouts in the mean."""


def search(
    ensemble: Ensemble,
    value: QNetwork | None,
    obs: Shaped[Array, "*obs"],
    time: Int[Array, ""],
    key: Key,
    utility: Utility,
    settings: TreeSearch,
    horizon: int,
    actions: int,
) -> Found:
    """The first action of the plan found from `obs` at step `time`; call it again at every step."""
    key_noise, key_ties, key_search = jax.random.split(key, 3)
    members = jax.tree.leaves(ensemble)[0].shape[0]
    shape = (*ensemble.noise_shape, settings.particles)
    storage = jnp.int8 if ensemble.draws_bits else jnp.float32
    noise = uniform_noise(key_noise, (horizon, *shape)) if settings.common_noise else None
    # Drawn once: a draw at every step down the tree would cost more than the rest of the bookkeeping.
    ties = jax.random.uniform(key_ties, (settings.playouts + 1, actions))

    def advance(
        node: Node, action: Int[Array, ""], key: Key
    ) -> tuple[Node, Float[Array, ""], Float[Array, ""]]:
        """One step of every particle: (node, reward, chance to go on)."""
        if noise is None:
            uniform = uniform_noise(key, (members, *shape))
        else:
            uniform = jnp.broadcast_to(noise[node.time % horizon], (members, *shape))

        def each(member: Ensemble, state: Shaped[Array, "*obs K"], u: Float[Array, "..."]) -> tuple:
            predicted = member.columns(state, action, node.time)
            return within_bounds(member.draw_columns(predicted, u)), predicted

        drawn, predicted = eqx.filter_vmap(each)(ensemble, node.particles, uniform)
        means = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=-1), predicted._replace(detail=()))
        particles = drawn.astype(storage)
        empirical = means._replace(obs=jnp.mean(drawn, axis=-1), particles=particles)
        reward = utility(empirical if settings.from_samples else means)
        goes_on = jnp.where(node.time + 1 < horizon, 1.0 - jnp.mean(means.termination), 0.0)
        return Node(particles, node.time + 1), reward, goes_on

    def leaf_value(node: Node, key: Key) -> Float[Array, ""]:
        if settings.leaf == "zero":
            return jnp.array(0.0)
        if settings.leaf == "value":
            assert value is not None, "leaf='value' needs a fitted value network"
            q = jax.vmap(value.columns, in_axes=(0, None))(node.particles, node.time)
            return jnp.max(jnp.mean(q, axis=(0, 2)))

        def step(i: Int[Array, ""], carry: tuple) -> tuple:
            node, weight, total = carry
            node, reward, goes_on = advance(node, taken[i], jax.random.fold_in(key_steps, i))
            return node, weight * goes_on, total + weight * reward

        key_actions, key_steps = jax.random.split(key)
        taken = jax.random.randint(key_actions, (horizon,), 0, actions)
        start = (node, jnp.array(1.0), jnp.array(0.0))
        total: Array
        _, _, total = jax.lax.fori_loop(0, horizon - node.time, step, start)
        return total

    def expand(_: None, key: Key, action: Int[Array, " 1"], nodes: Node) -> tuple:
        key_step, key_leaf = jax.random.split(key)
        node = jax.tree.map(lambda leaf: leaf[0], nodes)
        child, reward, goes_on = advance(node, action[0], key_step)
        leaf = leaf_value(child, key_leaf)
        output = mctx.RecurrentFnOutput(
            reward=reward[None], discount=goes_on[None], prior_logits=no_prior, value=leaf[None]
        )
        return output, jax.tree.map(lambda leaf: leaf[None], child)

    def select(key: Key, tree: mctx.Tree, node: Int[Array, ""], depth: Array) -> Int[Array, ""]:
        """UCB1; an untried action first, ties at random."""
        visits = tree.children_visits[node].astype(jnp.float32)
        parent = tree.node_visits[node].astype(jnp.float32)
        bonus = jnp.sqrt(jnp.log(jnp.maximum(parent, 1.0)) / jnp.maximum(visits, 1.0))
        score = tree.qvalues(node) + settings.ucb * bonus
        score = jnp.where(visits == 0, jnp.inf, score)
        return jnp.argmax(jnp.where(score == jnp.max(score), ties[node], -1.0)).astype(jnp.int32)

    no_prior = jnp.zeros((1, actions))
    whole = (1, members, *obs.shape, settings.particles)
    particles = jnp.broadcast_to(obs.astype(storage)[..., None], whole)
    root = Node(particles, time[None].astype(jnp.int32))
    with jax.numpy_dtype_promotion("standard"):  # mctx mixes integers and floats
        tree = mctx.search(
            None,
            key_search,
            root=mctx.RootFnOutput(prior_logits=no_prior, value=jnp.zeros(1), embedding=root),
            recurrent_fn=expand,
            root_action_selection_fn=lambda key, tree, node: select(key, tree, node, jnp.array(0)),
            interior_action_selection_fn=select,
            num_simulations=settings.playouts,
            max_depth=horizon,
        )
        summary = tree.summary()
    values = best_sequence(tree) if settings.choice == "best" else summary.qvalues[0]
    visits = summary.visit_counts[0]
    scores = visits.astype(jnp.float32) if settings.choice == "visits" else values
    action = jnp.argmax(jnp.where(visits > 0, scores, -jnp.inf)).astype(jnp.int32)
    return Found(action, values[action])


def uniform_noise(key: Key, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Uniform noise of 16 bits, at half the price of 32: plenty to draw Bernoulli bits from."""
    return (jax.random.bits(key, shape, jnp.uint16).astype(jnp.float32) + 0.5) * 2.0**-16


def best_sequence(tree: mctx.Tree) -> Float[Array, " A"]:
    """For each root action, the largest return of any action sequence in the tree that begins with it."""
    parents, via = tree.parents[0], tree.action_from_parent[0]
    rewards, discounts = tree.children_rewards[0], tree.children_discounts[0]

    def follow(carry: tuple, node: Int[Array, ""]) -> tuple:
        total, weight, first = carry
        parent, action = parents[node], via[node]
        reached = total[parent] + weight[parent] * rewards[parent, action]
        onwards = weight[parent] * discounts[parent, action]
        root_action = jnp.where(parent == tree.ROOT_INDEX, action, first[parent])
        carry = (total.at[node].set(reached), weight.at[node].set(onwards), first.at[node].set(root_action))
        full = jnp.where(parent == tree.NO_PARENT, -jnp.inf, reached + onwards * tree.raw_values[0, node])
        return carry, (root_action, full)

    nodes = parents.shape[0]
    start = (jnp.zeros(nodes), jnp.ones(nodes), jnp.zeros(nodes, via.dtype))
    first: Array
    full: Array
    _, (first, full) = jax.lax.scan(follow, start, jnp.arange(1, nodes))
    return jnp.full(tree.num_actions, -jnp.inf).at[first].max(full)
