"""Line 6 of Algorithm 1 for Neural-E³: how much return may still be missed, and when that is little enough."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from e3rl.neural.config import NeuralE3Config

QUIET, LOWEST, HIGHEST, V_EXPLORE = "quiet", "lowest_return", "highest_return", "v_explore"
MET = "met_unknown"
"""What a checkpoint says about where the rule stands."""


class Stopping:
    """Where the rule stands in every lane. A lane that is over stays as it is."""

    def __init__(self, config: NeuralE3Config, horizon: int, lanes: int):
        self.explore = config.explore
        self.calibrated = config.calibrated
        self.planned = config.planner.estimates
        """Whether planning tells v_explore; otherwise it is the unknown that the last epoch's episodes met."""
        self.patience = config.planner.patience(horizon)
        self.lowest = np.full(lanes, np.inf)
        self.highest = np.full(lanes, -np.inf)
        self.quiet = np.zeros(lanes, int)
        """Epochs in a row in which little was left to find."""
        self.v_explore = np.full(lanes, np.inf)
        self.met = np.full(lanes, np.inf)
        """The unknown that the last epoch's episodes met, in the mean."""

    @property
    def by_itself(self) -> bool:
        """Whether exploration can end before the number of episodes does it."""
        return self.calibrated and (self.explore.epsilon > 0 or self.explore.epsilon_share > 0)

    @property
    def over(self) -> Bool[np.ndarray, " lanes"]:
        return self.quiet >= self.patience

    @property
    def spread(self) -> Float[np.ndarray, " lanes"]:
        """Of the returns seen so far."""
        return np.maximum(self.highest - self.lowest, 0.0)

    @property
    def epsilon_hat(self) -> Float[np.ndarray, " lanes"]:
        """ε̂, in units of return: the unknown that the best explorer would meet in an episode, v_explore, times how far
        returns are apart. While all are the same nobody knows what the unknown is worth, and it is infinite."""
        apart = self.spread > 0.0
        return np.where(apart, np.where(apart, self.v_explore, 0.0) * self.spread, np.inf)

    def look(self, v_explore: Float[np.ndarray, " lanes"]) -> None:
        """What planning said at the beginning of an epoch."""
        over = self.over
        told = v_explore if self.planned else self.met
        self.v_explore = np.where(over, self.v_explore, np.maximum(told, 0.0))
        if not self.by_itself:
            return
        enough = self.explore.epsilon or self.explore.epsilon_share * self.spread
        little = self.epsilon_hat <= enough
        self.quiet = np.where(over, self.quiet, np.where(little, self.quiet + 1, 0))

    def saw(
        self, returns: Float[np.ndarray, "lanes n"], unknown: Float[np.ndarray, "lanes n"] | None = None
    ) -> None:
        """The episodes of an epoch, and how much of the unknown each of them met."""
        over = self.over
        if unknown is not None:
            self.met = np.where(over, self.met, unknown.mean(axis=1))
        self.lowest = np.where(over, self.lowest, np.minimum(self.lowest, returns.min(axis=1)))
        self.highest = np.where(over, self.highest, np.maximum(self.highest, returns.max(axis=1)))

    def abouts(self) -> list[dict[str, Any]]:
        """For the checkpoint, lane by lane."""
        return [
            {
                QUIET: int(self.quiet[lane]),
                LOWEST: float(self.lowest[lane]),
                HIGHEST: float(self.highest[lane]),
                V_EXPLORE: float(self.v_explore[lane]),
                MET: float(self.met[lane]),
            }
            for lane in range(len(self.quiet))
        ]

    def restore(self, abouts: Sequence[Mapping[str, Any]]) -> None:
        """From what checkpoints say; those from before there was a rule say nothing."""
        for lane, about in enumerate(abouts):
            if QUIET in about:
                self.quiet[lane] = about[QUIET]
                self.lowest[lane], self.highest[lane] = about[LOWEST], about[HIGHEST]
                self.v_explore[lane] = about[V_EXPLORE]
                self.met[lane] = about.get(MET, np.inf)

    def why(self, lane: int, episodes: int) -> str:
        """Why exploration ended, in words, where it could have ended by itself."""
        left = self.epsilon_hat[lane]
        if np.isinf(left):
            same = "every return was the same, and explore.episodes gives it more"
            return f"after {episodes} episodes, the most that it was given: {same}"
        missed = f"an estimated {left:.2g} of return may still be missed"
        if self.over[lane]:
            return f"by itself: {missed}"
        return f"after {episodes} episodes, the most that it was given: {missed}"
