"""The paper's tables (appendix C), row by row, against the presets that carry its name.

Every cell has the settings that must equal it, or a reason why there is none; where a preset departs from its table,
the departure is written down.
"""

from typing import Any, NamedTuple

import pytest

from e3rl.baselines.presets import DQN_CONFIGS, PPO_CONFIGS
from e3rl.experiments.baselines import BASELINE_EXPERIMENTS
from e3rl.experiments.deterministic import DETERMINISTIC_EXPERIMENTS
from e3rl.experiments.lock import LOCK_EXPERIMENTS
from e3rl.neural.presets import PRESETS
from e3rl.planners.exploit_dqn import OfflineDqn
from e3rl.planners.graph_search import GraphSearch
from e3rl.planners.mcts import TreeSearch
from e3rl.runs.settings import settings_of

HORIZONS = (5, 10, 15, 20)


class Row(NamedTuple):
    name: str
    """As the paper has it."""
    final: Any
    """Its column "Final Value"."""
    settings: tuple[str, ...] = ()
    """Paths of what must equal it."""


# Reasons why a row has no setting. Some are kept by `test_what_no_setting_says`.
NO_SETTING = {
    "Prioritized Replay": "the baseline DQN always has it; alpha, its exponent, would have to be 0",
    "Parameter Noise": "the paper found no use for it, and there is none here",
    "Convolutional Layers": "the value network has the one that the paper chose",
    "Number of exploration Epochs": "explore.episodes, over those of an epoch",
}

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
            Row("Parameter Noise", False),
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
            Row("Parameter Noise", False),
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

EVERY = {**PRESETS, **DQN_CONFIGS, **PPO_CONFIGS}
CELLS = [
    pytest.param(preset, row, path, id=f"{preset}-{path}")
    for presets, rows in TABLES.values()
    for preset in presets
    for row in rows
    for path in row.settings
]


def value_at(preset, path):
    found = EVERY[preset]
    for name in path.split("."):
        found = getattr(found, name)
    return found


@pytest.mark.parametrize(("preset", "row", "path"), CELLS)
def test_a_preset_has_the_number_of_its_table(preset, row, path):
    ours, departure = value_at(preset, path), DEPARTURES.get((preset, path))
    if departure is None:
        assert ours == row.final, row.name
    else:
        assert (row.final, ours) == (departure.paper, departure.ours), row.name


def test_every_row_has_a_setting_or_a_reason():
    without = {row.name for _, rows in TABLES.values() for row in rows if not row.settings}
    assert without == NO_SETTING.keys()
    cells = {(preset, path) for preset, _, path in (cell.values for cell in CELLS)}
    assert DEPARTURES.keys() <= cells


def test_a_minibatch_is_the_papers_over_all_members():
    for (preset, path), departure in DEPARTURES.items():
        assert path == "fit.batch"
        assert value_at(preset, "fit.members") * departure.ours == departure.paper


def test_what_no_setting_says():
    for presets, rows in TABLES.values():
        rows = {row.name: row.final for row in rows}
        for preset in presets:
            if "Prioritized Replay" in rows:
                assert value_at(preset, "alpha") > 0.0
            if "Parameter Noise" in rows:
                assert not [path for path in settings_of(EVERY[preset]) if "noise" in path]
            if "Number of exploration Epochs" in rows:
                assert EVERY[preset].explore.epochs(horizon=100) == rows["Number of exploration Epochs"]


def test_every_preset_of_the_papers_name_is_in_a_table():
    """But for two: PPO without its bonus, and the lock's DQN without optimism, which the paper's text wonders about."""
    told = {preset for presets, _ in TABLES.values() for preset in presets}
    paper = {name for name in EVERY if name.startswith("paper-")}
    assert paper - told == {"paper-lock-ppo", "paper-lock-dqn-h10-plain"}


def test_what_the_text_says():
    """App. B.1: deterministic environments are unrolled and half of each batch is of the last epoch, the lock is not;
    B.2 and 4.3: who plans and who exploits. C.1: all results on the lock exploit by a DQN."""
    for name in ("paper-control", "paper-maze"):
        config = PRESETS[name]
        assert config.fit.recent_share == 0.5
        assert isinstance(config.planner, GraphSearch)
        assert config.utility.reward_scale == 0.0
    for horizon in HORIZONS:
        config = PRESETS[f"paper-lock-h{horizon}"]
        assert (config.fit.unroll, config.fit.recent_share) == (1, 0.0)
        assert isinstance(config.planner, TreeSearch)
        assert isinstance(config.exploit, OfflineDqn)
        assert config.explore.epochs(horizon) == config.explore.ratio * horizon
    assert isinstance(PRESETS["paper-control"].exploit, OfflineDqn)
    assert isinstance(PRESETS["paper-maze"].exploit, GraphSearch)
    plain, bonus = PPO_CONFIGS["paper-lock-ppo"], PPO_CONFIGS["paper-lock-ppo-rnd"]
    assert {**vars(plain), "bonus": None} == {**vars(bonus), "bonus": None}


def test_experiments_of_the_papers_name_use_its_presets():
    for name, experiment in {**LOCK_EXPERIMENTS, **DETERMINISTIC_EXPERIMENTS}.items():
        if "paper" in name:
            assert experiment.config.startswith("paper-"), name
            assert experiment.changes == (), name
        assert experiment.config in PRESETS
    named = [
        experiment.config
        for experiment in BASELINE_EXPERIMENTS.values()
        if isinstance(experiment.config, str)
    ]
    assert [name for name in named if name not in EVERY] == []
