"""One training run of Neural-E³ over several seeds: Algorithm 1 with its slots filled, its record kept on disk."""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from e3rl.e3 import Slots, explicit_explore_exploit, small_disagreement
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.vector import EpisodeBroken
from e3rl.models.fit import ModelSet
from e3rl.neural.acting import Policy
from e3rl.neural.checkpoint import load_tree
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.lanes import Environment, Episodes, lanes_for
from e3rl.neural.run_folder import RunFolder, checkpoint_together, complete_checkpoints
from e3rl.neural.statistics import mean_interval
from e3rl.replay import Replay
from e3rl.types import UserError


class Progress(NamedTuple):
    """What a watcher sees, averaged over the seeds."""

    phase: str
    episode: int
    episodes: int
    mean_return: float
    disagreement: float
    seconds: float


Watcher: TypeAlias = Callable[[Progress], None]


class Training:
    """Trains one agent per seed, each on its own environment, in one program."""

    def __init__(
        self,
        envs: Sequence[Environment],
        config: NeuralE3Config,
        seeds: Sequence[int],
        folders: Sequence[RunFolder] = (),
        describe: Sequence[dict[str, Any]] = (),
        watch: Watcher = lambda progress: None,
        checkpoint_epochs: int = 20,
    ):
        if len(seeds) > 1 and (config.epsilon > 0 or config.exploit_rounds > 0):
            # Otherwise a seed's result would depend on its neighbours.
            raise UserError(
                "epsilon and exploit_rounds end at each seed's own time: train the seeds one by one"
            )
        self.envs = envs
        self.env: Any = envs[0]
        if isinstance(self.env, AbstractEnvironment):
            self.env = jax.tree.map(lambda *leaves: jnp.stack(leaves), *envs)
        elif len(envs) > 1:
            raise UserError("environments in Python are trained one seed at a time")
        self.config = config
        self.seeds = seeds
        self.keys = jax.vmap(jax.random.key)(jnp.asarray(seeds))
        self.lanes = lanes_for(envs[0], config)
        self.folders = folders
        self.describe = describe
        self.watch = watch
        self.checkpoint_epochs = checkpoint_epochs
        self.seconds = 0.0
        self.epoch = self.episodes = 0
        self.env_steps = np.zeros(len(seeds), int)
        self.v_explore = np.full(len(seeds), math.inf)
        self.unsaved: tuple[int, int, Any, np.ndarray] | None = None

    def learn(self, resume: bool = False) -> tuple[Policy, Replay, list[dict[str, Any]]]:
        """Algorithm 1; returns the exploit policy, all experience, and a summary per seed (one lane each)."""
        self.clock = time.perf_counter()
        start = self._begin(resume)
        self.watch(Progress("compiling", self.episodes, self._explore_episodes, 0.0, 0.0, self.seconds))
        models, self.value, replay = start or self.lanes.init(self.keys)
        slots = Slots(self._plan, self._stop, self._collect, self._update, self._exploit)
        try:
            return explicit_explore_exploit(models, replay, slots, self.epoch, self._after_epoch)
        except (KeyboardInterrupt, UserError):
            self._save_pending()
            raise

    @property
    def _explore_episodes(self) -> int:
        return self.lanes.epochs * self.config.episodes_per_epoch

    def _begin(self, resume: bool) -> Any:
        """Where the folders stand: None for a fresh run, otherwise the common state of their checkpoints."""
        found = [
            folder.begin(about, resume) for folder, about in zip(self.folders, self.describe, strict=True)
        ]
        if not any(found):
            return None
        complete_checkpoints(self.folders)
        like = eqx.filter_eval_shape(self.lanes.fresh, self.keys[0])
        states, abouts = zip(*(load_tree(folder.state, like) for folder in self.folders), strict=True)
        if len({about["epoch"] for about in abouts}) > 1:
            raise UserError("the seeds of this run were saved at different epochs: resume them one by one")
        for folder, about in zip(self.folders, abouts, strict=True):
            folder.keep_rows(about["rows"])
        self.epoch, self.episodes = abouts[0]["epoch"], abouts[0]["rows"]
        self.env_steps = np.array([about["env_steps"] for about in abouts])
        self.seconds = abouts[0]["seconds"]
        self.clock -= self.seconds
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)

    def _epoch(self, t: int) -> jax.Array:
        return jnp.full(len(self.seeds), t)

    def _plan(self, models: ModelSet, replay: Replay, t: int) -> tuple[Policy, np.ndarray]:
        policy, v_explore = self.lanes.plan(models, self.value, replay, self.keys, self._epoch(t))
        self.value = policy.value
        return policy, np.asarray(v_explore)

    def _stop(self, t: int, v_explore: np.ndarray) -> bool:
        """The paper's practical rule, a number of epochs, and line 6's."""
        self.v_explore = v_explore
        self._insist(~np.isnan(v_explore), v_explore, "exploration value", f" in epoch {t}", t > 0)
        epsilon, actions = self.config.epsilon, self.lanes.actions
        agreed = epsilon > 0 and small_disagreement(float(v_explore[0]), epsilon, actions)
        return t >= self.lanes.epochs or agreed

    def _collect(self, policy: Policy, replay: Replay, t: int) -> Replay:
        try:
            replay, self.collected = self.lanes.collect(
                self.env, policy, replay, self.keys, self._epoch(t), self.episodes
            )
        except EpisodeBroken as error:
            replay = self._keep_broken("explore", error, policy, replay)
            self.unsaved = t, self.episodes, (policy.models, self.value, replay), self.env_steps
            raise
        return replay

    def _keep_broken(self, phase: str, error: EpisodeBroken, policy: Policy, replay: Replay) -> Replay:
        """What was seen before an environment failed goes into the record like everything else."""
        if len(error.trajectory.valid):
            episodes = self.lanes.one_lane(error.trajectory)
            replay, collected = self.lanes.absorb(policy, replay, episodes)
            self._record(phase, collected)
        return replay

    def _update(self, models: ModelSet, replay: Replay, t: int) -> ModelSet:
        models, loss = self.lanes.update_models(models, replay, self.keys, self._epoch(t))
        self.loss = np.asarray(loss)
        self._insist(np.isfinite(self.loss), self.loss, "model loss", f" in epoch {t}", t > 0)
        return models

    def _insist(self, sound: np.ndarray, values: np.ndarray, what: str, when: str, saved: bool) -> None:
        """Stop where a seed's number is not sound; with folders, `learn` then saves the state from before it."""
        if sound.all():
            return
        lane = int(np.argmin(sound))
        kept = " The checkpoint from before it is kept." if self.folders and saved else ""
        raise UserError(f"the {what} of seed {self.seeds[lane]} became {values[lane]}{when}.{kept}")

    def _after_epoch(self, t: int, models: ModelSet, replay: Replay) -> None:
        self._record("explore", self.collected, self.loss)
        self.unsaved = t + 1, self.episodes, (models, self.value, replay), self.env_steps
        if (t + 1) % self.checkpoint_epochs == 0 or t + 1 == self.lanes.epochs:
            self._save_pending()

    def _record(self, phase: str, collected: Episodes, loss: np.ndarray | None = None) -> None:
        """A row per episode and seed, and a word to the watcher."""
        returns, lengths, disagreement = map(
            np.asarray, (collected.returns, collected.lengths, collected.disagreement)
        )
        self.seconds = time.perf_counter() - self.clock
        for i in range(returns.shape[1]):
            self.episodes += 1
            self.env_steps = self.env_steps + lengths[:, i]
            for lane, folder in enumerate(self.folders):
                values = {
                    "phase": phase,
                    "episode": self.episodes,
                    "env_steps": int(self.env_steps[lane]),
                    "return": float(returns[lane, i]),
                    "length": int(lengths[lane, i]),
                    "disagreement": float(disagreement[lane, i]),
                    "model_loss": math.nan if loss is None else float(loss[lane]),
                    "seconds": round(self.seconds, 3),
                    "v_explore": float(self.v_explore[lane]),
                }
                folder.add_row(**values)
        total = self._explore_episodes if phase == "explore" else self.episodes
        self.watch(Progress(phase, self.episodes, total, returns.mean(), disagreement.mean(), self.seconds))

    def _save_pending(self) -> None:
        """A checkpoint of the last complete epoch, unless there is one already."""
        if self.unsaved is None:
            return
        (epoch, rows, state, env_steps), self.unsaved = self.unsaved, None
        for folder in self.folders:
            folder.rows = folder.rows[:rows]
        abouts = [{"epoch": epoch, "env_steps": int(steps), "seconds": self.seconds} for steps in env_steps]
        if self.folders:
            checkpoint_together(self.folders, self._by_lane(state), abouts)

    def _by_lane(self, tree: Any) -> list[Any]:
        """Each seed's part of `tree`, on the host."""
        host = jax.device_get(tree)
        return [jax.tree.map(lambda leaf, lane=lane: leaf[lane], host) for lane in range(len(self.seeds))]

    def _exploit(self, models: ModelSet, replay: Replay) -> tuple[Policy, Replay, list[dict[str, Any]]]:
        """Lines 10 to 12, optionally with more training while exploiting, then the greedy evaluation."""
        self._save_pending()
        explore_episodes = self.episodes
        self.watch(Progress("training to exploit", self.episodes, self.episodes, 0.0, 0.0, self.seconds))
        policy = self.lanes.exploit(models, replay, self.keys)
        policy, replay = self._keep_training(policy, replay)
        size = np.asarray(jax.vmap(optax.tree.norm)(policy.value.online))
        self._insist(np.isfinite(size), size, "exploit network", "", True)
        _, collected = self._greedy_episodes(policy, replay, 0, self.config.evaluation_episodes)
        summaries = [
            self._summary(lane, explore_episodes, np.asarray(collected.returns)[lane])
            for lane in range(len(self.seeds))
        ]
        if self.folders:
            for folder, own, summary in zip(self.folders, self._by_lane(policy), summaries, strict=True):
                folder.finish(own, summary)
        return policy, replay, summaries

    def _greedy_episodes(
        self, policy: Policy, replay: Replay, round_: int, count: int
    ) -> tuple[Replay, Episodes]:
        try:
            replay, collected = self.lanes.exploit_episodes(
                self.env, policy, replay, self.keys, self._epoch(round_), count, self.episodes
            )
        except EpisodeBroken as error:
            self._keep_broken("exploit", error, policy, replay)
            for folder in self.folders:
                folder.write_rows()
            raise
        self._record("exploit", collected)
        return replay, collected

    def _keep_training(self, policy: Policy, replay: Replay) -> tuple[Policy, Replay]:
        """App. C.3: play and train on; on the first drop in mean return go back to the best weights and stop."""
        best, kept = -math.inf, policy
        for round_ in range(1, self.config.exploit_rounds + 1):
            replay, collected = self._greedy_episodes(policy, replay, round_, self.config.round_episodes)
            score = float(np.mean(np.asarray(collected.returns)))
            if score < best:
                break
            best, kept = score, policy
            if round_ == self.config.exploit_rounds:
                break
            # What plans with the models learns from new episodes through them.
            if self.config.exploit != "dqn":
                epoch = self._epoch(self.lanes.epochs + round_)
                models, _ = self.lanes.update_models(policy.models, replay, self.keys, epoch)
                policy = policy._replace(models=models)
            policy = self.lanes.refine(policy, replay, self.keys, self._epoch(round_))
        return kept, replay

    def _summary(self, lane: int, explore_episodes: int, returns: np.ndarray) -> dict[str, Any]:
        mean, low, high = mean_interval(returns)
        optimum = getattr(self.envs[lane], "optimal_return", None)
        return {
            **(self.describe[lane] if self.describe else {"seed": self.seeds[lane]}),
            "config": dataclasses.asdict(self.config),
            "explore_episodes": explore_episodes,
            "total_episodes": self.episodes,
            "exploit_return_mean": mean,
            "exploit_return_ci": None if math.isnan(low) else [low, high],
            "optimal_return": optimum if isinstance(optimum, float) else None,
            "wall_seconds": round(time.perf_counter() - self.clock, 3),
            "seeds_in_program": len(self.seeds),
        }
