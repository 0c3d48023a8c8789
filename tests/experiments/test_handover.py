"""A table that is of no use leaves the rest to Neural-E³: one run, one record, resumed exactly."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from e3rl import cli
from e3rl.envs.opening import open_environment
from e3rl.experiments.agents import load
from e3rl.neural.agent import NeuralE3
from e3rl.neural.presets import PRESETS
from e3rl.runs.folder import RunFolder, read_json, read_metrics
from e3rl.runs.handover import Steps, padded_episodes
from e3rl.runs.record import Record
from e3rl.runs.settings import changed
from e3rl.runs.train import train
from e3rl.tabular.agent import TabularE3
from e3rl.tabular.config import TabularE3Config
from e3rl.types import UserError

ENV, LIMIT = "HandOverLine-v0", 6
TABLE = changed(TabularE3Config(), {"capacity": 60, "explore.episodes": 50, "evaluation_episodes": 2})
TINY = changed(
    PRESETS["e3rl-control"],
    {
        "explore.episodes": 4, "explore.per_epoch": 2, "model.hidden": 8, "fit.members": 2, "fit.updates": 2,
        "fit.batch": 4, "planner": "uniform", "exploit": "dqn", "exploit.value.updates": 4, "exploit.value.batch": 4,
        "exploit.value.hidden": 8, "exploit.value.heads": False, "evaluation_episodes": 2,
    },
)  # fmt: skip


class Line(gymnasium.Env):
    """Five places in a line, and a number of pure noise."""

    observation_space = spaces.Box(-10.0, 10.0, (6,), np.float32)
    action_space = spaces.Discrete(2)

    def _seen(self):
        return np.append(np.eye(5)[self.place], self.np_random.normal()).clip(-9, 9).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self._seen(), {}

    def step(self, action):
        self.place = min(max(self.place + 2 * int(action) - 1, 0), 4)
        return self._seen(), float(self.place == 4), self.place == 4, False, {}


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register(ENV, entry_point=Line, max_episode_steps=LIMIT)
    yield
    gymnasium.registry.pop(ENV)


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    monkeypatch.setattr(NeuralE3, "suited", classmethod(lambda cls, opened: TINY))


def run(out, resume=False, watch=lambda progress: None, heir=NeuralE3):
    said = []
    _, [summary] = train(TabularE3, ENV, {}, TABLE, [1], out, resume, watch, say=said.append, heir=heir)
    return summary, said


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NeuralE3, "suited", classmethod(lambda cls, opened: TINY))
        out = tmp_path_factory.mktemp("whole")
        return out, *run(out)


def test_the_record_tells_of_both(whole):
    out, summary, said = whole
    handed = summary["handed_over"]
    steps = handed["after_steps"]
    assert said == [f"more than 60 different observations → neural-e3 goes on with all {steps} steps"]
    assert (summary["algo"], handed["to"], handed["folder"]) == ("tabular-e3", "neural-e3", "neural-e3")
    assert handed["why"] == "more than 60 different observations"
    assert summary == RunFolder(out).summary()
    rows = read_metrics(out)
    assert [int(row["episode"]) for row in rows] == list(range(1, len(rows) + 1))
    assert summary["total_episodes"] == len(rows)
    assert summary["explore_episodes"] == len(rows) - 2 == handed["after_episodes"] + 4
    assert int(rows[handed["after_episodes"] - 1]["env_steps"]) == steps
    assert np.all(np.diff([int(row["env_steps"]) for row in rows]) > 0)
    assert read_json(out / "neural-e3" / "config.json")["algo"] == "neural-e3"


def test_what_is_loaded_is_the_agent_that_went_on(whole):
    agent = load(whole[0])
    assert isinstance(agent, NeuralE3)
    assert agent.predict(np.zeros(6, np.float32)) in (0, 1)
    agent.close()


def test_a_finished_run_is_left_alone(whole):
    out, summary, _ = whole
    assert run(out, resume=True) == (summary, [])


def rows_of(path):
    return [{**row, "seconds": None} for row in read_metrics(path)]


@pytest.mark.parametrize("when", [(1, "explore"), (2, "compiling"), (2, "explore"), (2, "exploit")])
def test_broken_off_it_resumes_to_the_same_end(whole, when, tmp_path):
    """In the table's part, between the two, and in the heir's."""
    part, phase = 0, ""

    def watch(progress):
        nonlocal part, phase
        part, phase = part + (progress.phase == "compiling"), progress.phase
        if (part, phase) == when and (phase != "explore" or progress.episode > 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, watch=watch)
    summary, _ = run(tmp_path, resume=True)
    assert rows_of(tmp_path) == rows_of(whole[0])
    policies = [RunFolder(path / "neural-e3").policy.read_bytes() for path in (tmp_path, whole[0])]
    assert policies[0] == policies[1]
    assert summary["handed_over"] == whole[1]["handed_over"]


def drawn(lengths, seed=0):
    rng, size = np.random.default_rng(seed), sum(lengths)
    time = np.concatenate([np.arange(n) for n in lengths]).astype(np.int32)
    obs, following = rng.uniform(size=(2, size, 6)).astype(np.float32)
    ended = np.zeros(size, bool)
    ended[np.cumsum(lengths)[::2] - 1] = True
    reward = rng.uniform(size=size).astype(np.float32)
    return Steps(obs, rng.integers(2, size=size).astype(np.int32), time, reward, following, ended)


def test_the_replay_buffer_begins_with_what_was_seen():
    steps = drawn([3, 6, 1, 4, 2])
    opened = open_environment(ENV)
    config, program = NeuralE3.heir(opened, 1, steps)
    assert config.explore.episodes == 6 + 4  # three epochs of two for five episodes, and those to come
    replay = program.explore(Record([1]), False, lambda models, replay, v_explore: replay)
    rows, size = replay.rows, len(steps.time)
    assert int(replay.size[0]) > size
    for name in Steps._fields:
        np.testing.assert_array_equal(getattr(rows, name)[0, :size], getattr(steps, name), err_msg=name)
    assert int(np.sum(np.asarray(rows.time[0, : int(replay.size[0])]) == 0)) == 5 + 4
    opened.close()


def test_episodes_in_a_row_become_padded_ones():
    steps = drawn([3, 6, 1])
    episodes = padded_episodes(steps, np.array([0, 3, 9]), 4, LIMIT)
    np.testing.assert_array_equal(np.asarray(episodes.valid).sum(axis=1), [3, 6, 1, 0])
    np.testing.assert_array_equal(episodes.obs[1], steps.obs[3:9])
    np.testing.assert_array_equal(np.argwhere(episodes.terminated), [[0, 2], [2, 0]])
    np.testing.assert_array_equal(np.argwhere(episodes.truncated), [[1, 5]])


def test_without_an_heir_it_is_an_error_and_nothing_is_lost(tmp_path):
    with pytest.raises(UserError, match="more than 60 different observations: train neural-e3 instead"):
        run(tmp_path, heir=None)
    summary, _ = run(tmp_path, resume=True)
    assert summary["handed_over"]["to"] == "neural-e3"


def test_not_everybody_takes_over():
    with pytest.raises(UserError, match="tabular-e3 cannot take over from another agent"):
        TabularE3.heir(open_environment(ENV), 0, drawn([1]))


def test_the_command_line_says_so(tmp_path, capsys):
    argv = ["train", ENV, "--algo", "tabular-e3", "--set", "capacity=60", "--out", str(tmp_path)]
    assert cli.main(argv) == 0
    out, err = capsys.readouterr()
    assert "e3rl: more than 60 different observations → neural-e3 goes on with all" in err
    assert "seed 0: return" in out
