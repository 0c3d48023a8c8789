"""Double DQN: its loss by hand, its schedules, and environments whose values are known."""

import dataclasses

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.baselines.base import Rollout
from e3rl.baselines.loop_jax import CompiledProgram
from e3rl.baselines.config import DQN_CONFIGS, DQNConfig, configured
from e3rl.baselines.training import Training
from e3rl.envs.base import AbstractEnvironment
from e3rl.values.network import QNetwork, QSettings, make_q_state, update_q, update_q_rows
from e3rl.types import UserError

SETTINGS = QSettings(1e-2, 10.0, target_rate=0.0, target_period=20)
PROBE = DQNConfig(
    total_steps=3_000, copies=4, steps=1, updates=2, hidden=16, learning_rate=5e-3, batch=16, capacity=512,
    learning_starts=32, target_period=10, exploration_fraction=1.0, final_epsilon=1.0, evaluation_episodes=4,
)  # fmt: skip


def constant(bias):
    """A network that is its last layer's bias."""
    shapes = eqx.filter_eval_shape(QNetwork, (2,), len(bias), None, 4, key=jax.random.key(0))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes)
    return eqx.tree_at(lambda q: q.head_bias, zeros, jnp.array([bias]))


def test_the_loss_worked_by_hand():
    """Huber: ½ δ² up to |δ| = 1, |δ| − ½ beyond; times the importance; averaged over the rows."""
    state = make_q_state(constant([1.0, -2.0]), SETTINGS)
    obs, time = jnp.zeros((3, 2)), jnp.zeros(3, jnp.int32)
    taken = jnp.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    targets = jnp.array([[1.5, 0.0], [0.0, 1.0], [1.0, 0.0]])
    importance = jnp.array([1.0, 0.5, 0.25])
    args = state, obs, time, targets, taken, SETTINGS
    _, loss, values = eqx.filter_jit(update_q_rows)(*args, importance)
    assert float(loss) == pytest.approx((1.0 * 0.5 * 0.5**2 + 0.5 * (3.0 - 0.5) + 0.0) / 3)
    np.testing.assert_array_equal(values, [[1.0, -2.0]] * 3)
    after, plain, _ = eqx.filter_jit(update_q_rows)(*args)
    assert float(plain) == pytest.approx((0.125 + 2.5) / 3)
    same, loss = eqx.filter_jit(update_q)(*args)
    assert float(loss) == float(plain)
    jax.tree.map(np.testing.assert_array_equal, same, after)


def test_importance_scales_the_gradient():
    """Adam's first step is the same whatever the gradient; its first moment shows the gradient itself."""
    state = make_q_state(constant([1.0, 1.0]), SETTINGS)
    obs, time = jnp.zeros((2, 2)), jnp.zeros(2, jnp.int32)
    taken = jnp.array([[1.0, 0.0], [0.0, 1.0]])
    importance = jnp.array([1.0, 0.0])
    after, _, _ = eqx.filter_jit(update_q_rows)(state, obs, time, 2 * taken, taken, SETTINGS, importance)
    moved = np.asarray(after.online.head_bias - state.online.head_bias)[0]
    np.testing.assert_allclose(moved, [0.01, 0.0], atol=1e-6)
    first_moment = after.optimiser[1][0].mu.head_bias[0]
    np.testing.assert_allclose(first_moment, [0.1 * -0.5, 0.0], atol=1e-7)


def test_epsilon_falls_in_a_straight_line():
    dqn = dataclasses.replace(
        PROBE, total_steps=1_000, exploration_fraction=0.2, final_epsilon=0.1
    ).baseline()
    seen = [float(dqn.epsilon(jnp.array(step, jnp.int32))) for step in (0, 100, 200, 900)]
    np.testing.assert_allclose(seen, [1.0, 0.55, 0.1, 0.1], rtol=1e-6)


def some_rollout(dqn, reward=1.0):
    shape = (dqn.steps, dqn.copies)
    flags = jnp.zeros(shape, bool)
    obs = jnp.ones((*shape, 2))
    return Rollout(obs, jnp.zeros(shape, jnp.int32), jnp.full(shape, reward), obs, flags, flags, None)


def test_nothing_is_learned_before_the_start():
    dqn = dataclasses.replace(PROBE, learning_starts=9).baseline()
    state = jax.jit(lambda: dqn.init(jax.random.key(0), (2,), 2))()
    learn = jax.jit(dqn.learn)
    head = np.asarray(state.q.online.head)
    for seen in (4, 8):
        state, _ = learn(state, jax.random.key(seen), some_rollout(dqn))
        assert int(state.q.updates) == 0
        np.testing.assert_array_equal(state.q.online.head, head)
        np.testing.assert_allclose(state.replay.tree.leaves(jnp.arange(seen)), 1.0, rtol=1e-5)
    state, _ = learn(state, jax.random.key(12), some_rollout(dqn))
    assert (int(state.q.updates), int(state.env_steps), int(state.replay.size)) == (2, 12, 12)
    assert np.abs(np.asarray(state.q.online.head) - head).max() > 0.0


def test_acting_is_greedy_but_for_epsilon():
    dqn = dataclasses.replace(PROBE, exploration_fraction=0.5, final_epsilon=0.0).baseline()
    state = jax.jit(lambda: dqn.init(jax.random.key(0), (2,), 2))()
    state = state._replace(q=make_q_state(constant([0.0, 1.0, 0.5]), SETTINGS))
    act = jax.jit(dqn.act)
    obs = jnp.zeros((3_000, 2))
    uniform, _ = act(state, jax.random.key(1), obs)
    np.testing.assert_allclose(np.bincount(uniform, minlength=3) / 3_000, 1 / 3, atol=0.03)
    half, _ = act(state._replace(env_steps=jnp.array(750, jnp.int32)), jax.random.key(1), obs)
    np.testing.assert_allclose(np.bincount(half, minlength=3) / 3_000, [1 / 6, 2 / 3, 1 / 6], atol=0.03)
    greedy, _ = act(state._replace(env_steps=jnp.array(1_500, jnp.int32)), jax.random.key(1), obs)
    np.testing.assert_array_equal(greedy, 1)
    assert int(dqn.greedy(state, jax.random.key(0), jnp.zeros(2), jnp.array(0))) == 1


class Chain(AbstractEnvironment):
    """From either of two states, action 1 goes on and action 0 gives up for nothing; going on from the second pays 1.

    At γ = 0.9 going on is worth 0.9 and 1.
    """

    time_limit: int = eqx.field(static=True, default=2)

    @property
    def observation_space(self):
        return gymnasium.spaces.Discrete(2)

    @property
    def action_space(self):
        return gymnasium.spaces.Discrete(2)

    def reset(self, key):
        start = jax.random.bernoulli(key).astype(jnp.int32)
        return start, start

    def step(self, key, state, action):
        paid = (state == 1) & (action == 1)
        terminated = (state == 1) | (action == 0)
        second = jnp.array(1, jnp.int32)
        return second, second, paid.astype(jnp.float32), terminated, jnp.array(False)

    def render(self, state):
        return np.zeros((1, 1, 3), np.uint8)


class Treadmill(AbstractEnvironment):
    """Every step pays 1 and looks the same; after three of them an episode is cut, or terminates where `ends` is set.

    At γ = 0.5 being cut is worth 1 + ½ + ¼ + … = 2 at any time.
    """

    ends: jax.Array
    time_limit: int = eqx.field(static=True, default=3)

    @property
    def observation_space(self):
        return gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    @property
    def action_space(self):
        return gymnasium.spaces.Discrete(2)

    def reset(self, key):
        return jnp.array(0, jnp.int32), jnp.ones(1)

    def step(self, key, state, action):
        last = state == self.time_limit - 1
        return state + 1, jnp.ones(1), jnp.array(1.0), last & self.ends, last & ~self.ends

    def render(self, state):
        return np.zeros((1, 1, 3), np.uint8)


def test_a_chain_worth_nine_tenths():
    config = dataclasses.replace(PROBE, discount=0.9)
    policy, [summary] = Training(
        CompiledProgram(config.baseline(), [Chain()], [0], False), config, [0]
    ).learn()
    online = jax.tree.map(lambda leaf: leaf[0], policy.q.online)
    values = np.stack([online(jnp.eye(2)[state], jnp.array(0)) for state in (0, 1)])
    np.testing.assert_allclose(values, [[0.0, 0.9], [0.0, 1.0]], atol=0.05)
    assert summary["exploit_return_mean"] == 1.0


def test_a_cut_episode_bootstraps_and_a_terminated_one_does_not():
    """Two seeds in one program. Where the third step terminates, the first two are worth 1.75 and 1.5; they all look
    alike, and the mean v of a step that terminates one time in three solves v = 1 + ½ · ⅔ v: 1.5."""
    config = dataclasses.replace(PROBE, discount=0.5, alpha=0.0)
    envs = [Treadmill(jnp.array(ends)) for ends in (False, True)]
    program = CompiledProgram(config.baseline(), envs, [0, 1], clock=False)
    policy, _ = Training(program, config, [0, 1]).learn()
    values = jax.vmap(lambda q: q(jnp.ones(1), jnp.array(0)))(policy.q.online)
    np.testing.assert_allclose(values[0], 2.0, atol=0.05)
    np.testing.assert_allclose(values[1], 1.5, atol=0.15)  # a mean over batches


def test_a_clock_tells_the_steps_apart():
    config = dataclasses.replace(PROBE, discount=0.5, clock=True)
    program = CompiledProgram(config.baseline(), [Treadmill(jnp.array(True))], [0], clock=True)
    policy, _ = Training(program, config, [0]).learn()
    online = jax.tree.map(lambda leaf: leaf[0], policy.q.online)
    values = [float(online(jnp.array([1.0, *row]), jnp.array(0)).max()) for row in np.eye(3)]
    np.testing.assert_allclose(values, [1.75, 1.5, 1.0], atol=0.05)


@pytest.mark.parametrize("name", DQN_CONFIGS)
def test_named_settings_are_sound(name):
    config = DQN_CONFIGS[name]
    assert config.baseline().capacity == config.capacity
    assert config.clock == ("lock" in name)


def test_the_papers_tables():
    lock, maze, control = (
        DQN_CONFIGS[f"paper-{name}"] for name in ("lock-dqn-h5", "maze-dqn", "control-dqn")
    )
    assert [(c.learning_rate, c.hidden, c.discount) for c in (lock, maze, control)] == [
        (1e-2, 64, 0.99), (1e-4, 64, 0.99), (1e-3, 64, 0.99)
    ]  # fmt: skip
    assert maze.maps == 8
    assert lock.exploration_fraction == 0.001
    assert DQN_CONFIGS["paper-lock-antishaped-dqn-h20"].exploration_fraction == 0.01
    assert all(config.alpha > 0 for config in (lock, maze, control))


def test_settings_given_as_text():
    config = configured(
        DQN_CONFIGS, "paper-control-dqn", {"total_steps": "500", "clock": "True", "alpha": "0"}
    )
    assert (config.total_steps, config.clock, config.alpha, config.batch) == (500, True, 0.0, 32)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("nobody", {}, "unknown config 'nobody'; known: e3rl-dqn, "),
        ("e3rl-dqn", {"hiden": "3"}, "unknown setting 'hiden'; did you mean 'hidden'"),
        ("e3rl-dqn", {"hidden": "wide"}, "hidden must be a whole number, got 'wide'"),
        ("e3rl-dqn", {"hidden": "0"}, "hidden must be at least 1, got 0"),
        ("e3rl-dqn", {"clock": "3"}, "clock must be true or false, got '3'"),
        ("e3rl-dqn", {"discount": "1.5"}, r"discount must be at most 1, got 1\.5"),
        ("e3rl-dqn", {"learning_rate": "0"}, "learning_rate must be above 0"),
        ("e3rl-dqn", {"learning_rate": "nan"}, "learning_rate must be a finite number, got nan"),
        ("e3rl-dqn", {"beta": "-1"}, r"beta must not be negative, got -1\.0"),
        ("e3rl-dqn", {"capacity": "999"}, "capacity must hold learning_starts"),
        ("e3rl-dqn", {"total_steps": "0"}, "total_steps must be at least 1"),
    ],
)
def test_settings_that_make_no_sense(name, changes, message):
    with pytest.raises(UserError, match=message):
        configured(DQN_CONFIGS, name, changes)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_greedy_policy_has_the_mean_of_the_last_weights(share):
    config = dataclasses.replace(PROBE, total_steps=400, average_share=share)
    algorithm = config.baseline()
    program = CompiledProgram(algorithm, [Chain()], [0], False)
    carry, seen = program.begin(), []
    for _ in range(100):  # rounds of 4 steps
        carry, _, _ = program.advance(carry, 1)
        seen.append(np.asarray(carry.state.q.online.hidden))
    last = seen[-30:] if share else seen[-1:]
    policy = jax.vmap(algorithm.policy)(carry.state)
    np.testing.assert_allclose(policy.q.online.hidden, np.mean(last, axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(carry.state.q.online.hidden, seen[-1])  # training goes on with its own
