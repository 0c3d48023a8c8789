"""Copies of a Python environment that play together: one engine for every agent."""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import jax
import numpy as np
from jaxtyping import Bool, Float32, Int, Int32

from e3rl.envs.adapter import GymnasiumEnvironment
from e3rl.envs.encoding import Encoding
from e3rl.envs.playing.copy import REST, Answer, Failure, Loop, Report, gather
from e3rl.envs.playing.processes import Processes
from e3rl.envs.spec import Spec, spec_of
from e3rl.types import Key, Trajectory, UserError

NO_EPISODE = -1

Plan: TypeAlias = Callable[
    [Key, int, Float32[np.ndarray, "n *obs"], Int32[np.ndarray, " n"], Bool[np.ndarray, " n"]],
    Any,
]
"""(key, number of the call, observations, time steps, which copies play) -> `Plans`, or only their actions and lengths;
those of a copy that does not play do not matter. The key is always the same: folding the number into it is cheaper
inside a compiled planner."""


class Lesson(NamedTuple):
    """What is done with a single episode before it has ended."""

    every: int
    """After so many steps."""
    learn: Callable[[Trajectory, bool], None]
    """Sees the steps since the last time as `every` rows, and whether the episode is over."""


class EpisodeBroken(UserError):
    """The environment failed in the middle of an episode; `trajectory` holds every step before that."""

    def __init__(self, message: str, trajectory: Trajectory):
        super().__init__(message)
        self.trajectory = trajectory


class PythonCopies:
    """Copies of one Gymnasium environment, asked together so that planning is one call on a batch of fixed shape.

    `first` is one of them, and `make` is called for each of the others. Without it there are no others, and episodes
    run one after the other. With `asynchronous` every copy, the first too, lives in a process of its own, which pays
    when a step takes milliseconds; `make` is then called there, and `first` only shows what it makes. A script needs
    Python's usual `if __name__ == "__main__":` for that.
    """

    spec: Spec
    name: str
    observation_space: gymnasium.Space
    encoding: Encoding
    num_actions: int
    copies: int
    time_limit: int
    """H: steps after which an episode is cut, whoever cuts it."""
    own_limit: int | None
    """Steps after which the environment itself cuts an episode, None where it does not."""
    optimal_return: float | None

    def __init__(
        self,
        first: GymnasiumEnvironment,
        copies: int = 1,
        make: Callable[[], GymnasiumEnvironment] | None = None,
        time_limit: int | None = None,
        asynchronous: bool = False,
    ):
        if copies < 1:
            raise UserError(f"copies must be at least 1, got {copies}")
        if time_limit is not None and time_limit < 1:
            raise UserError(f"time_limit must be at least 1, got {time_limit}")
        self.spec = spec_of(first, time_limit=time_limit)
        self.name, self.encoding, self.num_actions = self.spec.name, self.spec.encoding, self.spec.actions
        self.time_limit, self.optimal_return = self.spec.horizon, self.spec.optimal_return
        self.observation_space, self.own_limit = first.observation_space, first.time_limit
        self.copies = 1 if make is None else copies
        self._engine: Loop | Processes
        if asynchronous and make is not None:
            self._engine = Processes(first, make, copies)
        else:
            self._engine = Loop(first, make, copies)

    def reset(self, seeds: Sequence[int | None]) -> Answer:
        """Copies with a seed start an episode, the others stay as they are."""
        return gather(self._engine.reset(seeds))

    def step(self, actions: Int[np.ndarray, " n"]) -> Answer:
        """One step of every copy; `REST` in place of an action leaves a copy alone. None starts over by itself."""
        return gather(self._engine.step(actions.tolist()))

    def close(self) -> None:
        """Close the copies made here; closing `first` stays with its owner."""
        self._engine.close()

    def play(
        self,
        plan: Plan,
        key: Key,
        episodes: int,
        episodes_before: int = 0,
        lesson: Lesson | None = None,
    ) -> Trajectory:
        """Play episodes to their ends: NumPy arrays [episodes, H, ...], in the order in which they began.

        Every call of `plan` is for all copies: they execute their sequences open-loop, wait for the one with the
        longest, and plan again together. A copy whose episode has ended starts the next one before that. The
        same key repeats the same episodes. `episodes_before` only counts in the message of `EpisodeBroken`. A `lesson`
        is for one episode of one copy.
        """
        assert lesson is None or episodes == self.copies == 1
        key_seeds, key_plans = jax.random.split(key)
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key_seeds)))
        seeds = generator.integers(2**31, size=episodes).tolist()
        table = _Table(self.copies, episodes, self.time_limit, self.encoding.shape, episodes_before)
        for number in itertools.count():
            if table.idle:
                self._begin(table, table.start_episodes(), seeds)
                if not any(table.running):
                    break
            planned, planned_lengths = plan(key_plans, number, *table.now())[:2]
            actions, lengths = np.asarray(planned), np.asarray(planned_lengths).tolist()
            if lesson is not None:
                lengths = [min(lengths[0], lesson.every - table.time[0] % lesson.every)]
            self._execute(table, actions[:, : max(lengths) or 1], lengths)
            if lesson is not None and (table.time[0] % lesson.every == 0 or not table.running[0]):
                steps = (table.time[0] - 1) // lesson.every * lesson.every + np.arange(lesson.every)
                lesson.learn(table.part(steps), not table.running[0])
        rows: Trajectory = table.rows
        return rows

    def _begin(self, table: "_Table", fresh: Sequence[int], seeds: Sequence[int]) -> None:
        """The first observations of copies that have been given an episode."""
        if not fresh:
            return
        told = self._engine.reset(
            [seeds[table.episode[copy]] if copy in fresh else None for copy in range(self.copies)]
        )
        for copy in fresh:
            obs, _, report = told[copy]
            table.begin(copy, obs)
            if report.failure is not None:
                raise table.broken(self.name, copy, 0, report.failure)

    def _execute(self, table: "_Table", plans: Int[np.ndarray, "n L"], lengths: Sequence[int]) -> None:
        running = table.running
        for t, actions in enumerate(plans.T.tolist()):
            moving = []
            for copy, (length, plays) in enumerate(zip(lengths, running, strict=True)):
                if plays and (t < length or t == 0):  # an empty plan would never end
                    moving.append(copy)
                else:
                    actions[copy] = REST
            if not moving:
                break
            told, failed = self._engine.step(actions), None
            for copy in moving:
                obs, reward, report = told[copy]
                if report.failure is None:
                    table.record(copy, actions[copy], obs, reward, report)
                elif failed is None:
                    failed = copy, report.failure
            if failed is not None:  # what the others did is kept
                raise table.broken(self.name, failed[0], 1, failed[1])


class _Table:
    """Which copy is where in which episode, and everything they have seen.

    Plain lists to reckon with where there is a number a copy: NumPy would take longer to begin than they take to end.
    Beside them what a planner is shown.
    """

    def __init__(
        self, copies: int, episodes: int, time_limit: int, shape: tuple[int, ...], episodes_before: int
    ):
        self.episode = [NO_EPISODE] * copies
        self.time = [0] * copies
        self.running = [False] * copies
        self.idle = True
        """Whether a copy may be given another episode."""
        self.obs = np.zeros((copies, *shape), np.float32)
        self._times, self._playing = np.zeros(copies, np.int32), np.zeros(copies, bool)
        self._started = 0
        self._episodes_before = episodes_before
        frames, steps = (episodes, time_limit, *shape), (episodes, time_limit)
        columns: list[Any] = [
            np.zeros(frames, np.float32),
            np.zeros(steps, np.int32),
            np.zeros(steps, np.float32),
            np.zeros(frames, np.float32),
            *(np.zeros(steps, bool) for _ in range(3)),
        ]
        self.rows: Any = Trajectory(*columns)
        self._episodes, self._time_limit = episodes, time_limit

    def now(self) -> tuple[Float32[np.ndarray, "n *obs"], Int32[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
        """Observations, time steps and which copies play, for somebody to keep."""
        return self.obs.copy(), self._times.copy(), self._playing.copy()

    def start_episodes(self) -> list[int]:
        """Give idle copies the next episodes: which ones."""
        self.idle = False
        idle = [copy for copy, running in enumerate(self.running) if not running]
        fresh = idle[: self._episodes - self._started]
        for copy in fresh:
            self.episode[copy], self.time[copy], self.running[copy] = self._started, 0, True
            self._times[copy], self._playing[copy] = 0, True
            self._started += 1
        return fresh

    def begin(self, copy: int, obs: Float32[np.ndarray, "*obs"]) -> None:
        self.obs[copy] = self.rows.obs[self.episode[copy], 0] = obs

    def record(
        self, copy: int, action: int, next_obs: Float32[np.ndarray, "*obs"], reward: float, report: Report
    ) -> None:
        """One step of a copy. What follows from it is written down many steps at a time (`_complete`)."""
        time, rows = self.time[copy], self.rows
        place = self.episode[copy], time
        rows.action[place], rows.reward[place] = action, reward
        rows.next_obs[place] = self.obs[copy] = next_obs
        self.time[copy] = self._times[copy] = time = time + 1
        cut = report.truncated or time == self._time_limit
        if cut or report.terminated:
            rows.terminated[place], rows.truncated[place] = report.terminated, cut
            self._complete(copy)
            self.running[copy] = self._playing[copy] = False
            self.idle = True

    def _complete(self, copy: int) -> None:
        """Every step so far begins where the one before it ended, and has happened."""
        episode, time = self.episode[copy], self.time[copy]
        self.rows.obs[episode, 1:time] = self.rows.next_obs[episode, : max(0, time - 1)]
        self.rows.valid[episode, :time] = True

    def part(self, steps: Int[np.ndarray, " n"]) -> Trajectory:
        """These steps of the first episode; none of those after its time limit happened."""
        self._complete(0)
        there = steps < self._time_limit
        found = Trajectory(*(column[:1, np.where(there, steps, 0)] for column in self.rows))
        return found._replace(valid=found.valid & there)

    def broken(self, name: str, copy: int, ahead: int, failure: Failure) -> EpisodeBroken:
        """The failure of `copy` at the step after its last good one (`ahead` = 1) or in its reset (0)."""
        episode = self._episodes_before + self.episode[copy] + 1
        for other, running in enumerate(self.running):
            if running and self.time[other] > 0:
                self._complete(other)
                self.rows.truncated[self.episode[other], self.time[other] - 1] = True
        kept = Trajectory(*(column[self.rows.valid[:, 0]] for column in self.rows))
        place = f"{name}, episode {episode}, step {self.time[copy] + ahead}"
        error = EpisodeBroken(f"{place}: {failure.problem}", kept)
        error.add_note(failure.traceback)
        return error
