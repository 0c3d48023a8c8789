"""`NeuralE3`: its five methods on a lock of three levels, and what it refuses."""

import dataclasses
import json
import math

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import e3rl
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.lock import CombinationLock
from e3rl.neural.agent import NeuralE3
from e3rl.neural.config import NeuralE3Config
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.types import UserError

LOCK = "e3rl/CombinationLock-v0"
OPTIONS = {"horizon": 3, "noise_bits": 1, "seed": 2}
TINY = NeuralE3Config(
    explore_episodes=7, ensemble_size=2, hidden=8, model_updates=2, model_batch=4, value_updates=2, value_batch=4,
    exploit_updates=20, evaluation_episodes=5, playouts=4, particles=2, dqn_batch=4, round_episodes=3,
    round_updates=2,
)  # fmt: skip
OBSERVATIONS = [[*latent, noise] for latent in np.eye(3, dtype=int).tolist() for noise in (0, 1)]


@pytest.fixture(scope="module")
def agent():
    agent = NeuralE3(LOCK, TINY, seed=5, env_options=OPTIONS)
    agent.learn()
    return agent


def assert_same_policy(one, other):
    assert jax.tree.structure(one.policy) == jax.tree.structure(other.policy)
    for a, b in zip(jax.tree.leaves(one.policy), jax.tree.leaves(other.policy), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def actions(agent):
    return [[agent.predict(obs, t) for t in range(3)] for obs in OBSERVATIONS]


def test_saved_and_loaded_the_agent_is_the_same(agent, tmp_path):
    agent.save(tmp_path / "saved")
    loaded = NeuralE3.load(tmp_path / "saved")
    assert_same_policy(agent, loaded)
    assert (loaded.config, loaded.seed) == (agent.config, agent.seed)
    np.testing.assert_array_equal(loaded.env.successor, agent.env.successor)
    assert actions(loaded) == actions(agent)
    np.testing.assert_array_equal(loaded.evaluate(7), agent.evaluate(7))
    loaded.save(tmp_path / "again")
    for name in ("config.json", "checkpoint/policy.safetensors"):
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


def test_what_is_saved_tells_where_it_came_from(agent, tmp_path):
    agent.save(tmp_path)
    about = json.loads((tmp_path / "config.json").read_text())
    assert about["version"] == e3rl.__version__
    assert (about["env"], about["env_options"], about["seed"]) == (LOCK, OPTIONS, 5)
    assert about["config"] == dataclasses.asdict(TINY)


@pytest.mark.parametrize("kind", ["gymnasium", "functional"])
def test_an_environment_is_an_id_a_gymnasium_environment_or_a_functional_one(agent, kind, tmp_path):
    env = gymnasium.make(LOCK, **OPTIONS) if kind == "gymnasium" else CombinationLock(**OPTIONS)
    other = NeuralE3(env, TINY, seed=5)
    other.learn()
    assert_same_policy(agent, other)
    other.save(tmp_path)
    with pytest.raises(UserError, match=r"an environment without an id: load it with env=\.\.\."):
        NeuralE3.load(tmp_path)
    assert_same_policy(agent, NeuralE3.load(tmp_path, env=env))


def test_learning_is_recorded_where_asked_and_can_be_loaded_from_there(agent, tmp_path):
    other = NeuralE3(LOCK, TINY, seed=5, env_options=OPTIONS)
    seen = []
    summary = other.learn(tmp_path / "run", watch=seen.append)
    assert_same_policy(agent, other)
    assert summary == RunFolder(tmp_path / "run").summary()
    assert len(read_metrics(tmp_path / "run")) == 12
    assert seen[-1].phase == "exploit"
    assert_same_policy(agent, NeuralE3.load(tmp_path / "run"))
    with pytest.raises(UserError, match="already holds a run"):
        other.learn(tmp_path / "run")
    other.learn(tmp_path / "run", resume=True)
    assert_same_policy(agent, other)


def test_seeds_start_from_different_networks(agent):
    other = NeuralE3(LOCK, TINY, seed=6, env_options=OPTIONS)
    other.learn()
    head = [np.asarray(each.policy.models.anchor.weights.head) for each in (agent, other)]
    assert np.all(head[0] != head[1])


def test_evaluation_is_of_whole_episodes_and_the_same_every_time(agent):
    returns = agent.evaluate(7)
    assert returns.shape == (7,)
    assert set(returns.tolist()) <= {0.0, 5.0}
    np.testing.assert_array_equal(agent.evaluate(7), returns)
    with pytest.raises(UserError, match="episodes must be at least 1, got 0"):
        agent.evaluate(0)


def test_predict_is_greedy_in_the_learned_value_of_each_step(agent):
    q = agent.policy.value.online
    best = [[int(jnp.argmax(q(jnp.array(obs), jnp.array(t)))) for t in range(3)] for obs in OBSERVATIONS]
    assert actions(agent) == best
    assert any(len(set(over_time)) > 1 for over_time in best)  # else the clock below would prove nothing


def test_predict_keeps_the_clock(agent):
    obs = next(obs for obs, row in zip(OBSERVATIONS, actions(agent), strict=True) if len(set(row)) > 1)
    by_time = [agent.predict(obs, t) for t in range(3)]
    agent.start_episode()
    assert [agent.predict(obs) for _ in range(6)] == by_time * 2  # starts over after the horizon
    agent.predict(obs)
    agent.start_episode()
    assert agent.predict(obs) == by_time[0]
    agent.predict(obs, time=1)
    assert agent.predict(obs) == by_time[2]  # a time given sets the clock


def test_predict_takes_what_gymnasium_gives(agent):
    env = gymnasium.make(LOCK, **OPTIONS)
    obs, _ = env.reset(seed=0)
    agent.start_episode()
    ended = False
    while not ended:
        obs, _, terminated, truncated, _ = env.step(agent.predict(obs))
        ended = terminated or truncated
    assert agent.time == 0


@pytest.mark.parametrize(
    ("obs", "time", "message"),
    [
        ([0, 1, 0], None, r"observation has shape \(3,\), the space MultiBinary\(4\) has \(4,\)"),
        ([[0, 1, 0, 0]], None, r"observation has shape \(1, 4\), the space MultiBinary\(4\) has \(4,\)"),
        ([0, 1, 0, 2], None, r"observation\[3\] is 2, outside the space MultiBinary\(4\)"),
        ([0, 1, 0, 0.5], None, r"dtype float64, the space MultiBinary\(4\) has int8: \[0, 1, 0, 0.5\]"),
        ([0, 1, 0, math.nan], None, r"has int8: \[0, 1, 0, nan\]"),
        ([0, 1, 0, 0], 3, r"time must be in 0 … 2, got 3"),
        ([0, 1, 0, 0], -1, r"time must be in 0 … 2, got -1"),
    ],
)
def test_predict_refuses(agent, obs, time, message):
    with pytest.raises(UserError, match=message):
        agent.predict(obs, time)


@pytest.mark.parametrize(
    "use", [lambda a, _: a.predict([0, 1, 0, 0]), lambda a, _: a.evaluate(3), NeuralE3.save]
)
def test_before_learning(use, tmp_path):
    agent = NeuralE3(LOCK, TINY, env_options=OPTIONS)
    with pytest.raises(UserError, match=r"has not learned yet: call learn\(\) first"):
        use(agent, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPole-v1", r"family 'bernoulli' is for binary vectors: use 'mlp' for Box\("),
        ("Pendulum-v1", "continuous action space"),
        ("e3rl/MountainCar-v0", r"family 'bernoulli' is for binary vectors: use 'mlp' for Box\("),
        ("e3rl/Maze-v0", "family 'bernoulli' is for vectors: use 'conv' here"),
        ("e3rl/RandomMDP-v0", r"family 'bernoulli' is for binary vectors: use 'factored' for Discrete\("),
        ("e3rl/CombinationLok-v0", "did you mean 'e3rl/CombinationLock-v0'"),
        ("Nonsense-v7", "unknown environment 'Nonsense-v7'"),
        (3, "expected an environment or the id of one, got int"),
    ],
)
def test_environments_it_cannot_learn(env, message):
    with pytest.raises(UserError, match=message) as raised:
        NeuralE3(env, TINY)
    assert "\n" not in str(raised.value)


def test_an_environment_that_is_refused_stays_open():
    env = gymnasium.make("CartPole-v1")
    closed = []
    env.unwrapped.close = lambda: closed.append(True)
    with pytest.raises(UserError):
        NeuralE3(env, TINY)
    assert not closed
    assert not isinstance(env.unwrapped, AbstractEnvironment)


def test_loading_what_is_no_agent(agent, tmp_path):
    with pytest.raises(UserError, match=r"holds no run: config.json is missing"):
        NeuralE3.load(tmp_path / "nowhere")
    agent.save(tmp_path)
    config, policy = tmp_path / "config.json", tmp_path / "checkpoint" / "policy.safetensors"
    text, weights = config.read_text(), policy.read_bytes()

    def refuses(message):
        with pytest.raises(UserError, match=message):
            NeuralE3.load(tmp_path)

    config.write_text("{}")
    refuses("config.json is not a Neural-E³ configuration: 'config'")
    config.write_text(text.replace('"hidden"', '"hiden"'))
    refuses("is not a Neural-E³ configuration: .*hiden")
    config.write_text(text.replace('"hidden": 8', '"hidden": 9'))
    refuses("policy.safetensors belongs to another configuration: .*, expected .*9")
    config.write_text(text)
    policy.write_bytes(weights[:-10])
    refuses("policy.safetensors is damaged")
    policy.unlink()
    refuses("has no trained policy yet: finish the run with --resume first")
    policy.write_bytes(weights)
    assert_same_policy(agent, NeuralE3.load(tmp_path))
