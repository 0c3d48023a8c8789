"""Named settings of the baselines: e3rl's own, and the paper's tables (appendix C), which never change after
publication."""

from typing import Any

from e3rl.baselines.bonus import NoBonus
from e3rl.baselines.dqn import DQNConfig
from e3rl.baselines.ppo import PPOConfig
from e3rl.baselines.rnd import Rnd


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


def _paper_lock(horizon: int, antishaped: bool, optimism: float = 0.0) -> DQNConfig:
    """App. C.1, with the level as an input as in the paper's code."""
    return _paper(
        total_steps=LOCK_EPISODES * horizon,
        clock=True,
        learning_rate=1e-2,
        hidden=64,
        discount=0.99,
        exploration_fraction=0.01 if antishaped else 0.001,
        optimism=optimism,
    )


OPTIMISM = 5.0
"""The lock's reward. The paper suspects that its networks happen to start with optimistic values; without them no DQN
was seen to open ten levels or more. In the presets called optimistic they start here."""
HORIZONS = (5, 10, 15, 20)

DQN_CONFIGS: dict[str, DQNConfig] = {
    "e3rl-dqn": DQNConfig(),
    "e3rl-lock-dqn": DQNConfig(clock=True),
    **{
        f"{whose}-lock-{'antishaped-' if antishaped else ''}dqn-h{horizon}": _paper_lock(
            horizon, antishaped, optimism
        )
        for whose, optimism in (("paper", 0.0), ("optimistic", OPTIMISM))
        for antishaped in (False, True)
        for horizon in HORIZONS
    },
    "paper-maze-dqn": _paper(
        total_steps=500_000, learning_rate=1e-4, maps=8, hidden=64, discount=0.99, capacity=20_000
    ),
    "paper-control-dqn": _paper(total_steps=400_000, learning_rate=1e-3, hidden=64, discount=0.99),
}
"""Named settings: e3rl's own, and the paper's, which never change after publication; "optimistic" are the paper's on
the lock with values that start high."""


def _lock_ppo(**changes: Any) -> PPOConfig:
    """e3rl's settings for the lock, which hides the level: the clock shows it. What the paper's tables leave out is
    taken from here."""
    own: dict[str, Any] = {
        "total_steps": 500_000, "clock": True, "copies": 16, "steps": 20, "epochs": 8, "minibatches": 2,
        "learning_rate": 1e-3, "anneal": False, "input_gain": 1.0, "value_gain": 0.0,
        "discount": 0.999, "gae_lambda": 0.9,
        "entropy_coefficient": 0.01, "extrinsic_coefficient": 100.0, "bonus": Rnd(),
    }  # fmt: skip
    return PPOConfig(**own | changes)


def _paper_ppo(**table: Any) -> PPOConfig:
    """What both PPO+RND tables of App. C say."""
    both = {"hidden": 64, "discount": 0.999, "gae_lambda": 0.95, "bonus": Rnd(coefficient=1.0, discount=0.99)}
    return _lock_ppo(**both | table)


PPO_CONFIGS: dict[str, PPOConfig] = {
    "e3rl-ppo": PPOConfig(),
    "e3rl-ppo-rnd": _lock_ppo(total_steps=200_000, clock=False, extrinsic_coefficient=2.0),
    "e3rl-lock-ppo": _lock_ppo(bonus=NoBonus()),
    "e3rl-lock-ppo-rnd": _lock_ppo(),
    "paper-lock-ppo": _paper_ppo(learning_rate=1e-3, extrinsic_coefficient=100.0, bonus=NoBonus()),
    "paper-lock-ppo-rnd": _paper_ppo(learning_rate=1e-3, extrinsic_coefficient=100.0),
    "paper-control-ppo-rnd": _paper_ppo(
        total_steps=1_000_000, clock=False, learning_rate=1e-4, extrinsic_coefficient=2.0
    ),
}
"""Named settings: e3rl's own, and the paper's, which never change after publication. The paper has no table for plain
PPO; its lock settings here are those of PPO+RND without the bonus, and nothing else differs."""
