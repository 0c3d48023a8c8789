"""The record that a program keeps of its runs, one folder for each seed: rows, checkpoints, resuming, summaries."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from e3rl.runs.checkpoint import load_arrays, load_tree
from e3rl.runs.folder import RunFolder, checkpoint_together, complete_checkpoints
from e3rl.runs.lanes import by_lane, side_by_side
from e3rl.runs.logs import AbstractLog
from e3rl.runs.progress import LEARNING, Callback, Progress, Watcher, nobody
from e3rl.runs.statistics import mean_interval
from e3rl.signals import heeding, undisturbed
from e3rl.types import UserError

CHECKPOINT_SECONDS = 30.0
"""Between two checkpoints, unless the variable E3RL_CHECKPOINT_SECONDS says otherwise."""
CHECKPOINT_SHARE = 0.03
"""Of the time that a run takes, what its checkpoints may take at most."""
PATIENCE = 10.0
"""Seconds that nobody is told anything, at most."""
ROWS_SECONDS = 1.0
"""Between two additions to metrics.csv."""


class Resumed(NamedTuple):
    """Where the folders of a run stand."""

    state: Any
    """The state that was saved, a lane for each seed."""
    abouts: list[dict[str, Any]]
    """What was said about it, for each seed."""


class _Held(NamedTuple):
    """A state that could be saved, and the rows that belong to it."""

    epoch: int
    state: Any
    rows: Int[np.ndarray, " lanes"]
    abouts: list[dict[str, Any]]


class StopAsked(Exception):
    """A callback has asked to end the run here; what was held last is saved."""


class Record:
    """One per program. Without folders nothing is written and everything else is the same.

    Used as a context, more than once if that suits: when a signal or a person interrupts the run, a callback stops it,
    or an error that a person can mend ends it, what was held last is saved. The last to leave lets go of the folders.
    """

    def __init__(
        self,
        seeds: Sequence[int],
        folders: Sequence[RunFolder] = (),
        descriptions: Sequence[dict[str, Any]] = (),
        watch: Watcher = nobody,
        every: float | None = None,
        callback: Callback | None = None,
        log: AbstractLog | None = None,
    ):
        self.seeds = seeds
        self.folders = folders
        self.descriptions = descriptions
        self.watch = watch
        self.callback = callback
        self.log = log
        self.stopping = False
        """Whether the callback has asked to stop: the next state held is the last."""
        self.episodes = np.zeros(len(seeds), int)
        self.env_steps = np.zeros(len(seeds), int)
        self.seconds = 0.0
        """On the clock at the last report, those before an interruption included."""
        self.every = seconds_between() if every is None else every
        """Seconds between two checkpoints; 0 makes one of every state that is held."""
        self._clock = time.perf_counter()
        self._held: _Held | None = None
        self._complete = np.full(len(seeds), -1)
        """Rows of each seed when a state was held last."""
        self._due = self._clock + self.every
        self._rows_due = self._clock
        self._inside = 0
        self._leaving = ExitStack()

    def begin(self, resume: bool, like: Callable[[], Any] | None) -> Resumed | None:
        """Start the clock and the folders. Where these hold checkpoints, a state like one seed's `like()` is read;
        without it, the one seed's arrays by their names, whatever their shapes."""
        self._clock = time.perf_counter()
        self._due = self._clock + self.every
        if not self.folders:
            return None
        found = []
        for folder, about in zip(self.folders, self.descriptions, strict=True):
            found.append(folder.begin(about, resume))
            self._leaving.callback(folder.lock.release)
        if not any(found):
            for folder, about in zip(self.folders, self.descriptions, strict=True):
                folder.restart(about)
            return None
        complete_checkpoints(self.folders)
        states, abouts = zip(*self._read(like), strict=True)
        if len({about["epoch"] for about in abouts}) > 1:
            raise UserError("the seeds of this run were saved at different epochs: resume them one by one")
        for folder, about in zip(self.folders, abouts, strict=True):
            folder.keep_rows(about["rows"])
        self.episodes = np.array([about["rows"] for about in abouts])
        self.env_steps = np.array([about["env_steps"] for about in abouts])
        self.seconds = abouts[0]["seconds"]
        self._clock -= self.seconds
        return Resumed(states[0] if like is None else side_by_side(states), list(abouts))

    def _read(self, like: Callable[[], Any] | None) -> list[tuple[Any, dict[str, Any]]]:
        if like is None:
            found = [load_arrays(folder.state) for folder in self.folders]
            return [({name[2:-2]: array for name, array in arrays.items()}, about) for arrays, about in found]
        shapes = like()
        return [load_tree(folder.state, shapes) for folder in self.folders]

    def __enter__(self) -> "Record":
        if not self._inside:
            self._leaving.enter_context(heeding())
        self._inside += 1
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *_: object) -> None:
        self._inside -= 1
        try:
            if isinstance(error, KeyboardInterrupt | UserError | StopAsked):
                self.save()
            if isinstance(error, KeyboardInterrupt) and self.folders and not self._inside:
                error.add_note(self._what_is_saved())
        finally:
            if not self._inside:
                if self.log is not None:
                    self.log.close()
                self._leaving.close()

    def _what_is_saved(self) -> str:
        if not self.saved:
            return "nothing to save yet, the first epoch was under way"
        places = ", ".join(str(folder.path) for folder in self.folders)
        return f"saved in {places} after {max(len(folder.rows) for folder in self.folders)} episodes"

    @property
    def _can_save(self) -> bool:
        return self._held is not None and not _is_consumed(self._held.state)

    @property
    def saved(self) -> bool:
        """Whether there is something to go on from."""
        return any(folder.state.exists() for folder in self.folders)

    def read_clock(self) -> float:
        self.seconds = time.perf_counter() - self._clock
        return self.seconds

    def say(
        self,
        phase: str,
        done: int,
        total: int,
        mean_return: float = 0.0,
        disagreement: float = 0.0,
        what: str = "",
        at_most: bool = False,
        epsilon_hat: float = math.nan,
    ) -> None:
        """A word to the watcher and, about an epoch of learning, to the callback; the rows so far go to their files."""
        now = time.perf_counter()
        if now >= self._rows_due:
            self._rows_due = now + ROWS_SECONDS
            self.write_rows(durably=False)
        progress = Progress(
            phase, done, total, mean_return, disagreement, self.seconds, what, at_most, epsilon_hat
        )
        self.watch(progress)
        if self.callback is not None and phase in LEARNING and self.callback(progress) is False:
            self.stopping = True
            self._stop_if_complete()

    @contextmanager
    def patiently(self, phase: str, total: int) -> Iterator[None]:
        """While this goes on: a word about it to the watcher, if it takes long."""
        told = Progress(phase, int(self.episodes.max()), total, math.nan, math.nan, self.seconds)
        timer = threading.Timer(PATIENCE, self.watch, [told])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _stop_if_complete(self) -> None:
        """Stop where the callback has asked for it and every row belongs to a state that is held: some programs speak
        before they hold it, some after."""
        if self.stopping and np.array_equal(self._complete, self.episodes):
            raise StopAsked

    def add(self, lane: int, phase: str, total: float, length: int, env_steps: int, **columns: float) -> None:
        """A row for one episode of one seed, `env_steps` after it; columns not given have no value."""
        self.episodes[lane] += 1
        self.env_steps[lane] = env_steps
        if not self.folders:
            return
        about = {"phase": phase, "episode": int(self.episodes[lane]), "env_steps": int(env_steps)}
        played = {"return": float(total), "length": int(length), "seconds": round(self.seconds, 3)}
        none = dict.fromkeys(("disagreement", "model_loss", "v_explore", "epsilon_hat"), math.nan)
        row = {**none, **about, **played, **columns}
        if self.log is not None:
            self.log.add(self.folders, lane, row)
        self.folders[lane].add_row(**row)

    def hold(self, epoch: int, state: Any, abouts: Sequence[dict[str, Any]] = ()) -> None:
        """The state after so many epochs is complete, the rows so far belong to it: it is saved now, if it is time for
        that, or by `save`."""
        if self.folders:
            each = list(abouts) or [{} for _ in self.seeds]
            steps = [
                {**about, "env_steps": int(count)} for about, count in zip(each, self.env_steps, strict=True)
            ]
            self._held = _Held(epoch, state, self.episodes.copy(), steps)
            if time.perf_counter() >= self._due:
                self.save()
        self._complete = self.episodes.copy()
        self._stop_if_complete()

    def save(self) -> None:
        """A checkpoint of what is held, unless it is written already or has been consumed since."""
        if self._held is None or not self._can_save:
            return
        with undisturbed():
            (epoch, state, rows, abouts), self._held = self._held, None
            began = time.perf_counter()
            for folder, count in zip(self.folders, rows, strict=True):
                folder.rows = folder.rows[: int(count)]
            every = [{"epoch": epoch, "seconds": self.seconds, **about} for about in abouts]
            checkpoint_together(self.folders, by_lane(jax.block_until_ready(state), len(self.seeds)), every)
            now = time.perf_counter()
            self._due = now + (max(self.every, (now - began) / CHECKPOINT_SHARE) if self.every else 0.0)

    def stopped(self, lane: int) -> dict[str, Any]:
        """What is said about a seed's run that the callback stopped."""
        about = self.descriptions[lane] if self.descriptions else {"seed": self.seeds[lane]}
        where = str(self.folders[lane].path) if self.folders else None
        done = {"total_episodes": int(self.episodes[lane]), "env_steps": int(self.env_steps[lane])}
        return {**about, **done, "wall_seconds": round(self.seconds, 3), "saved_in": where}

    def write_rows(self, durably: bool = True) -> None:
        for folder in self.folders:
            folder.write_rows(durably)

    def insist(
        self, sound: Bool[np.ndarray, " lanes"], values: Float[np.ndarray, " lanes"], what: str, when: str
    ) -> None:
        """Stop where a seed's number is not sound; the state held before is then saved."""
        if sound.all():
            return
        lane = int(np.argmin(sound))
        kept = " The checkpoint from before it is kept." if self._can_save or self.saved else ""
        raise UserError(f"the {what} of seed {self.seeds[lane]} became {values[lane]}{when}.{kept}")

    def summary(
        self, lane: int, returns: Float[np.ndarray, " n"], optimum: float | None, **more: Any
    ) -> dict[str, Any]:
        """What is said about a seed's run, whose greedy episodes at the end had these returns."""
        mean, low, high = mean_interval(returns)
        about = self.descriptions[lane] if self.descriptions else {"seed": self.seeds[lane]}
        return {
            **about,
            "total_episodes": int(self.episodes[lane]),
            "exploit_return_mean": mean,
            "exploit_return_ci": None if math.isnan(low) else [low, high],
            "optimal_return": optimum,
            "wall_seconds": round(self.read_clock(), 3),
            "seeds_in_program": len(self.seeds),
            **more,
        }

    def finish(self, policies: Any, summaries: Sequence[dict[str, Any]]) -> None:
        """The last files of every seed: rows, policy, summary."""
        if not self.folders:
            return
        each = by_lane(policies, len(self.seeds))
        for folder, policy, summary in zip(self.folders, each, summaries, strict=True):
            folder.finish(policy, summary)


def _is_consumed(state: Any) -> bool:
    """Whether a program has been given the state's memory to work in, and was then interrupted."""
    return any(isinstance(leaf, jax.Array) and leaf.is_deleted() for leaf in jax.tree.leaves(state))


def seconds_between() -> float:
    """Two checkpoints, as the variable says."""
    text = os.environ.get("E3RL_CHECKPOINT_SECONDS", "")
    try:
        seconds = float(text or CHECKPOINT_SECONDS)
    except ValueError:
        seconds = -1.0
    if not 0.0 <= seconds < math.inf:
        raise UserError(f"E3RL_CHECKPOINT_SECONDS must be a number of seconds, got {text!r}")
    return seconds
