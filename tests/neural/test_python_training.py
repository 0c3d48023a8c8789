"""Training on environments in Python: twins, failures in the middle of an episode, and what is left of the run."""

import math

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.envs.opening import open_environment
from e3rl.envs.playing.python_copies import PythonCopies
from e3rl.neural.agent import NeuralE3
from e3rl.neural.compiled_agent import compiled_agent
from e3rl.neural.presets import PRESETS
from e3rl.runs.checkpoint import load_arrays
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.runs.settings import changed
from e3rl.types import UserError

LIMIT = 5
TINY = changed(
    PRESETS["e3rl-control"],
    {
        "explore.episodes": 6, "explore.per_epoch": 2, "model.hidden": 8, "fit.members": 2, "fit.updates": 2,
        "fit.batch": 4, "planner": "uniform", "exploit": "dqn", "exploit.value.updates": 4, "exploit.value.batch": 4,
        "exploit.value.hidden": 8, "exploit.value.heads": False, "evaluation_episodes": 2,
    },
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


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Held here, the compiled functions serve every run of this module."""
    gymnasium.register("Corridor-v0", entry_point=Corridor, max_episode_steps=LIMIT)
    opened = open_environment("Corridor-v0")
    yield compiled_agent(opened.spec, TINY)
    opened.close()
    gymnasium.registry.pop("Corridor-v0")


@pytest.fixture(autouse=True)
def no_trouble():
    Corridor.trouble = {}


def train(out, seed=1, resume=False, watch=lambda progress: None, config=TINY):
    """The summary; from the first episode on, whatever was played before."""
    Corridor.episodes = 0
    agent = NeuralE3("Corridor-v0", config, seed=seed)
    try:
        return agent.learn(out, resume=resume, watch=watch)
    finally:
        agent.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole")
    return out, train(out)


def table(path):
    return [{**row, "seconds": None} for row in read_metrics(path)]


def assert_same_run(one, other):
    assert table(one) == table(other)
    assert RunFolder(one).policy.read_bytes() == RunFolder(other).policy.read_bytes()


def test_twin_seeds_are_equal_and_others_are_not(whole, tmp_path):
    train(tmp_path / "again")
    assert_same_run(tmp_path / "again", whole[0])
    train(tmp_path / "other", seed=2)
    assert table(tmp_path / "other") != table(whole[0])


def test_learn_predict_evaluate_save_load(compiled, whole, tmp_path):
    run, summary = whole
    rows = read_metrics(run)
    assert [row["phase"] for row in rows] == ["explore"] * 6 + ["exploit"] * 2
    returns = [float(row["return"]) for row in rows[6:]]
    assert summary["exploit_return_mean"] == pytest.approx(np.mean(returns))
    agent = NeuralE3.load(run)
    assert agent.program.agent is compiled
    assert isinstance(agent.program.env, PythonCopies)
    obs = np.array([0.5, 0.0], np.float32)
    first, judged = agent.predict(obs), agent.evaluate(3)
    assert 0 <= first < 3
    assert judged.shape == (3,)
    np.testing.assert_array_equal(agent.evaluate(3), judged)
    agent.save(tmp_path / "saved")
    loaded = NeuralE3.load(tmp_path / "saved")
    for ours, theirs in zip(jax.tree.leaves(agent.policy), jax.tree.leaves(loaded.policy), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert loaded.predict(obs) == first
    np.testing.assert_array_equal(loaded.evaluate(3), judged)
    for each in (agent, loaded):
        each.close()


def breaks(seen):
    raise RuntimeError("the door\njammed")


def not_a_number(seen):
    return seen * math.nan


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


def test_an_environment_that_fails_while_exploited_keeps_the_rows(whole, tmp_path):
    Corridor.trouble = {(7, 2): breaks}
    with pytest.raises(UserError, match="Corridor-v0, episode 7, step 2: RuntimeError"):
        train(tmp_path)
    rows = read_metrics(tmp_path)
    assert [row["phase"] for row in rows] == ["explore"] * 6 + ["exploit"] * 2
    Corridor.trouble = {}
    train(tmp_path, resume=True)
    assert_same_run(tmp_path, whole[0])


def test_a_run_broken_off_resumes_to_the_same_end(whole, tmp_path):
    """Stopped between epochs, an environment in Python goes on exactly as if nothing had happened."""

    def stop(progress):
        if progress.episode == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, watch=stop)
    assert len(read_metrics(tmp_path)) == 2  # the epoch that was not finished is repeated
    train(tmp_path, resume=True)
    assert_same_run(tmp_path, whole[0])


def test_practice_broken_by_the_environment_goes_on_after_the_last_round(compiled, tmp_path):
    changes = {"rounds.count": 2, "rounds.episodes": 2, "rounds.updates": 0, "rounds.stop_on_drop": False}
    config = changed(TINY, {**changes, "explore.episodes": 2})
    agent = compiled_agent(compiled.spec, config)  # held here
    assert agent.one.capacity == compiled.one.capacity
    for name in ("init", "plan", "absorb", "update_models", "exploit", "exploit_plans", "explore_plans"):
        setattr(agent, name, getattr(compiled, name))
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    summary = train(whole, config=config)
    phases = ["explore"] * 2 + ["practice"] * 4 + ["exploit"] * 2
    assert [row["phase"] for row in read_metrics(whole)] == phases
    assert (summary.explore_episodes, summary.practice_episodes, summary.total_episodes) == (2, 4, 8)
    Corridor.trouble = {(5, 2): breaks}
    with pytest.raises(UserError, match="Corridor-v0, episode 5, step 2: RuntimeError"):
        train(cut, config=config)
    assert [row["phase"] for row in read_metrics(cut)] == phases[:6]
    about = RunFolder(cut).about_checkpoint()
    assert (about["round"], about["rows"]) == (1, 4)
    Corridor.trouble = {}
    train(cut, resume=True, config=config)
    assert_same_run(cut, whole)
