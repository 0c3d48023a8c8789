"""Training with graph search on MountainCar: exact resuming, and the stop of line 6."""

import dataclasses
import math

import numpy as np
import pytest

from e3rl.envs.mountain_car import MountainCar
from e3rl.neural.agent import describe
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.lanes import lanes_for
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.neural.training import Training

LIMIT = 8
TINY = NeuralE3Config(
    explore_ratio=0, explore_episodes=6, episodes_per_epoch=2, family="mlp", clock=False, ensemble_size=2, hidden=8,
    model_updates=2, model_batch=4, unroll=2, recent_share=0.5, ending_share=0.5, prior_weight=0.0, planner="graph",
    nodes=20, distance="squared", reward_scale=0.0, value_heads=False, dqn_heads=False, exploit="graph",
    evaluation_episodes=2, epsilon=1e-9,
)  # fmt: skip


def train(out, config=TINY, resume=False, watch=lambda progress: None):
    env = MountainCar(LIMIT)
    training = Training([env], config, [3], [RunFolder(out)], [describe(None, {}, 3, config)], watch, 1)
    return training.learn(resume)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    return lanes_for(MountainCar(LIMIT), TINY)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    return out, train(out)


def test_a_run_by_graph_search(whole):
    """The first epoch is uniform; v_explore is known afterwards because ε asks for it."""
    out, (policy, replay, _) = whole
    rows = read_metrics(out)
    assert [row["phase"] for row in rows] == ["explore"] * 6 + ["exploit"] * 2
    values = [float(row["v_explore"]) for row in rows[:6]]
    assert values[0] == math.inf
    assert all(0.0 < value < math.inf for value in values[2:])
    assert int(replay.size[0]) == 6 * LIMIT
    np.testing.assert_allclose(policy.scale.low[0], [-1.2, -0.07], rtol=1e-6)


@pytest.mark.parametrize("episode", [2, 4, 6])
def test_a_killed_run_resumes_to_the_same_bytes(whole, tmp_path, episode):
    def stop(progress):
        if progress.episode == episode:
            raise SystemExit  # leaves no time to save anything

    with pytest.raises(SystemExit):
        train(tmp_path, watch=stop)
    saved = RunFolder(tmp_path).state
    assert saved.exists() == (episode > 2)
    train(tmp_path, resume=True)
    assert RunFolder(tmp_path).policy.read_bytes() == RunFolder(whole[0]).policy.read_bytes()
    tables = [[{**row, "seconds": None} for row in read_metrics(path)] for path in (tmp_path, whole[0])]
    assert tables[0] == tables[1]


def test_a_large_epsilon_stops_after_the_first_epoch_of_planning(whole, tmp_path, monkeypatch, compiled):
    """Before any data the value is unknown; once it is known everything is below ε/|A|."""
    monkeypatch.setattr(
        "e3rl.neural.training.lanes_for", lambda env, config: compiled
    )  # ε is not compiled in
    _, _, (summary,) = train(tmp_path, dataclasses.replace(TINY, epsilon=1e9))
    assert summary["explore_episodes"] == 2
    rows, others = read_metrics(tmp_path), read_metrics(whole[0])
    assert [row["phase"] for row in rows] == ["explore"] * 2 + ["exploit"] * 2
    for row, other in zip(rows[:2], others[:2], strict=True):
        assert (row["return"], row["model_loss"]) == (other["return"], other["model_loss"])
