"""The baselines as agents: their five methods on the lock and on a Gymnasium environment, and what they refuse."""

import dataclasses
import json

import gymnasium
import jax
import numpy as np
import pytest

import e3rl
from e3rl.baselines import DQN, PPO, PPORND, DQNConfig, PPOConfig
from e3rl.envs.lock import CombinationLock
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.types import UserError

LOCK = "e3rl/CombinationLock-v0"
OPTIONS = {"horizon": 3, "noise_bits": 1, "seed": 2}
TINY = DQNConfig(
    total_steps=90, clock=True, evaluation_episodes=5, copies=2, steps=3, updates=2, hidden=8, batch=4, capacity=64,
    learning_starts=12, target_period=5,
)  # fmt: skip
HOST = dataclasses.replace(TINY, clock=False, total_steps=240, capacity=256)
OBSERVATIONS = [[*latent, noise] for latent in np.eye(3, dtype=np.int8).tolist() for noise in (0, 1)]


@pytest.fixture(scope="module")
def agent():
    agent = DQN(LOCK, TINY, seed=5, env_options=OPTIONS)
    agent.learn()
    return agent


@pytest.fixture(scope="module")
def on_host():
    agent = DQN("CartPole-v1", HOST, seed=5)
    agent.learn()
    yield agent
    agent.close()


def assert_same_policy(one, other):
    assert jax.tree.structure(one.policy) == jax.tree.structure(other.policy)
    jax.tree.map(np.testing.assert_array_equal, one.policy, other.policy)


def actions(agent):
    return [[agent.predict(np.array(obs, np.int8), t) for t in range(3)] for obs in OBSERVATIONS]


def test_saved_and_loaded_the_agent_is_the_same(agent, tmp_path):
    agent.save(tmp_path)
    loaded = DQN.load(tmp_path)
    assert_same_policy(agent, loaded)
    assert (loaded.config, loaded.seed, loaded.policy.replay) == (TINY, 5, None)
    assert actions(loaded) == actions(agent)
    np.testing.assert_array_equal(loaded.evaluate(7), agent.evaluate(7))
    about = json.loads((tmp_path / "config.json").read_text())
    assert (about["algo"], about["env"], about["version"]) == ("dqn", LOCK, e3rl.__version__)


def test_an_environment_without_an_id(agent, tmp_path):
    other = DQN(CombinationLock(**OPTIONS), TINY, seed=5)
    other.learn()
    assert_same_policy(agent, other)
    other.save(tmp_path)
    with pytest.raises(UserError, match=r"an environment without an id: load it with env=\.\.\."):
        DQN.load(tmp_path)
    assert_same_policy(agent, DQN.load(tmp_path, env=CombinationLock(**OPTIONS)))


def test_learning_is_recorded_where_asked(agent, tmp_path):
    other = DQN(LOCK, TINY, seed=5, env_options=OPTIONS)
    summary = other.learn(tmp_path / "run")
    assert_same_policy(agent, other)
    assert summary == RunFolder(tmp_path / "run").summary()
    assert len(read_metrics(tmp_path / "run")) == 30 + 5
    assert_same_policy(agent, DQN.load(tmp_path / "run"))
    with pytest.raises(UserError, match="holds an agent of dqn, not of ppo"):
        PPO.load(tmp_path / "run")


def test_predict_is_greedy_and_keeps_the_clock(agent):
    online = agent.policy.q.online
    best = [
        [
            int(np.argmax(online(jax.numpy.array([*obs, *hand], float), jax.numpy.array(0))))
            for hand in np.eye(3)
        ]
        for obs in OBSERVATIONS
    ]
    assert actions(agent) == best
    agent.start_episode()
    obs = np.array(OBSERVATIONS[0], np.int8)
    assert [agent.predict(obs) for _ in range(6)] == best[0] * 2  # starts over after the horizon


def test_evaluation_is_the_same_every_time(agent):
    returns = agent.evaluate(7)
    assert returns.shape == (7,)
    assert set(returns.tolist()) <= {0.0, 5.0}
    np.testing.assert_array_equal(agent.evaluate(7), returns)
    with pytest.raises(UserError, match="episodes must be at least 1, got 0"):
        agent.evaluate(0)


@pytest.mark.parametrize(
    ("obs", "time", "message"),
    [
        ([0, 1, 0], None, r"observation has shape \(3,\)"),
        ([0, 1, 0, 2], None, "outside the space"),
        ([0, 1, 0, 0], 3, r"time must be in 0 … 2, got 3"),
    ],
)
def test_predict_refuses(agent, obs, time, message):
    with pytest.raises(UserError, match=message):
        agent.predict(np.array(obs, np.int8), time)


def test_a_gymnasium_environment(on_host, tmp_path):
    """Episodes end, are counted once, and the copies' steps together are the budget."""
    twin = DQN("CartPole-v1", HOST, seed=5)
    summary = twin.learn(tmp_path / "run")
    twin.close()
    assert_same_policy(on_host, twin)
    trained = [row for row in read_metrics(tmp_path / "run") if row["phase"] == "train"]
    assert summary["env_steps"] == 240
    assert len(trained) == summary["explore_episodes"] > 2
    assert all(float(row["return"]) == int(row["length"]) for row in trained)
    assert sum(int(row["length"]) for row in trained) <= 240
    loaded = DQN.load(tmp_path / "run")
    np.testing.assert_array_equal(loaded.evaluate(3), on_host.evaluate(3))
    loaded.close()


def test_playing_in_gymnasium_is_the_evaluation(on_host):
    """Greedy episodes by hand, from the environment's own reset."""
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    on_host.start_episode()
    total, ended = 0.0, False
    while not ended:
        obs, reward, terminated, truncated, _ = env.step(on_host.predict(obs))
        total, ended = total + reward, terminated or truncated
    assert on_host.time == total
    env.close()


def test_copies_of_an_environment_given_as_an_object():
    env = gymnasium.make("CartPole-v1")
    agent = DQN(env, HOST)
    assert len(agent.program.envs) == 2
    assert agent.program.envs[0].env is env

    class Nameless(gymnasium.Wrapper):
        @property
        def spec(self):
            return None

    with pytest.raises(UserError, match="cannot be copied: set copies=1"):
        DQN(Nameless(env), HOST)
    assert len(DQN(Nameless(env), dataclasses.replace(HOST, copies=1)).program.envs) == 1
    agent.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DQN("Pendulum-v1"), "continuous action space"),
        (lambda: DQN("CartPol-v1"), "unknown environment 'CartPol-v1'"),
        (lambda: DQN(LOCK, PPOConfig()), "dqn takes no settings of type PPOConfig"),
        (lambda: PPO(LOCK, PPOConfig(rnd=True)), "rnd=True in the settings of ppo"),
        (lambda: PPORND(LOCK, PPOConfig()), "rnd=False in the settings of ppo-rnd"),
        (lambda: DQN("e3rl/Maze-v0", TINY), "clock needs observations that are vectors"),
        (lambda: DQN(LOCK).predict(np.zeros(13, np.int8)), r"has not learned yet: call learn\(\) first"),
    ],
)
def test_what_it_refuses(make, message):
    with pytest.raises(UserError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_default_settings():
    assert DQN(LOCK).config == DQNConfig()
    assert not PPO(LOCK).config.rnd
    assert PPORND(LOCK).config.rnd


class Fragile(gymnasium.Env):
    """Breaks in the reset or in the step of that number, counted over all episodes of two steps."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, reset=0, step=0):
        self.broken = {"reset": reset, "step": step}
        self.calls = {"reset": 0, "step": 0}

    def count(self, call):
        self.calls[call] += 1
        if self.calls[call] == self.broken[call]:
            raise RuntimeError("the cable\ncame off")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count("reset")
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count("step")
        return np.zeros(2, np.float32), 0.0, self.calls["step"] % 2 == 0, False, {}


@pytest.mark.parametrize(
    ("broken", "place"),
    [
        ({"reset": 1}, "reset"),
        ({"step": 3}, "step 1"),
        ({"reset": 3}, "reset"),
        ({"reset": 6 + 2}, "reset"),
        ({"step": 10 + 4}, "step 2"),
    ],
    ids=["first reset", "a step", "a later reset", "reset in evaluation", "step in evaluation"],
)
def test_an_environment_that_breaks_ends_the_run_with_one_line(broken, place):
    """Ten steps of training are five episodes and the reset of a sixth; what comes later is evaluation."""
    settings = DQNConfig(total_steps=10, copies=1, steps=1, hidden=4, capacity=2_000, evaluation_episodes=3)
    agent = DQN(Fragile(**broken), settings)
    with pytest.raises(UserError) as raised:
        agent.learn()
    assert str(raised.value) == f"Fragile, {place} of an episode: RuntimeError: the cable came off"
