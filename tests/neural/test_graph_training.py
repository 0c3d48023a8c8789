"""Training with graph search on MountainCar: plans carried out without looking, exact resuming, the stop of line 6."""

import math

import numpy as np
import pytest

from e3rl.envs.mountain_car import MountainCar
from e3rl.envs.opening import open_environment
from e3rl.envs.spec import spec_of
from e3rl.neural.agent import NeuralE3
from e3rl.neural.compiled_agent import compiled_agent
from e3rl.neural.presets import PRESETS
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.runs.record import Record
from e3rl.runs.settings import changed

LIMIT = 8
TINY = changed(
    PRESETS["e3rl-control"],
    {
        "explore.episodes": 6, "explore.per_epoch": 2, "model.hidden": 8, "fit.members": 2,
        "fit.updates": 2, "fit.batch": 4, "fit.unroll": 2, "fit.recent_share": 0.5, "fit.ending_share": 0.5,
        "planner.nodes": 20, "exploit": "graph", "exploit.nodes": 20, "evaluation_episodes": 2,
    },
)  # fmt: skip


@pytest.fixture(scope="module")
def compiled():
    return compiled_agent(spec_of(MountainCar(LIMIT)), TINY)


@pytest.fixture(scope="module")
def train(compiled):
    def train(out, config=TINY, resume=False, watch=lambda progress: None):
        program = NeuralE3.make_program([open_environment(MountainCar(LIMIT))], config, [3])
        program.agent = compiled  # however large ε is, it is not compiled in
        record = Record([3], [RunFolder(out)], [NeuralE3.describe(None, {}, 3, config)], watch, 0.0)
        return program.learn_all(record, resume)

    return train


@pytest.fixture(scope="module")
def whole(train, tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    return out, train(out)


def test_a_run_by_graph_search(whole):
    """v_explore would take a search of its own: it is the unknown that the episodes of the epoch before met."""
    out, (policy, replay, _) = whole
    rows = read_metrics(out)
    assert [row["phase"] for row in rows] == ["explore"] * 6 + ["exploit"] * 2
    values = [float(row["v_explore"]) for row in rows[:6]]
    assert values[:4] == [math.inf] * 4  # nothing was there to compare with until the second epoch
    assert values[4] == values[5] > 0.0
    assert math.isfinite(values[4])
    assert int(replay.size[0]) == 6 * LIMIT
    assert policy.value is None  # the models are the policy
    np.testing.assert_allclose(policy.scale.low[0], [-1.2, -0.07], rtol=1e-6)


@pytest.mark.parametrize("episode", [2, 4, 6])
def test_a_killed_run_resumes_to_the_same_bytes(train, whole, tmp_path, episode):
    def stop(progress):
        if progress.episode == episode:
            raise SystemExit  # leaves no time to save anything

    with pytest.raises(SystemExit):
        train(tmp_path, watch=stop)
    assert RunFolder(tmp_path).state.exists() == (episode > 2)
    train(tmp_path, resume=True)
    assert RunFolder(tmp_path).policy.read_bytes() == RunFolder(whole[0]).policy.read_bytes()
    tables = [[{**row, "seconds": None} for row in read_metrics(path)] for path in (tmp_path, whole[0])]
    assert tables[0] == tables[1]
