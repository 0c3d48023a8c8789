"""What is remembered of exploring beside the table, and what it promises."""

import math
from typing import NamedTuple

import numpy as np

from e3rl.tabular.minds import Doubt, Outcomes

STARTS = 20
"""Beginnings of episodes by which the chance of a new one is told."""


class Experience(NamedTuple):
    """What is remembered beside the table."""

    starts: tuple[int, ...] = ()
    """Rows of the states in which episodes began."""
    fresh: tuple[bool, ...] = ()
    """Which of them had not been seen before."""
    worth: float = -math.inf
    """The best policy so far, by the posterior's mean."""
    last_news: int = 0
    """The episode that last brought a new state or a better policy."""
    steps: int = 0
    """Steps after the first episode that did not end it."""
    again: int = 0
    """Those that led to states known from earlier episodes."""

    def arrays(self) -> dict[str, np.ndarray]:
        return {name: np.array(value) for name, value in self._asdict().items()}

    @staticmethod
    def restored(arrays: dict[str, np.ndarray]) -> "Experience":
        return Experience(*(arrays.pop(name).tolist() for name in Experience._fields))

    def began(self, row: int, fresh: bool) -> "Experience":
        return self._replace(starts=(*self.starts, row), fresh=(*self.fresh, fresh))

    @property
    def new_starts(self) -> float:
        """The chance that an episode begins in a state never seen, by the last ones."""
        recent = self.fresh[1:][-STARTS:]
        return (sum(recent) + 0.5) / (len(recent) + 1.0)


class Prospect(NamedTuple):
    """What another episode of exploring promises."""

    value: float
    """v_explore."""
    doubt: Doubt
    outcomes: Outcomes
    """What is believed about the table."""
    challenger: int
    """The member whose own best policy is most at odds with the one to be returned."""
    experience: Experience
