"""Copies of a Python environment that play together: one engine for every agent."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float32, Int, Int32

from e3rl.envs.adapter import GymnasiumEnvironment
from e3rl.envs.encoding import Encoding
from e3rl.envs.playing.copy import REST, Answer, Failure, Loop
from e3rl.envs.playing.open_loop import Plans
from e3rl.envs.playing.processes import Processes
from e3rl.envs.spec import Spec, spec_of
from e3rl.types import Key, Trajectory, UserError

NO_EPISODE = -1
AT_ONCE = 32
"""Keys of rounds that are made in one call, and steps that are written down in one go: each of them costs."""

Plan: TypeAlias = Callable[
    [Key, Float32[np.ndarray, "n *obs"], Int32[np.ndarray, " n"], Bool[np.ndarray, " n"]],
    Any,
]
"""(key, observations, time steps, which copies play) -> `Plans`; those of a copy that does not play do not matter."""


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
        return self._engine.reset(seeds)

    def step(self, actions: Int[np.ndarray, " n"]) -> Answer:
        """One step of every copy; `REST` in place of an action leaves a copy alone. None starts over by itself."""
        return self._engine.step(actions)

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
        keys = _round_keys(key_plans)
        while table.start_episodes():
            if table.fresh is not None:
                answer = self.reset(
                    [seeds[e] if new else None for e, new in zip(table.episode, table.fresh, strict=True)]
                )
                table.obs = answer.obs
                self._raise_first(answer.failures, table, 0)
            plans = Plans(*plan(next(keys), table.obs, table.time, table.running))
            actions, lengths = np.asarray(plans.actions), np.asarray(plans.lengths)
            if lesson is not None:
                lengths = np.minimum(lengths, lesson.every - table.time % lesson.every)
            self._execute(table, actions, lengths)
            if lesson is not None and (table.time[0] % lesson.every == 0 or not table.running[0]):
                steps = (table.time[0] - 1) // lesson.every * lesson.every + np.arange(lesson.every)
                lesson.learn(table.part(steps), not table.running[0])
        return table.rows

    def _execute(
        self, table: "_Table", plans: Int[np.ndarray, "n L"], lengths: Int[np.ndarray, " n"]
    ) -> None:
        for t in range(plans.shape[1]):
            moving = table.running & (t < lengths) if t else table.running  # an empty plan would never end
            count = np.count_nonzero(moving)
            if not count:
                break
            actions = np.where(moving, plans[:, t], REST) if count < self.copies else plans[:, t]
            answer = self.step(actions)
            if answer.failures:
                moving = moving & ~np.isin(np.arange(self.copies), list(answer.failures))
            table.record(moving, actions, answer)
            self._raise_first(answer.failures, table, 1)

    def _raise_first(self, failures: dict[int, Failure], table: "_Table", ahead: int) -> None:
        if failures:
            copy = min(failures)
            error = table.broken(self.name, copy, ahead, failures[copy].problem)
            error.add_note(failures[copy].traceback)
            raise error


def _round_keys(key: Key) -> Iterator[Key]:
    """`fold_in` of 0, 1, 2, ..."""
    for first in itertools.count(step=AT_ONCE):
        yield from _some_keys(key, np.int32(first))


@jax.jit
def _some_keys(key: Key, first: Int32[Array, ""]) -> tuple[Key, ...]:
    keys = jax.vmap(jax.random.fold_in, (None, 0))(key, first + jnp.arange(AT_ONCE))
    return tuple(keys[i] for i in range(AT_ONCE))


class _Table:
    """Which copy is where in which episode, and everything they have seen.

    Arrays are replaced rather than changed, so that whoever was shown one may keep it.
    """

    def __init__(
        self, copies: int, episodes: int, time_limit: int, shape: tuple[int, ...], episodes_before: int
    ):
        self.episode = np.full(copies, NO_EPISODE)
        self.time = np.zeros(copies, np.int32)
        self.obs = np.zeros((copies, *shape), np.float32)
        self.running = np.zeros(copies, bool)
        self.fresh: Bool[np.ndarray, " n"] | None = None
        """Copies that have been given an episode just now, None where there are none."""
        self._longest = 0
        """No copy's episode has lasted more steps than this."""
        self._started = 0
        self._episodes_before = episodes_before
        frames, steps = (episodes, time_limit, *shape), (episodes, time_limit)
        self._columns: list[Any] = [
            np.zeros(frames, np.float32),
            np.zeros(steps, np.int32),
            np.zeros(steps, np.float32),
            np.zeros(frames, np.float32),
            *(np.zeros(steps, bool) for _ in range(3)),
        ]
        self._episodes, self._time_limit = episodes, time_limit
        self._recent: list[tuple] = []
        """Steps that are not in the columns yet."""

    @property
    def rows(self) -> Trajectory:
        self._write()
        return Trajectory(*self._columns)

    def start_episodes(self) -> bool:
        """Give idle copies the next episodes; False when all have ended."""
        self.fresh = None
        if self._started < self._episodes and np.count_nonzero(self.running) < len(self.running):
            idle = np.flatnonzero(~self.running)[: self._episodes - self._started]
            self.episode, self.time, self.fresh = self.episode.copy(), self.time.copy(), self.running & False
            self.episode[idle] = self._started + np.arange(len(idle))
            self.time[idle], self.fresh[idle] = 0, True
            self.running = self.running | self.fresh
            self._started += len(idle)
        return bool(np.count_nonzero(self.running))

    def record(self, moved: Bool[np.ndarray, " n"], action: Int[np.ndarray, " n"], answer: Answer) -> None:
        """One step of the copies that `moved`."""
        next_obs, reward, terminated, truncated, _ = answer
        before, self.time = self.time, self.time + moved
        self._longest += 1
        if self._longest >= self._time_limit:
            truncated = truncated | (self.time >= self._time_limit)
            self._longest = int(self.time.max())
        step = (self.obs, action, reward, next_obs, terminated, truncated, moved)
        self._recent.append((self.episode, before, step))
        if len(self._recent) == AT_ONCE:
            self._write()
        self.obs = next_obs
        if np.count_nonzero(terminated) or np.count_nonzero(truncated):
            ended = moved & (terminated | truncated)
            self.running = self.running & ~ended
            self.episode = np.where(ended, NO_EPISODE, self.episode)

    def _write(self) -> None:
        if not self._recent:
            return
        episode, time, steps = zip(*self._recent, strict=True)
        columns = [np.array(column) for column in zip(*steps, strict=True)]
        moved = columns[-1]
        place = np.array(episode)[moved], np.array(time)[moved]
        for column, values in zip(self._columns, columns, strict=True):
            column[place] = values[moved]
        self._recent.clear()

    def part(self, steps: Int[np.ndarray, " n"]) -> Trajectory:
        """These steps of the first episode; none of those after its time limit happened."""
        self._write()
        there = steps < self._time_limit
        found = Trajectory(*(column[:1, np.where(there, steps, 0)] for column in self._columns))
        return found._replace(valid=found.valid & there)

    def broken(self, name: str, copy: int, ahead: int, problem: str) -> EpisodeBroken:
        """The failure of `copy` at the step after its last good one (`ahead` = 1) or in its reset (0)."""
        episode = self._episodes_before + self.episode[copy] + 1
        place = f"{name}, episode {episode}, step {self.time[copy] + ahead}"
        self._write()
        under_way = self.running & (self.time > 0)
        *_, truncated, valid = self._columns
        truncated[self.episode[under_way], self.time[under_way] - 1] = True
        kept = Trajectory(*(column[valid[:, 0]] for column in self._columns))
        return EpisodeBroken(f"{place}: {problem}", kept)
