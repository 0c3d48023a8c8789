"""Monte-Carlo tree search over the ensemble for stochastic dynamics (appendix B.2.2), on top of mctx.

A node is an [E, *obs, K] tensor of particles, ν'_{e,k} ~ M_e(ν_{e,k}, a): K samples of what each member predicts after
the action sequence that leads to the node. The paper leaves several choices open: they are the options of
`TreeSearch`.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import mctx
from jaxtyping import Array, Float, Int, Shaped, UInt32

from e3rl.models.base import Problem, within_bounds
from e3rl.models.ensemble import Ensemble
from e3rl.models.fit import ModelSet
from e3rl.noise import uniform_noise
from e3rl.planners import ahead
from e3rl.planners.base import AbstractPlanner, Plan, Policy, single
from e3rl.planners.tree import NOBODY, ROOT, Child, Line, best_sequence, grow, line_after, nodes_of, ucb1
from e3rl.planners.utility import looks_at_particles
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
    batch: int = setting(
        0,
        "Nodes expanded together, each by all of its actions in one call of the models, after the root alone; as many "
        "playouts then take playouts / (batch · actions) calls in turn. 0: a tree that grows by one action of one node "
        "at a time, as in the paper",
        before=0,
    )
    reuse: bool = setting(
        False,
        "At later steps of an episode try first what came next in the best sequence found at the step before",
        before=False,
    )
    value: ValueFit = group(ValueFit(), "How the value at the leaves is fitted, for leaf=value")

    @property
    def plan_by_plan(self) -> bool:
        return self.reuse

    @property
    def searches(self) -> bool:
        return True

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
        return self.plan_on(policy, obs, time, key, utility, problem, None)

    def memory(self, problem: Problem) -> Line | None:
        """The sequence that is tried first: nothing, before the first step."""
        return jnp.full(problem.horizon, NOBODY, jnp.int32) if self.reuse else None

    def plan_on(
        self,
        policy: Policy,
        obs: Shaped[Array, "*obs"],
        time: Int[Array, ""],
        key: Key,
        utility: Utility,
        problem: Problem,
        memory: Line | None,
    ) -> Plan:
        """`plan`, along what is left of the last step's best sequence first.

        Only actions are kept. The particles of the old tree are what members imagined of a state that has been observed
        since, so its statistics are of other states than this; the sequence is searched again from what was seen.
        """
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
            memory,
        )
        return single(found.action, found.value)._replace(memory=found.line)


STRIDE = 4
"""Steps of a rollout after which a GPU asks the host whether to go on."""


class Node(NamedTuple):
    particles: Shaped[Array, "E *obs K"]
    time: Int[Array, ""]
    dice: UInt32[Array, " words"]
    """The key of the actions that lead here: what they lead to does not depend on when they are tried."""


class Found(NamedTuple):
    action: Action
    value: Float[Array, ""]
    """What the plan is worth from here on, the estimate of v_explore (or v_exploit): of the best sequence seen, or of
    the chosen action's playouts in the mean."""
    line: Line | None = None
    """What follows the action in the best sequence, where lines are reused."""


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
    line: Line | None = None,
) -> Found:
    """The first action of the plan found from `obs` at step `time`; call it again at every step. A `line` of actions is
    tried first."""
    key_noise, key_ties, key_search = jax.random.split(key, 3)
    members = jax.tree.leaves(ensemble)[0].shape[0]
    shape = (*ensemble.noise_shape, settings.particles)
    on_cpu = jax.default_backend() == "cpu"
    device = None if on_cpu else ensemble.many_steps(settings.particles)
    if device is not None and settings.from_samples and looks_at_particles(utility, members, obs.shape):
        device = None  # which never leave it
    storage = jnp.int8 if ensemble.draws_bits else jnp.float32
    noise = uniform_noise(key_noise, (horizon, *shape)) if settings.common_noise else None
    # Drawn once: a draw at every step down the tree would cost more than the rest of the bookkeeping.
    nodes = nodes_of(settings.playouts, settings.batch, actions) if settings.batch else settings.playouts + 1
    ties = jax.random.uniform(key_ties, (nodes, actions))

    def advance(
        node: Node, action: Int[Array, ""], key: Key
    ) -> tuple[Node, Float[Array, ""], Float[Array, ""]]:
        """One step of every particle, with the dice of `key`: (node, reward, chance to go on)."""
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
        return node._replace(particles=particles, time=node.time + 1), reward, goes_on

    def leaf_value(node: Node, key: Key) -> Float[Array, ""]:
        if settings.leaf == "zero":
            return jnp.array(0.0)
        if settings.leaf == "value":
            assert value is not None, "leaf='value' needs a fitted value network"
            q = jax.vmap(value.columns, in_axes=(0, None))(node.particles, node.time)
            return jnp.max(jnp.mean(q, axis=(0, 2)))

        def step(i: Int[Array, ""], carry: tuple) -> tuple:
            node, weight, total = carry
            node, reward, goes_on = advance(node, taken[i], keys[i])
            # Past the horizon, where nothing counts any more, the weight is 0.
            return node, weight * goes_on, total + weight * reward

        key_actions, key_steps = jax.random.split(key)
        taken = jax.random.randint(key_actions, (horizon,), 0, actions)
        keys = jax.random.split(key_steps, horizon)

        def stride(i: Int[Array, ""], carry: tuple) -> tuple:
            for j in range(STRIDE):
                carry = step(STRIDE * i + j, carry)
            return carry

        start = (node, jnp.where(node.time < horizon, 1.0, 0.0), jnp.array(0.0))
        total: Array
        if on_cpu:
            _, _, total = jax.lax.fori_loop(0, horizon - node.time, step, start)
        else:  # side by side, as many as any child of the root needs
            _, _, total = jax.lax.fori_loop(0, -((time + 1 - horizon) // STRIDE), stride, start)
        return total

    def child(node: Node, action: Int[Array, ""]) -> Child:
        key = jax.random.fold_in(jax.random.wrap_key_data(node.dice), action)
        key_step, key_leaf = jax.random.split(key)
        after, reward, goes_on = advance(node, action, key_step)
        after = after._replace(dice=jax.random.key_data(key))
        return Child(reward, goes_on, leaf_value(after, key_leaf), after)

    def child_at_once(node: Node, action: Int[Array, ""]) -> Child:
        """`child`, all steps of the rollout included, in one program of the device."""
        assert device is not None
        key = jax.random.fold_in(jax.random.wrap_key_data(node.dice), action)
        key_step, key_leaf = jax.random.split(key)
        key_actions, key_steps = jax.random.split(key_leaf)
        rolls = settings.leaf == "rollout"
        length = horizon + 1 if rolls else 1
        taken = jnp.concatenate([action[None], jax.random.randint(key_actions, (length - 1,), 0, actions)])
        keys = jnp.concatenate([key_step[None], jax.random.split(key_steps, length - 1)])
        count = jnp.maximum(horizon - node.time, 1) if rolls else jnp.array(1, jnp.int32)
        times = node.time + jnp.arange(length)
        first = jnp.zeros(length, jnp.uint32)
        if noise is not None:  # common_noise is one long draw
            keys = jnp.broadcast_to(key_noise, keys.shape)
            first = ((times % horizon) * math.prod(shape)).astype(jnp.uint32)
        dice = jax.random.key_data(keys)
        after, drawn, said = device.take(node.particles, taken, node.time, dice, first, noise is None, count)
        reward = jax.vmap(utility)(said._replace(obs=drawn) if settings.from_samples else said)
        goes_on = jnp.where(times + 1 < horizon, 1.0 - jnp.mean(said.termination, axis=1), 0.0)
        if rolls:
            weight = ahead.before(goes_on.at[0].set(jnp.where(times[1] < horizon, 1.0, 0.0)))
            worth = jnp.sum(jnp.where(jnp.arange(length) < count, weight * reward, 0.0)[1:])
        else:
            worth = leaf_value(Node(device.shown(after), times[0] + 1, node.dice), key_leaf)
        return Child(reward[0], goes_on[0], worth, Node(after, node.time + 1, jax.random.key_data(key)))

    def every_child(node: Node) -> Child:
        every = jnp.arange(actions, dtype=jnp.int32)
        return jax.vmap(child if device is None else child_at_once, in_axes=(None, 0))(node, every)

    def one_child(_: None, key: Key, action: Int[Array, " 1"], nodes: Node) -> tuple:
        found = child(jax.tree.map(lambda leaf: leaf[0], nodes), action[0])
        found = jax.tree.map(lambda leaf: leaf[None], found)
        output = mctx.RecurrentFnOutput(
            reward=found.reward, discount=found.discount, prior_logits=no_prior, value=found.value
        )
        return output, found.embedding

    def select(key: Key, tree: mctx.Tree, node: Int[Array, ""], depth: Array) -> Int[Array, ""]:
        visits = tree.children_visits[node]
        action = ucb1(tree.qvalues(node), visits, tree.node_visits[node], settings.ucb, ties[node])
        if line is None:
            return action
        played = tree.node_visits[ROOT] - 1
        return jnp.where(played < jnp.sum(line != NOBODY), line[depth.astype(jnp.int32)], action)

    no_prior = jnp.zeros((1, actions))
    if device is not None:
        particles = device.hold(obs)
    else:
        alike = (members, *obs.shape, settings.particles)
        particles = jnp.broadcast_to(obs.astype(storage)[..., None], alike)
    root = Node(particles, time.astype(jnp.int32), jax.random.key_data(key_search))
    with jax.numpy_dtype_promotion("standard"):  # mctx mixes integers and floats
        if settings.batch:
            tree = grow(root, every_child, ties, settings.ucb, settings.playouts, settings.batch, line)
        elif not on_cpu:
            tree = ahead.search(root, every_child, ties, settings.ucb, settings.playouts, horizon, line)
        else:
            only = jax.tree.map(lambda leaf: leaf[None], root)
            tree = mctx.search(
                None,
                key_search,
                root=mctx.RootFnOutput(prior_logits=no_prior, value=jnp.zeros(1), embedding=only),
                recurrent_fn=one_child,
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
    onwards = None if line is None else line_after(tree, action, horizon)
    return Found(action, values[action], onwards)
