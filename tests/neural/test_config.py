"""Neural-E³'s settings: which go together, and that every one reaches the code that reads it."""

import equinox as eqx
import jax
import pytest

from e3rl.envs.lock import CombinationLock
from e3rl.envs.spec import spec_of
from e3rl.models.base import Problem
from e3rl.models.bernoulli import Bernoulli
from e3rl.neural.config import Explore, NeuralE3Config
from e3rl.planners.exploit_dqn import OfflineDqn
from e3rl.planners.graph_search import GraphSearch
from e3rl.runs.settings import changed
from e3rl.types import UserError
from e3rl.values.double_dqn import DqnFit
from e3rl.values.imagined import ValueFit


def test_how_long_to_explore():
    assert Explore(ratio=3).total(4) == 12
    assert Explore(ratio=3, episodes=7).total(4) == 7
    assert Explore(episodes=7, per_epoch=3).epochs(4) == 3  # the last one whole
    assert Explore(ratio=3, per_epoch=5).epochs(10) == 6


def test_the_prior_counts_once_for_every_bit_whose_likelihood_is_added_up():
    assert Bernoulli().loss_terms(6) == 6
    assert Bernoulli(mean_over_bits=True).loss_terms(6) == 1


def test_how_values_move_follows_from_their_settings():
    value = ValueFit(target_rate=0.3, huber=2.0, gradient_clip=3.0, learning_rate=0.1, updates=50)
    step = value.step()
    assert (step.target_rate, step.huber, step.gradient_clip, step.learning_rate, step.decay) == (
        0.3,
        2,
        3,
        0.1,
        0,
    )
    assert ValueFit(updates=50, decay=True).step().decay == 50
    dqn = DqnFit(target_period=9, updates=50, decay=True).step()
    assert (dqn.target_rate, dqn.target_period, dqn.decay) == (0.0, 9, 50)


@pytest.mark.parametrize(("clock", "heads", "count"), [(True, True, 4), (True, False, 1), (False, True, 1)])
def test_a_value_has_a_head_for_every_step_only_where_there_is_a_clock(clock, heads, count):
    problem = Problem(spec_of(CombinationLock(4, noise_bits=1)), clock)
    state = eqx.filter_eval_shape(DqnFit(heads=heads, hidden=8).fresh, problem, jax.random.key(0))
    assert state.online.head.shape == (count, 4, 8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"explore.ratio": 0}, "ratio and episodes of explore are both 0: there would be nothing to learn from"),
        ({"exploit.snapshots": 4, "exploit.value.updates": 10}, "snapshots must divide the updates, 10, got 4"),
        ({"exploit": "dqn", "exploit.snapshots": 7}, "snapshots must divide the updates, 15000, got 7"),
        ({"model": "mlp", "utility": "mean"}, "utility 'mean' is between probabilities: use 'squared' with mlp"),
        ({"model": "conv", "utility": "hellinger"}, "utility 'hellinger' is between probabilities: use .* with conv"),
        ({"explore.epsilon": 0.1, "planner": "uniform"}, "planner 'uniform' has none, value and graph have"),
        ({"explore.epsilon": 0.1, "planner": "graph"}, "planner 'graph' does with planner.tried=0.9"),
        ({"explore.epsilon": 0.1, "model": "vae"}, "epsilon needs models .*: that of 'vae' hardly does"),
        ({"explore.epsilon": 0.1, "planner.tried": 0.0}, "planner 'value' does with planner.tried=0.9"),
        ({"planner": "graph", "planner.playouts": 3}, "planner 'graph' has no setting 'playouts'; it has nodes, fron"),
        ({"planner.nodes": 1, "planner": "graph"}, "nodes must be at least 2, got 1"),
        ({"model.mean_over_bits": True, "model": "mlp"}, "model 'mlp' has no setting 'mean_over_bits'; it has hidden"),
        ({"playouts": 3}, "unknown setting 'playouts'"),
        ({"members": 3}, "unknown setting 'members'; did you mean 'fit.members'"),
        ({"planner": "best"}, "unknown planner 'best'; known: value, unified, graph, states, mcts, uniform"),
        ({"exploit": "uniform"}, "unknown exploiter 'uniform'; known: value, dqn, graph, states, mcts"),
        ({"planner.value.target_rate": 0.0}, "target_rate must be above 0, got 0.0"),
        ({"explore.update_every": -1}, "update_every must not be negative, got -1"),
        ({"explore.update_every": 4, "explore.per_epoch": 2}, r"\(explore.update_every\) takes explore.per_epoch=1"),
        ({"fit.recent_share": 1.1}, "recent_share must be at most 1, got 1.1"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_one_line(changes, message):
    with pytest.raises(UserError, match=message) as raised:
        changed(NeuralE3Config(), changes)
    assert "\n" not in str(raised.value)


def test_what_can():
    config = changed(NeuralE3Config(), {"utility": "mean", "model": "factored"})
    assert NeuralE3Config().tells_dice
    assert not config.tells_dice
    assert config.utility.of_probabilities
    settings = {"planner": "graph", "exploit": "graph", "exploit.snap": "true", "planner.nodes": "1e3"}
    searched = changed(config, settings)
    assert (searched.planner, searched.exploit) == (GraphSearch(nodes=1_000), GraphSearch(snap=True))
    fine = changed(config, {"exploit": "dqn", "exploit.value.updates": 10, "exploit.snapshots": 5})
    assert fine.exploit == OfflineDqn(value=DqnFit(updates=10), snapshots=5)
