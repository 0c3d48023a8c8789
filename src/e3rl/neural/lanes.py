"""Neural-E³'s slots for Algorithm 1, compiled: every function works on several seeds at once, each with its own
environment. On a GPU the seeds are one vmapped program; on a CPU, where that gains next to nothing, they take turns."""

import math
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakValueDictionary

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from e3rl.envs.base import AbstractEnvironment, Observation, episode_return, rollout
from e3rl.envs.encoding import Encoding
from e3rl.envs.open_loop import Planner, Plans, rollout_plans
from e3rl.envs.vector import HostEnvironments
from e3rl.exploit.dqn import fit_dqn
from e3rl.models.ensemble import make_ensemble, predict
from e3rl.models.fit import ModelSet, make_model_set, update_model_set
from e3rl.models.qnetwork import QNetwork, QState, make_q_state
from e3rl.neural.acting import Acting, Policy, choose
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.families import dynamics
from e3rl.planners.utility import max_disagreement
from e3rl.planners.value import Imagined, fit_value, imagine, imagined_return, start_value
from e3rl.replay import Replay, Scale
from e3rl.types import Action, Flag, Key, Keys, Trajectory, UserError

SNAPSHOT_STARTS = 20
"""Starts of episodes from which a policy is judged in imagination."""
LARGEST_BUFFER = 8 * 2**30
"""Bytes of observations that a replay buffer may take."""


def key_for(key: Key, name: str, index: int | Array = 0) -> Key:
    """The seed's key for one named use at one epoch; resuming needs no other state."""
    return jax.random.fold_in(jax.random.fold_in(key, zlib.crc32(name.encode()) & 0x7FFFFFFF), index)


class Episodes(NamedTuple):
    """What is reported about the episodes of one epoch."""

    returns: Float[Array, " n"]
    lengths: Int[Array, " n"]
    disagreement: Float[Array, " n"]
    terminated: Bool[Array, " n"]
    """Ended by the environment and not by the time limit."""
    start: Shaped[Array, "n *obs"]
    """The first observations."""


Environment: TypeAlias = AbstractEnvironment | HostEnvironments
"""Compiled together with the agent, lanes and all; or in Python, where there is one lane."""


class Lanes:
    """The compiled functions for one configuration; a lane is a seed."""

    def __init__(self, env: Environment, config: NeuralE3Config):
        self.config = config
        self.horizon = env.time_limit
        self.actions = env.num_actions
        self.encoding = encoding_of(env)
        self.acting = Acting(config, self.horizon, self.actions)
        self.entries = math.prod(self.encoding.shape)
        # A byte an entry where entries are zeros and ones.
        whole = all(part.kind != "continuous" for part in self.encoding.parts)
        self.storage = jnp.int8 if whole else jnp.float32
        self.make_dynamics = dynamics(config, self.encoding, self.actions, self.horizon)
        self.epochs = -(-config.exploration_episodes(self.horizon) // config.episodes_per_epoch)
        rounds = config.exploit_rounds * config.round_episodes
        # An epoch more than planned, for what is kept of one that an environment broke.
        self.capacity = ((self.epochs + 1) * config.episodes_per_epoch + rounds) * self.horizon
        self._refuse_too_large()
        self.needs_value = config.planner == "value" or (config.planner == "mcts" and config.leaf == "value")
        self.init = over_lanes(self.fresh)
        self.plan = over_lanes(self._plan)
        self.update_models = over_lanes(self._update_models)
        self.exploit = over_lanes(self._exploit)
        self.refine = over_lanes(self._refine)
        self.absorb = over_lanes(self._absorb)
        self.explore_plans = eqx.filter_jit(self.acting.explore_plans)
        self.exploit_plans = eqx.filter_jit(self.acting.exploit_plans)
        self._compiled_collect = over_lanes(self._collect)
        self._compiled_exploit_episodes = over_lanes(self._exploit_episodes)
        self._compiled_evaluate = over_lanes(self._evaluate)

    def collect(
        self, env: Environment, policy: Policy, replay: Replay, keys: Keys, t: Array, before: int = 0
    ) -> tuple[Replay, Episodes]:
        """Line 7: n episodes of the exploration policy in every lane; `before` were played earlier, which only counts
        in the message of `EpisodeBroken`."""
        fresh = int(t[0]) == 0  # known here, so that nothing is planned in vain
        if isinstance(env, AbstractEnvironment):
            return self._compiled_collect(env, policy, replay, keys, t, fresh)
        only, uniform = _first_lane(policy), self._is_uniform(_first_lane(replay), fresh)

        def plan(keys: Keys, obs: Observation, time: Array, running: Array) -> Plans:
            return self.explore_plans(only, uniform, keys, obs, time, running)

        key = key_for(keys[0], "collect", t[0])
        return self.absorb(policy, replay, self._play(env, plan, key, self.config.episodes_per_epoch, before))

    def exploit_episodes(
        self,
        env: Environment,
        policy: Policy,
        replay: Replay,
        keys: Keys,
        t: Array,
        count: int,
        before: int = 0,
    ) -> tuple[Replay, Episodes]:
        """`count` greedy episodes in every lane, and the replay buffers with them added."""
        if isinstance(env, AbstractEnvironment):
            return self._compiled_exploit_episodes(env, policy, replay, keys, t, count)
        key = key_for(keys[0], "exploit episodes", t[0])
        return self.absorb(policy, replay, self._play_greedily(env, policy, key, count, before))

    def evaluate(self, env: Environment, policy: Policy, keys: Keys, count: int) -> Float[Array, "lanes n"]:
        """The returns of `count` greedy episodes in every lane."""
        if isinstance(env, AbstractEnvironment):
            return self._compiled_evaluate(env, policy, keys, count)
        episodes = self._play_greedily(env, policy, key_for(keys[0], "evaluate"), count)
        return jax.vmap(jax.vmap(episode_return))(episodes)

    def _play_greedily(
        self, env: HostEnvironments, policy: Policy, key: Key, count: int, before: int = 0
    ) -> Trajectory:
        only = _first_lane(policy)
        return self._play(env, lambda *now: self.exploit_plans(only, *now), key, count, before)

    def _play(self, env: HostEnvironments, plan: Planner, key: Key, count: int, before: int) -> Trajectory:
        """Episodes of an environment in Python, as those of a single lane."""

        def plan_all(key: Key, obs: np.ndarray, time: np.ndarray, running: np.ndarray) -> Plans:
            keys = jax.random.split(key, env.copies)
            return plan(keys, jnp.asarray(obs, self.storage), jnp.asarray(time), jnp.asarray(running))

        return self.one_lane(env.play(plan_all, key, count, before))

    def one_lane(self, episodes: Trajectory) -> Trajectory:
        """Episodes that were played in Python, as those of a single lane."""
        frames = episodes._replace(
            obs=episodes.obs.astype(self.storage), next_obs=episodes.next_obs.astype(self.storage)
        )
        return jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], frames)

    def _refuse_too_large(self) -> None:
        size = 2 * self.capacity * self.entries * np.dtype(self.storage).itemsize
        if size > LARGEST_BUFFER:
            raise UserError(
                f"{self.capacity} transitions of {self.entries} entries would take {size / 2**30:.0f} GiB: lower "
                "explore_episodes, or shrink the observations (gymnasium.wrappers.ResizeObservation)"
            )

    def fresh(self, key: Key) -> tuple[ModelSet, QState, Replay]:
        config = self.config
        members = make_ensemble(self.make_dynamics, config.ensemble_size, key_for(key, "models"))
        models = make_model_set(members, config.fit(self.entries))
        value = make_q_state(
            self._network(config.value_heads, key_for(key, "value")), config.explore_value().q
        )
        obs = jnp.zeros(self.encoding.shape, self.storage)
        return models, value, Replay.empty(self.capacity, obs, self.encoding.low, self.encoding.high)

    def _network(self, heads: bool, key: Key) -> QNetwork:
        horizon = self.horizon if self.config.clock else None
        return QNetwork(self.encoding.shape, self.actions, horizon, self.config.hidden, heads, key=key)

    def observe(self, obs: Observation) -> Observation:
        return self.encoding.encode(obs).astype(self.storage)

    def _plan(
        self, models: ModelSet, value: QState, replay: Replay, key: Key, t: Array
    ) -> tuple[Policy, Float[Array, ""]]:
        """Line 5. Searching planners plan while they act; here the value they may use is brought up to date."""
        config = self.config
        if self.needs_value:
            settings = config.explore_value()
            key_fit = key_for(key, "fit value", t)
            table = imagine(models.members, replay, "explore", settings, self.actions)
            fitted, _ = fit_value(
                value, models.members, replay, key_fit, "explore", settings, self.actions, table
            )
            # Nothing to imagine from before the first episode.
            value = jax.tree.map(lambda new, old: jnp.where(replay.size > 0, new, old), fitted, value)
        policy = Policy(models, value, replay.scale)
        start, key_value = replay.rows.obs[replay.recent], key_for(key, "v_explore", t)
        if config.planner == "value":
            v_explore = start_value(value, replay)
        elif config.planner == "graph" and config.epsilon > 0:  # a search of its own, for line 6 alone
            v_explore = self.acting.search_graph(
                policy, key_value, start, jnp.array(0, jnp.int32), "explore"
            ).value
        elif config.planner == "mcts":
            v_explore = self.acting.search_tree(
                policy, key_value, start, jnp.array(0, jnp.int32), "explore"
            ).value
        else:
            return policy, jnp.array(jnp.inf)
        return policy, jnp.where(replay.size > 0, v_explore, jnp.inf)

    def _is_uniform(self, replay: Replay, fresh: bool) -> bool | Flag:
        """Is it too early to plan? Known before anything runs unless `uniform_transitions` says otherwise."""
        return fresh or (
            self.config.uniform_transitions > 1 and replay.size < self.config.uniform_transitions
        )

    def _collect(
        self, env: AbstractEnvironment, policy: Policy, replay: Replay, key: Key, t: Array, fresh: bool
    ) -> tuple[Replay, Episodes]:
        uniform = self._is_uniform(replay, fresh)
        keys = jax.random.split(key_for(key, "collect", t), self.config.episodes_per_epoch)
        if self.acting.open_loop("explore"):

            def plan(keys: Keys, obs: Observation, time: Array, running: Array) -> Plans:
                return self.acting.explore_plans(policy, uniform, keys, obs, time, running)

            episodes = rollout_plans(env, plan, keys, self.observe)
        else:

            def act(key: Key, obs: Observation, time: Array) -> Action:
                key_uniform, key_plan = jax.random.split(key)
                return choose(
                    uniform,
                    lambda: jax.random.randint(key_uniform, (), 0, self.actions),
                    lambda: self.acting.action(policy, key_plan, obs, time, "explore"),
                )

            episodes = jax.vmap(lambda key: rollout(env, act, key, self.observe))(keys)
        return self._absorb(policy, replay, episodes)

    def _absorb(self, policy: Policy, replay: Replay, episodes: Trajectory) -> tuple[Replay, Episodes]:
        """The episodes into the buffer, and what is reported about them."""
        config = self.config

        def disagreement(obs: Observation, action: Action, time: Array) -> Float[Array, ""]:
            predicted = predict(policy.models.members, policy.scale(obs), action, time)
            return max_disagreement(predicted, config.distance, config.reward_scale)

        steps = jnp.broadcast_to(jnp.arange(self.horizon), episodes.action.shape)
        flat = jax.tree.map(
            lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (episodes.obs, episodes.action, steps)
        )
        along = jax.lax.map(lambda step: disagreement(*step), flat, batch_size=200).reshape(steps.shape)
        described = Episodes(
            jax.vmap(episode_return)(episodes),
            jnp.sum(episodes.valid, axis=1),
            jnp.sum(jnp.where(episodes.valid, along, 0.0), axis=1),
            jnp.any(episodes.valid & episodes.terminated, axis=1),
            episodes.obs[:, 0],
        )
        return replay.append(episodes), described

    def _update_models(
        self, models: ModelSet, replay: Replay, key: Key, t: Array
    ) -> tuple[ModelSet, Float[Array, ""]]:
        """Line 8."""
        return update_model_set(models, replay, key_for(key, "fit models", t), self.config.fit(self.entries))

    def _exploit(self, models: ModelSet, replay: Replay, key: Key) -> Policy:
        """Lines 10 to 12: a fresh value for the real reward."""
        untrained = self.untrained(models, replay.scale, key)
        return self._train_exploit(
            untrained, replay, key, 0, self.config.exploit_updates, self.config.snapshots
        )

    def untrained(self, models: ModelSet, scale: Scale, key: Key) -> Policy:
        """The exploit policy before any training."""
        heads = self.config.dqn_heads if self.config.exploit == "dqn" else self.config.value_heads
        settings = self.config.dqn(1).q if self.config.exploit == "dqn" else self.config.exploit_value(1).q
        network = self._network(heads, key_for(key, "exploit network"))
        return Policy(models, make_q_state(network, settings), scale)

    def _refine(self, policy: Policy, replay: Replay, key: Key, t: Array) -> Policy:
        # Real episodes will judge it.
        return self._train_exploit(policy, replay, key, t + 1, self.config.round_updates, snapshots=1)

    def _train_exploit(
        self, policy: Policy, replay: Replay, key: Key, t: int | Array, updates: int, snapshots: int
    ) -> Policy:
        key, value = key_for(key, "exploit", t), policy.value
        if self.config.exploit in ("value", "dqn"):
            if snapshots == 1:
                value = self._fit_exploit(policy, value, replay, key, updates, self._table(policy, replay))
            else:
                value = self._best_snapshot(policy, replay, key, updates // snapshots)
        return Policy(policy.models, value, replay.scale)

    def _table(self, policy: Policy, replay: Replay) -> Imagined | None:
        if self.config.exploit != "value":
            return None
        settings = self.config.exploit_value(1)
        return imagine(policy.models.members, replay, "exploit", settings, self.actions)

    def _fit_exploit(
        self, policy: Policy, value: QState, replay: Replay, key: Key, updates: int, table: Imagined | None
    ) -> QState:
        if self.config.exploit == "dqn":
            return fit_dqn(value, replay, key, self.config.dqn(updates))[0]
        settings, members = self.config.exploit_value(updates), policy.models.members
        return fit_value(value, members, replay, key, "exploit", settings, self.actions, table)[0]

    def _best_snapshot(self, policy: Policy, replay: Replay, key: Key, updates: int) -> QState:
        """Fitted values keep fluctuating: of those on the way, the one whose greedy policy the models like best."""
        starts, table = replay.starts(SNAPSHOT_STARTS), self._table(policy, replay)

        def fit_on(carry: tuple[QState, QState, Array], key: Key) -> tuple:
            value, best, best_score = carry
            key_fit, key_judge = jax.random.split(key)
            value = self._fit_exploit(policy, value, replay, key_fit, updates, table)
            score = imagined_return(value.online, policy.models.members, starts, self.horizon, key_judge)
            better = score >= best_score
            best = jax.tree.map(lambda new, old: jnp.where(better, new, old), value, best)
            return (value, best, jnp.where(better, score, best_score)), None

        start = (policy.value, policy.value, jnp.array(-jnp.inf))
        best: QState = jax.lax.scan(fit_on, start, jax.random.split(key, self.config.snapshots))[0][1]
        return best

    def _exploit_episodes(
        self, env: AbstractEnvironment, policy: Policy, replay: Replay, key: Key, t: Array, count: int
    ) -> tuple[Replay, Episodes]:
        episodes = self._exploit_rollouts(env, policy, key_for(key, "exploit episodes", t), count)
        return self._absorb(policy, replay, episodes)

    def _evaluate(self, env: AbstractEnvironment, policy: Policy, key: Key, count: int) -> Float[Array, " n"]:
        return jax.vmap(episode_return)(self._exploit_rollouts(env, policy, key_for(key, "evaluate"), count))

    def _exploit_rollouts(self, env: AbstractEnvironment, policy: Policy, key: Key, count: int) -> Trajectory:
        keys = jax.random.split(key, count)
        if self.acting.open_loop("exploit"):

            def plan(keys: Keys, obs: Observation, time: Array, running: Array) -> Plans:
                return self.acting.exploit_plans(policy, keys, obs, time, running)

            return rollout_plans(env, plan, keys, self.observe)

        def act(key: Key, obs: Observation, time: Array) -> Action:
            return self.acting.action(policy, key, obs, time, "exploit")

        return jax.vmap(lambda key: rollout(env, act, key, self.observe))(keys)


def encoding_of(env: Environment) -> Encoding:
    return env.encoding if isinstance(env, HostEnvironments) else Encoding(env.observation_space)


def _first_lane(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], tree)


_IN_USE: WeakValueDictionary[tuple, Lanes] = WeakValueDictionary()


def lanes_for(env: Environment, config: NeuralE3Config) -> Lanes:
    """The `Lanes` of this configuration; those still in use are shared, so that nothing is compiled twice."""
    key = (env.time_limit, env.num_actions, encoding_of(env).signature, config)
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
