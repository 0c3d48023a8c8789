"""Many cells: one after the other here, in processes of this machine, or on a Ray cluster (`sweep_on_ray`). What a cell
gives does not depend on where it ran, one that fails does not keep the others from running, and one whose process was
lost is taken up again where it was."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from e3rl.experiments.failed import note_failure
from e3rl.experiments.provenance import provenance
from e3rl.runs.folder import write_json
from e3rl.runs.processors import bound_to, processors, shares

Say = Callable[[str], None]
RETRIES = 3
"""Times that a cell is taken up again after its process was lost."""
ONE_LINE = "e3rl: error: "
"""How the command line says what went wrong."""


@dataclass(frozen=True)
class Task:
    """One cell to run, and where its results are to lie."""

    cell: str
    out: Path
    seeds: tuple[int, ...] = ()
    smoke: bool = False
    again: bool = False

    @property
    def command(self) -> list[str]:
        """What the command line is given to run it."""
        words = ["reproduce", self.cell, "--out", str(self.out)]
        words += ["--seeds", ",".join(map(str, self.seeds))] if self.seeds else []
        words += ["--scale", "smoke"] if self.smoke else []
        return [*words, "--again"] if self.again else words


@dataclass(frozen=True)
class Outcome:
    """What became of a cell."""

    cell: str
    seconds: float
    error: str | None = None

    def told(self, done: int, total: int) -> str:
        became = "done" if self.error is None else f"failed: {self.error}"
        return f"[{done} of {total}] {self.cell}: {became}, {self.seconds:.0f} s"


class Tally:
    """What has become of the cells so far. Each is told of, and a failure noted beside the results."""

    def __init__(self, tasks: Sequence[Task], say: Say):
        self.outcomes: list[Outcome] = []
        self._total, self._say = len(tasks), say

    def take(self, task: Task, seconds: float, error: str | None) -> None:
        self.outcomes.append(Outcome(task.cell, seconds, error))
        if error is not None:
            note_failure(task.out, task.cell, error, task.seeds, task.smoke)
        self._say(self.outcomes[-1].told(len(self.outcomes), self._total))


def sweep_here(
    tasks: Sequence[Task], run: Callable[[Task], None], explain: Callable[[Exception], str], say: Say
) -> list[Outcome]:
    """One after the other in this process. An interruption ends all of it."""
    tally = Tally(tasks, say)
    for task in tasks:
        started, error = time.perf_counter(), None
        try:
            run(task)
        except Exception as failure:
            error = explain(failure)
        tally.take(task, time.perf_counter() - started, error)
    return tally.outcomes


def sweep_in_processes(tasks: Sequence[Task], workers: int, say: Say) -> list[Outcome]:
    """As many at once as there are workers, each on processors of its own."""
    free: SimpleQueue[set[int]] = SimpleQueue()
    for share in shares(processors(), workers):
        free.put(share)
    running: set[subprocess.Popen[str]] = set()
    stopped = threading.Event()
    tally = Tally(tasks, say)

    def work(task: Task) -> tuple[Task, float, str | None]:
        own, started = free.get(), time.perf_counter()
        try:
            error = _attempts(task, own, running, stopped, say)
        finally:
            free.put(own)
        return task, time.perf_counter() - started, error

    with ThreadPoolExecutor(workers) as pool:
        try:
            for future in as_completed([pool.submit(work, task) for task in tasks]):
                tally.take(*future.result())
        finally:  # all are done, unless somebody has interrupted: then those that wait have nothing to do either
            stopped.set()
            for process in tuple(running):
                process.terminate()
    return tally.outcomes


def _attempts(
    task: Task, own: set[int], running: set[subprocess.Popen[str]], stopped: threading.Event, say: Say
) -> str | None:
    """Why a cell failed; None if it did not. A process that was killed is followed by another."""
    for attempt in range(RETRIES + 1):
        if stopped.is_set():
            return "interrupted"
        code, last = _attempt(task, own, running, stopped, say)
        if code == 0:
            return None
        if code > 0:
            return last.removeprefix(ONE_LINE) or f"exit code {code}"
        if attempt < RETRIES and not stopped.is_set():
            say(f"{task.cell}: its process was lost (signal {-code}), it is taken up again")
    return f"its process was lost {RETRIES + 1} times"


def _attempt(
    task: Task, own: set[int], running: set[subprocess.Popen[str]], stopped: threading.Event, say: Say
) -> tuple[int, str]:
    """The exit code of a cell's process and its last words; everything else it says is passed on."""
    last = ""
    with bound_to(own):
        process = subprocess.Popen(
            [sys.executable, "-m", "e3rl.cli", *task.command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **os.environ},  # they may share an accelerator
        )
    with process:
        running.add(process)
        if stopped.is_set():  # just now, by somebody who has not seen this one
            process.terminate()
        for line in process.stderr or ():
            last = line.strip() or last
            if not last.startswith(ONE_LINE):
                say(last)
        running.discard(process)
    return process.returncode, last


def failures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {outcome.cell: outcome.error for outcome in outcomes if outcome.error is not None}


def write_sweep(root: Path, figure: str, command: str, outcomes: Sequence[Outcome], seconds: float) -> None:
    """How long the cells of a figure took, each and all in all, where one command has run all of them."""
    cells = {one.cell: {"seconds": round(one.seconds, 1)} for one in outcomes}
    path = root / "sweeps" / f"{figure}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    told = {"config": {"figure": figure}, "seconds": round(seconds, 1), "cells": cells}
    write_json(path, {**told, **provenance(command)})
