"""Settings of PPO and PPO+RND: e3rl's own defaults, and the paper's tables by name."""

from dataclasses import dataclass
from typing import Any

from e3rl.baselines.base import AbstractBaseline
from e3rl.baselines.config import BaselineConfig
from e3rl.neural.settings import check
from e3rl.types import UserError


@dataclass(frozen=True)
class PPOConfig(BaselineConfig):
    """Every choice of a run. Where the paper has a symbol or a table for it, the field says so."""

    total_steps: int = 200_000
    """Environment steps of a run, all copies together."""
    copies: int = 8
    """n, environments in parallel."""
    steps: int = 32
    """T, steps of every copy between updates."""
    epochs: int = 20
    """Passes over each rollout."""
    minibatches: int = 1
    """Gradient steps per pass."""
    learning_rate: float = 1e-3
    """App. C.1 and C.3, PPO+RND: "Learning Rate"."""
    anneal: bool = True
    """Let the learning rate fall to 0, linearly over `total_steps`."""
    gradient_clip: float = 0.5
    """Largest norm of a gradient."""

    hidden: int = 64
    """Width of the two tanh layers (App. C.1 and C.3: "Hidden Layer Size"); RND's networks have the same width."""
    maps: int = 16
    """Feature maps of the two convolutions that images pass first."""
    shared_trunk: bool = False
    """One network for policy and values instead of one each."""
    input_gain: float = 16.0
    """Observations, scaled to [0, 1], are spread over so much. Most use a small part of their range, as the speeds
    of Acrobot do, whose bounds are wide."""
    value_gain: float = 1.0
    """Scale of the value heads' first weights; with 0 a stream is worth exactly nothing until it has paid."""

    discount: float = 0.98
    """γ, with RND γ_E (App. C.1 and C.3)."""
    gae_lambda: float = 0.8
    """λ (App. C.1 and C.3)."""
    clip: float = 0.2
    """ε of the clipped surrogate: how far one rollout may move an action's probability ratio from 1."""
    value_clip: float = 0.0
    """How far one rollout may move a value; 0 leaves values free."""
    value_coefficient: float = 0.5
    """Weight of the squared value error in the loss."""
    entropy_coefficient: float = 0.0
    """Weight of the policy's entropy in the loss."""
    normalise_advantages: bool = True
    """Mean 0 and deviation 1 within every minibatch."""
    extrinsic_coefficient: float = 1.0
    """App. C.1 and C.3: "Extrinsic Reward coefficient", on advantages."""

    rnd: bool = False
    """Random network distillation: a second stream of intrinsic rewards."""
    intrinsic_coefficient: float = 1.0
    """App. C.1 and C.3: "Intrinsic Reward coefficient", on advantages."""
    intrinsic_discount: float = 0.99
    """γ_I (App. C.1 and C.3)."""
    embedding: int = 64
    """Outputs of the random network."""
    predictor_share: float = 1.0
    """Share of the samples that trains the predictor."""
    obs_clip: float = 5.0
    """Normalised observations of RND's networks stay within ± this."""

    def __post_init__(self) -> None:
        check(
            self,
            positive=(
                "total_steps", "evaluation_episodes", "copies", "steps", "epochs", "minibatches", "hidden", "maps",
                "embedding",
            ),
            above_zero=("learning_rate", "gradient_clip", "clip", "obs_clip", "input_gain"),
            at_most_one=("discount", "gae_lambda", "intrinsic_discount", "predictor_share"),
        )  # fmt: skip
        if self.steps * self.copies % self.minibatches:
            raise UserError(
                f"minibatches must divide a rollout: {self.steps} steps of {self.copies} copies do not split "
                f"into {self.minibatches}"
            )

    def baseline(self) -> AbstractBaseline:
        from e3rl.baselines.ppo import PPO  # which is written in terms of these settings

        return PPO(self)


def _lock(**changes: Any) -> PPOConfig:
    """e3rl's settings for the lock, which hides the level: the clock shows it. What the paper's tables leave out is
    taken from here."""
    return PPOConfig(
        **{
            "total_steps": 500_000, "clock": True, "copies": 16, "steps": 20, "epochs": 8, "minibatches": 2,
            "learning_rate": 1e-3, "anneal": False, "input_gain": 1.0, "value_gain": 0.0,
            "discount": 0.999, "gae_lambda": 0.9,
            "entropy_coefficient": 0.01, "extrinsic_coefficient": 100.0, "rnd": True,
        } | changes,
    )  # fmt: skip


def _paper(**table: Any) -> PPOConfig:
    """What both PPO+RND tables of App. C say."""
    both = {
        "hidden": 64, "discount": 0.999, "intrinsic_discount": 0.99, "gae_lambda": 0.95,
        "intrinsic_coefficient": 1.0,
    }  # fmt: skip
    return _lock(**both | table)


PPO_CONFIGS: dict[str, PPOConfig] = {
    "e3rl-ppo": PPOConfig(),
    "e3rl-ppo-rnd": _lock(total_steps=200_000, clock=False, extrinsic_coefficient=2.0),
    "e3rl-lock-ppo": _lock(rnd=False),
    "e3rl-lock-ppo-rnd": _lock(),
    "paper-lock-ppo": _paper(learning_rate=1e-3, extrinsic_coefficient=100.0, rnd=False),
    "paper-lock-ppo-rnd": _paper(learning_rate=1e-3, extrinsic_coefficient=100.0),
    "paper-control-ppo-rnd": _paper(
        total_steps=1_000_000, clock=False, learning_rate=1e-4, extrinsic_coefficient=2.0
    ),
}
"""Named settings: e3rl's own, and the paper's, which never change after publication. The paper has no table for plain
PPO; its lock settings here are those of PPO+RND without the bonus, and nothing else differs."""
