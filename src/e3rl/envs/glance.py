"""What some short episodes of random play show of an environment."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces
from jaxtyping import Float32

from e3rl.envs.adapter import GymnasiumEnvironment
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.blame import RAISED
from e3rl.envs.registration import FunctionalGymEnv

EPISODES, STEPS = 10, 20
MOST_CATEGORIES = 32
"""Distinct values from which on an image is taken to show brightness."""
FEWEST_CATEGORIES = 8
"""Room for ids that random play does not come across."""
EVEN = 0.01
"""How far a value may be from a whole number of steps, in steps."""


@dataclass(frozen=True)
class Glance:
    """Encoded observations and rewards, episode by episode; nothing where the environment failed."""

    episodes: list[list[Float32[np.ndarray, "*obs"]]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)

    @property
    def frames(self) -> list[Float32[np.ndarray, "*obs"]]:
        return [frame for episode in self.episodes for frame in episode]

    @property
    def rewards_differ(self) -> bool:
        """Whether most steps pay something else than all others."""
        return len(set(self.rewards)) > len(self.rewards) / 2

    @property
    def one_hot(self) -> bool:
        """Whether every observation has a single 1 among zeros."""
        frames = self.frames
        return bool(frames) and all(
            frame.ndim == 1
            and frame.sum() == 1.0
            and frame.max() == 1.0
            and (frame == 0.0).sum() == frame.size - 1
            for frame in frames
        )

    @property
    def black_and_white(self) -> bool:
        """Whether all entries are zeros and ones."""
        return bool(self.episodes) and bool(np.isin(self.frames, (0.0, 1.0)).all())


@dataclass(frozen=True)
class Categories:
    """Values of an image that are ids: k · `unit` is the k-th of `count`, on the scale where bounds are 0 and 1."""

    count: int
    unit: float


def glance(env: AbstractEnvironment | GymnasiumEnvironment) -> Glance:
    """Some short episodes of uniformly random play."""
    if isinstance(env, AbstractEnvironment):
        env = GymnasiumEnvironment(FunctionalGymEnv(env))
    random = np.random.default_rng(0)
    episodes, rewards = [], []
    try:
        for episode in range(EPISODES):
            frames, ended = [env.reset(episode)], False
            while not ended and len(frames) < STEPS:
                frame, reward, terminated, truncated = env.step(random.integers(env.num_actions))
                frames.append(frame)
                rewards.append(float(reward))
                ended = terminated or truncated
            episodes.append(frames)
    except RAISED:  # whatever an environment raises will be told when it is trained on
        return Glance()
    return Glance(episodes, rewards)


def categories_of(seen: Glance, space: Any) -> Categories | None:
    """The categories that an image is made of, or None where its values are brightness: few distinct ones, evenly
    spaced, more than black and white."""
    if not (isinstance(space, spaces.Box) and seen.episodes and seen.frames[0].ndim == 3):
        return None
    low, high = float(space.low.min()), float(space.high.max())
    if low != space.low.max() or high != space.high.min():
        return None  # a step would be another part of every entry's range
    if not (np.isfinite(low) and np.isfinite(high) and high > low) or seen.black_and_white:
        return None
    whole = np.issubdtype(space.dtype, np.integer)
    # Frames come as bytes divided by their bound, and everything else as it is.
    scaled = (
        np.stack(seen.frames) if space.dtype == np.uint8 else (np.stack(seen.frames) - low) / (high - low)
    )
    values = np.unique(scaled)
    if len(values) > MOST_CATEGORIES:
        return None
    unit = 1.0 / (high - low) if whole else float(np.diff(values).min(initial=1.0))
    steps = values / unit
    if np.abs(steps - np.round(steps)).max() > EVEN or round(steps.max()) >= MOST_CATEGORIES:
        return None
    declared = round(1.0 / unit) + 1
    room = max(FEWEST_CATEGORIES, 2 ** int(np.ceil(np.log2(steps.max() + 1.5))))
    return Categories(min(declared, room), unit)
