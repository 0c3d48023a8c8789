"""Settings of the baselines: what all of them share, and the DQN's by name."""

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from e3rl.baselines.base import AbstractBaseline
from e3rl.baselines.dqn import DoubleDQN
from e3rl.models.qnetwork import QSettings
from e3rl.neural.settings import changed, check
from e3rl.types import UserError


@dataclass(frozen=True)
class BaselineConfig:
    """What the frame needs to know about any baseline. Each algorithm's own settings extend it."""

    total_steps: int = 100_000
    """Environment steps of training, those of all parallel environments together."""
    clock: bool = False
    """Observations come with a one-hot of the time step, as the lock's need that do not show the level."""
    evaluation_episodes: int = 100
    """Greedy episodes at the end."""

    @abstractmethod
    def baseline(self) -> AbstractBaseline:
        """The algorithm with these settings."""


Config = TypeVar("Config", bound=BaselineConfig)


def configured(configs: Mapping[str, Config], name: str, changes: Mapping[str, str]) -> Config:
    """The settings called `name` among `configs`, with `key=value` changes given as text."""
    if name not in configs:
        raise UserError(f"unknown config {name!r}; known: {', '.join(configs)}")
    return changed(configs[name], changes)


@dataclass(frozen=True)
class DQNConfig(BaselineConfig):
    """Double DQN with prioritised replay (sections 5.1 to 5.3). What a table of appendix C has, the field says."""

    copies: int = 4
    """Environments in parallel."""
    steps: int = 4
    """Steps of each environment between two rounds of updates."""
    updates: int = 8
    """Gradient steps per round."""
    hidden: int = 128
    """Width of the two hidden layers ("Hidden Layer Size" in the DQN tables of C.1, C.2, C.3)."""
    maps: int = 8
    """Feature maps of the one convolution that images pass first (C.2: "Feature Maps", "Convolutional Layers")."""
    learning_rate: float = 2e-3
    """Adam's step ("Learning Rate" in the tables)."""
    anneal: bool = True
    """Let the learning rate fall to 0, in a straight line over the training."""
    gradient_clip: float = 10.0
    """Largest global norm of a gradient."""
    huber: float = 20.0
    """Errors beyond this count linearly instead of squared: small beside the values, rare ends hardly count."""
    discount: float = 0.99
    """γ ("Discount Factor" in the tables)."""
    batch: int = 64
    """Transitions per gradient step."""
    capacity: int = 100_000
    """Transitions the buffer holds before the oldest are overwritten."""
    learning_starts: int = 1_000
    """Transitions before the first gradient step."""
    target_period: int = 128
    """Gradient steps between copies of the online network to the target network; ignored with a `target_rate`."""
    target_rate: float = 0.0
    """Polyak step of the target network towards the online one, after every gradient step; 0 for copies."""
    exploration_fraction: float = 0.1
    """Share of the training over which ε falls from 1 to its final value (C.1: "Exploration Fraction")."""
    final_epsilon: float = 0.02
    """ε from then on."""
    optimism: float = 0.0
    """What every action is worth before any training. With as much as there is to win, acting greedily explores: what
    was tried in vain loses its promise."""
    average_share: float = 0.2
    """The greedy policy has the mean of the weights over the last part of training, this share; 0: the last weights."""
    alpha: float = 0.6
    """Exponent of the priorities; 0 draws uniformly ("Prioritized Replay" in the tables: true)."""
    beta: float = 0.4
    """Exponent of the importance weights at the start; it rises to 1 by the end of training."""

    def __post_init__(self) -> None:
        check(
            self,
            positive=(
                "total_steps", "evaluation_episodes", "copies", "steps", "updates", "hidden", "maps", "batch",
                "capacity", "learning_starts", "target_period",
            ),
            above_zero=("learning_rate", "gradient_clip", "huber", "exploration_fraction"),
            at_most_one=(
                "discount", "exploration_fraction", "final_epsilon", "alpha", "beta", "target_rate", "average_share",
            ),
        )  # fmt: skip
        if self.capacity < max(self.learning_starts, self.copies * self.steps):
            raise UserError(
                f"capacity must hold learning_starts and a round of copies × steps, got {self.capacity}"
            )

    def baseline(self) -> DoubleDQN:
        updates = max(1, self.total_steps // (self.copies * self.steps)) * self.updates
        return DoubleDQN(
            self.steps, self.copies, self.updates, self.hidden, self.maps, self.batch, self.capacity,
            self.learning_starts, self.discount, self.alpha, self.beta, self.final_epsilon,
            self.exploration_fraction, self.optimism, self.average_share, self.total_steps,
            QSettings(
                self.learning_rate, self.gradient_clip, self.target_rate, self.target_period, self.huber,
                decay=updates if self.anneal else 0, left=0.0,
            ),
        )  # fmt: skip


def _paper(**table: Any) -> DQNConfig:
    """A table of appendix C; what it leaves out are the defaults of OpenAI Baselines, which the paper used: a gradient
    step of 32 transitions at every step of one environment, a target network copied every 500."""
    unsaid: dict[str, Any] = {
        "copies": 1, "steps": 1, "updates": 1, "batch": 32, "capacity": 50_000, "learning_starts": 1_000,
        "target_period": 500, "exploration_fraction": 0.1, "final_epsilon": 0.02, "anneal": False, "huber": 1.0,
        "average_share": 0.0,
    }  # fmt: skip
    return DQNConfig(**{**unsaid, **table})


LOCK_EPISODES = 50_000
"""Of training on the lock: the paper does not say how many its fraction of exploration refers to."""


def _paper_lock(horizon: int, antishaped: bool) -> DQNConfig:
    """App. C.1, with the level as an input as in the paper's code. The paper suspects that its networks happen to start
    with optimistic values, without which the DQN fails from ten levels on; here they start at the lock's reward."""
    return _paper(
        total_steps=LOCK_EPISODES * horizon,
        clock=True,
        learning_rate=1e-2,
        hidden=64,
        discount=0.99,
        exploration_fraction=0.01 if antishaped else 0.001,
        optimism=5.0,
    )


HORIZONS = (5, 10, 15, 20)

DQN_CONFIGS: dict[str, DQNConfig] = {
    "e3rl-dqn": DQNConfig(),
    "e3rl-lock-dqn": DQNConfig(clock=True),
    **{f"paper-lock-dqn-h{horizon}": _paper_lock(horizon, antishaped=False) for horizon in HORIZONS},
    **{
        f"paper-lock-antishaped-dqn-h{horizon}": _paper_lock(horizon, antishaped=True) for horizon in HORIZONS
    },
    "paper-lock-dqn-h10-plain": dataclasses.replace(_paper_lock(10, antishaped=False), optimism=0.0),
    "paper-maze-dqn": _paper(
        total_steps=500_000, learning_rate=1e-4, maps=8, hidden=64, discount=0.99, capacity=20_000
    ),
    "paper-control-dqn": _paper(total_steps=400_000, learning_rate=1e-3, hidden=64, discount=0.99),
}
"""Named settings: e3rl's own, and the paper's, which never change after publication; "plain" is without optimism."""
