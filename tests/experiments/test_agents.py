"""Which agent suits an environment where nobody names one, and how the command line says so."""

from contextlib import closing

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from e3rl import cli
from e3rl.envs.opening import open_environment
from e3rl.experiments.agents import AGENTS, suited_agent
from e3rl.reports import learning
from e3rl.runs import train as train_module

LOCK = "e3rl/CombinationLock-v0"
SUMMARY = {
    "seed": 0, "exploit_return_mean": 1.0, "exploit_return_ci": None, "explore_episodes": 7, "wall_seconds": 1.0,
}  # fmt: skip


def suited(env, **options):
    with closing(open_environment(env, options)) as opened:
        return suited_agent(opened)


class Line(gymnasium.Env):
    """A place on a line of five, shown as told; `noise` is added to what is seen."""

    action_space = spaces.Discrete(2)

    def __init__(self, space, shown, noise=0.0, ends=None):
        self.observation_space, self.shown, self.noise, self.ends = space, shown, noise, ends

    def _seen(self):
        seen = self.shown(np.eye(5)[self.place])
        if self.noise and self.count:
            seen = seen + self.np_random.uniform(0.0, self.noise, seen.shape)
        return seen.astype(self.observation_space.dtype)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place, self.count = 2, 0
        return self._seen(), {}

    def step(self, action):
        self.place, self.count = min(max(self.place + 2 * int(action) - 1, 0), 4), self.count + 1
        return self._seen(), 0.0, self.count == self.ends, False, {}


BITS, FLOATS = spaces.MultiBinary(5), spaces.Box(-2.0, 2.0, (5,), np.float32)
IMAGE = spaces.Box(0, 255, (5, 5, 3), np.uint8)


def picture(one_hot):
    return np.broadcast_to(255 * one_hot[:, None, None], (5, 5, 3))


@pytest.mark.parametrize(
    ("env", "options", "algo", "why"),
    [
        ("Taxi-v4", {}, "tabular-e3", "500 categories"),
        ("FrozenLake-v1", {}, "tabular-e3", "16 categories"),
        ("Blackjack-v1", {}, "tabular-e3", "704 categories"),
        ("e3rl/RandomMDP-v0", {}, "tabular-e3", "5 categories"),
        ("CartPole-v1", {}, "neural-e3", "only 0% of observations were seen in earlier episodes"),
        ("e3rl/MountainCar-v0", {}, "neural-e3", "only 0% of observations"),
        ("e3rl/Maze-v0", {"size": 5}, "neural-e3", "of observations were seen in earlier episodes"),
        (LOCK, {"horizon": 5}, "neural-e3", "8 bits, episodes of 5 steps"),
        (LOCK, {"horizon": 10}, "neural-e3", "13 bits, episodes of 10 steps"),
    ],
)
def test_environments_that_everybody_knows(env, options, algo, why):
    chosen, reason = suited(env, **options)
    assert chosen == algo
    assert why in reason


@pytest.mark.parametrize(
    ("space", "shown"),
    [(BITS, lambda x: x), (FLOATS, lambda x: x), (IMAGE, picture)],
    ids=["bits", "floats", "image"],
)
@pytest.mark.parametrize("limit", [20, 500])
def test_a_line_of_places_is_a_table_however_it_is_shown(space, shown, limit):
    env = gymnasium.wrappers.TimeLimit(Line(space, shown), limit)
    algo, why = suited(env)
    assert algo == "tabular-e3"
    assert "of observations were seen in earlier episodes" in why


def test_short_problems_of_bits_may_hide_the_time_step():
    """Two bits of five: no one-hot. In long episodes the bits are what matters."""
    shown = Line(BITS, lambda one_hot: np.maximum(one_hot, np.roll(one_hot, 1)))
    assert suited(gymnasium.wrappers.TimeLimit(shown, 100)) == ("neural-e3", "5 bits, episodes of 100 steps")
    assert suited(gymnasium.wrappers.TimeLimit(shown, 101))[0] == "tabular-e3"


@pytest.mark.parametrize("ends", [None, 2])
def test_beginning_in_one_place_is_no_repetition(ends):
    """Not even where episodes are so short that it is a third of what is seen."""
    noisy = Line(FLOATS, lambda one_hot: one_hot, noise=0.5, ends=ends)
    assert suited(noisy) == ("neural-e3", "only 0% of observations were seen in earlier episodes")


class Categories(Line):
    def __init__(self, sizes):
        super().__init__(spaces.MultiDiscrete(sizes), lambda one_hot: np.zeros(len(sizes)))


def test_categories_are_counted_without_playing():
    assert suited(Categories([10, 10, 10])) == ("tabular-e3", "1,000 categories")
    assert suited(Categories([1000, 1000])) == (
        "neural-e3",
        "1,000,000 categories are too many for a table",
    )


class Broken(Line):
    def __init__(self, call):
        super().__init__(FLOATS, lambda one_hot: one_hot)
        self.call = call

    def reset(self, *, seed=None, options=None):
        if self.call == "reset":
            raise RuntimeError("the cable came off")
        return super().reset(seed=seed)

    def step(self, action):
        raise RuntimeError("the cable came off")


@pytest.mark.parametrize("call", ["reset", "step"])
def test_an_environment_that_breaks_is_told_so_when_it_is_trained_on(call):
    why = "random play was cut short, so nobody knows whether observations repeat"
    assert suited(Broken(call)) == ("neural-e3", why)


class BreaksLate(Line):
    """In its third episode: what the others have shown decides."""

    def reset(self, *, seed=None, options=None):
        if seed == 2:
            raise RuntimeError("the cable came off")
        return super().reset(seed=seed)


def test_an_environment_that_breaks_now_and_then_is_judged_by_what_it_showed():
    assert suited(BreaksLate(FLOATS, lambda one_hot: one_hot))[0] == "tabular-e3"


@pytest.fixture
def trained(monkeypatch):
    """Training left out: the agents asked for."""
    asked = []

    def train(agent, env, options, config, seeds, out, **more):
        asked.append((agent, config))
        return [out], [SUMMARY]

    monkeypatch.setattr(train_module, "train", train)
    monkeypatch.setattr(learning, "draw_runs", lambda paths, picture: picture)
    return asked


def test_the_command_line_says_what_it_chose_and_why(trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "FrozenLake-v1"]) == 0
    out, err = capsys.readouterr()
    assert err == "FrozenLake-v1: 16 categories → tabular-e3; force another with --algo\n"
    assert "(runs/FrozenLake-v1-tabular-e3-seed0)" in out
    assert trained == [(AGENTS["tabular-e3"], "auto")]


@pytest.mark.parametrize(
    ("argv", "algo"),
    [
        (["FrozenLake-v1", "--json"], "tabular-e3"),
        (["FrozenLake-v1", "--algo", "auto", "--json"], "tabular-e3"),
        (["FrozenLake-v1", "--algo", "neural-e3"], "neural-e3"),
        (["lock", "--config", "paper-lock-h5"], "neural-e3"),
        (["FrozenLake-v1", "--config", "e3rl-dqn"], "dqn"),
        (["CartPole-v1", "--config", "e3rl-tabular"], "tabular-e3"),
    ],
)
def test_nothing_is_said_where_nothing_was_chosen_or_nobody_reads(argv, algo, trained, tmp_path, capsys):
    """The name of a preset names its agent."""
    assert cli.main(["train", *argv, "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().err == ""
    assert trained[0][0] is AGENTS[algo]
