"""Neural-E³'s slots, compiled over several seeds, on functional environments and on those in Python alike."""

import functools
from collections import deque
from concurrent.futures import Executor
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.playing.open_loop import Planner, Plans
from e3rl.envs.playing.python_copies import Lesson, PythonCopies
from e3rl.envs.playing.rollout import episode_return
from e3rl.envs.spec import Spec
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.slots import Episodes, OneSeed
from e3rl.planners.base import Policy
from e3rl.replay import Replay
from e3rl.runs.handover import Steps, padded_episodes
from e3rl.runs.lanes import as_lane, lane_by_lane, lane_of, over_lanes
from e3rl.types import Key, Keys, Trajectory, key_for

Environment: TypeAlias = AbstractEnvironment | PythonCopies
"""Compiled together with the agent, lanes and all; or in Python, where there is one lane."""


class CompiledAgent:
    """The compiled functions of one configuration. Their arguments are lanes, one for each seed."""

    def __init__(self, spec: Spec, config: NeuralE3Config):
        self.one = one = OneSeed(spec, config)
        self.spec = spec
        self.config = config
        self.init = over_lanes(one.fresh)
        self.plan = over_lanes(one.plan)
        self.update_models = over_lanes(one.update_models)
        self.exploit = over_lanes(one.exploit)
        self.refine = over_lanes(one.refine)
        self.absorb = over_lanes(one.absorb)
        self.explore_plans = eqx.filter_jit(one.explore_plans)
        self.exploit_plans = eqx.filter_jit(one.exploit_plans)
        self._collect = over_lanes(one.collect)
        self._begin = over_lanes(one.begin)
        self._play_on = over_lanes(one.play_on)
        self._learn_inside = over_lanes(one.learn_inside)
        self._is_surprised = over_lanes(one.is_surprised)
        self._exploit_episodes = over_lanes(one.exploit_episodes)
        self._evaluate = over_lanes(one.evaluate)
        self._compiled_ahead = False

    def compile_ahead(self, helper: Executor, env: Environment, keys: Keys, fresh: bool) -> None:
        """What is asked for after `init`, in that order; once, since it is kept. A `fresh` agent begins with uniform
        play. On a CPU the first plan is left to whoever asks for it, while the helper compiles what comes then."""
        if self._compiled_ahead:
            return
        self._compiled_ahead = True
        t, yes = jnp.zeros(len(keys), jnp.int32), jnp.ones(len(keys), bool)
        models, value, replay = eqx.filter_eval_shape(jax.vmap(self.one.fresh), keys)
        policy = Policy(models, value, replay.scale)
        exploiting = eqx.filter_eval_shape(jax.vmap(self.one.untrained), models, replay.scale, keys)
        playing = None
        if isinstance(env, AbstractEnvironment) and self.config.explore.update_every > 0:
            playing = eqx.filter_eval_shape(jax.vmap(self.one.begin), env, keys, t)

        def explore(fresh: bool) -> None:
            if playing is not None:
                self._play_on.compile_ahead(helper, env, playing, policy, replay, keys, t, yes, fresh)
            elif isinstance(env, AbstractEnvironment):
                self._collect.compile_ahead(helper, env, policy, replay, keys, t, fresh)

        if not lane_by_lane():
            self.plan.compile_ahead(helper, models, value, replay, keys, t)
        if fresh:
            explore(True)
        self.update_models.compile_ahead(helper, models, replay, keys, t)
        explore(False)
        self.exploit.compile_ahead(helper, models, replay, keys)
        rounds, judged = self.config.rounds, self.config.evaluation_episodes
        if isinstance(env, AbstractEnvironment):
            for count in dict.fromkeys([rounds.episodes, judged] if rounds.count > 0 else [judged]):
                self._exploit_episodes.compile_ahead(helper, env, exploiting, replay, keys, t, count)
        if rounds.count > 1 and rounds.updates > 0:
            self.refine.compile_ahead(helper, exploiting, replay, keys, t)

    def collect(
        self,
        env: Environment,
        policy: Policy,
        replay: Replay,
        keys: Keys,
        t: Array,
        before: int = 0,
        over: Bool[np.ndarray, " lanes"] | None = None,
    ) -> tuple[Policy, Replay, Episodes]:
        """Line 7: n episodes of the exploration policy in every lane, and what has become of it where it learns on the
        way; `before` were played earlier, which only counts in the message of `EpisodeBroken`."""
        fresh = int(t[0]) == 0  # known here, so that nothing is planned in vain
        if self.config.explore.update_every > 0:
            if isinstance(env, AbstractEnvironment):
                return self._collect_learning(env, policy, replay, keys, t, fresh)
            return self._collect_learning_in_python(env, policy, replay, keys, t, fresh, before)
        if isinstance(env, AbstractEnvironment):
            return policy, *self._collect(env, policy, replay, keys, t, fresh, over=over)
        only, uniform = lane_of(policy), self.one.is_uniform(lane_of(replay), fresh)

        def plan(*now: Any) -> Plans:
            return self.explore_plans(only, uniform, *now)

        key = key_for(keys[0], "collect", t[0])
        memory, together = self.one.explore_memory(env.copies), not self.config.planner.searches
        played = self._play(env, plan, memory, key, self.config.explore.per_epoch, together, before)
        return policy, *self.absorb(policy, replay, played)

    def _collect_learning(
        self, env: AbstractEnvironment, policy: Policy, replay: Replay, keys: Keys, t: Array, fresh: bool
    ) -> tuple[Policy, Replay, Episodes]:
        """An episode in every lane, with learning on the way."""
        playing = self._begin(env, keys, t)
        parts: list[Episodes] = []
        learns = jnp.ones(len(keys), bool)
        while True:
            first = fresh and not parts
            playing, replay, part, surprised = self._play_on(
                env, playing, policy, replay, keys, t, learns, first
            )
            parts.append(part)
            running = playing.running[:, 0]
            if not running.any():
                return policy, replay, functools.reduce(Episodes.and_then, parts)
            learns = running & surprised
            if learns.any():
                policy = self._learn_inside(policy, replay, keys, t, learns, jnp.full_like(t, len(parts)))

    def _collect_learning_in_python(
        self,
        env: PythonCopies,
        policy: Policy,
        replay: Replay,
        keys: Keys,
        t: Array,
        fresh: bool,
        before: int,
    ) -> tuple[Policy, Replay, Episodes]:
        every, forgotten = self.one.update_every, self.one.explore_memory(1)
        parts: list[Episodes] = []
        only, uniform = lane_of(policy), self.one.is_uniform(lane_of(replay), fresh)
        learned = False

        def plan(keys: Keys, obs: Any, time: Any, running: Any, memory: Any) -> Plans:
            nonlocal learned
            if learned:  # what was planned by the models of before is better forgotten
                memory, learned = forgotten, False
            return self.explore_plans(only, uniform, keys, obs, time, running, memory)

        def learn(played: Trajectory, ended: bool) -> None:
            nonlocal policy, replay, only, uniform, learned
            first = jnp.full((1, 1), every * len(parts), jnp.int32)
            replay, part = self.absorb(policy, replay, self.one_lane(played), first)
            parts.append(part)
            if not ended and self._is_surprised(policy, replay)[0]:
                running, i = jnp.ones(1, bool), jnp.full_like(t, len(parts))
                policy, learned = self._learn_inside(policy, replay, keys, t, running, i), True
                only = lane_of(policy)
            uniform = self.one.is_uniform(lane_of(replay), False)

        key = key_for(keys[0], "collect", t[0])
        self._play(env, plan, forgotten, key, 1, True, before, Lesson(every, learn))
        return policy, replay, functools.reduce(Episodes.and_then, parts)

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
            return self._exploit_episodes(env, policy, replay, keys, t, count)
        key = key_for(keys[0], "exploit episodes", t[0])
        return self.absorb(policy, replay, self._play_greedily(env, policy, key, count, before))

    def evaluate(self, env: Environment, policy: Policy, keys: Keys, count: int) -> Float[Array, "lanes n"]:
        """The returns of `count` greedy episodes in every lane."""
        if isinstance(env, AbstractEnvironment):
            return self._evaluate(env, policy, keys, count)
        episodes = self._play_greedily(env, policy, key_for(keys[0], "evaluate"), count)
        return jax.vmap(jax.vmap(episode_return))(episodes)

    def _play_greedily(
        self, env: PythonCopies, policy: Policy, key: Key, count: int, before: int = 0
    ) -> Trajectory:
        only = lane_of(policy)
        memory, together = self.one.exploit_memory(env.copies), not self.config.exploit.searches
        return self._play(
            env, lambda *now: self.exploit_plans(only, *now), memory, key, count, together, before
        )

    def _play(
        self,
        env: PythonCopies,
        plan: Planner,
        memory: Any,
        key: Key,
        count: int,
        together: bool,
        before: int,
        lesson: Lesson | None = None,
    ) -> Trajectory:
        """Episodes of an environment in Python, as those of a single lane. Copies wait for each other `together`, or
        where their steps are taken in this process anyway."""
        storage = self.one.storage

        def plan_all(
            key: Key, episodes: np.ndarray, obs: np.ndarray, time: np.ndarray, wanted: np.ndarray
        ) -> Plans:
            nonlocal memory
            plans = plan(_plan_keys(key, episodes, time), obs.astype(storage), time, wanted, memory)
            memory = plans.memory
            return plans

        return self.one_lane(env.play(plan_all, key, count, before, lesson, together or not env.asynchronous))

    def inherit(self, steps: Steps, policy: Policy, replay: Replay) -> tuple[Replay, int]:
        """The replay buffer with another agent's experience in it, and the epochs that this counts for."""
        per_epoch = self.config.explore.per_epoch
        first = np.flatnonzero(steps.time == 0)
        for start in range(0, len(first), per_epoch):
            episodes = padded_episodes(steps, first[start : start + per_epoch], per_epoch, self.spec.horizon)
            replay, _ = self.absorb(policy, replay, self.one_lane(episodes))
        return replay, -(-len(first) // per_epoch)

    def one_lane(self, episodes: Trajectory) -> Trajectory:
        """Episodes that were played in Python, as those of a single lane."""
        storage = self.one.storage
        frames = episodes._replace(
            obs=episodes.obs.astype(storage), next_obs=episodes.next_obs.astype(storage)
        )
        return as_lane(jax.tree.map(jnp.asarray, frames))


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0, 0))
def _plan_keys(key: Key, episode: Int[Array, ""], time: Int[Array, ""]) -> Key:
    return jax.random.fold_in(jax.random.fold_in(key, episode), time)


KEPT = 4
"""Configurations of which programs are kept though nobody uses them: who trains in a loop compiles once."""
_IN_USE: WeakValueDictionary[tuple, CompiledAgent] = WeakValueDictionary()
_LATEST: deque[CompiledAgent] = deque(maxlen=KEPT)


def compiled_agent(spec: Spec, config: NeuralE3Config) -> CompiledAgent:
    """The `CompiledAgent` of this configuration; those in use and the latest are shared: none is compiled twice."""
    agent = _IN_USE.get((spec, config))
    if agent is None:
        agent = _IN_USE[spec, config] = CompiledAgent(spec, config)
        _LATEST.append(agent)
    return agent


def forget() -> None:
    """What is asked for next is compiled again, as in a new process."""
    _LATEST.clear()
    _IN_USE.clear()
