"""The presets that carry the paper's name against its tables (appendix C)."""

import pytest

from e3rl.baselines.presets import DQN_CONFIGS, PPO_CONFIGS
from e3rl.experiments.baselines import BASELINE_EXPERIMENTS, config_of
from e3rl.experiments.deterministic import DETERMINISTIC_EXPERIMENTS
from e3rl.experiments.lock import LOCK_EXPERIMENTS
from e3rl.experiments.paper_tables import DEPARTURES, EVERY, HORIZONS, NO_SETTING, TABLES, value_at
from e3rl.neural.presets import PRESETS
from e3rl.planners.exploit_dqn import OfflineDqn
from e3rl.planners.graph_search import GraphSearch
from e3rl.planners.mcts import TreeSearch
from e3rl.runs.settings import changed

CELLS = [
    pytest.param(preset, row, path, id=f"{preset}-{path}")
    for presets, rows in TABLES.values()
    for preset in presets
    for row in rows
    for path in row.settings
]


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
            if "Number of exploration Epochs" in rows:
                assert EVERY[preset].explore.epochs(horizon=100) == rows["Number of exploration Epochs"]


def test_every_preset_of_the_papers_name_is_in_a_table():
    """But for PPO without its bonus."""
    told = {preset for presets, _ in TABLES.values() for preset in presets}
    paper = {name for name in EVERY if name.startswith("paper-")}
    assert paper - told == {"paper-lock-ppo"}


def test_departures_are_off_in_the_papers_presets():
    for name in (name for name in EVERY if name.startswith("paper-") and "dqn" in name):
        assert (EVERY[name].optimism, EVERY[name].average_share, EVERY[name].anneal) == (0.0, 0.0, False), (
            name
        )
    exploit, steadied = PRESETS["paper-control"].exploit, PRESETS["steadied-control"].exploit
    dqn = exploit.value
    assert (dqn.clipped, dqn.decay, dqn.huber, exploit.snapshots) == (False, False, 1.0, 1)
    assert (
        changed(exploit, {"snapshots": 750, "value.clipped": True, "value.decay": True, "value.huber": 20.0})
        == steadied
    )
    for horizon in HORIZONS:
        lock, optimistic = (DQN_CONFIGS[f"{whose}-lock-dqn-h{horizon}"] for whose in ("paper", "optimistic"))
        assert changed(lock, {"optimism": 5.0}) == optimistic
        assert PRESETS[f"paper-lock-h{horizon}"].model.reward_weight == 1.0


def test_the_papers_epsilon_does_not_depend_on_how_long_training_is():
    for horizon in HORIZONS:
        for reward in ("standard", "antishaped"):
            short, long = (
                BASELINE_EXPERIMENTS[f"baselines-{where}/h{horizon}-{reward}-dqn"]
                for where in ("paper", "long")
            )
            ends = [
                config_of(each).exploration_fraction * config_of(each).total_steps / horizon
                for each in (short, long)
            ]
            assert ends == pytest.approx([500 if reward == "antishaped" else 50] * 2)
    cars = [config_of(BASELINE_EXPERIMENTS[f"baselines-mountaincar/dqn{more}"]) for more in ("", "-long")]
    assert [car.exploration_fraction * car.total_steps for car in cars] == pytest.approx([40_000] * 2)


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
            assert experiment.changes == ((("planner", "uniform"),) if name.endswith("ue2") else ()), name
        assert experiment.config in PRESETS
    named = [
        experiment.config
        for experiment in BASELINE_EXPERIMENTS.values()
        if isinstance(experiment.config, str)
    ]
    assert [name for name in named if name not in EVERY] == []
