"""The live line of a long run: what is compiled, then phase, episode, return, disagreement, time left."""

import math
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn
from rich.progress import Progress as Bar

from e3rl.runs.kept_programs import compiled_so_far, what_became_of_compiling
from e3rl.runs.summary import duration

PRACTISING, FITTING = "practising", "fitting models"
LEARNING = ("explore", "train", PRACTISING)
"""Phases that are told epoch by epoch, or round by round."""
COMPILED = 2
"""Reports before which something is still compiled: the first epoch plans nothing, the second does."""
LARGE = 1e6
"""Numbers from here on are powers of ten."""
AGREED, SPREAD = 3, 0.25
"""Estimates in a row, and by how much of the time left they may differ, before one is told."""


class Progress(NamedTuple):
    """What a watcher sees, averaged over the seeds."""

    phase: str
    episode: int
    """Or steps, of an agent that counts those."""
    episodes: int
    mean_return: float
    disagreement: float
    seconds: float
    what: str = ""
    """What is compiled, in the phase `compiling`; which round, in those of practice."""
    at_most: bool = False
    """Whether learning may end by itself before so many episodes."""
    epsilon_hat: float = math.nan
    """How much return may still be missed, by the seed of which most may; nan where nobody knows."""
    apart: int = 0
    """How many seeds this is about, where each is trained by itself at its own pace; episodes are then those of all."""
    done: int = 0
    """How many of those have come to their end."""


Watcher: TypeAlias = Callable[[Progress], None]
Callback: TypeAlias = Callable[[Progress], bool | None]
"""Called after every epoch of learning and every round of practice; False stops the run, which is saved and can be
resumed."""


def nobody(progress: Progress) -> None:
    """The watcher of a run that nobody watches."""


class TimeLeft:
    """How long learning still takes, by the pace of its later half; None until some estimates in a row agree."""

    def __init__(self) -> None:
        self._reports = 0
        self._marks: deque[tuple[float, int]] = deque(maxlen=64)
        self._ends: deque[float] = deque(maxlen=AGREED)

    def __call__(self, progress: Progress) -> float | None:
        self._reports += 1
        if self._reports < COMPILED:
            return None
        self._marks.append((progress.seconds, progress.episode))
        then, before = self._marks[len(self._marks) // 2 if len(self._marks) > 2 else 0]
        if progress.episode == before:
            return None
        pace = (progress.seconds - then) / (progress.episode - before)
        left = pace * max(progress.episodes - progress.episode, 0)
        self._ends.append(progress.seconds + left)
        steady = max(self._ends) - min(self._ends) <= max(SPREAD * left, 1.0)
        return left if len(self._ends) == AGREED and steady else None


def _note(progress: Progress, left: float | None) -> str:
    seeds = [f"{progress.done} of {progress.apart} seeds done"] if progress.apart else []
    if progress.phase == FITTING:
        return ", ".join(["which takes a while for images and on a CPU", *seeds])
    if progress.phase == "training to exploit":
        needed = f"for {progress.what}" if progress.what else "no more episodes needed"
        return ", ".join([f"{needed}; compiled if new, up to a minute", *seeds])
    told = {"return": progress.mean_return, "disagreement": progress.disagreement}
    words = [f"{name} {_number(value)}" for name, value in told.items() if not math.isnan(value)]
    if math.isfinite(progress.epsilon_hat):
        words.append(f"ε̂ {progress.epsilon_hat:.2g}")
    if left:
        words.append(f"{'at most' if progress.at_most else 'about'} {duration(left)} left")
    return ", ".join([*(words or ["no episode has ended yet"]), *seeds])


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < LARGE else f"{value:.2g}"


def _headed(progress: Progress) -> str:
    return f"{progress.phase}: {progress.what}" if progress.phase == PRACTISING else progress.phase


class LiveLine:
    """A watcher for people: a bar on a terminal, a line every few seconds elsewhere. All on stderr."""

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self.console = Console(stderr=True)
        self.bar: Bar | None = None
        self.last = 0.0
        self.left = TimeLeft()
        self.notes: list[str] = []
        """Lines to be said once the run is under way, or done, so that one that is refused prints its error alone."""
        self.compiling: Counter[str] | None = None
        """What had been compiled when something is being compiled."""

    def __enter__(self) -> "LiveLine":
        return self

    def _begin(self, what: str) -> None:
        """Another program of the same command (a seed by itself) starts over."""
        self.left, self.compiling = TimeLeft(), compiled_so_far()
        text = f"compiling, up to a minute: {what or 'the agent'}"
        if not self.console.is_terminal:
            print(text, file=sys.stderr)
            return
        if self.bar is None:
            self.bar = Bar(
                SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=20), MofNCompleteColumn(),
                TextColumn("{task.fields[note]}"), console=self.console,
            )  # fmt: skip
            self.bar.add_task(text, total=None, note="")
            self.bar.start()
        self._spin(self.bar, text, 0, "")

    def _spin(self, bar: Bar, text: str, done: int, note: str) -> None:
        """Nobody knows how far this is: a spinner that turns, a bar that pulses."""
        [task] = bar.tasks
        bar.reset(task.id, description=text, completed=done, note=note)
        task.total = None  # to `reset` and `update`, None is to leave it as it is

    def _draw(self, bar: Bar, progress: Progress, note: str) -> None:
        if progress.phase in (FITTING, "training to exploit"):
            self._spin(bar, progress.phase, progress.episode, note)
            return
        bar.update(
            bar.tasks[0].id,
            description=_headed(progress),
            completed=progress.episode,
            total=max(progress.episodes, progress.episode),
            note=note,
        )

    def _say_notes(self) -> None:
        while self.notes:
            print(self.notes.pop(0), file=sys.stderr)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._say_notes()
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, progress: Progress) -> None:
        self._say_notes()
        if self.quiet:
            return
        if progress.phase == "compiling":
            self._begin(progress.what)
            return
        if self.compiling is not None and progress.phase != FITTING:
            self.notes += filter(None, [what_became_of_compiling(self.compiling)])
            self.compiling = None
            self._say_notes()
        learning = progress.phase in LEARNING and progress.phase != PRACTISING
        left = self.left(progress) if learning else None
        note = _note(progress, left)
        if self.bar is not None:
            self._draw(self.bar, progress, note)
            return
        now = time.monotonic()
        changed = not learning or progress.episode == progress.episodes
        if now - self.last < 5.0 and not changed:
            return
        self.last = self.last if progress.phase == FITTING else now
        unit = "step" if progress.phase == "train" else "episode"
        place = f": {unit} {progress.episode}/{progress.episodes}" if progress.phase != PRACTISING else ""
        print(f"{_headed(progress)}{place}, {note}", file=sys.stderr)
