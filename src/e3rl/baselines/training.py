"""One training run of a baseline: iterations until the steps are spent, greedy episodes, the record on disk."""

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from e3rl.baselines.base import State
from e3rl.baselines.compiled import CompiledProgram, Ended
from e3rl.baselines.config import BaselineConfig
from e3rl.baselines.host import HostProgram
from e3rl.neural.checkpoint import load_tree
from e3rl.neural.run_folder import RunFolder, checkpoint_together, complete_checkpoints
from e3rl.neural.statistics import mean_interval
from e3rl.neural.training import Progress, Watcher
from e3rl.types import UserError

CHECKPOINT_SECONDS = 60.0
NO_NUMBER = {"disagreement": math.nan, "model_loss": math.nan, "v_explore": math.nan}
"""Columns of the table that a model-free agent has no value for."""


class Training:
    """Trains one agent per lane of `program`, which is a seed."""

    def __init__(
        self,
        program: CompiledProgram | HostProgram,
        config: BaselineConfig,
        seeds: Sequence[int],
        folders: Sequence[RunFolder] = (),
        describe: Sequence[dict[str, Any]] = (),
        optima: Sequence[float | None] = (),
        watch: Watcher = lambda progress: None,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ):
        algorithm = config.baseline()
        self.program = program
        self.config = config
        self.seeds = seeds
        self.folders = folders
        self.describe = describe
        self.optima = optima or [None] * len(seeds)
        self.watch = watch
        self.checkpoint_seconds = checkpoint_seconds
        self.algorithm = algorithm
        self.steps = algorithm.steps * algorithm.copies
        """Environment steps of an iteration."""
        self.iterations = max(1, config.total_steps // self.steps)
        self.done = 0
        self.seconds = 0.0
        self.episodes = np.zeros(len(seeds), int)
        self.metrics: dict[str, np.ndarray] = {}

    def learn(self, resume: bool = False) -> tuple[State, list[dict[str, Any]]]:
        """Train, then evaluate; returns the policies, a lane each, and a summary per seed."""
        self.clock = time.perf_counter()
        carry = self._begin(resume)
        self.watch(Progress("compiling", self._env_steps, self._all_steps, 0.0, math.nan, self.seconds))
        started, saved = self.clock, time.perf_counter()
        while self.done < self.iterations:
            count = min(self.program.size, self.iterations - self.done)
            carry, ended, metrics = self.program.advance(carry, count)
            self._record(ended, count)
            self.metrics = {name: values.mean(axis=0) for name, values in metrics.items()}
            self._insist_on_numbers()
            if time.perf_counter() - saved >= self.checkpoint_seconds or self.done == self.iterations:
                self._save(carry)
                saved = time.perf_counter()
        pace = self._env_steps / (time.perf_counter() - started)
        policy = jax.vmap(self.algorithm.policy)(carry.state)
        return policy, self._finish(policy, pace)

    @property
    def _env_steps(self) -> int:
        return self.done * self.steps

    @property
    def _all_steps(self) -> int:
        return self.iterations * self.steps

    def _begin(self, resume: bool) -> Any:
        """The fresh carry, or the one that the folders' checkpoints hold."""
        found = [
            folder.begin(about, resume) for folder, about in zip(self.folders, self.describe, strict=True)
        ]
        fresh = self.program.begin()
        if not any(found):
            return fresh
        complete_checkpoints(self.folders)
        like = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), fresh)
        carries, abouts = zip(*(load_tree(folder.state, like) for folder in self.folders), strict=True)
        if len({about["epoch"] for about in abouts}) > 1:
            raise UserError("the seeds of this run were saved at different steps: resume them one by one")
        for folder, about in zip(self.folders, abouts, strict=True):
            folder.keep_rows(about["rows"])
        self.done, self.seconds = abouts[0]["epoch"], abouts[0]["seconds"]
        self.metrics = {
            name: np.array([about["metrics"][name] for about in abouts]) for name in abouts[0]["metrics"]
        }
        self.episodes = np.array([about["rows"] for about in abouts])
        self.clock -= self.seconds
        self.program.restore(abouts[0])
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *carries)

    def _record(self, reports: Ended, count: int) -> None:
        """A row for every episode that ended, in the order of their ends."""
        self.seconds = time.perf_counter() - self.clock
        for lane in range(len(self.seeds)):
            ended, returns, lengths = (np.asarray(part)[:, lane] for part in reports)
            n = ended.shape[-1]
            for i, t, copy in np.argwhere(ended):
                env_steps = (self.done + int(i)) * self.steps + (int(t) + 1) * n
                self._add_row(lane, "train", env_steps, returns[i, t, copy], lengths[i, t, copy])
        self.done += count
        finished = np.asarray(reports.returns)[np.asarray(reports.ended)]
        mean = float(finished.mean()) if finished.size else math.nan
        self.watch(Progress("train", self._env_steps, self._all_steps, mean, math.nan, self.seconds))

    def _add_row(self, lane: int, phase: str, env_steps: int, total: Any, length: Any) -> None:
        self.episodes[lane] += 1
        if not self.folders:
            return
        about = {"phase": phase, "episode": int(self.episodes[lane]), "env_steps": env_steps}
        played = {"return": float(total), "length": int(length), "seconds": round(self.seconds, 3)}
        self.folders[lane].add_row(**about, **played, **NO_NUMBER)

    def _insist_on_numbers(self) -> None:
        for name, values in self.metrics.items():
            if not np.isfinite(values).all():
                lane = int(np.argmin(np.isfinite(values)))
                raise UserError(
                    f"the {name} of seed {self.seeds[lane]} became {values[lane]} by step {self._env_steps}"
                )

    def _save(self, carry: Any) -> None:
        if not self.folders:
            return
        about = {"epoch": self.done, "seconds": self.seconds, **self.program.under_way()}
        abouts = [{**about, "metrics": self._metrics_of(lane)} for lane in range(len(self.seeds))]
        checkpoint_together(self.folders, self._by_lane(carry), abouts)

    def _metrics_of(self, lane: int) -> dict[str, float]:
        return {name: float(values[lane]) for name, values in self.metrics.items()}

    def _by_lane(self, tree: Any) -> list[Any]:
        """Each seed's part of `tree`, on the host."""
        host = jax.device_get(tree)
        return [jax.tree.map(lambda leaf, lane=lane: leaf[lane], host) for lane in range(len(self.seeds))]

    def _finish(self, policy: State, pace: float) -> list[dict[str, Any]]:
        """Greedy episodes and what is said about the run."""
        trained = self.episodes.copy()
        returns, lengths = self.program.evaluate(policy, self.config.evaluation_episodes)
        self.seconds = time.perf_counter() - self.clock
        for lane in range(len(self.seeds)):
            steps = self._env_steps + np.cumsum(lengths[lane])
            for i, total in enumerate(returns[lane]):
                self._add_row(lane, "exploit", int(steps[i]), total, lengths[lane, i])
        self.watch(
            Progress("exploit", self._all_steps, self._all_steps, returns.mean(), math.nan, self.seconds)
        )
        summaries = [
            {
                **self._summary(lane, returns[lane]),
                "explore_episodes": int(trained[lane]),
                "steps_per_second": pace,
            }
            for lane in range(len(self.seeds))
        ]
        if self.folders:
            for folder, own, summary in zip(self.folders, self._by_lane(policy), summaries, strict=True):
                folder.finish(own, summary)
        return summaries

    def _summary(self, lane: int, returns: np.ndarray) -> dict[str, Any]:
        mean, low, high = mean_interval(returns)
        return {
            **(self.describe[lane] if self.describe else {"seed": self.seeds[lane]}),
            "config": dataclasses.asdict(self.config),
            "total_episodes": int(self.episodes[lane]),
            "env_steps": self._env_steps,
            "exploit_return_mean": mean,
            "exploit_return_ci": None if math.isnan(low) else [low, high],
            "optimal_return": self.optima[lane],
            "metrics": self._metrics_of(lane),
            "wall_seconds": round(time.perf_counter() - self.clock, 3),
            "seeds_in_program": len(self.seeds),
        }
