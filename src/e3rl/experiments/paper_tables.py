"""The paper's tables (appendix C), row by row, beside the presets that carry its name.

Every row has the settings that equal it, or a reason why there is none; where a preset departs from its table, the
departure is written down, and so is where it takes what its table leaves out.
"""

from typing import Any, NamedTuple

from e3rl.baselines.presets import DQN_CONFIGS, PPO_CONFIGS
from e3rl.neural.presets import PRESETS
from e3rl.runs.settings import Settings

HORIZONS = (5, 10, 15, 20)


class Row(NamedTuple):
    name: str
    """As the paper has it."""
    final: Any
    """Its column "Final Value"."""
    settings: tuple[str, ...] = ()
    """Paths of what must equal it."""


NO_SETTING = {
    "Prioritized Replay": "the baseline DQN always has it; alpha, its exponent, would have to be 0",
    "Convolutional Layers": "the value network has the one that the paper chose",
    "Number of exploration Epochs": "explore.episodes, over those of an epoch",
}
"""Reasons why a row has no setting."""

TABLES: dict[str, tuple[tuple[str, ...], tuple[Row, ...]]] = {
    "C.1 DQN, standard rewards": (
        tuple(f"paper-lock-dqn-h{horizon}" for horizon in HORIZONS),
        (
            Row("Learning Rate", 0.01, ("learning_rate",)),
            Row("Hidden Layer Size", 64, ("hidden",)),
            Row("Prioritized Replay", True),
            Row("Discount Factor", 0.99, ("discount",)),
            Row("Exploration Fraction (episodes)", 0.001, ("exploration_fraction",)),
        ),
    ),
    "C.1 DQN, antishaped rewards": (
        tuple(f"paper-lock-antishaped-dqn-h{horizon}" for horizon in HORIZONS),
        (
            Row("Learning Rate", 0.01, ("learning_rate",)),
            Row("Hidden Layer Size", 64, ("hidden",)),
            Row("Prioritized Replay", True),
            Row("Discount Factor", 0.99, ("discount",)),
            Row("Exploration Fraction (episodes)", 0.01, ("exploration_fraction",)),
        ),
    ),
    "C.1 PPO+RND": (
        ("paper-lock-ppo-rnd",),
        (
            Row("Learning Rate", 0.001, ("learning_rate",)),
            Row("Hidden Layer Size", 64, ("hidden",)),
            Row("γ_I", 0.99, ("bonus.discount",)),
            Row("γ_E", 0.999, ("discount",)),
            Row("λ", 0.95, ("gae_lambda",)),
            Row("Intrinsic Reward coefficient", 1.0, ("bonus.coefficient",)),
            Row("Extrinsic Reward coefficient", 100, ("extrinsic_coefficient",)),
        ),
    ),
    **{
        f"C.1 E³, H={horizon}": (
            (f"paper-lock-h{horizon}",),
            (
                Row("Learning Rate", 0.01, ("fit.learning_rate",)),
                Row("Hidden Layer Size", 50, ("model.hidden", "exploit.value.hidden")),
                Row("Ensemble Size", 5, ("fit.members",)),
                Row("Minibatch Size", 100, ("fit.batch",)),
                Row("Number of Exploration Epochs, per H", per_step, ("explore.ratio",)),
                Row("Exploration Episodes per Epoch", 1, ("explore.per_epoch",)),
                Row("Model Updates per Epoch", 100, ("fit.updates",)),
                Row("MCTS playouts", 200, ("planner.playouts",)),
                Row("MCTS samples (K)", 100, ("planner.particles",)),
            ),
        )
        for horizon, per_step in zip(HORIZONS, (25, 50, 50, 75), strict=True)
    },
    "C.2 DQN": (
        ("paper-maze-dqn",),
        (
            Row("Learning Rate", 1e-4, ("learning_rate",)),
            Row("Feature Maps", 8, ("maps",)),
            Row("Convolutional Layers", 1),
            Row("Hidden Layer Size", 64, ("hidden",)),
            Row("Prioritized Replay", True),
            Row("Parameter Noise", False, ("weight_noise",)),
            Row("Discount Factor", 0.99, ("discount",)),
        ),
    ),
    "C.2 E³": (
        ("paper-maze",),
        (
            Row("Learning Rate", 1e-3, ("fit.learning_rate",)),
            Row("Number of Feature Maps", 16, ("model.maps",)),
            Row("Hidden Layer Size", 64, ("model.hidden",)),
            Row("Ensemble Size", 4, ("fit.members",)),
            Row("Minibatch Size", 64, ("fit.batch",)),
            Row("Number of exploration Epochs", 5),
            Row("Exploration Episodes per Epoch", 10, ("explore.per_epoch",)),
            Row("Model Updates per Epoch", 10_000, ("fit.updates",)),
            Row("Unrolling steps (K)", 10, ("fit.unroll",)),
            Row("Maximum Graph Size during Planning (N_max)", 2_000, ("planner.nodes", "exploit.nodes")),
        ),
    ),
    "C.3 DQN": (
        ("paper-control-dqn",),
        (
            Row("Learning Rate", 1e-3, ("learning_rate",)),
            Row("Hidden Layer Size", 64, ("hidden",)),
            Row("Prioritized Replay", True),
            Row("Parameter Noise", False, ("weight_noise",)),
            Row("Discount Factor", 0.99, ("discount",)),
        ),
    ),
    "C.3 PPO+RND": (
        ("paper-control-ppo-rnd",),
        (
            Row("Learning Rate", 1e-4, ("learning_rate",)),
            Row("Hidden Layer Size", 64, ("hidden",)),
            Row("γ_I", 0.99, ("bonus.discount",)),
            Row("γ_E", 0.999, ("discount",)),
            Row("λ", 0.95, ("gae_lambda",)),
            Row("Intrinsic Reward coefficient", 1.0, ("bonus.coefficient",)),
            Row("Extrinsic Reward coefficient", 2, ("extrinsic_coefficient",)),
        ),
    ),
    "C.3 E³": (
        ("paper-control",),
        (
            Row("Learning Rate", 1e-4, ("fit.learning_rate",)),
            Row("Hidden Layer Size", 64, ("model.hidden", "exploit.value.hidden")),
            Row("Ensemble Size", 8, ("fit.members",)),
            Row("Minibatch Size", 64, ("fit.batch",)),
            Row("Number of exploration Epochs", 10),
            Row("Exploration Episodes per Epoch", 10, ("explore.per_epoch",)),
            Row("Model Updates per Epoch", 2_000, ("fit.updates",)),
            Row("Unrolling steps (K)", 20, ("fit.unroll",)),
            Row("Maximum Graph Size during Planning (N_max)", 2_000, ("planner.nodes",)),
            Row("DQN Learning Rate", 3e-4, ("exploit.value.learning_rate",)),
            Row("DQN Updates for Exploit Phase", 750_000, ("exploit.value.updates",)),
            Row("DQN Target Network Update Frequency", 5_000, ("exploit.value.target_period",)),
        ),
    ),
}


class Departure(NamedTuple):
    paper: Any
    ours: Any
    why: str


_SPLIT = "the paper's code splits its minibatch over the members; ours is the share of one"
DEPARTURES: dict[tuple[str, str], Departure] = {
    **{(f"paper-lock-h{horizon}", "fit.batch"): Departure(100, 20, _SPLIT) for horizon in HORIZONS},
    ("paper-maze", "fit.batch"): Departure(64, 16, _SPLIT),
    ("paper-control", "fit.batch"): Departure(64, 8, _SPLIT),
}
"""(preset, setting) -> where a number differs from its table."""

UNSAID = {
    "paper-lock-h5 to -h20": "rollouts at the leaves, choice of the best playout, uniform play for 100 transitions, the"
    " DQN's size and rate: the released code's",
    "paper-maze": "distance to the nearest node, the best plan: the algorithm's text. Nothing of the released code's "
    "other values (8 members, 64 maps, K = 20, 5,000 nodes, reward weight 0.01)",
    "paper-control": "distance to the root, a quarter of the segments with an ending: the released code's. Batches of "
    "64, γ = 0.99, errors beyond 1 linear, gradients clipped at 10 in the DQN: e3rl's defaults. No rounds, of "
    "which the text tells beside the table: `mountaincar/paper-rounds` and `acrobot/paper-rounds` have them, of 20 "
    "episodes with 25,000 updates between them, the released code's",
    "paper-…-dqn": "the defaults of OpenAI Baselines, which the paper used; 50,000 episodes on the lock, of which the "
    "fraction of exploration is one",
    "paper-…-ppo, -ppo-rnd": "environments at once, steps, epochs, minibatches, entropy, gains: those of `e3rl-lock-"
    "ppo-rnd`; the paper has no table for plain PPO, which is PPO+RND without its bonus",
}
"""Where presets take what their tables leave out."""

UNLIKE_THE_TEXT = {
    "paper-lock-h5 to -h20": "how far members are apart is the mean absolute difference of bits and reward, as in the "
    "released code, where appendix B has the total variation of whole observations; a bit's −log P counts by the mean"
    " over bits, where section 4.1 has their sum; the 2,000 more updates of the DQN before each of the released "
    "code's exploit episodes are left out",
    "paper-control": "graph search goes by the distance to the root, as the released code does, where Algorithm 3 has "
    "that to the nearest node (`mountaincar/nearest` has it, with e3rl's settings)",
}
"""Where presets follow the released code, or nobody, against the paper's text."""

WITH_IDS = {
    "mountaincar/steadied, acrobot/steadied": "`steadied-control`: clipped targets, a learning rate that falls to a "
    "tenth, errors beyond 20 linear, the best of 750 snapshots in imagination",
    "lock-paper-longer/h10": "`explore.ratio=75`, as the table has it for H=20",
    "lock-halved/h5": "`model.reward_weight=0.5`: half of the reward's squared error beside the bits' cross-entropy",
    "baselines-lock/…-dqn": "`optimistic-lock-…`: values start at 5, and ε falls over 5 episodes (antishaped: 50), the "
    "table's fraction of the 5,000 that it trains for",
    "baselines-paper/…-dqn": "5,000 episodes with the ε of 50,000: it falls over 50 episodes (antishaped: 500)",
    "baselines-long/…": "50,000 episodes of the DQN, 100,000 of PPO and PPO+RND (Figure 4)",
    "baselines-mountaincar/dqn-long": "2,500,000 steps with the ε of 400,000",
    "baselines-mountaincar/ppo-rnd-faster": "`learning_rate=3e-4`, three times the table's",
    "baselines-mountaincar/dqn-weight-noise, baselines-acrobot/dqn-long-weight-noise": "`weight_noise=true`",
    "maze/…-e3rl, maze/…-ue2": "`e3rl-image`: see [settings](settings.md)",
}
"""Departures from the tables that are measured have ids of their own."""

NO_SWITCH = (
    "Models also predict whether an episode ends, which is one more term of their loss; values and returns in "
    "imagination are weighted by the predicted chance to be under way.",
    "Changes of a scaled state count in units of 0.03 in what networks put out and in their squared errors, which "
    "makes them about as large as errors of rewards and endings (`models/layers.py`).",
    "Predicted states stay within the bounds of what was seen.",
    "Members have minibatches of their own, where the released code mixes them up in mazes.",
)
"""What no setting turns off."""

EVERY: dict[str, Settings] = {**PRESETS, **DQN_CONFIGS, **PPO_CONFIGS}


def value_at(preset: str, path: str) -> Any:
    found: Any = EVERY[preset]
    for name in path.split("."):
        found = getattr(found, name)
    return found
