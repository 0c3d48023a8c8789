"""The baselines as agents: their five methods on the lock and on a Gymnasium environment, and what they refuse."""

import dataclasses
import json

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import LOCK, OPTIONS, lock
from tiny_baselines import TINY_DQN

import e3rl
from e3rl.baselines import DQN, DQN_CONFIGS, PPO, PPO_CONFIGS, PPORND, PPOConfig
from e3rl.envs.adapter import GymnasiumEnvironment
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.types import UserError

POLE = dataclasses.replace(TINY_DQN, clock=False)
HERE = {**OPTIONS, "seed": 2}
OBSERVATIONS = [[*latent, noise] for latent in np.eye(3, dtype=np.int8).tolist() for noise in (0, 1)]


@pytest.fixture(scope="module")
def agent():
    agent = DQN(LOCK, TINY_DQN, seed=5, env_options=HERE)
    agent.learn()
    return agent


@pytest.fixture(scope="module")
def in_python(tmp_path_factory):
    agent = DQN("CartPole-v1", POLE, seed=5)
    out = tmp_path_factory.mktemp("python")
    yield agent, agent.learn(out), out
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
    assert (loaded.config, loaded.seed, loaded.policy.replay) == (TINY_DQN, 5, None)
    assert actions(loaded) == actions(agent)
    np.testing.assert_array_equal(loaded.evaluate(5), agent.evaluate(5))
    about = json.loads((tmp_path / "config.json").read_text())
    assert (about["algo"], about["env"], about["version"]) == ("dqn", LOCK, e3rl.__version__)


def test_an_environment_without_an_id(agent, tmp_path):
    other = DQN(lock(2), TINY_DQN, seed=5)
    other.learn()
    assert_same_policy(agent, other)
    other.save(tmp_path)
    with pytest.raises(UserError, match=r"an environment without an id: load it with env=\.\.\."):
        DQN.load(tmp_path)
    assert_same_policy(agent, DQN.load(tmp_path, env=lock(2)))


def test_learning_is_recorded_where_asked(agent, tmp_path):
    other = DQN(LOCK, TINY_DQN, seed=5, env_options=HERE)
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
        [int(np.argmax(online(jnp.array([*obs, *hand], float), jnp.array(0)))) for hand in np.eye(3)]
        for obs in OBSERVATIONS
    ]
    assert actions(agent) == best
    agent.start_episode()
    obs = np.array(OBSERVATIONS[0], np.int8)
    assert [agent.predict(obs) for _ in range(6)] == best[0] * 2  # starts over after the horizon


def test_evaluation_is_the_same_every_time(agent):
    returns = agent.evaluate(5)
    assert returns.shape == (5,)
    np.testing.assert_array_equal(agent.evaluate(5), returns)
    with pytest.raises(UserError, match="episodes must be at least 1, got 0"):
        agent.evaluate(0)


def test_several_observations_are_answered_as_one_by_one(agent):
    many = np.array(OBSERVATIONS, np.int8)
    np.testing.assert_array_equal(agent.predict(many, 1), [row[1] for row in actions(agent)])


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


def test_a_gymnasium_environment(in_python):
    """Episodes end, are counted once, and the copies' steps together are the budget."""
    agent, summary, out = in_python
    trained = [row for row in read_metrics(out) if row["phase"] == "train"]
    assert summary["env_steps"] == 90
    assert len(trained) == summary["explore_episodes"] > 2
    assert all(float(row["return"]) == int(row["length"]) for row in trained)
    assert sum(int(row["length"]) for row in trained) <= 90
    loaded = DQN.load(out)
    assert_same_policy(agent, loaded)
    np.testing.assert_array_equal(loaded.evaluate(3), agent.evaluate(3))
    loaded.close()


def test_playing_in_gymnasium_by_hand(in_python):
    agent, _, _ = in_python
    env = gymnasium.make("CartPole-v1")
    obs, _ = env.reset(seed=0)
    agent.start_episode()
    steps, ended = 0, False
    while not ended:
        action = agent.predict(obs)
        assert action == agent.predict(obs, time=3)  # nobody asks the clock
        agent._time = steps = steps + 1
        obs, _, terminated, truncated, _ = env.step(action)
        ended = terminated or truncated
    with pytest.raises(UserError, match="time must be at least 0, got -1"):
        agent.predict(obs, time=-1)
    env.close()


def test_copies_of_an_environment_given_as_an_object():
    env = gymnasium.make("CartPole-v1")
    agent = DQN(env, POLE)
    assert agent.program.loop.env.copies == 2
    assert agent.env.env is env

    class Nameless(gymnasium.Wrapper):
        @property
        def spec(self):
            return None

    with pytest.raises(UserError, match="cannot be copied: set copies=1"):
        DQN(Nameless(env), POLE)
    alone = DQN(Nameless(env), dataclasses.replace(POLE, copies=1))
    assert alone.program.loop.env.copies == 1
    alone.close()
    agent.close()
    env.reset(seed=0)  # somebody else's environment is left open
    env.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DQN("Pendulum-v1"), "continuous action space"),
        (lambda: DQN("CartPol-v1"), "unknown environment 'CartPol-v1'"),
        (lambda: DQN(LOCK, PPOConfig()), "dqn takes settings of type DQNConfig, got PPOConfig"),
        (lambda: PPORND(LOCK, PPOConfig()), "ppo-rnd needs a bonus: bonus=rnd, or train ppo"),
        (lambda: DQN("e3rl/Maze-v0", TINY_DQN), "clock needs observations that are vectors"),
        (lambda: DQN(LOCK).predict(np.zeros(13, np.int8)), r"has not learned yet: call learn\(\) first"),
        (lambda: DQN(LOCK, asynchronous=True), "only Gymnasium environments given by their id can be async"),
    ],
)
def test_what_it_refuses(make, message):
    with pytest.raises(UserError, match=message) as raised:
        make()
    assert "\n" not in str(raised.value)


def test_settings_where_nobody_names_any():
    """Short problems of zeros and ones may hide the time step, as the lock does."""
    for agent, presets, name in (
        (DQN, DQN_CONFIGS, "dqn"),
        (PPO, PPO_CONFIGS, "ppo"),
        (PPORND, PPO_CONFIGS, "ppo-rnd"),
    ):
        assert agent(LOCK).config == presets[f"e3rl-lock-{name}"]
        assert agent("e3rl/MountainCar-v0").config == presets[f"e3rl-{name}"]


def test_an_agent_that_cannot_be_made_leaves_nothing_open(monkeypatch):
    closed = []
    monkeypatch.setattr(GymnasiumEnvironment, "close", lambda env: closed.append(env))
    with pytest.raises(UserError, match="unknown config 'nobody'"):
        DQN("CartPole-v1", "nobody")
    assert [env.name for env in closed] == ["CartPole-v1"]
