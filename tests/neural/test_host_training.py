"""Training on environments in Python: twins, failures in the middle of an episode, and what is left of the run."""

import math

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.neural import agent as agent_module
from e3rl.neural.agent import NeuralE3
from e3rl.runs.checkpoint import load_arrays
from e3rl.neural.config import NeuralE3Config
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.types import UserError

LIMIT = 5
TINY = NeuralE3Config(
    explore_ratio=0, explore_episodes=6, episodes_per_epoch=2, family="mlp", clock=False, ensemble_size=2, hidden=8,
    model_updates=2, model_batch=4, prior_weight=0.0, planner="uniform", distance="squared", value_batch=4,
    value_heads=False, dqn_heads=False, exploit="dqn", exploit_updates=4, dqn_batch=4, evaluation_episodes=2,
)  # fmt: skip


class Corridor(gymnasium.Env):
    """A place on a line, its start drawn by reset. In `trouble`, (episode, step) is spoilt by what is called there."""

    trouble: dict = {}  # noqa: RUF012
    episodes = 0

    def __init__(self):
        self.observation_space = spaces.Box(-10.0, 10.0, (2,), np.float32)
        self.action_space = spaces.Discrete(3)

    def _seen(self):
        return np.array([self.place, self.count], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        Corridor.episodes += 1
        self.number = Corridor.episodes
        self.place, self.count = float(self.np_random.uniform(-1.0, 1.0)), 0
        return self._seen(), {}

    def step(self, action):
        self.place, self.count = self.place + int(action) - 1, self.count + 1
        seen = self._seen()
        if (self.number, self.count) in self.trouble:
            seen = self.trouble[self.number, self.count](seen)
        return seen, self.place, self.place > 3.0, False, {}


@pytest.fixture(autouse=True)
def corridor():
    gymnasium.register("Corridor-v0", entry_point=Corridor, max_episode_steps=LIMIT)
    Corridor.trouble, Corridor.episodes = {}, 0
    yield
    gymnasium.registry.pop("Corridor-v0")


@pytest.fixture(scope="module")
def compiled():
    """Held here, the compiled functions serve every run of this module."""
    held = []
    original = agent_module.lanes_for

    def keep(env, config):
        held.append(original(env, config))
        return held[-1]

    agent_module.lanes_for = keep
    yield held
    agent_module.lanes_for = original


def train(out, seed=1, resume=False, config=TINY):
    """The summary; from the first episode on, whatever was played before."""
    Corridor.episodes = 0
    agent = NeuralE3("Corridor-v0", config, seed=seed)
    try:
        return agent.learn(out, resume=resume)
    finally:
        agent.env.close()


def table(path):
    return [{**row, "seconds": None} for row in read_metrics(path)]


def assert_same_run(one, other):
    assert table(one) == table(other)
    assert RunFolder(one).policy.read_bytes() == RunFolder(other).policy.read_bytes()


@pytest.mark.usefixtures("compiled")
def test_twin_seeds_are_equal_and_others_are_not(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        train(tmp_path / name, seed)
    assert_same_run(tmp_path / "a", tmp_path / "b")
    assert table(tmp_path / "a") != table(tmp_path / "c")


@pytest.mark.usefixtures("compiled")
def test_copies_in_processes_of_their_own_make_the_same_run(tmp_path):
    for asynchronous in (True, False):
        agent = NeuralE3("CartPole-v1", TINY, asynchronous=asynchronous)
        agent.learn(tmp_path / str(asynchronous))
        agent.env.close()
    assert_same_run(tmp_path / "True", tmp_path / "False")


def breaks(seen):
    raise RuntimeError("the door\njammed")


def not_a_number(seen):
    return seen * math.nan


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    ("trouble", "problem"),
    [(breaks, "RuntimeError: the door jammed"), (not_a_number, r"observation\[0\] is nan")],
)
@pytest.mark.parametrize("episode", [1, 4])
def test_an_environment_that_fails_ends_the_run_with_what_was_seen_kept(tmp_path, trouble, problem, episode):
    """Two copies play together: at step 3 of `episode` both have taken two steps."""
    Corridor.trouble = {(episode, 3): trouble}
    with pytest.raises(UserError, match=rf"Corridor-v0, episode {episode}, step 3: {problem}") as raised:
        train(tmp_path)
    assert "\n" not in str(raised.value)
    rows = read_metrics(tmp_path)
    before = 2 * ((episode - 1) // 2)
    assert [row["phase"] for row in rows] == ["explore"] * (before + 2)
    assert [row["length"] for row in rows[:before]] == [str(LIMIT)] * before
    kept = [int(row["length"]) for row in rows[before:]]
    assert sorted(kept) == [2, 3]  # the other copy was not in trouble
    steps = int(rows[-1]["env_steps"])
    assert steps == before * LIMIT + 5

    arrays, about = load_arrays(RunFolder(tmp_path).state)
    assert about["rows"] == before + 2
    size = next(value for name, value in arrays.items() if name.endswith(".size"))
    assert int(size) == steps

    Corridor.trouble = {}
    summary = train(tmp_path, resume=True)
    done = read_metrics(tmp_path)
    assert table(tmp_path)[: before + 2] == [{**row, "seconds": None} for row in rows]
    assert [row["phase"] for row in done[before + 2 :]] == ["explore"] * (6 - before) + ["exploit"] * 2
    assert [int(row["episode"]) for row in done] == list(range(1, len(done) + 1))
    assert summary["total_episodes"] == len(done)
    assert math.isfinite(summary["exploit_return_mean"])


@pytest.mark.usefixtures("compiled")
def test_an_environment_that_fails_while_exploited_keeps_the_rows(tmp_path):
    Corridor.trouble = {(7, 2): breaks}
    with pytest.raises(UserError, match="Corridor-v0, episode 7, step 2: RuntimeError"):
        train(tmp_path)
    rows = read_metrics(tmp_path)
    assert [row["phase"] for row in rows] == ["explore"] * 6 + ["exploit"] * 2
    Corridor.trouble = {}
    train(tmp_path, resume=True)
    Corridor.trouble = {}
    train(tmp_path / "whole")
    assert_same_run(tmp_path, tmp_path / "whole")


@pytest.mark.usefixtures("compiled")
def test_a_run_broken_off_resumes_to_the_same_end(tmp_path):
    """Stopped between epochs, an environment in Python goes on exactly as if nothing had happened."""
    train(tmp_path / "whole")
    agent = NeuralE3("Corridor-v0", TINY, seed=1)

    def stop(progress):
        if progress.episode == 4:
            raise KeyboardInterrupt

    Corridor.episodes = 0
    with pytest.raises(KeyboardInterrupt):
        agent.learn(tmp_path / "cut", watch=stop)
    agent.env.close()
    assert len(read_metrics(tmp_path / "cut")) == 2  # the epoch that was not finished is repeated
    train(tmp_path / "cut", resume=True)
    assert_same_run(tmp_path / "cut", tmp_path / "whole")
