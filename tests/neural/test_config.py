"""Settings: the paper's tables, changes given as text, and every value that cannot work."""

import dataclasses

import jaxtyping
import pytest

from e3rl.neural.config import CONFIGS, NeuralE3Config, named
from e3rl.runs.settings import changed
from e3rl.types import UserError


@pytest.fixture
def unchecked(monkeypatch):
    """As users run it: the settings' own checks, without those of the tests' type checker before them."""
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)


@pytest.mark.parametrize(("horizon", "ratio"), [(5, 25), (10, 50), (15, 50), (20, 75)])
def test_the_papers_table(horizon, ratio):
    """App. C.1: exploration epochs, one episode each, E = 5, K = 100, 200 playouts, hidden 50, 100 updates."""
    config = CONFIGS[f"paper-lock-h{horizon}"]
    assert config.exploration_episodes(horizon) == ratio * horizon
    assert config.episodes_per_epoch == 1
    assert (config.ensemble_size, config.hidden, config.model_updates) == (5, 50, 100)
    assert config.planner == "mcts"
    search = config.mcts(horizon, 4)
    assert (search.particles, search.playouts, search.horizon, search.actions) == (100, 200, horizon, 4)
    assert config.exploit == "dqn"


def test_settings_reach_the_kernels():
    config = NeuralE3Config(explore_episodes=7, prior_weight=0.5, dqn_target_period=9, value_target_rate=0.3)
    assert config.exploration_episodes(100) == 7
    assert NeuralE3Config(explore_ratio=3).exploration_episodes(4) == 12
    assert config.fit(6).prior_weight == 3.0  # per bit where the likelihood is a sum over bits
    assert dataclasses.replace(config, mean_over_bits=True).fit(6).prior_weight == 0.5
    assert config.dqn(5).q.target_rate == 0.0
    assert config.dqn(5).q.target_period == 9
    shares = dataclasses.replace(config, ending_share=0.2, dqn_ending_share=0.1)
    assert (shares.fit(6).ending_share, shares.dqn(5).ending_share) == (0.2, 0.1)
    clipped = dataclasses.replace(config, dqn_clipped=True)
    assert (clipped.dqn(5).clipped, config.dqn(5).clipped) == (True, False)
    assert config.explore_value().q.target_rate == config.exploit_value(5).q.target_rate == 0.3
    assert config.mcts(3, 4, leaf="rollout").leaf == "rollout"
    assert config.mcts(3, 4).leaf == config.leaf


def test_changes_as_text():
    changes = {"hidden": "8", "prior_weight": "1", "value_heads": "False", "planner": "uniform"}
    config = changed(named("e3rl"), changes)
    assert config == NeuralE3Config(hidden=8, prior_weight=1.0, value_heads=False, planner="uniform")
    assert isinstance(config.prior_weight, float)
    assert changed(named("paper-lock-h5"), {}) == CONFIGS["paper-lock-h5"]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("paper", {}, "unknown config 'paper'; known: auto, e3rl, .*paper-lock-h20"),
        ("e3rl", {"hiden": "8"}, "unknown setting 'hiden'; did you mean 'hidden'?"),
        ("e3rl", {"qqq": "8"}, "unknown setting 'qqq'$"),
        ("e3rl", {"hidden": "8.5"}, "hidden must be a whole number, got '8.5'"),
        ("e3rl", {"epsilon": "small"}, "epsilon must be a number, got 'small'"),
        ("e3rl", {"value_heads": "1"}, "value_heads must be true or false, got '1'"),
        ("e3rl", {"planner": "best"}, "planner must be one of value, graph, mcts, uniform, got 'best'"),
        ("e3rl", {"conditioning": "x"}, "conditioning must be one of input, gate, got 'x'"),
        ("e3rl", {"ucb": "nan"}, "ucb must be a finite number, got nan"),
        ("e3rl", {"ucb": "inf"}, "ucb must be a finite number, got inf"),
    ],
)
def test_bad_text(name, changes, message):
    with pytest.raises(UserError, match=message):
        changed(named(name), changes)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"particles": 0}, "particles must be at least 1, got 0"),
        ({"ensemble_size": 0}, "ensemble_size must be at least 1, got 0"),
        ({"ensemble_size": -5}, "ensemble_size must be at least 1, got -5"),
        ({"playouts": 0}, "playouts must be at least 1"),
        ({"evaluation_episodes": 0}, "evaluation_episodes must be at least 1"),
        ({"ucb": -1.0}, "ucb must not be negative, got -1"),
        ({"exploit_rounds": -1}, "exploit_rounds must not be negative, got -1"),
        ({"value_target_rate": 0.0}, "value_target_rate must be above 0, got 0"),
        ({"value_target_rate": 1.5}, "value_target_rate must be at most 1, got 1.5"),
        ({"model_learning_rate": 0.0}, "model_learning_rate must be above 0"),
        ({"gradient_clip": 0.0}, "gradient_clip must be above 0"),
        ({"recent_share": 1.1}, "recent_share must be at most 1"),
        ({"hidden": 8.5}, "hidden must be a whole number, got 8.5"),
        ({"hidden": "8"}, "hidden must be a whole number, got '8'"),
        ({"hidden": True}, "hidden must be a whole number, got True"),
        ({"epsilon": None}, "epsilon must be a number, got None"),
        ({"dqn_heads": 1}, "dqn_heads must be true or false, got 1"),
        ({"planner": 3}, "planner must be a word, got 3"),
        ({"explore_ratio": 0}, "explore_ratio and explore_episodes are both 0"),
        ({"snapshots": 4, "exploit_updates": 10}, "snapshots must divide exploit_updates, 10, got 4"),
    ],
)
def test_bad_values(values, message):
    with pytest.raises(UserError, match=message):
        NeuralE3Config(**values)


@pytest.mark.usefixtures("unchecked")
def test_a_whole_number_is_a_number():
    config = NeuralE3Config(epsilon=1)
    assert config.epsilon == 1
    assert changed(config, {"epsilon": "0.5"}).epsilon == 0.5
