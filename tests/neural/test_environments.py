"""`NeuralE3` on environments of every kind: learn, predict, evaluate, save, load, on the smallest of budgets."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.envs.opening import open_environment
from e3rl.envs.playing.python_copies import PythonCopies
from e3rl.neural.agent import NeuralE3
from e3rl.neural.auto import suited_config
from e3rl.runs.folder import read_metrics
from e3rl.runs.settings import changed, settings_of

LIMIT = 6
SMALL = {
    "explore.episodes": 4, "explore.per_epoch": 2, "explore.update_every": 0, "rounds.episodes": 2,
    "fit.members": 2, "fit.updates": 2, "fit.batch": 4, "fit.unroll": 1, "fit.finishing": 2,
    "model.hidden": 8, "planner.nodes": 20, "planner.playouts": 4, "planner.particles": 4, "planner.leaf": "zero",
    "planner.value.updates": 2, "planner.value.batch": 4, "planner.value.hidden": 8, "exploit.nodes": 20,
    "exploit.snapshots": 1, "exploit.value.updates": 4, "exploit.value.batch": 4, "exploit.value.hidden": 8,
    "exploit.value.heads": False, "evaluation_episodes": 3,
}  # fmt: skip
OPTIONS = {"max_episode_steps": LIMIT}


class Toy(gymnasium.Env):
    """What is seen depends on the actions so far; the start on the seed."""

    def __init__(self, space):
        self.observation_space, self.action_space = space, spaces.Discrete(2, start=1)

    def _seen(self):
        self.observation_space.seed(self.number)
        return self.observation_space.sample(), {}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.number = int(self.np_random.integers(100))
        return self._seen()

    def step(self, action):
        assert self.action_space.contains(action)
        self.number = 2 * self.number % 101 + int(action)
        return self._seen()[0], float(action), self.number % 7 == 0, False, self._seen()[1]


TOYS = {
    "Image": spaces.Box(0, 255, (4, 5, 2), np.uint8),
    "Dict": spaces.Dict({"place": spaces.Box(-np.inf, np.inf, (2,)), "door": spaces.Discrete(3)}),
    "MultiDiscrete": spaces.MultiDiscrete([2, 3]),
    "Board": spaces.MultiBinary([2, 2]),
}


@pytest.fixture(scope="module", autouse=True)
def toys():
    """The toys under ids of their own."""
    for name, space in TOYS.items():
        gymnasium.register(f"Toy{name}-v0", entry_point=Toy, kwargs={"space": space}, max_episode_steps=LIMIT)
    yield
    for name in TOYS:
        gymnasium.registry.pop(f"Toy{name}-v0")


def small(env):
    """What suits the environment, with everything small."""
    opened = open_environment(env, OPTIONS)
    suited = suited_config(opened)
    opened.close()
    if "planner.playouts" in settings_of(suited):
        suited = changed(suited, {"exploit": "dqn"})  # the quickest to compile
    there = set(settings_of(suited))
    return changed(suited, {path: value for path, value in SMALL.items() if path in there})


QUICK = ["ToyDict-v0"]
MORE = [
    "CartPole-v1",
    "FrozenLake-v1",
    "MountainCar-v0",
    "Acrobot-v1",
    "CliffWalking-v1",
    "Taxi-v4",
    "Blackjack-v1",
    "ToyImage-v0",
    "ToyMultiDiscrete-v0",
    "ToyBoard-v0",
]


@pytest.mark.parametrize("env", [*QUICK, *(pytest.param(env, marks=pytest.mark.slow) for env in MORE)])
def test_learn_predict_evaluate_save_load(env, tmp_path):
    config = small(env)
    agent = NeuralE3(env, config, seed=3, env_options=OPTIONS)
    assert isinstance(agent.program.env, PythonCopies)
    summary = agent.learn(tmp_path / "run")
    rows = read_metrics(tmp_path / "run")
    practised = config.rounds.total
    assert [row["phase"] for row in rows] == ["explore"] * 4 + ["practice"] * practised + ["exploit"] * 3
    assert all(1 <= int(row["length"]) <= LIMIT for row in rows)
    returns = [float(row["return"]) for row in rows[4 + practised :]]
    assert summary["exploit_return_mean"] == pytest.approx(np.mean(returns))

    world = gymnasium.make(env, **OPTIONS)
    obs, _ = world.reset(seed=0)
    agent.start_episode()
    first = agent.predict(obs)
    assert 0 <= first < agent.program.spec.actions
    judged = agent.evaluate(3)
    assert judged.shape == (3,)
    np.testing.assert_array_equal(agent.evaluate(3), judged)

    agent.save(tmp_path / "saved")
    for place in ("saved", "run"):
        loaded = NeuralE3.load(tmp_path / place)
        assert loaded.config == agent.config
        for ours, theirs in zip(jax.tree.leaves(agent.policy), jax.tree.leaves(loaded.policy), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        loaded.start_episode()
        assert loaded.predict(obs) == first
        np.testing.assert_array_equal(loaded.evaluate(3), judged)
        loaded.close()
    world.close()
    agent.close()


@pytest.mark.slow
@pytest.mark.parametrize("env", ["CartPole-v1", "FrozenLake-v1", "Taxi-v4"])
def test_copies_in_processes_of_their_own_make_the_same_run(tmp_path, env):
    """Also where they do not wait for each other: by graph search, tree search, and a graph of states."""
    for asynchronous in (True, False):
        agent = NeuralE3(env, small(env), env_options=OPTIONS, asynchronous=asynchronous)
        agent.learn(tmp_path / str(asynchronous))
        agent.close()
    one, other = (
        [{**row, "seconds": None} for row in read_metrics(tmp_path / name)] for name in ("True", "False")
    )
    assert one == other
    policies = [
        (tmp_path / name / "checkpoint" / "policy.safetensors").read_bytes() for name in ("True", "False")
    ]
    assert policies[0] == policies[1]
