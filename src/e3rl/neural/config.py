"""Neural-E³'s settings: e3rl's own defaults, and the paper's tables by name."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from e3rl.exploit.dqn import DqnSettings
from e3rl.models.bernoulli import Conditioning
from e3rl.models.fit import FitSettings
from e3rl.models.qnetwork import QSettings
from e3rl.planners.mcts import Choice, Leaf, MctsSettings
from e3rl.planners.utility import Distance
from e3rl.planners.value import ValueSettings
from e3rl.types import UserError

_KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "a word"}


def _fits(value: object, kind: type) -> bool:
    """A whole number is a number too; true and false are none."""
    return type(value) is kind or (kind is float and type(value) is int)


@dataclass(frozen=True)
class NeuralE3Config:
    """Every choice of a run. Where the paper has a symbol or a table for it, the field says so."""

    explore_ratio: int = 30
    """Exploration episodes per time step of the horizon (App. C.1: "Number of Exploration Epochs", 25H to 75H)."""
    explore_episodes: int = 0
    """Exploration episodes outright; 0 takes `explore_ratio` times the horizon."""
    episodes_per_epoch: int = 1
    """n of Algorithm 1 (App. C.1: "Exploration Episodes per Epoch")."""
    epsilon: float = 0.0
    """ε of Algorithm 1, line 6: exploration also ends once v_explore ≤ ε/|A|. 0 leaves it to the number of epochs."""
    uniform_transitions: int = 0
    """Actions are uniform until the replay buffer holds this many transitions."""

    ensemble_size: int = 5
    """E of section 4.1 (App. C.1: "Ensemble Size")."""
    hidden: int = 64
    """Hidden layer size of dynamics and value networks (App. C.1)."""
    conditioning: Conditioning = "gate"
    """How dynamics take action and time step: one-hot "input" as in the paper's code, or "gate" as in App. C.3."""
    mean_over_bits: bool = False
    """Average the observation's log-likelihood over its bits, as the paper's code does, instead of summing."""
    prior_weight: float = 0.23
    """Pull of each member towards its own initial weights, per observation bit; 0 is maximum likelihood."""
    model_updates: int = 200
    """N_update of section 4.1 (App. C.1: "Model Updates per Epoch")."""
    model_batch: int = 64
    """Transitions per member and update. The paper's minibatch of 100 is split over its 5 members."""
    model_learning_rate: float = 2e-3
    gradient_clip: float = 10.0
    recent_share: float = 0.0
    """Chance that a training example comes from the last epoch (App. B.1: ½ for deterministic environments)."""

    planner: Literal["value", "mcts", "uniform"] = "value"
    """Who explores: the exploration value, tree search (App. B.2.2), or nobody (UE², section 5.2)."""
    distance: Distance = "marginal"
    """δ of section 2 between two predicted distributions."""
    reward_scale: float = 0.4
    """Weight of a difference in predicted reward within δ."""

    value_updates: int = 300
    """Fitted-Q steps per epoch on imagined transitions."""
    value_batch: int = 64
    value_learning_rate: float = 1e-3
    value_target_rate: float = 0.01
    """Polyak step of the target network towards the online one, after every update."""
    value_discount: float = 1.0
    value_heads: bool = True
    """A last layer of its own for every time step."""

    playouts: int = 200
    """App. C.1: "MCTS playouts"."""
    particles: int = 100
    """K of App. B.2.2 (App. C.1: "MCTS samples")."""
    ucb: float = 1.0
    """UCB constant."""
    leaf: Leaf = "value"
    choice: Choice = "best"
    common_noise: bool = True
    from_samples: bool = True

    exploit: Literal["value", "dqn", "mcts"] = "value"
    """How to exploit: value of the predicted reward, offline double DQN (section 4.3), or tree search."""
    exploit_updates: int = 15_000
    """Fitted-Q steps, or DQN updates, of the exploit phase."""
    caution: float = 0.05
    """Exploit value only: disagreement times this is taken off the predicted reward."""
    exploit_rounds: int = 0
    """Rounds of more episodes and training while exploiting, reverted to the best on the first drop (App. C.3)."""
    round_episodes: int = 20
    round_updates: int = 2_000
    dqn_batch: int = 100
    dqn_learning_rate: float = 1e-3
    dqn_discount: float = 0.99
    dqn_target_period: int = 1_000
    dqn_heads: bool = True
    evaluation_episodes: int = 100
    """Greedy episodes at the end."""

    def __post_init__(self) -> None:
        positive = (
            "ensemble_size", "hidden", "episodes_per_epoch", "model_updates", "model_batch", "playouts", "particles",
            "value_updates", "value_batch", "exploit_updates", "round_episodes", "round_updates", "dqn_batch",
            "dqn_target_period", "evaluation_episodes",
        )  # fmt: skip
        above_zero = (
            "model_learning_rate", "value_learning_rate", "dqn_learning_rate", "gradient_clip", "value_target_rate"
        )  # fmt: skip
        at_most_one = ("recent_share", "value_target_rate", "value_discount", "dqn_discount")
        for field in dataclasses.fields(self):
            value: Any = getattr(self, field.name)
            kind: type = type(field.default)
            if not _fits(value, kind):
                raise UserError(f"{field.name} must be {_KINDS[kind]}, got {value!r}")
            if kind is float and not math.isfinite(value):
                raise UserError(f"{field.name} must be a finite number, got {value}")
            options = get_args(field.type) if get_origin(field.type) is Literal else ()
            if options and value not in options:
                raise UserError(f"{field.name} must be one of {', '.join(options)}, got {value!r}")
            if field.name in positive and value < 1:
                raise UserError(f"{field.name} must be at least 1, got {value}")
            if field.name in above_zero and value <= 0:
                raise UserError(f"{field.name} must be above 0, got {value}")
            if field.name in at_most_one and value > 1:
                raise UserError(f"{field.name} must be at most 1, got {value}")
            if isinstance(value, int | float) and value < 0:
                raise UserError(f"{field.name} must not be negative, got {value}")
        if self.explore_ratio == 0 and self.explore_episodes == 0:
            raise UserError(
                "explore_ratio and explore_episodes are both 0: there would be nothing to learn from"
            )

    def exploration_episodes(self, horizon: int) -> int:
        return self.explore_episodes or self.explore_ratio * horizon

    def fit(self, bits: int) -> FitSettings:
        weight = self.prior_weight * (1 if self.mean_over_bits else bits)
        return FitSettings(
            self.model_updates,
            self.model_batch,
            self.model_learning_rate,
            self.gradient_clip,
            weight,
            self.recent_share,
        )

    def value(self, updates: int) -> ValueSettings:
        q = QSettings(self.value_learning_rate, self.gradient_clip, self.value_target_rate, 0)
        return ValueSettings(
            updates, self.value_batch, self.value_discount, self.distance, self.reward_scale, self.caution, q
        )

    def dqn(self, updates: int) -> DqnSettings:
        q = QSettings(self.dqn_learning_rate, self.gradient_clip, 0.0, self.dqn_target_period)
        return DqnSettings(updates, self.dqn_batch, self.dqn_discount, q)

    def mcts(self, horizon: int, actions: int, leaf: Leaf | None = None) -> MctsSettings:
        return MctsSettings(
            self.playouts, self.particles, self.ucb, leaf or self.leaf, self.choice, self.common_noise,
            self.from_samples, self.distance, self.reward_scale, horizon, actions,
        )  # fmt: skip


def _paper_lock(ratio: int) -> NeuralE3Config:
    """App. C.1's table; what it leaves out comes from the paper's code (exploration reward, leaf, choice, DQN)."""
    return NeuralE3Config(
        explore_ratio=ratio,
        uniform_transitions=100,
        ensemble_size=5,
        hidden=50,
        conditioning="input",
        mean_over_bits=True,
        prior_weight=0.0,
        model_updates=100,
        model_batch=20,
        model_learning_rate=1e-2,
        planner="mcts",
        distance="mean",
        reward_scale=1.0,
        playouts=200,
        particles=100,
        leaf="rollout",
        choice="best",
        common_noise=False,
        exploit="dqn",
        exploit_updates=200_000,
        dqn_learning_rate=1e-4,
        dqn_heads=False,
    )


CONFIGS: dict[str, NeuralE3Config] = {
    "e3rl": NeuralE3Config(),
    "e3rl-long": NeuralE3Config(explore_ratio=45, prior_weight=0.1, model_batch=256, value_batch=256),
    "paper-lock-h5": _paper_lock(25),
    "paper-lock-h10": _paper_lock(50),
    "paper-lock-h15": _paper_lock(50),
    "paper-lock-h20": _paper_lock(75),
}
"""Named settings: e3rl's own, its variant for horizons of 50 and more (larger batches, since new facts are rarer in the
buffer, and a weaker prior per bit), and the paper's, which never change after publication."""


def configured(name: str, changes: dict[str, str]) -> NeuralE3Config:
    """The named settings with `key=value` changes given as text."""
    if name not in CONFIGS:
        raise UserError(f"unknown config {name!r}; known: {', '.join(CONFIGS)}")
    base = CONFIGS[name]
    types = {field.name: type(getattr(base, field.name)) for field in dataclasses.fields(base)}
    parsed: dict[str, Any] = {}
    for key, text in changes.items():
        if key not in types:
            from difflib import get_close_matches

            close = get_close_matches(key, types, n=1)
            raise UserError(f"unknown setting {key!r}" + (f"; did you mean {close[0]!r}?" if close else ""))
        parsed[key] = _parse(key, text, types[key])
    return dataclasses.replace(base, **parsed)


def _parse(key: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise UserError(f"{key} must be {_KINDS[kind]}, got {text!r}")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError as error:
        raise UserError(f"{key} must be {_KINDS[kind]}, got {text!r}") from error
