"""Copies of a Python environment that play together: one engine for every agent."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import jax
import numpy as np
from jaxtyping import Bool, Float32, Int, Int32

from e3rl.envs.adapter import GymnasiumEnvironment
from e3rl.envs.encoding import Encoding
from e3rl.envs.playing.copy import Answer, Failure, Loop, Report, Told, gather
from e3rl.envs.playing.processes import Processes
from e3rl.envs.spec import Spec, spec_of
from e3rl.types import Key, Trajectory, UserError

NO_EPISODE = -1

Plan: TypeAlias = Callable[
    [
        Key,
        Int32[np.ndarray, " n"],
        Float32[np.ndarray, "n *obs"],
        Int32[np.ndarray, " n"],
        Bool[np.ndarray, " n"],
    ],
    Any,
]
"""(key, numbers of the episodes, observations, time steps, which copies want a plan) -> `Plans`, or only their actions
and lengths; those of the other copies do not matter. The key is always the same: folding episode and time step into it
is cheaper inside a compiled planner."""


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
    asynchronous: bool
    """Whether steps are taken in other processes."""
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
        self.asynchronous = asynchronous and make is not None
        self._engine: Loop | Processes
        if self.asynchronous and make is not None:
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
        together: bool = True,
    ) -> Trajectory:
        """Play episodes to their ends: NumPy arrays [episodes, H, ...], in the order in which they began.

        Every call of `plan` is for all copies, which carry their sequences out. `together` they wait for the one with
        the longest; otherwise those that are done plan again while others are still on their way. The episodes are the
        same either way where a plan follows from the episode's number, its time step and what is observed, and the same
        key repeats them: copy i of n plays episodes i, i + n, i + 2n and so on, each with a seed of its own.
        `episodes_before` only counts in the message of `EpisodeBroken`. A `lesson` is for one episode of one copy.
        """
        assert lesson is None or episodes == self.copies == 1
        key_seeds, key_plans = jax.random.split(key)
        generator = np.random.default_rng(np.asarray(jax.random.key_data(key_seeds)))
        seeds = generator.integers(2**31, size=episodes).tolist()
        table = _Table(self.copies, episodes, self.time_limit, self.encoding.shape, episodes_before)
        self._engine.back(everyone=True)  # from whom somebody has interrupted
        while True:
            if table.idle:
                for copy, episode in table.begin_episodes():
                    self._engine.send(copy, seeds[episode])
                if not any(table.running):
                    break
                if together:
                    self._listen(table, everyone=True)
            if table.waiting:
                planned, planned_lengths = plan(key_plans, *table.now())[:2]
                actions, lengths = np.asarray(planned), np.asarray(planned_lengths).tolist()
                if lesson is not None:
                    lengths = [min(lengths[0], lesson.every - table.time[0] % lesson.every)]
                for copy, sent in table.carry_out(actions, lengths):
                    self._engine.send(copy, sent)
            self._listen(table, everyone=together)
            if lesson is not None and (table.time[0] % lesson.every == 0 or not table.running[0]):
                steps = (table.time[0] - 1) // lesson.every * lesson.every + np.arange(lesson.every)
                lesson.learn(table.part(steps), not table.running[0])
        rows: Trajectory = table.rows
        return rows

    def _listen(self, table: "_Table", everyone: bool) -> None:
        """Write down what copies answer. When one failed, what the others are still doing is kept."""
        failed = table.record(self._engine.back(everyone))
        if failed:
            failed += table.record(self._engine.back(everyone=True))
            raise table.broken(self.name, *min(failed))


class _Table:
    """Which copy is where in which episode, and everything they have seen.

    Plain lists to reckon with where there is a number a copy: NumPy would take longer to begin than they take to end.
    Beside them what a planner is shown.
    """

    def __init__(
        self, copies: int, episodes: int, time_limit: int, shape: tuple[int, ...], episodes_before: int
    ):
        self.time = [0] * copies
        self.running = [False] * copies
        self._episode = [NO_EPISODE] * copies
        self.waiting: list[int] = []
        """Copies that want a plan."""
        self._next = list(range(copies))
        """The episode that a copy plays after this one."""
        self.idle = True
        """Whether a copy may be given another episode."""
        self._sent: list[list[int]] = [[] for _ in range(copies)]
        """What a copy is doing; nothing where it begins an episode."""
        self._obs = np.zeros((copies, *shape), np.float32)
        self._shown = np.full(copies, NO_EPISODE, np.int32)
        self._times = np.zeros(copies, np.int32)
        self._everyone = np.ones(copies, bool)
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

    def now(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Episodes, observations, time steps and which copies want a plan, for somebody to keep."""
        wanted = self._everyone
        if len(self.waiting) < len(wanted):
            wanted = np.zeros_like(wanted)
            wanted[self.waiting] = True
        return self._shown, self._obs.copy(), self._times.copy(), wanted

    def begin_episodes(self) -> list[tuple[int, int]]:
        """Give copies that have nothing to do their next episodes: which copy, and which episode."""
        self.idle = False
        fresh = [
            (copy, episode)
            for copy, (episode, running) in enumerate(zip(self._next, self.running, strict=True))
            if not running and episode < self._episodes
        ]
        for copy, episode in fresh:
            self._episode[copy], self._next[copy] = episode, episode + len(self._next)
            self.time[copy] = self._times[copy] = 0
            self.running[copy], self._sent[copy] = True, []
        self._shown = np.array(self._episode, np.int32)
        return fresh

    def carry_out(self, plans: Int[np.ndarray, "n L"], lengths: Sequence[int]) -> list[tuple[int, list[int]]]:
        """What those that wait are to do."""
        rows = plans[:, : max(lengths) or 1].tolist()
        if len(rows) != len(lengths):
            raise ValueError(f"{len(rows)} plans, and the lengths of {len(lengths)}")
        waiting, self.waiting = self.waiting, []
        for copy in waiting:
            most = min(
                lengths[copy] or 1, self._time_limit - self.time[copy]
            )  # an empty plan would never end
            self._sent[copy] = rows[copy][:most]
        return [(copy, self._sent[copy]) for copy in waiting]

    def record(self, told: Sequence[tuple[int, list[Told]]]) -> list[tuple[int, int, Failure]]:
        """What copies did. Of failures, which copy it was, how many steps ahead, and what. What follows from steps is
        written down many at a time (`_complete`)."""
        failed, rows = [], self.rows
        for copy, answers in told:
            sent, episode, time = self._sent[copy], self._episode[copy], self.time[copy]
            obs, _, report = answers[-1]
            if report.failure is not None:
                failed.append((copy, min(1, len(sent)), report.failure))
                answers = answers[:-1]
            if not sent:
                rows.obs[episode, 0] = obs
                answers = []
            for i, (seen, reward, _) in enumerate(answers):
                place = episode, time + i
                rows.action[place], rows.reward[place], rows.next_obs[place] = sent[i], reward, seen
            self.time[copy] = self._times[copy] = time = time + len(answers)
            self._obs[copy] = obs
            if report.terminated or report.truncated or time == self._time_limit:
                self._end(copy, report)
            else:
                self.waiting.append(copy)
        return failed

    def _end(self, copy: int, report: Report) -> None:
        last = self._episode[copy], self.time[copy] - 1
        self.rows.terminated[last] = report.terminated
        self.rows.truncated[last] = report.truncated or self.time[copy] == self._time_limit
        self._complete(copy)
        self.running[copy], self.idle = False, True

    def _complete(self, copy: int) -> None:
        """Every step so far begins where the one before it ended, and has happened."""
        episode, time = self._episode[copy], self.time[copy]
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
        episode = self._episodes_before + self._episode[copy] + 1
        for other, running in enumerate(self.running):
            if running and self.time[other] > 0:
                self._complete(other)
                self.rows.truncated[self._episode[other], self.time[other] - 1] = True
        kept = Trajectory(*(column[self.rows.valid[:, 0]] for column in self.rows))
        place = f"{name}, episode {episode}, step {self.time[copy] + ahead}"
        error = EpisodeBroken(f"{place}: {failure.problem}", kept)
        error.add_note(failure.traceback)
        return error
