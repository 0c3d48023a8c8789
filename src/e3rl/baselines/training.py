"""One program of a baseline: iterations until the steps are spent, greedy episodes, the record on disk."""

import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from e3rl.baselines.base import BaselineConfig, State
from e3rl.baselines.loop_jax import Ended, JaxLoop
from e3rl.baselines.loop_python import PythonLoop, choose_all_greedily, choose_greedily, fresh_state
from e3rl.baselines.observer import Observer, horizon_of
from e3rl.envs.playing.python_copies import PythonCopies
from e3rl.envs.spec import Spec
from e3rl.runs.agent import AbstractProgram
from e3rl.runs.record import Record
from e3rl.signals import undisturbed
from e3rl.types import Key, Keys

CALL_SECONDS = 2.0
"""What a call of the loop is to take at most, as far as can be foreseen: nothing is saved in the middle of one."""


class BaselineProgram(AbstractProgram):
    """Trains one agent per seed, each on its own environment."""

    def __init__(
        self,
        envs: Sequence[Any],
        specs: Sequence[Spec],
        config: BaselineConfig,
        seeds: Sequence[int],
    ):
        self.algorithm = config.baseline()
        self.loop: JaxLoop | PythonLoop
        if isinstance(envs[0], PythonCopies):
            [alone], [seed] = envs, seeds
            self.loop, limit = PythonLoop(self.algorithm, alone, seed, config.clock), alone.own_limit
        else:
            self.loop, limit = JaxLoop(self.algorithm, envs, seeds, config.clock), envs[0].time_limit
        self.config = config
        self.spec, self.clock_limit = specs[0], horizon_of(limit, config.clock)
        self.observer = Observer(self.spec.encoding.space, self.clock_limit)
        self.optima = [spec.optimal_return for spec in specs]
        self.seeds = seeds
        self.steps = self.algorithm.steps * self.algorithm.copies
        """Environment steps of an iteration."""
        self.iterations = max(1, config.total_steps // self.steps)

    def learn(self, record: Record, resume: bool = False) -> tuple[State, list[dict[str, Any]]]:
        resumed = record.begin(resume, lambda: jax.tree.map(_without_lanes, self.loop.begin()))
        carry: Any
        done, window = 0, Window(self.loop.size)
        if resumed is None:
            carry = self.loop.begin()
        else:
            carry, abouts = resumed
            done = abouts[0]["epoch"]
            window.restore(abouts)
            self.loop.restore(abouts[0])
        what = f"{type(self.algorithm).__name__} for {self.spec.name}"
        record.say("compiling", done * self.steps, self.iterations * self.steps, what=what)
        before, started = done, time.perf_counter()
        fitting = 1  # iterations, as many as a call can do in its time
        with record:
            while done < self.iterations:
                count = min(window.left, fitting, self.iterations - done)
                began = time.perf_counter()
                # The loop works in the memory of what it is given: until the next state is held, there is none to save.
                with undisturbed():
                    carry, ended, reports = self.loop.advance(carry, count, began + CALL_SECONDS)
                    count = len(ended.ended)
                    mean = self._record(record, ended, done)
                    done += count
                    window.add(reports)
                    metrics = window.means()
                    for name, values in metrics.items():
                        record.insist(np.isfinite(values), values, name, f" by step {done * self.steps}")
                    if count:
                        told = zip(_told(metrics), window.told(), strict=True)
                        under_way = self.loop.under_way()
                        record.hold(
                            done,
                            self.loop.kept(carry),
                            [{**under_way, **each, **more} for each, more in told],
                        )
                if self.loop.broken is not None:
                    raise self.loop.broken
                record.say("train", done * self.steps, self.iterations * self.steps, mean, math.nan)
                share = (time.perf_counter() - began) / CALL_SECONDS
                fitting = max(1, count // 2) if share > 1.0 else 2 * fitting if share < 0.5 else fitting
            record.save()
            pace = (done - before) * self.steps / max(time.perf_counter() - started, 1e-9)
            policy = jax.vmap(self.algorithm.policy)(carry.state)
            return policy, self._finish(record, policy, window.means(), pace)

    def _record(self, record: Record, reports: Ended, done: int) -> float:
        """A row for every episode that ended, in the order of their ends; their mean return."""
        record.read_clock()
        for lane in range(len(self.seeds)):
            ended, returns, lengths = (np.asarray(part)[:, lane] for part in reports)
            n = ended.shape[-1]
            for i, t, copy in np.argwhere(ended):
                env_steps = (done + int(i)) * self.steps + (int(t) + 1) * n
                record.add(lane, "train", float(returns[i, t, copy]), int(lengths[i, t, copy]), env_steps)
        finished = np.asarray(reports.returns)[np.asarray(reports.ended)]
        return float(finished.mean()) if finished.size else math.nan

    def _finish(
        self, record: Record, policy: State, metrics: dict[str, Float[np.ndarray, " lanes"]], pace: float
    ) -> list[dict[str, Any]]:
        """Greedy episodes and what is said about the run."""
        trained, steps = record.episodes.copy(), self.iterations * self.steps
        returns, lengths = self.loop.evaluate(policy, self.config.evaluation_episodes)
        record.read_clock()
        for lane in range(len(self.seeds)):
            after = steps + np.cumsum(lengths[lane])
            for i, total in enumerate(returns[lane]):
                record.add(lane, "exploit", float(total), int(lengths[lane, i]), int(after[i]))
        played = int(record.episodes[0])
        record.say("exploit", played, played, float(returns.mean()), math.nan)
        more = _told(metrics)
        summaries = [
            record.summary(
                lane,
                returns[lane],
                self.optima[lane],
                explore_episodes=int(trained[lane]),
                env_steps=steps,
                steps_per_second=pace,
                **more[lane],
            )
            for lane in range(len(self.seeds))
        ]
        record.finish(policy, summaries)
        return summaries

    def evaluate(self, policies: State, episodes: int) -> Float[np.ndarray, "lanes n"]:
        return self.loop.evaluate(policies, episodes)[0]

    def act(self, policy: State, obs: Any, time: int, key: Key) -> int:
        seen = np.asarray(self.observer(obs, time))
        return int(choose_greedily(self.algorithm, policy, key, seen, np.int32(time)))

    def act_many(
        self, policy: State, obs: Sequence[Any], times: Int[np.ndarray, " n"], keys: Keys
    ) -> Int[np.ndarray, " n"]:
        seen = np.stack([self.observer(each, time) for each, time in zip(obs, times.tolist(), strict=True)])
        return np.asarray(choose_all_greedily(self.algorithm, policy, keys, seen, times.astype(np.int32)))

    def blank_policy(self) -> State:
        def fresh() -> State:
            key, actions = jax.random.key(self.seeds[0]), self.spec.actions
            return self.algorithm.policy(fresh_state(self.algorithm, key, self.observer.shape, actions))

        return jax.eval_shape(fresh)

    def close(self) -> None:
        if isinstance(self.loop, PythonLoop):
            self.loop.env.close()


class Window:
    """The metrics of the last `size` iterations, or of as many as there have been since it was full: what a run tells
    of itself does not depend on how many of them a call of the loop did."""

    def __init__(self, size: int):
        self.size = size
        self.rows: dict[str, Float[np.ndarray, "n lanes"]] = {}

    @property
    def _filled(self) -> int:
        return len(next(iter(self.rows.values()))) if self.rows else 0

    @property
    def left(self) -> int:
        """Iterations until it is full."""
        return self.size - self._filled % self.size

    def add(self, reports: dict[str, np.ndarray]) -> None:
        full = self._filled == self.size
        for name, new in reports.items():
            self.rows[name] = (
                np.concatenate([self.rows[name], new]) if name in self.rows and not full else new
            )

    def means(self) -> dict[str, Float[np.ndarray, " lanes"]]:
        return {name: values.mean(axis=0) for name, values in self.rows.items()}

    def told(self) -> list[dict[str, Any]]:
        """Each seed's part, for its checkpoint."""
        lanes = next(iter(self.rows.values())).shape[1]
        return [
            {"window": {name: rows[:, i].tolist() for name, rows in self.rows.items()}} for i in range(lanes)
        ]

    def restore(self, abouts: Sequence[dict[str, Any]]) -> None:
        names = abouts[0]["metrics"]
        # Checkpoints of earlier versions were made where it was full, and have the means alone.
        own = [
            about.get("window", {name: [about["metrics"][name]] * self.size for name in names})
            for about in abouts
        ]
        self.rows = {name: np.array([each[name] for each in own], np.float32).T for name in names}


def _without_lanes(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype)


def _told(metrics: dict[str, Float[np.ndarray, " lanes"]]) -> list[dict[str, Any]]:
    """The last metrics of each seed, as its summary and its checkpoint have them."""
    lanes = len(next(iter(metrics.values())))
    return [
        {"metrics": {name: float(values[lane]) for name, values in metrics.items()}} for lane in range(lanes)
    ]
