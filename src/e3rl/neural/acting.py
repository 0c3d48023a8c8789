"""What Neural-E³ does next: the action, or the action sequence, of whoever plans (section 4.2)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

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

GRAPHS_AT_ONCE = 128
"""Searches in one go on an accelerator: each holds every member's state in every node."""


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

        if jax.default_backend() != "cpu":
            return jax.lax.map(lambda now: plan(*now), (keys, obs, time), batch_size=GRAPHS_AT_ONCE)

        def if_running(inputs: tuple) -> tuple[Int[Array, " L"], Int[Array, ""]]:
            running, *now = inputs
            nothing = jnp.zeros(self.horizon, jnp.int32), jnp.array(1, jnp.int32)
            return jax.lax.cond(running, lambda: plan(*now), lambda: nothing)

        return jax.lax.map(if_running, (running, keys, obs, time))

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


def choose(condition: bool | Flag, if_true: Callable[[], Any], if_false: Callable[[], Any]) -> Any:
    """`lax.cond`, decided while compiling where that is possible: over lanes both branches would run."""
    if isinstance(condition, bool):
        return if_true() if condition else if_false()
    return jax.lax.cond(condition, if_true, if_false)
