"""Neural-E³'s filling of Algorithm 1 for one seed: pure functions, to be compiled over several (`compiled_agent`)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from e3rl.envs.base import AbstractEnvironment, Observation
from e3rl.envs.playing.open_loop import Plans, Playing, begin, go_on, rollout_plans
from e3rl.envs.playing.rollout import episode_return, rollout
from e3rl.envs.spec import Spec
from e3rl.models import refuse_misfit
from e3rl.models.base import DiceTelling, Problem
from e3rl.models.dice import Scout
from e3rl.models.ensemble import Ensemble, make_ensemble, predict
from e3rl.models.fit import ModelSet, finish_model_set, make_model_set, update_model_set
from e3rl.neural.config import NeuralE3Config
from e3rl.planners.base import Policy
from e3rl.replay import Replay, Scale
from e3rl.runs.lanes import lane_of
from e3rl.types import Action, Flag, Key, Keys, Trajectory, key_for
from e3rl.values.update import QState


class Episodes(NamedTuple):
    """What is reported about the episodes of one epoch."""

    returns: Float[Array, " n"]
    lengths: Int[Array, " n"]
    disagreement: Float[Array, " n"]
    unknown: Float[Array, " n"]
    """How much of it was about what had not been tried, where the planner can tell."""
    terminated: Bool[Array, " n"]
    """Ended by the environment and not by the time limit."""
    start: Shaped[Array, "n *obs"]
    """The first observations."""

    def and_then(self, later: "Episodes") -> "Episodes":
        """Episodes of which `later` is the next part."""
        return Episodes(
            self.returns + later.returns,
            self.lengths + later.lengths,
            self.disagreement + later.disagreement,
            self.unknown + later.unknown,
            self.terminated | later.terminated,
            self.start,
        )


class OneSeed:
    """The slots of one configuration. Every function takes the seed's key and, where it matters, the epoch."""

    def __init__(self, spec: Spec, config: NeuralE3Config):
        refuse_misfit(config.model, spec.encoding)
        self.config = config
        self.problem = Problem(spec, config.clock)
        self.encoding = spec.encoding
        # A byte an entry where entries are zeros and ones.
        whole = all(part.kind != "continuous" for part in spec.encoding.parts)
        self.storage = jnp.int8 if whole else jnp.float32
        self.make_dynamics = config.model.make(self.problem)
        self.epochs = config.explore.epochs(spec.horizon)
        self.update_every = min(config.explore.update_every, spec.horizon)
        # An epoch more than planned, for what is kept of one that an environment broke.
        self.capacity = ((self.epochs + 1) * config.explore.per_epoch + config.rounds.total) * spec.horizon

    def fresh(self, key: Key) -> tuple[ModelSet, QState | None, Replay]:
        """Models, the planner's value and the replay buffer before the first episode."""
        config = self.config
        members = make_ensemble(self.make_dynamics, config.fit.members, key_for(key, "models"))
        models = make_model_set(members, config.fit)
        if config.tells_dice:
            member = self.make_dynamics(key_for(key, "scout"))
            assert isinstance(member, DiceTelling)
            models = models._replace(scout=Scout.fresh(member, self.problem.actions, self.problem.entries))
            models = models.heeding()
        value = _heeding(config.planner.fresh(self.problem, key_for(key, "value")), models)
        obs = jnp.zeros(self.encoding.shape, self.storage)
        low, high = self.encoding.low, self.encoding.high
        return models, value, Replay.empty(self.capacity, obs, low, high, config.fit.reward_units)

    def observe(self, obs: Observation) -> Observation:
        return self.encoding.encode(obs).astype(self.storage)

    def plan(
        self, models: ModelSet, value: QState | None, replay: Replay, key: Key, t: Array
    ) -> tuple[Policy, Float[Array, ""]]:
        """Line 5. Searching planners plan while they act; here the value they may use is brought up to date."""
        planner, utility = self.config.planner, self.config.utility.explore
        key_fit, key_value = key_for(key, "fit value", t), key_for(key, "v_explore", t)
        value = _heeding(value, models)
        value = planner.prepare(value, models, replay, utility, self.problem, key_fit)
        policy = Policy(models, value, replay.scale)
        if not planner.estimates:
            return policy, jnp.array(jnp.inf)
        start = replay.rows.obs[replay.recent]  # of the newest episode
        found = planner.plan(policy, start, jnp.array(0, jnp.int32), key_value, utility, self.problem)
        return policy, jnp.where(replay.size > 0, found.value, jnp.inf)

    def is_uniform(self, replay: Replay, fresh: bool) -> bool | Flag:
        """Is it too early to plan? Known before anything runs unless `uniform_transitions` says otherwise."""
        enough = self.config.explore.uniform_transitions
        return fresh or (enough > 1 and replay.size < enough)

    def collect(
        self, env: AbstractEnvironment, policy: Policy, replay: Replay, key: Key, t: Array, fresh: bool
    ) -> tuple[Replay, Episodes]:
        """Line 7: n episodes of the exploration policy."""
        uniform = self.is_uniform(replay, fresh)
        keys = self._episode_keys(key, t)
        if self.config.planner.plan_by_plan:

            def plan(keys: Keys, *now: Any) -> Plans:
                return self.explore_plans(policy, uniform, keys, *now)

            memory = self.explore_memory(len(keys))
            return self.absorb(policy, replay, rollout_plans(env, plan, keys, self.observe, memory))

        def act(key: Key, obs: Observation, time: Array) -> Action:
            key_uniform, key_plan = jax.random.split(key)
            return choose(
                uniform,
                lambda: jax.random.randint(key_uniform, (), 0, self.problem.actions),
                lambda: self._explore_action(policy, key_plan, obs, time),
            )

        episodes = jax.vmap(lambda key: rollout(env, act, key, self.observe))(keys)
        return self.absorb(policy, replay, episodes)

    def begin(self, env: AbstractEnvironment, key: Key, t: Array) -> Playing:
        """An episode of line 7 that is to be learned from before it has ended."""
        playing = begin(env, self._episode_keys(key, t), self.observe)
        return playing._replace(memory=self.explore_memory(1))

    def play_on(
        self,
        env: AbstractEnvironment,
        playing: Playing,
        policy: Policy,
        replay: Replay,
        key: Key,
        t: Array,
        learned: Bool[Array, ""],
        fresh: bool,
    ) -> tuple[Playing, Replay, Episodes, Flag]:
        """The episode's next steps, until there may be something to learn again, and whether there is."""
        uniform, keys = self.is_uniform(replay, fresh), self._episode_keys(key, t)

        def plan(keys: Keys, *now: Any) -> Plans:
            return self.explore_plans(policy, uniform, keys, *now)

        # What was planned by the models of before is better forgotten.
        memory = jax.tree.map(
            lambda new, old: jnp.where(learned, new, old), self.explore_memory(len(keys)), playing.memory
        )
        now, played = go_on(env, plan, keys, playing._replace(memory=memory), self.update_every, self.observe)
        replay, described = self.absorb(policy, replay, played, playing.time)
        return now, replay, described, self.is_surprised(policy, replay)

    def is_surprised(self, policy: Policy, replay: Replay) -> Flag:
        """Whether the models foresaw the last steps so badly that an episode is interrupted to learn from them."""
        threshold = self.config.explore.surprise
        if threshold == 0.0:
            return jnp.array(True)
        index = replay.size - 1 - jnp.arange(self.update_every, dtype=jnp.int32)
        rows = replay.take(jnp.maximum(index, 0))

        def losses(member: Ensemble) -> Float[Array, " steps"]:
            keys = jax.random.split(jax.random.key(0), self.update_every)
            return jax.vmap(member.loss)(rows.obs, rows, keys)[0]

        return jnp.max(jnp.mean(eqx.filter_vmap(losses)(policy.models.members), axis=0)) > threshold

    def explore_memory(self, episodes: int) -> Any:
        """What the explorer remembers at the beginning."""
        return self.config.planner.memories(self.problem, episodes)

    def exploit_memory(self, episodes: int) -> Any:
        return self.config.exploit.memories(self.problem, episodes)

    def learn_inside(
        self, policy: Policy, replay: Replay, key: Key, t: Array, running: Array, i: Array
    ) -> Policy:
        """Lines 8 and 5 for the i-th time in the middle of an episode; nothing changes where it is over."""
        key = jax.random.fold_in(key_for(key, "inside the episode", t), i)
        now = jnp.array(0, jnp.int32)
        models, _ = self.update_models(policy.models, replay, key, now)
        learned, _ = self.plan(models, policy.value, replay, key, now)
        return jax.tree.map(lambda new, old: jnp.where(running, new, old), learned, policy)

    def _episode_keys(self, key: Key, t: Array) -> Keys:
        return jax.random.split(key_for(key, "collect", t), self.config.explore.per_epoch)

    def _explore_action(self, policy: Policy, key: Key, obs: Observation, time: Array) -> Action:
        utility = self.config.utility.explore
        return self.config.planner.plan(policy, obs, time, key, utility, self.problem).actions[0]

    def explore_plans(
        self,
        policy: Policy,
        uniform: bool | Flag,
        keys: Keys,
        obs: Observation,
        time: Array,
        running: Array,
        memory: Any = None,
    ) -> Plans:
        """Exploration's plans for several episodes, or uniformly random actions."""
        planner, utility = self.config.planner, self.config.utility.explore

        def planned() -> Plans:
            return planner.plan_many(policy, obs, time, keys, running, utility, self.problem, memory)

        def chance() -> Plans:
            length = jax.eval_shape(planned).actions.shape[1]
            draw = jax.vmap(lambda key: jax.random.randint(key, (length,), 0, self.problem.actions))
            return Plans(draw(keys), jnp.ones(time.shape, jnp.int32), memory)

        return choose(uniform, chance, planned)

    def exploit_plans(
        self,
        policy: Policy,
        keys: Keys,
        obs: Observation,
        time: Array,
        running: Array,
        memory: Any = None,
    ) -> Plans:
        """Exploitation's plans for several episodes."""
        utility = self.config.utility.exploit
        return self.config.exploit.plan_many(policy, obs, time, keys, running, utility, self.problem, memory)

    def absorb(
        self, policy: Policy, replay: Replay, episodes: Trajectory, first: Int[Array, " n"] | None = None
    ) -> tuple[Replay, Episodes]:
        """The episodes into the buffer, and what is reported about them. Parts of episodes begin at the time steps
        `first`."""

        def disagreement(obs: Observation, action: Action, time: Array) -> Float[Array, ""]:
            predicted = predict(policy.models.members, policy.scale(obs), action, time)
            return self.config.utility.disagreement(predicted)

        steps = jnp.broadcast_to(jnp.arange(episodes.action.shape[1]), episodes.action.shape)
        steps = steps if first is None else steps + first[:, None]
        flat = jax.tree.map(
            lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (episodes.obs, episodes.action, steps)
        )
        along = jax.lax.map(lambda step: disagreement(*step), flat, batch_size=200).reshape(steps.shape)
        unknown = self.config.planner.met_unknown(
            along, self.config.utility.disagreement, policy.models.members, replay
        )
        described = Episodes(
            jax.vmap(episode_return)(episodes),
            jnp.sum(episodes.valid, axis=1),
            jnp.sum(jnp.where(episodes.valid, along, 0.0), axis=1),
            jnp.sum(jnp.where(episodes.valid, unknown, 0.0), axis=1),
            jnp.any(episodes.valid & episodes.terminated, axis=1),
            episodes.obs[:, 0],
        )
        same_epoch = None if first is None else jnp.all(first > 0)
        return replay.append(episodes, first, same_epoch), described

    def update_models(
        self, models: ModelSet, replay: Replay, key: Key, t: Array
    ) -> tuple[ModelSet, Float[Array, ""]]:
        """Line 8."""
        terms = self.config.model.loss_terms(self.problem.entries)
        if models.scout is not None:
            new = self.config.explore.per_epoch * self.problem.horizon
            models = models._replace(scout=models.scout.learned(replay, key_for(key, "scout", t), new))
            models = models.heeding()
        return update_model_set(models, replay, key_for(key, "fit models", t), self.config.fit, terms)

    def exploit(self, models: ModelSet, replay: Replay, key: Key) -> Policy:
        """Lines 10 to 12: a fresh value for the real reward."""
        terms = self.config.model.loss_terms(self.problem.entries)
        models = finish_model_set(models, replay, key_for(key, "finish models"), self.config.fit, terms)
        config, untrained = self.config, self.untrained(models, replay.scale, key)
        value = config.exploit.prepare(
            untrained.value, models, replay, config.utility.exploit, self.problem, key_for(key, "exploit", 0)
        )
        return untrained._replace(value=value)

    def untrained(self, models: ModelSet, scale: Scale, key: Key) -> Policy:
        """The exploit policy before any training."""
        value = self.config.exploit.fresh(self.problem, key_for(key, "exploit network"))
        return Policy(models, _heeding(value, models), scale)

    def refine(self, policy: Policy, replay: Replay, key: Key, t: Array) -> Policy:
        """The exploit policy after a round of more episodes (App. C.3)."""
        config, key = self.config, key_for(key, "exploit", t + 1)
        value = config.exploit.refine(
            policy.value,
            policy.models,
            replay,
            config.utility.exploit,
            self.problem,
            key,
            config.rounds.updates,
        )
        return Policy(policy.models, value, replay.scale)

    def exploit_episodes(
        self, env: AbstractEnvironment, policy: Policy, replay: Replay, key: Key, t: Array, count: int
    ) -> tuple[Replay, Episodes]:
        """`count` greedy episodes, and the replay buffer with them added."""
        episodes = self._exploit_rollouts(env, policy, key_for(key, "exploit episodes", t), count)
        return self.absorb(policy, replay, episodes)

    def evaluate(self, env: AbstractEnvironment, policy: Policy, key: Key, count: int) -> Float[Array, " n"]:
        """The returns of `count` greedy episodes."""
        return jax.vmap(episode_return)(self._exploit_rollouts(env, policy, key_for(key, "evaluate"), count))

    def _exploit_rollouts(self, env: AbstractEnvironment, policy: Policy, key: Key, count: int) -> Trajectory:
        keys, planner = jax.random.split(key, count), self.config.exploit
        if planner.plan_by_plan:

            def together(keys: Keys) -> Trajectory:
                memory = self.exploit_memory(len(keys))
                return rollout_plans(
                    env, lambda *now: self.exploit_plans(policy, *now), keys, self.observe, memory
                )

            if self.exploit_memory(1) is None or jax.default_backend() != "cpu":
                return together(keys)
            # What is remembered is large, and a CPU would copy that of all episodes for every step of one.
            each: Trajectory = jax.lax.map(lambda key: lane_of(together(key[None])), keys)
            return each

        def act(key: Key, obs: Observation, time: Array) -> Action:
            return planner.plan(policy, obs, time, key, self.config.utility.exploit, self.problem).actions[0]

        return jax.vmap(lambda key: rollout(env, act, key, self.observe))(keys)


def _heeding(value: QState | None, models: ModelSet) -> QState | None:
    """The value, looking at what the models look at."""
    if value is None or models.scout is None:
        return value
    return value.heeding(models.scout.dice.telling)


def choose(condition: bool | Flag, if_true: Callable[[], Any], if_false: Callable[[], Any]) -> Any:
    """`lax.cond`, decided while compiling where that is possible: over lanes both branches would run."""
    if isinstance(condition, bool):
        return if_true() if condition else if_false()
    return jax.lax.cond(condition, if_true, if_false)
