"""One program of Neural-E³ over several seeds: Algorithm 1 with its slots filled, its record kept on disk."""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from e3rl.e3 import Epoch, Slots, explicit_explore_exploit
from e3rl.envs.playing.python_copies import EpisodeBroken, PythonCopies
from e3rl.envs.spec import Spec
from e3rl.models import FAMILIES
from e3rl.models.fit import ModelSet
from e3rl.neural.compiled_agent import Environment, compiled_agent
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.practice import EXPLORED, ROUND, ROUNDS, Practice, rounds_of, saved_shapes
from e3rl.neural.slots import Episodes
from e3rl.neural.stopping import Stopping
from e3rl.planners import PLANNERS
from e3rl.planners.base import Policy
from e3rl.replay import Replay
from e3rl.runs.agent import AbstractProgram
from e3rl.runs.handover import Steps
from e3rl.runs.lanes import compiling, norms, seed_keys, side_by_side, unless_over
from e3rl.runs.progress import FITTING, PRACTISING
from e3rl.runs.record import Record
from e3rl.types import Key, Keys, UserError, key_for


class NeuralProgram(AbstractProgram):
    """Trains one agent per seed, each on its own environment."""

    def __init__(
        self,
        envs: Sequence[Environment],
        specs: Sequence[Spec],
        config: NeuralE3Config,
        seeds: Sequence[int],
    ):
        if len(seeds) > 1 and config.rounds.end_early:
            # Otherwise a seed's result would depend on its neighbours.
            raise UserError("rounds.stop_on_drop ends at each seed's own time: train the seeds one by one")
        python = isinstance(envs[0], PythonCopies)
        if python and len(envs) > 1:
            raise UserError("environments in Python are trained one seed at a time")
        self.env: Any = envs[0] if python else side_by_side(envs)
        self.config = config
        self.spec, self.clock_limit = specs[0], specs[0].horizon
        self.optima = [spec.optimal_return for spec in specs]
        self.seeds = seeds
        self.keys = seed_keys(seeds)
        self.agent = compiled_agent(self.spec, config)
        self.stopping = Stopping(config, self.spec.horizon, len(seeds))
        self.inherited: Steps | None = None
        """Experience of another agent, to begin with."""
        self._memory: Any = None
        """Of the exploiter, in the episode that `act` is asked about."""
        self._next_times: Int[np.ndarray, " n"] = np.zeros(0, int)
        """Time steps at which what is remembered goes on."""
        self._rounds = config.rounds.count
        """Of practice, those of the seed that practises longest."""

    def learn(self, record: Record, resume: bool = False) -> tuple[Policy, list[dict[str, Any]]]:
        self._memory = None
        policies, _, summaries = self.learn_all(record, resume)
        return policies, summaries

    def learn_all(self, record: Record, resume: bool = False) -> tuple[Policy, Replay, list[dict[str, Any]]]:
        """Algorithm 1; the exploit policies, all experience, and a summary per seed, one lane each."""
        with compiling() as helper:
            return self.explore(
                record, resume, lambda models, replay, _: self.exploit(record, models, replay), helper=helper
            )

    def explore(
        self,
        record: Record,
        resume: bool,
        exploit: Callable[[ModelSet, Replay, np.ndarray], Any],
        after_epoch: Callable[[Epoch], None] = lambda epoch: None,
        helper: Executor | None = None,
    ) -> Any:
        """Algorithm 1 with another end, and somebody who sees every epoch's: what experiments are made of. A `helper`
        compiles ahead, for ends that exploit and play greedy episodes."""
        resumed = record.begin(
            resume, lambda: saved_shapes(self.agent.one, record.folders[0].about_checkpoint())
        )
        record.say("compiling", int(record.episodes[0]), self._explore_episodes, what=self._what())
        if resumed and ROUND in resumed.abouts[0]:  # exploration was over
            models, _, replay, practice = resumed.state
            self.stopping.restore(resumed.abouts)
            self.stopping.v_explore = np.asarray(practice.v_explore)
            with record:
                return self._practise_and_judge(record, models, replay, practice, resumed.abouts)
        start = resumed.abouts[0]["epoch"] if resumed else 0
        if helper is not None:
            self.agent.compile_ahead(helper, self.env, self.keys, start == 0 and self.inherited is None)
        models, value, replay = resumed.state if resumed else self.agent.init(self.keys)
        self.stopping = Stopping(self.config, self.spec.horizon, len(self.seeds))
        self.stopping.restore(resumed.abouts if resumed else [])
        if self.inherited is not None and not resumed:
            replay, start = self.agent.inherit(self.inherited, Policy(models, value, replay.scale), replay)
            keys = jax.vmap(lambda key: key_for(key, "inherited"))(self.keys)
            models, _ = self.agent.update_models(models, replay, keys, self._epoch(start))
        policy = learned = Policy(models, value, replay.scale)

        def collect(policy: Policy, replay: Replay, t: int) -> tuple[Replay, Episodes]:
            nonlocal learned  # on the way, where it does not wait for the end of an episode
            *new, collected = self._collect(record, policy, replay, t)
            learned, replay = unless_over(self.stopping.over, tuple(new), (policy, replay))
            return replay, collected

        slots = Slots(
            plan=lambda models, replay, _, t: self._plan(models, replay, learned, t),
            stop=lambda t, v_explore: self._stop(record, t, v_explore),
            collect=collect,
            update_model_set=lambda _, replay, t: self._update(record, learned.models, replay, t),
            exploit=exploit,
        )

        def after(epoch: Epoch) -> None:
            self.stopping.saw(*map(np.asarray, (epoch.collected.returns, epoch.collected.unknown)))
            self._record(record, "explore", epoch.collected, epoch.fitted)
            after_epoch(epoch)  # before it is held: an interruption in here repeats the epoch
            state = (epoch.models, learned.value, epoch.replay)
            record.hold(epoch.t + 1, state, self.stopping.abouts())

        with record:
            return explicit_explore_exploit(models, replay, slots, policy, start, after)

    def _what(self) -> str:
        """What is compiled, for people."""
        family, planner = type(self.config.model), type(self.config.planner)
        return (
            f"{FAMILIES.name_of(family)} models and planner {PLANNERS.name_of(planner)} for {self.spec.name}"
        )

    @property
    def _explore_episodes(self) -> int:
        return self.agent.one.epochs * self.config.explore.per_epoch

    def _epoch(self, t: int) -> Int[Array, " lanes"]:
        return jnp.full(len(self.seeds), t, jnp.int32)

    def _plan(
        self, models: ModelSet, replay: Replay, policy: Policy, t: int
    ) -> tuple[Policy, Float[np.ndarray, " lanes"]]:
        planned, v_explore = self.agent.plan(
            models, policy.value, replay, self.keys, self._epoch(t), over=self.stopping.over
        )
        return unless_over(self.stopping.over, planned, policy), np.asarray(v_explore)

    def _stop(self, record: Record, t: int, v_explore: Float[np.ndarray, " lanes"]) -> bool:
        """Line 6, in every lane for itself, and the paper's practical rule, a number of epochs."""
        record.insist(~np.isnan(v_explore), v_explore, "exploration value", f" in epoch {t}")
        self.stopping.look(v_explore)
        return t >= self.agent.one.epochs or bool(self.stopping.over.all())

    def _collect(
        self, record: Record, policy: Policy, replay: Replay, t: int
    ) -> tuple[Policy, Replay, Episodes]:
        before = int(record.episodes[0])
        try:
            return self.agent.collect(
                self.env, policy, replay, self.keys, self._epoch(t), before, self.stopping.over
            )
        except EpisodeBroken as error:
            replay = self._keep_broken(record, "explore", error, policy, replay)
            record.hold(t, (policy.models, policy.value, replay))
            raise

    def _keep_broken(
        self, record: Record, phase: str, error: EpisodeBroken, policy: Policy, replay: Replay
    ) -> Replay:
        """What was seen before an environment failed goes into the record like everything else."""
        if len(error.trajectory.valid):
            replay, collected = self.agent.absorb(policy, replay, self.agent.one_lane(error.trajectory))
            self._record(record, phase, collected)
        return replay

    def _update(
        self, record: Record, models: ModelSet, replay: Replay, t: int
    ) -> tuple[ModelSet, Float[np.ndarray, " lanes"]]:
        over, now = self.stopping.over, self._epoch(t)
        with record.patiently(FITTING, self._explore_episodes):
            fitted, losses = self.agent.update_models(models, replay, self.keys, now, over=over)
            loss = np.asarray(losses)
        record.insist(np.isfinite(loss), loss, "model loss", f" in epoch {t}")
        return unless_over(over, fitted, models), loss

    def _record(
        self,
        record: Record,
        phase: str,
        collected: Episodes,
        loss: Float[np.ndarray, " lanes"] | None = None,
        round_: int = 0,
        over: Bool[np.ndarray, " lanes"] | None = None,
    ) -> None:
        """A row per episode and seed that is not over, and a word to the watcher."""
        returns, lengths, disagreement = map(
            np.asarray, (collected.returns, collected.lengths, collected.disagreement)
        )
        record.read_clock()
        exploring = phase == "explore"
        if over is None:
            over = self.stopping.over if exploring else np.zeros(len(self.seeds), bool)
        lanes = np.flatnonzero(~over)
        for i in range(returns.shape[1]):
            for lane in map(int, lanes):
                record.add(
                    lane,
                    phase,
                    float(returns[lane, i]),
                    int(lengths[lane, i]),
                    int(record.env_steps[lane] + lengths[lane, i]),
                    disagreement=float(disagreement[lane, i]),
                    model_loss=math.nan if loss is None else float(loss[lane]),
                    v_explore=float(self.stopping.v_explore[lane]),
                    epsilon_hat=float(self.stopping.epsilon_hat[lane]),
                )
        done = int(record.episodes.max())
        told = (float(returns[lanes].mean()), float(disagreement[lanes].mean()))
        if round_:
            left = (self._rounds - round_) * self.config.rounds.episodes
            record.say(PRACTISING, done, done + left, *told, self._named(round_))
            return
        total = self._explore_episodes if exploring else done
        missed = float(self.stopping.epsilon_hat[lanes].max()) if exploring else math.nan
        record.say(phase, done, total, *told, at_most=self.stopping.by_itself, epsilon_hat=missed)

    def exploit(
        self, record: Record, models: ModelSet, replay: Replay
    ) -> tuple[Policy, Replay, list[dict[str, Any]]]:
        """Lines 10 to 12, then practice, if any, and the episodes that count."""
        record.save()
        counts = rounds_of(self.config.rounds, self._explore_episodes, replay)
        self._rounds = max(counts)
        self._say_training(record, 1)
        policy = self.agent.exploit(models, replay, self.keys)
        abouts = [
            {ROUND: 0, ROUNDS: count, EXPLORED: int(episodes)}
            for count, episodes in zip(counts, record.episodes, strict=True)
        ]
        practice = Practice.begin(policy, jnp.asarray(self.stopping.v_explore, jnp.float32))
        return self._practise_and_judge(record, models, replay, practice, abouts)

    def _practise_and_judge(
        self,
        record: Record,
        models: ModelSet,
        replay: Replay,
        practice: Practice,
        abouts: Sequence[dict[str, Any]],
    ) -> tuple[Policy, Replay, list[dict[str, Any]]]:
        """From what is held after any round, or before the first, to the end."""
        policy, replay = self._practise(record, models, replay, practice, abouts)
        if policy.value is not None:
            size = np.asarray(norms(policy.value.online))
            record.insist(np.isfinite(size), size, "exploit network", "")
        before, count = record.episodes.copy(), self.config.evaluation_episodes
        _, collected = self._greedy_episodes(record, "exploit", policy, replay, 0, count)
        returns = np.asarray(collected.returns)
        summaries = []
        for lane, about in enumerate(abouts):
            explored = int(about[EXPLORED])
            more: dict[str, Any] = {
                "explore_episodes": explored,
                "practice_episodes": int(before[lane]) - explored,
            }
            if self.stopping.by_itself or not self.stopping.spread[lane]:
                more["ended"] = self.stopping.why(lane, explored)
            summaries.append(record.summary(lane, returns[lane], self.optima[lane], **more))
        record.finish(policy, summaries)
        return policy, replay, summaries

    def _practise(
        self,
        record: Record,
        models: ModelSet,
        replay: Replay,
        practice: Practice,
        abouts: Sequence[dict[str, Any]],
    ) -> tuple[Policy, Replay]:
        """App. C.3: play and train on, then go back to the best policy."""
        rounds, done = self.config.rounds, int(abouts[0][ROUND])
        counts = np.array([about.get(ROUNDS, rounds.count) for about in abouts])
        self._rounds = int(counts.max())
        # Before there was a choice, these were recorded like the evaluation.
        phase = "exploit" if rounds.stop_on_drop else "practice"
        while done < self._rounds:
            over = counts <= done
            if done > 0:
                self._say_training(record, done + 1)
                models, tried = self._learn_from_round(models, practice.tried, replay, done, over)
                practice = practice._replace(tried=tried)
            done += 1
            played, collected = self._greedy_episodes(
                record, phase, practice.tried, replay, done, rounds.episodes, over
            )
            judged, better = practice.judged(collected.returns)
            replay, practice = unless_over(over, (played, judged), (replay, practice))
            if rounds.stop_on_drop and not better.all():
                done = self._rounds
            held = [
                {**where, ROUND: done, ROUNDS: int(count), EXPLORED: about[EXPLORED]}
                for where, count, about in zip(self.stopping.abouts(), counts, abouts, strict=True)
            ]
            record.hold(self.agent.one.epochs + done, (models, None, replay, practice), held)
        record.save()
        return practice.best, replay

    def _learn_from_round(
        self,
        models: ModelSet,
        tried: Policy,
        replay: Replay,
        round_: int,
        over: Bool[np.ndarray, " lanes"],
    ) -> tuple[ModelSet, Policy]:
        """The models and the policy after a round: one trained on from the last, or another that is fitted as the first
        was."""
        anew = self.config.rounds.updates == 0
        followed = models if anew else tried.models
        # What plans with the models learns from new episodes through them.
        if self.config.exploit.from_models:
            epoch = self._epoch(self.agent.one.epochs + round_)
            followed, _ = self.agent.update_models(followed, replay, self.keys, epoch, over=over)
        if anew:
            keys = jax.vmap(lambda key: key_for(key, "round", round_))(self.keys)
            return followed, self.agent.exploit(followed, replay, keys, over=over)
        policy = tried._replace(models=followed)
        return models, self.agent.refine(policy, replay, self.keys, self._epoch(round_), over=over)

    def _greedy_episodes(
        self,
        record: Record,
        phase: str,
        policy: Policy,
        replay: Replay,
        round_: int,
        count: int,
        over: Bool[np.ndarray, " lanes"] | None = None,
    ) -> tuple[Replay, Episodes]:
        before = int(record.episodes[0])
        try:
            replay, collected = self.agent.exploit_episodes(
                self.env, policy, replay, self.keys, self._epoch(round_), count, before
            )
        except EpisodeBroken as error:
            record.save()  # the round before: these rows belong to no checkpoint
            self._keep_broken(record, phase, error, policy, replay)
            record.write_rows()
            raise
        self._record(record, phase, collected, round_=round_, over=over)
        return replay, collected

    def _say_training(self, record: Record, round_: int) -> None:
        """That the policy of this round is fitted, or without rounds the only one."""
        done, left = int(record.episodes[0]), (self._rounds - round_ + 1) * self.config.rounds.episodes
        record.say("training to exploit", done, done + left, what=self._named(round_) if left else "")

    def _named(self, round_: int) -> str:
        return f"round {round_}/{self._rounds}"

    def evaluate(self, policies: Policy, episodes: int) -> Float[np.ndarray, "lanes n"]:
        return np.asarray(self.agent.evaluate(self.env, policies, self.keys, episodes))

    def act(self, policy: Policy, obs: Any, time: int, key: Key) -> int:
        return int(self.act_many(policy, [obs], np.array([time]), key[None])[0])

    def act_many(
        self, policy: Policy, obs: Sequence[Any], times: Int[np.ndarray, " n"], keys: Keys
    ) -> Int[np.ndarray, " n"]:
        encoded = np.stack([self.spec.encoding.encode(each) for each in obs])
        observed = jnp.asarray(encoded, self.agent.one.storage)
        now = (keys, observed, jnp.asarray(times, jnp.int32), jnp.ones(len(obs), bool))
        if self._memory is None or not np.array_equal(self._next_times, times):
            self._memory = self.agent.one.exploit_memory(len(obs))  # these are no episodes that go on
        plans = self.agent.exploit_plans(policy, *now, self._memory)
        self._memory, self._next_times = plans.memory, times + 1
        return np.asarray(plans.actions[:, 0])

    def evaluation_memory(self, episodes: int) -> float:
        return float(episodes * self.spec.horizon * (8 * self.agent.one.problem.entries + 16))

    def blank_policy(self) -> Policy:
        def fresh() -> Policy:
            models, _, replay = self.agent.one.fresh(self.keys[0])
            return self.agent.one.untrained(models, replay.scale, self.keys[0])

        return jax.eval_shape(fresh)

    def close(self) -> None:
        if isinstance(self.env, PythonCopies):
            self.env.close()
