"""Monte-Carlo tree search over the ensemble for stochastic dynamics (appendix B.2.2), on top of mctx.

A node is an [E, *obs, K] tensor of particles, ν'_{e,k} ~ M_e(ν_{e,k}, a): K samples of what each member predicts after
the action sequence that leads to the node. The paper leaves several choices open: they are the options of
`MctsSettings`.
"""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mctx
from jaxtyping import Array, Float, Int, Shaped

from e3rl.models.base import Prediction, within_bounds
from e3rl.models.ensemble import Ensemble
from e3rl.models.qnetwork import QNetwork
from e3rl.planners.utility import Distance, Mode, max_disagreement, mean_reward
from e3rl.types import Action, Key

Leaf = Literal["zero", "rollout", "value"]
Choice = Literal["best", "mean", "visits"]


class MctsSettings(NamedTuple):
    playouts: int
    particles: int
    exploration: float
    """UCB constant."""
    leaf: Leaf
    """What a new leaf is worth beyond its own reward: nothing, a uniformly random rollout to the horizon, or the
    learned exploration value at its particles."""
    choice: Choice
    """Which first action is returned: that of the best sequence seen, of the best mean value, or the most visited."""
    common_noise: bool
    """The same uniform noise for every member and playout (fresh at every depth), so that members differ in what they
    believe and not in their dice; it is also drawn once per call instead of once per node."""
    from_samples: bool
    """Score the empirical distribution of the particles, as the paper does; otherwise the members' mean predictions."""
    distance: Distance
    reward_scale: float
    horizon: int
    actions: int
    binary: bool
    """Observations of zeros and ones take a byte an entry in the tree."""


class Node(NamedTuple):
    particles: Shaped[Array, "E *obs K"]
    time: Int[Array, ""]


class Plan(NamedTuple):
    action: Action
    value: Float[Array, ""]
    """What the plan is worth from here on, the estimate of v_explore (or v_exploit): of the best sequence seen, or of
    the chosen action's playouts in the mean."""


def plan(
    ensemble: Ensemble,
    value: QNetwork | None,
    obs: Shaped[Array, "*obs"],
    time: Int[Array, ""],
    key: Key,
    mode: Mode,
    settings: MctsSettings,
) -> Plan:
    """The first action of the plan found from `obs` at step `time`; call it again at every step."""
    key_noise, key_ties, key_search = jax.random.split(key, 3)
    members = jax.tree.leaves(ensemble)[0].shape[0]
    shape = (*ensemble.noise_shape, settings.particles)
    storage = jnp.int8 if settings.binary else jnp.float32
    noise = uniform_noise(key_noise, (settings.horizon, *shape)) if settings.common_noise else None
    # Drawn once: a draw at every step down the tree would cost more than the rest of the bookkeeping.
    ties = jax.random.uniform(key_ties, (settings.playouts + 1, settings.actions))

    def advance(
        node: Node, action: Int[Array, ""], key: Key
    ) -> tuple[Node, Float[Array, ""], Float[Array, ""]]:
        """One step of every particle: (node, reward, chance to go on)."""
        if noise is None:
            uniform = uniform_noise(key, (members, *shape))
        else:
            uniform = jnp.broadcast_to(noise[node.time % settings.horizon], (members, *shape))

        def each(member: Ensemble, state: Shaped[Array, "*obs K"], u: Float[Array, "..."]) -> tuple:
            predicted = member.columns(state, action, node.time)
            return within_bounds(member.draw_columns(predicted, u)), predicted

        drawn, predicted = eqx.filter_vmap(each)(ensemble, node.particles, uniform)
        means = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=-1), predicted._replace(detail=()))
        empirical = Prediction(
            jnp.mean(drawn, axis=-1) if settings.from_samples else means.obs, means.reward, means.termination
        )
        if mode == "explore":
            reward = max_disagreement(empirical, settings.distance, settings.reward_scale)
        else:
            reward = mean_reward(empirical)
        goes_on = jnp.where(node.time + 1 < settings.horizon, 1.0 - jnp.mean(means.termination), 0.0)
        return Node(drawn.astype(storage), node.time + 1), reward, goes_on

    def leaf_value(node: Node, key: Key) -> Float[Array, ""]:
        if settings.leaf == "zero":
            return jnp.array(0.0)
        if settings.leaf == "value":
            assert value is not None, "leaf='value' needs a fitted value network"
            q = jax.vmap(value.columns, in_axes=(0, None))(node.particles, node.time)
            return jnp.max(jnp.mean(q, axis=(0, 2)))

        def step(i: Int[Array, ""], carry: tuple) -> tuple:
            node, weight, total = carry
            node, reward, goes_on = advance(node, actions[i], jax.random.fold_in(key_steps, i))
            return node, weight * goes_on, total + weight * reward

        key_actions, key_steps = jax.random.split(key)
        actions = jax.random.randint(key_actions, (settings.horizon,), 0, settings.actions)
        start = (node, jnp.array(1.0), jnp.array(0.0))
        total: Array
        _, _, total = jax.lax.fori_loop(0, settings.horizon - node.time, step, start)
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
        score = tree.qvalues(node) + settings.exploration * bonus
        score = jnp.where(visits == 0, jnp.inf, score)
        return jnp.argmax(jnp.where(score == jnp.max(score), ties[node], -1.0)).astype(jnp.int32)

    no_prior = jnp.zeros((1, settings.actions))
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
            max_depth=settings.horizon,
        )
        summary = tree.summary()
    values = best_sequence(tree) if settings.choice == "best" else summary.qvalues[0]
    visits = summary.visit_counts[0]
    scores = visits.astype(jnp.float32) if settings.choice == "visits" else values
    action = jnp.argmax(jnp.where(visits > 0, scores, -jnp.inf)).astype(jnp.int32)
    return Plan(action, values[action])


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
