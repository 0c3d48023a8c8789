"""The live line of a long run: phase, episode, return, disagreement, time left."""

import math
import sys
import time
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Progress(NamedTuple):
    """What a watcher sees, averaged over the seeds."""

    phase: str
    episode: int
    """Or steps, of an agent that counts those."""
    episodes: int
    mean_return: float
    disagreement: float
    seconds: float


Watcher: TypeAlias = Callable[[Progress], None]


def nobody(progress: Progress) -> None:
    """The watcher of a run that nobody watches."""


class LiveLine:
    """A watcher for people: a bar on a terminal, a line every few seconds elsewhere. All on stderr."""

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self.console = Console(stderr=True)
        self.bar: Bar | None = None
        self.last = 0.0
        self.first: Progress | None = None
        self.notes: list[str] = []
        """Lines to be said once the run is under way, or done, so that one that is refused prints its error alone."""

    def __enter__(self) -> "LiveLine":
        return self

    def _begin(self) -> None:
        if self.console.is_terminal:
            self.bar = Bar(
                TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"),
                TextColumn("left"), TimeRemainingColumn(), console=self.console,
            )  # fmt: skip
            self.task = self.bar.add_task("compiling", total=None, note="")
            self.bar.start()
        else:
            print("compiling; the first episode takes some seconds", file=sys.stderr)

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
            self._begin()
            return
        note = f"return {progress.mean_return:.2f}"
        if not math.isnan(progress.disagreement):
            note += f", disagreement {progress.disagreement:.2f}"
        if progress.phase == "training to exploit":
            note = "no more episodes needed for this"
        if self.bar is not None:
            self.bar.update(
                self.task,
                description=progress.phase,
                completed=progress.episode,
                total=max(progress.episodes, progress.episode),
                note=note,
            )
            return
        first = self.first = self.first or progress
        now = time.monotonic()
        learning = progress.phase in ("explore", "train")
        changed = not learning or progress.episode == progress.episodes
        if now - self.last < 5.0 and not changed:
            return
        self.last = now
        left = ""
        if learning and progress.episode > first.episode:
            # From the first report on: what comes before it is mostly compilation.
            pace = (progress.seconds - first.seconds) / (progress.episode - first.episode)
            left = f", {pace * (progress.episodes - progress.episode):.0f} s left"
        unit = "step" if progress.phase == "train" else "episode"
        print(
            f"{progress.phase}: {unit} {progress.episode}/{progress.episodes}, {note}{left}", file=sys.stderr
        )
