"""`NeuralE3` on environments of every kind: learn, predict, evaluate, save, load, on the smallest of budgets."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.envs.adapter import make
from e3rl.envs.vector import HostEnvironments
from e3rl.neural.agent import NeuralE3
from e3rl.neural.auto import suited_config
from e3rl.neural.config import NeuralE3Config
from e3rl.runs.folder import read_metrics

LIMIT = 6
SMALL = {
    "explore_ratio": 0, "explore_episodes": 4, "episodes_per_epoch": 2, "clock": False, "ensemble_size": 2, "hidden": 8,
    "model_updates": 2, "model_batch": 4, "prior_weight": 0.0, "nodes": 20, "playouts": 4,
    "particles": 4, "value_updates": 2, "value_batch": 4, "value_heads": False, "dqn_heads": False,
    "exploit_updates": 4, "dqn_batch": 4, "evaluation_episodes": 3, "leaf": "zero",
}  # fmt: skip


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
    made = make(env, max_episode_steps=LIMIT)
    suited = suited_config(made)
    made.close()
    exploit = "dqn" if suited.planner == "mcts" else suited.exploit  # the quickest to compile
    return NeuralE3Config(
        **SMALL, family=suited.family, planner=suited.planner, exploit=exploit, distance=suited.distance
    )


QUICK = ["CartPole-v1", "ToyImage-v0", "ToyDict-v0"]
MORE = [
    "FrozenLake-v1",
    "MountainCar-v0",
    "Acrobot-v1",
    "CliffWalking-v1",
    "Taxi-v4",
    "Blackjack-v1",
    "ToyMultiDiscrete-v0",
    "ToyBoard-v0",
]


@pytest.mark.parametrize("env", [*QUICK, *(pytest.param(env, marks=pytest.mark.slow) for env in MORE)])
def test_learn_predict_evaluate_save_load(env, tmp_path):
    options = {"max_episode_steps": LIMIT}
    agent = NeuralE3(env, small(env), seed=3, env_options=options)
    assert isinstance(agent.env, HostEnvironments)
    summary = agent.learn(tmp_path / "run")
    rows = read_metrics(tmp_path / "run")
    assert [row["phase"] for row in rows] == ["explore"] * 4 + ["exploit"] * 3
    assert all(1 <= int(row["length"]) <= LIMIT for row in rows)
    returns = [float(row["return"]) for row in rows[4:]]
    assert summary["exploit_return_mean"] == pytest.approx(np.mean(returns))

    world = gymnasium.make(env, **options)
    obs, _ = world.reset(seed=0)
    agent.start_episode()
    first = agent.predict(obs)
    assert 0 <= first < agent.env.num_actions
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
        loaded.env.close()
    world.close()
    agent.env.close()
