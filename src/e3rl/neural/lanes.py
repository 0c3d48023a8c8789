"""Neural-E³'s slots for Algorithm 1, compiled: every function works on several seeds at once, each with its own
environment. On a GPU the seeds are one vmapped program; on a CPU, where that gains next to nothing, they take turns."""

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from e3rl.envs.base import AbstractEnvironment, Observation, episode_return, rollout
from e3rl.exploit.dqn import fit_dqn
from e3rl.models.bernoulli import BernoulliDynamics
from e3rl.models.ensemble import make_ensemble, predict
from e3rl.models.fit import ModelSet, make_model_set, update_model_set
from e3rl.models.qnetwork import QNetwork, QState, make_q_state
from e3rl.neural.config import NeuralE3Config
from e3rl.planners import mcts
from e3rl.planners.utility import max_disagreement
from e3rl.planners.value import fit_value, greedy, start_value
from e3rl.replay import Replay
from e3rl.types import Action, Key, Trajectory


def key_for(key: Key, name: str, index: int | Array = 0) -> Key:
    """The seed's key for one named use at one epoch; resuming needs no other state."""
    return jax.random.fold_in(jax.random.fold_in(key, zlib.crc32(name.encode()) & 0x7FFFFFFF), index)


class Policy(NamedTuple):
    """Who acts: a value network, and the models for planners that search."""

    models: ModelSet
    value: QState


class Episodes(NamedTuple):
    """What is reported about the episodes of one epoch."""

    returns: Float[Array, " n"]
    lengths: Int[Array, " n"]
    disagreement: Float[Array, " n"]


class Lanes:
    """The compiled functions for one configuration; a lane is a seed."""

    def __init__(self, env: AbstractEnvironment, config: NeuralE3Config):
        self.config = config
        self.horizon = env.time_limit
        self.actions = env.num_actions
        self.bits = int(env.observation_space.shape[0])  # type: ignore[index]
        self.epochs = -(-config.exploration_episodes(self.horizon) // config.episodes_per_epoch)
        rounds = config.exploit_rounds * config.round_episodes
        self.capacity = (self.epochs * config.episodes_per_epoch + rounds) * self.horizon
        self.needs_value = config.planner == "value" or (config.planner == "mcts" and config.leaf == "value")
        self.init = over_lanes(self.fresh)
        self.plan = over_lanes(self._plan)
        self.collect = over_lanes(self._collect)
        self.update_models = over_lanes(self._update_models)
        self.exploit = over_lanes(self._exploit)
        self.refine = over_lanes(self._refine)
        self.exploit_episodes = over_lanes(self._exploit_episodes)
        self.evaluate = over_lanes(self._evaluate)
        self.act = eqx.filter_jit(self._exploit_action)

    def _evaluate(self, env: AbstractEnvironment, policy: Policy, key: Key, count: int) -> Float[Array, " n"]:
        """The returns of `count` greedy episodes."""
        return jax.vmap(episode_return)(self._exploit_rollouts(env, policy, key_for(key, "evaluate"), count))

    def fresh(self, env: AbstractEnvironment, key: Key) -> tuple[ModelSet, QState, Replay]:
        config = self.config

        def make(key: Key) -> BernoulliDynamics:
            return BernoulliDynamics(
                self.bits,
                self.actions,
                self.horizon,
                config.hidden,
                config.conditioning,
                config.mean_over_bits,
                key=key,
            )

        members = make_ensemble(make, config.ensemble_size, key_for(key, "models"))
        models = make_model_set(members, config.fit(self.bits))
        value = make_q_state(self._network(config.value_heads, key_for(key, "value")), config.value(1).q)
        _, obs = env.reset(key)
        return models, value, Replay.empty(self.capacity, obs)

    def _network(self, heads: bool, key: Key) -> QNetwork:
        return QNetwork(self.bits, self.actions, self.horizon, self.config.hidden, heads, key=key)

    def _plan(
        self, models: ModelSet, value: QState, replay: Replay, key: Key, t: Array
    ) -> tuple[Policy, Float[Array, ""]]:
        """Line 5. Searching planners plan while they act; here the value they may use is brought up to date."""
        config = self.config
        if self.needs_value:
            settings = config.value(config.value_updates)
            key_fit = key_for(key, "fit value", t)
            fitted, _ = fit_value(value, models.members, replay, key_fit, "explore", settings, self.actions)
            # Nothing to imagine from before the first episode.
            value = jax.tree.map(lambda new, old: jnp.where(replay.size > 0, new, old), fitted, value)
        policy = Policy(models, value)
        if config.planner == "value":
            v_explore = start_value(value, replay)
        elif config.planner == "mcts":
            start = replay.rows.obs[replay.recent]
            found = self._search(policy, key_for(key, "v_explore", t), start, jnp.array(0, jnp.int32))
            v_explore = jnp.where(replay.size > 0, found.value, jnp.inf)
        else:
            v_explore = jnp.array(jnp.inf)
        return policy, v_explore

    def _search(self, policy: Policy, key: Key, obs: Observation, time: Array) -> mcts.Plan:
        settings = self.config.mcts(self.horizon, self.actions)
        return mcts.plan(policy.models.members, policy.value.online, obs, time, key, "explore", settings)

    def _explore_action(self, policy: Policy, key: Key, obs: Observation, time: Array) -> Action:
        if self.config.planner == "value":
            return greedy(policy.value, obs, time)
        if self.config.planner == "mcts":
            return self._search(policy, key, obs, time).action
        return jax.random.randint(key, (), 0, self.actions)

    def _collect(
        self, env: AbstractEnvironment, policy: Policy, replay: Replay, key: Key, t: Array
    ) -> tuple[Replay, Episodes]:
        """Line 7: n episodes of the exploration policy."""
        uniform = replay.size < jnp.maximum(self.config.uniform_transitions, 1)

        def act(key: Key, obs: Observation, time: Array) -> Action:
            key_uniform, key_plan = jax.random.split(key)
            any_action = jax.random.randint(key_uniform, (), 0, self.actions)
            return jax.lax.cond(
                uniform, lambda: any_action, lambda: self._explore_action(policy, key_plan, obs, time)
            )

        keys = jax.random.split(key_for(key, "collect", t), self.config.episodes_per_epoch)
        episodes = jax.vmap(lambda key: rollout(env, act, key))(keys)
        return replay.append(episodes), self._describe(policy, episodes)

    def _describe(self, policy: Policy, episodes: Trajectory) -> Episodes:
        config = self.config

        def disagreement(obs: Observation, action: Action, time: Array) -> Float[Array, ""]:
            predicted = predict(policy.models.members, obs, action, time)
            return max_disagreement(predicted, config.distance, config.reward_scale)

        each_step = jax.vmap(disagreement)
        steps = jnp.arange(self.horizon)
        along = jax.vmap(each_step, in_axes=(0, 0, None))(episodes.obs, episodes.action, steps)
        return Episodes(
            jax.vmap(episode_return)(episodes),
            jnp.sum(episodes.valid, axis=1),
            jnp.sum(jnp.where(episodes.valid, along, 0.0), axis=1),
        )

    def _update_models(
        self, models: ModelSet, replay: Replay, key: Key, t: Array
    ) -> tuple[ModelSet, Float[Array, ""]]:
        """Line 8."""
        return update_model_set(models, replay, key_for(key, "fit models", t), self.config.fit(self.bits))

    def _exploit(self, models: ModelSet, replay: Replay, key: Key) -> Policy:
        """Lines 10 to 12: a fresh value for the real reward."""
        return self._train_exploit(self.untrained(models, key), replay, key, 0, self.config.exploit_updates)

    def untrained(self, models: ModelSet, key: Key) -> Policy:
        """The exploit policy before any training."""
        heads = self.config.dqn_heads if self.config.exploit == "dqn" else self.config.value_heads
        settings = self.config.dqn(1).q if self.config.exploit == "dqn" else self.config.value(1).q
        return Policy(models, make_q_state(self._network(heads, key_for(key, "exploit network")), settings))

    def _refine(self, policy: Policy, replay: Replay, key: Key, t: Array) -> Policy:
        return self._train_exploit(policy, replay, key, t + 1, self.config.round_updates)

    def _train_exploit(
        self, policy: Policy, replay: Replay, key: Key, t: int | Array, updates: int
    ) -> Policy:
        key = key_for(key, "exploit", t)
        if self.config.exploit == "dqn":
            value, _ = fit_dqn(policy.value, replay, key, self.config.dqn(updates))
        elif self.config.exploit == "value":
            value, _ = fit_value(
                policy.value,
                policy.models.members,
                replay,
                key,
                "exploit",
                self.config.value(updates),
                self.actions,
            )
        else:
            value = policy.value
        return Policy(policy.models, value)

    def _exploit_action(self, policy: Policy, key: Key, obs: Observation, time: Array) -> Action:
        if self.config.exploit == "mcts":
            settings = self.config.mcts(self.horizon, self.actions, leaf="rollout")
            return mcts.plan(policy.models.members, None, obs, time, key, "exploit", settings).action
        return greedy(policy.value, obs, time)

    def _exploit_episodes(
        self, env: AbstractEnvironment, policy: Policy, replay: Replay, key: Key, t: Array, count: int
    ) -> tuple[Replay, Episodes]:
        """`count` greedy episodes, and the replay buffer with them added."""
        episodes = self._exploit_rollouts(env, policy, key_for(key, "exploit episodes", t), count)
        return replay.append(episodes), self._describe(policy, episodes)

    def _exploit_rollouts(self, env: AbstractEnvironment, policy: Policy, key: Key, count: int) -> Trajectory:
        def act(key: Key, obs: Observation, time: Array) -> Action:
            return self._exploit_action(policy, key, obs, time)

        return jax.vmap(lambda key: rollout(env, act, key))(jax.random.split(key, count))


_IN_USE: WeakValueDictionary[tuple, Lanes] = WeakValueDictionary()


def lanes_for(env: AbstractEnvironment, config: NeuralE3Config) -> Lanes:
    """The `Lanes` of this configuration; those still in use are shared, so that nothing is compiled twice."""
    key = (env.time_limit, env.num_actions, env.observation_space.shape, config)
    lanes = _IN_USE.get(key)
    if lanes is None:
        lanes = _IN_USE[key] = Lanes(env, config)
    return lanes


def over_lanes(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile `function` for arguments whose arrays carry a leading axis of lanes; plain numbers are shared by all."""

    @eqx.filter_jit
    def compiled(*args: Any) -> Any:
        arrays, static = eqx.partition(args, eqx.is_array)

        def one_lane(arrays: Any) -> Any:
            return function(*eqx.combine(arrays, static))

        lanes = jax.tree.leaves(arrays)[0].shape[0]
        if lanes == 1:
            out = one_lane(jax.tree.map(lambda leaf: leaf[0], arrays))
            return jax.tree.map(lambda leaf: leaf[None], out)
        if jax.default_backend() == "cpu":
            return jax.lax.map(one_lane, arrays)
        return jax.vmap(one_lane)(arrays)

    return compiled
