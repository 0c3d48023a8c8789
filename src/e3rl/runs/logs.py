"""A run's rows for programs that draw them while they come, beside metrics.csv and with the same columns."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from e3rl.runs.folder import COLUMNS, RunFolder
from e3rl.types import UserError


class AbstractLog(ABC):
    """Hears of every row that a run adds to metrics.csv."""

    @abstractmethod
    def add(self, folders: Sequence[RunFolder], lane: int, row: Mapping[str, Any]) -> None:
        """A row of one seed, by column, which comes after those that the folders hold already."""

    @abstractmethod
    def close(self) -> None:
        """The run has ended, by itself or not."""


class TensorBoard(AbstractLog):
    """Event files in `DIR/tensorboard/`: a scalar `column/phase` for every column of metrics.csv, by episode."""

    def __init__(self) -> None:
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise UserError(
                'the log "tensorboard" needs a package that is not installed: pip install "e3rl[tensorboard]"'
            ) from error
        self._writer = SummaryWriter
        self._writers: list[Any] = []

    def add(self, folders: Sequence[RunFolder], lane: int, row: Mapping[str, Any]) -> None:
        if not self._writers:
            self._begin(folders)
        self._write(lane, row)

    def _begin(self, folders: Sequence[RunFolder]) -> None:
        """On resuming, the rows that stand are written again: episodes after the checkpoint are made anew, and the
        run may not have been logged before. `purge_step` hides what earlier files say."""
        for lane, folder in enumerate(folders):
            place = str(folder.path / "tensorboard")
            self._writers.append(self._writer(place, purge_step=1, flush_secs=10))
            for row in folder.rows:
                self._write(lane, dict(zip(COLUMNS, row, strict=True)))

    def _write(self, lane: int, row: Mapping[str, Any]) -> None:
        for column in COLUMNS:
            if column in ("phase", "episode"):
                continue
            value = float(row[column])
            if not math.isnan(value):
                self._writers[lane].add_scalar(f"{column}/{row['phase']}", value, int(row["episode"]))

    def close(self) -> None:
        while self._writers:
            self._writers.pop().close()


LOGS: dict[str, type[AbstractLog]] = {"tensorboard": TensorBoard}


def open_log(name: str) -> AbstractLog:
    if name not in LOGS:
        raise UserError(f"unknown log {name!r}; known: {', '.join(LOGS)}")
    return LOGS[name]()
