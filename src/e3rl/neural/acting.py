"""What Neural-E³ does next: the action, or the action sequence, of whoever plans (section 4.2)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from e3rl.envs.base import Observation
from e3rl.envs.open_loop import Plans
from e3rl.models.fit import ModelSet
from e3rl.models.qnetwork import QState
from e3rl.neural.config import NeuralE3Config
from e3rl.planners import graph_search, mcts
from e3rl.planners.utility import Mode
from e3rl.planners.value import greedy
from e3rl.replay import Scale
from e3rl.types import Action, Flag, Key, Keys

GRAPHS_AT_ONCE = 32
"""Searches of a lane in one go on an accelerator: each holds every member's state in every node."""


class Policy(NamedTuple):
    """Who acts: a value network, the models for planners that search, and the scale in which both see the world."""

    models: ModelSet
    value: QState
    scale: Scale


class Acting:
    """Plans for single episodes and for several at once, to be compiled by its users."""

    def __init__(self, config: NeuralE3Config, horizon: int, actions: int):
        self.config = config
        self.horizon = horizon
        self.actions = actions

    def search_tree(self, policy: Policy, key: Key, obs: Observation, time: Array, mode: Mode) -> mcts.Plan:
        # The value, if any, is that of exploring.
        leaf: mcts.Leaf | None = "rollout" if mode == "exploit" and self.config.leaf == "value" else None
        settings = self.config.mcts(self.horizon, self.actions, leaf)
        if policy.models.members.noise_shape == (0,):
            settings = settings._replace(particles=1)  # all others would be the same
        return mcts.plan(
            policy.models.members, policy.value.online, policy.scale(obs), time, key, mode, settings
        )

    def search_graph(
        self, policy: Policy, key: Key, obs: Observation, time: Array, mode: Mode
    ) -> graph_search.Plan:
        settings = self.config.graph(self.actions)
        return graph_search.plan(
            policy.models.members, policy.scale(obs), time, key, mode, settings, self.horizon
        )

    def action(self, policy: Policy, key: Key, obs: Observation, time: Array, mode: Mode) -> Action:
        """What a planner that looks at every step does next."""
        who = self.config.planner if mode == "explore" else self.config.exploit
        if who == "mcts":
            return self.search_tree(policy, key, obs, time, mode).action
        if who == "uniform":
            return jax.random.randint(key, (), 0, self.actions)
        return greedy(policy.value, policy.scale(obs), time)

    def _plans(
        self, policy: Policy, keys: Keys, obs: Observation, time: Array, running: Array, mode: Mode
    ) -> Plans:
        """The plans of several episodes at once: whole sequences from graph search, else a single action."""
        if not self.open_loop(mode):
            act = jax.vmap(lambda key, obs, time: self.action(policy, key, obs, time, mode))
            return act(keys, obs, time)[:, None], jnp.ones(time.shape, jnp.int32)

        def plan(key: Key, obs: Observation, time: Array) -> tuple[Int[Array, " L"], Int[Array, ""]]:
            found = self.search_graph(policy, key, obs, time, mode)
            return found.actions, found.length

        at_once = 1 if jax.default_backend() == "cpu" else GRAPHS_AT_ONCE
        nothing = jnp.zeros((time.shape[0], self.horizon), jnp.int32), jnp.ones(time.shape, jnp.int32)
        return for_those(running, plan, (keys, obs, time), nothing, at_once)

    def open_loop(self, mode: Mode) -> bool:
        return (self.config.planner if mode == "explore" else self.config.exploit) == "graph"

    def explore_plans(
        self, policy: Policy, uniform: bool | Flag, keys: Keys, obs: Observation, time: Array, running: Array
    ) -> Plans:
        """Exploration's plans, or uniformly random actions."""

        def planned() -> Plans:
            return self._plans(policy, keys, obs, time, running, "explore")

        def chance() -> Plans:
            length = self.horizon if self.open_loop("explore") else 1
            draw = jax.vmap(lambda key: jax.random.randint(key, (length,), 0, self.actions))
            return draw(keys), jnp.ones(time.shape, jnp.int32)

        return choose(uniform, chance, planned)

    def exploit_plans(
        self, policy: Policy, keys: Keys, obs: Observation, time: Array, running: Array
    ) -> Plans:
        return self._plans(policy, keys, obs, time, running, "exploit")


def for_those(
    wanted: Bool[Array, " n"], function: Callable[..., Any], inputs: tuple, otherwise: Any, at_once: int
) -> Any:
    """`function` of those rows of `inputs` that are `wanted`, `at_once` of them together; `otherwise` for the rest.
    What it costs grows with how many are wanted, over lanes with the most that any of them wants."""
    count = wanted.shape[0]
    at_once = min(at_once, count)
    first = jnp.argsort(~wanted)  # stable: the wanted rows, in their order
    first = jnp.pad(first, (0, -count % at_once), constant_values=count)

    def some(i: Int[Array, ""], found: Any) -> Any:
        rows = jax.lax.dynamic_slice_in_dim(first, i * at_once, at_once)
        some_inputs = jax.tree.map(lambda leaf: leaf[jnp.minimum(rows, count - 1)], inputs)
        if at_once == 1:  # a vmap over one would turn slices into gathers
            new = jax.tree.map(
                lambda leaf: leaf[None], function(*jax.tree.map(lambda leaf: leaf[0], some_inputs))
            )
        else:
            new = jax.vmap(function)(*some_inputs)
        return jax.tree.map(
            lambda all_rows, some_rows: all_rows.at[rows].set(some_rows, mode="drop"), found, new
        )

    needed = -(-jnp.sum(wanted) // at_once)
    found = jax.lax.fori_loop(0, needed, some, otherwise)
    return jax.tree.map(
        lambda new, old: jnp.where(wanted.reshape(-1, *[1] * (new.ndim - 1)), new, old), found, otherwise
    )


def choose(condition: bool | Flag, if_true: Callable[[], Any], if_false: Callable[[], Any]) -> Any:
    """`lax.cond`, decided while compiling where that is possible: over lanes both branches would run."""
    if isinstance(condition, bool):
        return if_true() if condition else if_false()
    return jax.lax.cond(condition, if_true, if_false)
