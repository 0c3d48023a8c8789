"""`NeuralE3`: learns, predicts by what it learned, is saved and loaded (what all agents share: runs/test_agent.py)."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import AGENT, LOCK, OPTIONS, TINY

from e3rl.envs.lock import CombinationLock
from e3rl.envs.opening import Opened, open_environment
from e3rl.neural.agent import NeuralE3
from e3rl.runs.settings import changed
from e3rl.types import UserError

OWN = {**OPTIONS, "seed": 2}
OBSERVATIONS = [[*latent, noise] for latent in np.eye(3, dtype=int).tolist() for noise in (0, 1)]


@pytest.fixture(scope="module")
def agent():
    agent = NeuralE3(LOCK, TINY, seed=5, env_options=OWN)
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
    assert loaded.program.agent is AGENT  # nothing is compiled for it
    assert_same_policy(agent, loaded)
    assert (loaded.config, loaded.seed) == (agent.config, agent.seed)
    assert actions(loaded) == actions(agent)
    np.testing.assert_array_equal(loaded.evaluate(7), agent.evaluate(7))
    loaded.save(tmp_path / "again")
    for name in ("config.json", "checkpoint/policy.safetensors"):
        assert (tmp_path / "saved" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    config = tmp_path / "saved" / "config.json"
    config.write_text(config.read_text().replace('"hidden": 8', '"hidden": 9'))
    with pytest.raises(
        UserError, match=r"policy.safetensors belongs to another configuration: .*, expected .*9"
    ):
        NeuralE3.load(tmp_path / "saved")


def test_several_observations_are_answered_as_one_by_one(agent):
    times = np.array([0, 1, 2, 2, 1, 0])
    alone = [agent.predict(obs, int(t)) for obs, t in zip(OBSERVATIONS, times, strict=True)]
    np.testing.assert_array_equal(agent.predict(OBSERVATIONS, times), alone)


@pytest.mark.parametrize("kind", ["gymnasium", "functional"])
def test_an_environment_is_an_id_a_gymnasium_environment_or_a_functional_one(agent, kind):
    env = gymnasium.make(LOCK, **OWN) if kind == "gymnasium" else CombinationLock(**OWN)
    other = NeuralE3(env, TINY, seed=5)
    other.learn()
    assert_same_policy(agent, other)


def test_seeds_start_from_different_networks(agent):
    other = NeuralE3(LOCK, TINY, seed=6, env_options=OWN)
    heads = [
        np.asarray(each.program.agent.init(each.program.keys)[0].anchor.weights.head)
        for each in (agent, other)
    ]
    assert np.all(heads[0] != heads[1])
    np.testing.assert_array_equal(heads[0][0], agent.policy.models.anchor.weights.head)


def test_evaluation_is_of_whole_episodes_and_the_same_every_time(agent):
    returns = agent.evaluate(7)
    assert returns.shape == (7,)
    # Antishaped: what is paid on the way is known, 0.1 for falling and −1/3 for going on.
    possible = [0.1, 0.1 - 1 / 3, 0.1 - 2 / 3, -2 / 3, 5 - 2 / 3]
    assert all(min(abs(total - each) for each in possible) < 1e-5 for total in returns.tolist())
    np.testing.assert_array_equal(agent.evaluate(7), returns)


def test_predict_is_greedy_in_the_learned_value_of_each_step(agent):
    q = agent.policy.value.online
    best = [[int(jnp.argmax(q(jnp.array(obs), jnp.array(t)))) for t in range(3)] for obs in OBSERVATIONS]
    assert actions(agent) == best
    assert any(len(set(over_time)) > 1 for over_time in best)  # the time step matters


def test_predict_takes_what_gymnasium_gives(agent):
    env = gymnasium.make(LOCK, **OWN)
    obs, _ = env.reset(seed=0)
    agent.start_episode()
    steps, ended = 0, False
    while not ended:
        action = agent.predict(obs)
        assert action == agent.predict(obs, time=steps)
        obs, _, terminated, truncated, _ = env.step(action)
        steps, ended = steps + 1, terminated or truncated
    assert steps == 3


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ("CartPole-v1", r"family 'bernoulli' is for binary vectors: use 'mlp' for Box\("),
        ("Pendulum-v1", "continuous action space"),
        ("e3rl/MountainCar-v0", r"family 'bernoulli' is for binary vectors: use 'mlp' for Box\("),
        ("e3rl/Maze-v0", r"family 'bernoulli' is for .*: use 'conv' for Box\("),
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


def test_copies_of_what_has_an_id_and_one_of_what_is_an_object(monkeypatch):
    """As many as an epoch has episodes, if asked for in processes of their own."""
    config = changed(TINY, {"model": "mlp", "utility": "squared", "explore.per_epoch": 3})
    asked = []
    copies = Opened.copies
    monkeypatch.setattr(
        Opened,
        "copies",
        lambda self, count, later=False: (asked.append((count, later)), copies(self, count))[1],
    )
    for asynchronous in (False, True):
        agent = NeuralE3("CartPole-v1", config, asynchronous=asynchronous)
        assert agent.program.env.copies == 3
        agent.close()
    assert asked == [(3, False), (3, True)]
    agent = NeuralE3(gymnasium.make("CartPole-v1"), config)
    assert agent.program.env.copies == 1
    agent.close()
    with pytest.raises(UserError, match="only Gymnasium environments given by their id can be asynchronous"):
        NeuralE3(LOCK, TINY, asynchronous=True)


def test_environments_in_python_are_trained_one_seed_at_a_time():
    config = changed(TINY, {"model": "mlp", "utility": "squared"})
    opened = [open_environment("CartPole-v1") for _ in range(2)]
    with pytest.raises(UserError, match="one seed at a time"):
        NeuralE3.make_program(opened, config, [0, 1])
    for each in opened:
        each.close()


def test_only_seeds_that_train_equally_long_share_a_program():
    assert NeuralE3.share_a_program(TINY)
    assert NeuralE3.share_a_program(changed(TINY, {"explore.epsilon": 0.1}))  # each ends at its own time
    assert not NeuralE3.share_a_program(changed(TINY, {"rounds.count": 1}))
