"""The files of `e3rl reproduce`, found by the experiments' ids wherever they lie under a folder."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from e3rl.experiments.tables import UNFINISHED
from e3rl.reports import lock_budgets
from e3rl.reports.baselines import episodes_to_bar
from e3rl.reports.results import Result
from e3rl.reports.statistics.intervals import Share
from e3rl.reports.statistics.waiting import Waiting
from e3rl.types import UserError

DEPTHS = ("*.json", "*/*.json", "*/*/*.json")
CONFIRM = "confirm"
"""The same experiments on seeds that nobody had looked at: evidence of its own."""


class Evidence:
    """Everything that was measured. It remembers what it was asked for."""

    def __init__(self, results: dict[str, Result], folder: Path | None = None):
        self._results, self._folder = results, folder
        self.asked: list[str] = []

    @classmethod
    def under(cls, folder: Path) -> "Evidence":
        """All results below `folder`; of two with the same id the less deep. Files that name no experiment, as DREEM's,
        go by their own name: dreem/rank."""
        if not folder.is_dir():
            raise UserError(f"{folder} is not a folder; results are where `e3rl reproduce` has written them")
        found: dict[str, Result] = {}
        for path in (path for depth in DEPTHS for path in sorted(folder.glob(depth))):
            if {UNFINISHED, CONFIRM} & set(path.relative_to(folder).parts):
                continue
            try:
                about = json.loads(path.read_text())
            except ValueError as error:
                raise UserError(f"{path} is damaged: {error}") from error
            if isinstance(about, dict):
                name = str(about.get("experiment", f"{path.parent.name}/{path.stem}"))
                found.setdefault(name, Result(path, about))
        return cls(found, folder)

    def confirmed(self) -> "Evidence | None":
        """What confirmatory seeds gave, which lies beside everything else."""
        folder = None if self._folder is None else self._folder / CONFIRM
        return None if folder is None or not folder.is_dir() else Evidence.under(folder)

    def asking(self) -> "Evidence":
        """The same, with nothing asked yet."""
        return Evidence(self._results, self._folder)

    @property
    def named(self) -> dict[str, Result]:
        """Those that say which experiment they are of."""
        return {name: result for name, result in self._results.items() if "experiment" in result.about}

    def find(self, experiment: str) -> Result | None:
        if experiment not in self.asked:
            self.asked.append(experiment)
        return self._results.get(experiment)

    def need(self, experiment: str) -> Result:
        """What the documentation tells of."""
        found = self.find(experiment)
        if found is None:
            raise UserError(f"a page tells of {experiment}, which has no results")
        return found

    def first(self, *experiments: str) -> Result | None:
        """Of several in order of preference, the first that has been run."""
        found = [self.find(experiment) for experiment in experiments]
        return next((result for result in found if result is not None), None)

    def rows(self, experiment: str) -> list[dict[str, str]] | None:
        result = self.find(experiment)
        if result is None:
            return None
        try:
            with result.table.open(newline="") as file:
                return list(csv.DictReader(file))
        except (UnicodeDecodeError, csv.Error) as error:
            raise UserError(f"{result.table} is damaged: {error}") from error

    def solved(self, experiment: str, reward: str, ratio: int | None = None) -> Share | None:
        """Seeds of a lock that were solved, at one budget or after exploration ended by itself."""
        rows = self.rows(experiment)
        if rows is None:
            return None
        own = [row for row in rows if row["reward"] == reward and ratio in (None, int(row.get("ratio") or 0))]
        return Share(sum(row["solved"] == "True" for row in own), len(own)) if own else None

    def episodes_to_solve(self, experiment: str, reward: str) -> Waiting | None:
        """Of a lock: the smallest budget measured that solved a seed, or when exploration ended and it was solved."""
        rows = self.rows(experiment)
        return None if rows is None else lock_budgets.episodes_to_solve(rows, reward)

    def finals(self, *experiments: str) -> list[dict[str, Any]] | None:
        """What each seed of a baseline came to."""
        result = self.first(*experiments)
        return None if result is None else list(result.about["final"].values())

    def to_bar(self, *experiments: str) -> Waiting | None:
        finals = self.finals(*experiments)
        return None if finals is None else episodes_to_bar(finals)

    def first_found(self, *experiments: str) -> Waiting | None:
        """When a baseline first met the large reward or the goal."""
        finals = self.finals(*experiments)
        if finals is None:
            return None
        return Waiting.of([one["first_found"] for one in finals], [one["episodes"] for one in finals])

    def training_return(self, experiment: str, episodes: int) -> Float[np.ndarray, " seeds"] | None:
        """A baseline's mean return over its first so many episodes, as far as the stretches of its curve tell."""
        rows = self.rows(experiment)
        if rows is None:
            return None
        means = []
        for seed in dict.fromkeys(row["seed"] for row in rows):
            ends = np.array([int(row["episode"]) for row in rows if row["seed"] == seed])
            values = np.array([float(row["return_mean"]) for row in rows if row["seed"] == seed])
            counted = np.diff(np.minimum(ends, episodes), prepend=0)
            means.append(np.sum(counted * values) / np.sum(counted))
        return np.array(means)

    def greedy(self, experiment: str, most: int | None = None) -> Float[np.ndarray, " seeds"] | None:
        """Neural-E³'s greedy returns after its largest budget, or the largest of at most so many episodes."""
        result = self.find(experiment)
        if result is None:
            return None
        verdicts = [one for one in result.about["exploit"] if most is None or one["budget"] <= most]
        largest = max((one["budget"] for one in verdicts), default=None)
        own = sorted((one["seed"], one["return_mean"]) for one in verdicts if one["budget"] == largest)
        return np.array([value for _, value in own], float) if own else None

    def first_goal(self, experiment: str) -> Waiting | None:
        """When exploration of a maze or a control task first ended at the goal."""
        rows = self.rows(experiment)
        if rows is None:
            return None
        own = [row for row in rows if row["phase"] == "explore"]
        when: dict[str, int | None] = dict.fromkeys(row["seed"] for row in own)
        for row in sorted(own, key=lambda row: int(row["episode"])):
            if row["reached"] == "True" and when[row["seed"]] is None:
                when[row["seed"]] = int(row["episode"])
        played = {seed: sum(row["seed"] == seed for row in own) for seed in when}
        return Waiting.of(list(when.values()), list(played.values()))

    def explored(self, experiment: str, after: int = 0) -> Float[np.ndarray, " seeds"] | None:
        """Mean returns while exploring, of mazes and control tasks, by seed; of episodes `after` so many."""
        rows = self.rows(experiment)
        if rows is None:
            return None
        by_seed: dict[int, list[float]] = {}
        for row in rows:
            if row["phase"] == "explore" and int(row["episode"]) > after:
                by_seed.setdefault(int(row["seed"]), []).append(float(row["return"]))
        return np.array([np.mean(by_seed[seed]) for seed in sorted(by_seed)]) if by_seed else None
