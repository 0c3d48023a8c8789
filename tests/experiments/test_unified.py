"""One phase or two, and repelled members: their analysis on returns and rows that are given."""

import json
from types import SimpleNamespace

import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.e3 import Epoch
from e3rl.experiments import repulsion, unified
from e3rl.experiments.unified import AGENTS, UNIFIED_EXPERIMENTS, UnifiedExperiment, config_of
from e3rl.neural.stopping import Stopping
from e3rl.neural.training import NeuralProgram
from e3rl.planners.unified import UnifiedPlanner
from e3rl.planners.value import ValuePlanner
from e3rl.replay import Transitions
from e3rl.reports.unified import table
from e3rl.types import UserError

HORIZON = 2


class Scripted(NeuralProgram):
    """Stands for `NeuralProgram`: exploring pays 1 an episode, greedy episodes pay 4."""

    def __init__(self, envs, specs, config, seeds):
        self.seeds, self.keys = seeds, None
        self.epochs = config.explore.epochs(HORIZON)
        self.agent = SimpleNamespace(exploit=lambda models, replay, keys: "policy")
        self.stopping = SimpleNamespace(over=np.zeros(len(seeds), bool))
        self.ends = config.explore.epsilon_share > 0.0
        made.append((config, list(seeds), [env.antishaped for env in envs]))

    def explore(self, record, resume, exploit, after_epoch):
        for t in range(self.epochs):
            collected = SimpleNamespace(returns=np.ones((len(self.seeds), 1)))
            if self.ends:  # the first seed after two episodes, the others to the ceiling
                self.stopping.over[0] = t >= 2
            after_epoch(Epoch(t, None, None, collected, None, None, None))
        return exploit(None, None, None)

    def evaluate(self, policy, episodes):
        return np.full((len(self.seeds), episodes), 4.9)


made: list = []


@pytest.fixture
def scripted(monkeypatch):
    made.clear()
    experiment = UnifiedExperiment(HORIZON, ("two-phases", "one-phase"), (7, 8))
    monkeypatch.setitem(UNIFIED_EXPERIMENTS, "unified/tiny", experiment)
    monkeypatch.setattr(unified, "NeuralProgram", Scripted)


@pytest.mark.usefixtures("scripted")
def test_every_reward_on_the_way_counts(tmp_path):
    """Two phases: 24 episodes of exploring and 76 greedy ones; one phase: 100 of a kind."""
    said = []
    rows = unified.run("unified/tiny", tmp_path, said.append)
    assert [(row["agent"], row["seed"], row["reward"]) for row in rows] == [
        (agent, seed, reward)
        for agent in ("two-phases", "one-phase")
        for seed in (7, 8)
        for reward in ("standard", "antishaped")
    ]
    assert [rows[0][f"total_{ratio}h"] for ratio in (10, 20, 50)] == pytest.approx(
        [20.0, 24 + 16 * 4.9, 24 + 76 * 4.9]
    )
    assert (rows[0]["solved"], rows[0]["last_return"]) == (True, 4.9)
    assert (rows[-1]["total_50h"], rows[-1]["solved"]) == (100.0, False)
    assert [antishaped for _, _, antishaped in made] == [[False], [True]] * 4
    about = json.loads((tmp_path / "unified-tiny.json").read_text())
    assert about["mean_total_reward"]["one-phase"] == {"standard": 100.0, "antishaped": 100.0}
    assert "| H=2, standard | one-phase | 100, 100 | 100 | 0 of 2 |" in table(tmp_path)


@pytest.mark.usefixtures("scripted")
def test_what_is_there_is_not_measured_again(tmp_path, monkeypatch):
    unified.run("unified/tiny", tmp_path, print, [7])
    made.clear()
    rows = unified.run("unified/tiny", tmp_path, print)
    assert [seeds for _, seeds, _ in made] == [[8]] * 4
    assert len(rows) == 8
    made.clear()
    monkeypatch.setitem(
        AGENTS, "one-phase", unified.Agent(50, (("planner", "unified"), ("planner.bonus", 9.0)))
    )
    unified.run("unified/tiny", tmp_path, print)
    assert len(made) == 4  # other settings of that agent, so nothing that was measured of it counts


def test_seeds_that_end_at_their_own_time_play_greedily_from_then_on():
    program = Scripted(
        [SimpleNamespace(antishaped=False)] * 2, [], config_of(AGENTS["two-phases-ends"]), [7, 8]
    )
    assert program.epochs == 60
    returns = unified.first_returns(program, 100)
    assert returns.shape == (2, 100)
    assert returns[0].tolist() == [1.0] * 2 + [4.9] * 98
    assert returns[1].tolist() == [1.0] * 60 + [4.9] * 40


def test_agents_differ_in_the_planner_alone():
    for name, agent in AGENTS.items():
        config = config_of(agent)
        assert (config.planner.tried, config.fit.dice, config.fit.prior_weight) == (0.9, True, 0.1), name
        assert type(config.planner) is (ValuePlanner if name.startswith("two-phases") else UnifiedPlanner)
        assert Stopping(config, 5, 1).by_itself == agent.ends
    assert config_of(AGENTS["two-phases"]).explore.epochs(5) == 60
    assert config_of(AGENTS["one-phase"]).explore.epochs(5) == 250


def test_auroc_by_counting():
    rng = np.random.default_rng(0)
    positive, negative = rng.integers(0, 5, (2, 12)).astype(float)
    slow = np.mean([(p > n) + 0.5 * (p == n) for p in positive for n in negative])
    assert repulsion.auroc(positive, negative) == pytest.approx(slow)
    assert repulsion.auroc(np.array([2.0, 3.0]), np.array([0.0, 1.0])) == 1.0


def test_what_was_tried():
    obs = jnp.array([[1, 0, 0, 1], [0, 0, 1, 1], [0, 1, 0, 0]], jnp.int8)
    times, actions = jnp.array([0, 1, 1]), jnp.array([3, 2, 0])
    rows = Transitions(obs, actions, times, jnp.zeros(3), obs, jnp.zeros(3, bool))
    was = repulsion.tried(rows, 2, horizon=2)  # the third row is not filled
    assert [tuple(map(int, at)) for at in np.argwhere(was)] == [(0, 0, 3), (1, 2, 2)]


def test_seeds_that_had_tried_everything_say_nothing():
    rows = [
        {"repulsion": 0.0, "episodes": 10, "auroc": 0.5},
        {"repulsion": 0.0, "episodes": 10, "auroc": ""},
        {"repulsion": 3.0, "episodes": 10, "auroc": 0.75},
    ]
    assert repulsion.mean_aurocs(rows) == {"0.0": {"10": 0.5}, "3.0": {"10": 0.75}}


@pytest.mark.parametrize("run", [unified.run, repulsion.run])
def test_experiments_that_are_not_known(run, tmp_path):
    with pytest.raises(UserError, match="unknown experiment 'odd'"):
        run("odd", tmp_path, print)
    with pytest.raises(UserError, match="holds no results"):
        table(tmp_path)
