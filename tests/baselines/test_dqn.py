"""Double DQN: its loss by hand, its schedules, and environments whose values are known."""

import dataclasses
import itertools

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_baselines import program

from e3rl.baselines import DQN, DQN_CONFIGS, DQNConfig
from e3rl.baselines.dqn import DQNState
from e3rl.baselines.weight_noise import FACTOR, WeightNoise
from e3rl.envs.base import AbstractEnvironment
from e3rl.runs.settings import as_dict, changed
from e3rl.types import UserError
from e3rl.values.network import QNetwork
from e3rl.values.update import QStep, make_q_state, update_q, update_q_rows

SETTINGS = QStep(learning_rate=1e-2, gradient_clip=10.0, target_rate=0.0, target_period=20)
PROBE = DQNConfig(
    total_steps=3_000, copies=4, steps=1, updates=2, hidden=16, learning_rate=5e-3, batch=16, capacity=128,
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


def test_acting_is_greedy_but_for_epsilon():
    dqn = dataclasses.replace(PROBE, exploration_fraction=0.5, final_epsilon=0.0).baseline()
    network = constant([0.0, 1.0, 0.5])
    state = DQNState(make_q_state(network, SETTINGS), network, jnp.array(0, jnp.int32), None)
    act = jax.jit(dqn.act)
    obs = jnp.zeros((3_000, 2))
    uniform, _ = act(state, jax.random.key(1), obs)
    np.testing.assert_allclose(np.bincount(uniform, minlength=3) / 3_000, 1 / 3, atol=0.03)
    half, _ = act(state._replace(env_steps=jnp.array(750, jnp.int32)), jax.random.key(1), obs)
    np.testing.assert_allclose(np.bincount(half, minlength=3) / 3_000, [1 / 6, 2 / 3, 1 / 6], atol=0.03)
    greedy, _ = act(state._replace(env_steps=jnp.array(1_500, jnp.int32)), jax.random.key(1), obs)
    np.testing.assert_array_equal(greedy, 1)
    assert int(dqn.greedy(state, jax.random.key(0), jnp.zeros(2), jnp.array(0))) == 1


def test_with_weight_noise_the_perturbed_network_acts():
    """Whatever ε says; greedily the other one does."""
    dqn = dataclasses.replace(PROBE, weight_noise=True).baseline()
    network, noise = constant([0.0, 1.0, 0.5]), WeightNoise(constant([0.0, 0.0, 1.0]), jnp.array(0.1))
    state = DQNState(make_q_state(network, SETTINGS), network, jnp.array(0, jnp.int32), None, noise)
    assert float(dqn.epsilon(state.env_steps)) == 1.0
    actions, _ = jax.jit(dqn.act)(state, jax.random.key(1), jnp.zeros((50, 2)))
    np.testing.assert_array_equal(actions, 2)
    assert int(dqn.greedy(state, jax.random.key(0), jnp.zeros(2), jnp.array(0))) == 1


def test_weight_noise_is_off_by_default_and_then_not_there():
    """In no checkpoint, and in no policy either way; the networks start the same."""
    plain, noisy = (dataclasses.replace(PROBE, weight_noise=on).baseline() for on in (False, True))
    assert plain.config == PROBE
    one, other = (dqn.init(jax.random.key(2), (2,), 3) for dqn in (plain, noisy))
    assert one.noise is None
    jax.tree.map(np.testing.assert_array_equal, one, other._replace(noise=None))
    assert jax.tree.structure(plain.policy(one)) == jax.tree.structure(noisy.policy(other))
    assert "weight_noise" not in as_dict(PROBE)  # as in what was recorded before there was a choice
    assert as_dict(noisy.config)["weight_noise"]


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


@pytest.fixture(scope="module")
def chain():
    """A program, its policy, and the state after every round of four steps."""
    config = dataclasses.replace(PROBE, discount=0.9, average_share=0.3)
    made = program(DQN, config, [0], [Chain()])
    carry = made.loop.begin()
    seen = [jax.tree.map(np.array, carry.state)]
    for _ in range(made.iterations):
        carry, _, _ = made.loop.advance(carry, 1)
        seen.append(jax.tree.map(np.array, carry.state))
    return made, jax.vmap(made.algorithm.policy)(carry.state), seen


def test_a_chain_worth_nine_tenths(chain):
    made, policy, _ = chain
    online = jax.tree.map(lambda leaf: leaf[0], policy.q.online)
    values = np.stack([online(jnp.eye(2)[state], jnp.array(0)) for state in (0, 1)])
    np.testing.assert_allclose(values, [[0.0, 0.9], [0.0, 1.0]], atol=0.05)
    np.testing.assert_array_equal(made.evaluate(policy, 4), 1.0)
    assert policy.replay is None


def test_the_greedy_policy_has_the_mean_of_the_last_weights(chain):
    """Over the last three tenths of the rounds; training itself goes on with its own."""
    made, policy, seen = chain
    last = [state.q.online.hidden for state in seen[-3 * made.iterations // 10 :]]
    np.testing.assert_allclose(policy.q.online.hidden, np.mean(last, axis=0), rtol=1e-4, atol=1e-5)
    assert np.any(seen[-1].q.online.hidden != policy.q.online.hidden)


def test_nothing_is_learned_before_the_start(chain):
    """That is, before there are 32 transitions, the eighth round's; until then all are drawn alike."""
    _, _, seen = chain
    for round_, state in enumerate(seen[:8]):
        assert (state.q.updates.item(), state.env_steps.item()) == (0, 4 * round_)
        np.testing.assert_array_equal(state.q.online.head, seen[0].q.online.head)
        leaves = state.replay.tree.levels[-1][0]
        np.testing.assert_allclose(leaves[: 4 * round_], 1.0, rtol=1e-5)
        assert not leaves[4 * round_ :].any()
    assert (seen[8].q.updates.item(), seen[8].replay.size.item()) == (2, 32)
    assert np.abs(seen[8].q.online.head - seen[0].q.online.head).max() > 0.0


@pytest.mark.parametrize(("share", "seen"), [(0.0, [1.0, 2.0, 3.0, 4.0]), (0.5, [1.0, 2.0, 3.0, 3.5])])
def test_the_mean_of_the_last_weights(share, seen):
    """Four rounds, after which every weight is 1, 2, 3 and 4."""
    dqn = dataclasses.replace(PROBE, total_steps=16, average_share=share).baseline()
    state = jax.eval_shape(lambda: dqn.init(jax.random.key(0), (2,), 2))
    averaged = constant([0.0, 0.0])
    for round_, mean in enumerate(seen, start=1):
        online = constant([float(round_)] * 2)
        averaged = dqn._average(state._replace(averaged=averaged), online, jnp.array(4 * round_, jnp.int32))
        np.testing.assert_allclose(averaged.head_bias, mean)


def test_a_cut_episode_bootstraps_and_a_terminated_one_does_not():
    """Where the third step terminates, the first two are worth 1.75 and 1.5; they all look alike, and the mean v of a
    step that terminates one time in three solves v = 1 + ½ · ⅔ v: 1.5."""
    config = dataclasses.replace(PROBE, discount=0.5, alpha=0.0)
    for ends, worth, close in ((False, 2.0, 0.05), (True, 1.5, 0.15)):  # the latter is a mean over batches
        loop = program(DQN, config, [0], [Treadmill(jnp.array(ends))]).loop
        loop.size = 750
        carry, _, _ = loop.advance(loop.begin(), 750)
        averaged = jax.tree.map(lambda leaf: leaf[0], carry.state.averaged)
        np.testing.assert_allclose(averaged(jnp.ones(1), jnp.array(0)), worth, atol=close)


def test_a_perturbed_network_acts_until_episodes_end():
    """Here the copies' episodes end together, after every third round; σ goes a step up or down in every one."""
    config = dataclasses.replace(PROBE, weight_noise=True)
    loop = program(DQN, config, [0], [Treadmill(jnp.array(True))]).loop
    carry = loop.begin()
    seen = [jax.tree.map(np.array, carry.state.noise)]
    for _ in range(12):
        carry, _, metrics = loop.advance(carry, 1)
        seen.append(jax.tree.map(np.array, carry.state.noise))
        assert metrics["sigma"].item() == seen[-1].sigma.item()
    changed_in = [i + 1 for i in range(12) if np.any(seen[i].acting.head != seen[i + 1].acting.head)]
    assert changed_in == [3, 6, 9, 12]
    ratios = [(new.sigma / old.sigma).item() for old, new in itertools.pairwise(seen)]
    assert all(min(abs(ratio - FACTOR), abs(ratio - 1 / FACTOR)) < 1e-5 for ratio in ratios)


def test_a_chain_is_learned_with_weight_noise():
    config = dataclasses.replace(PROBE, discount=0.9, average_share=0.3, weight_noise=True)
    made = program(DQN, config, [0], [Chain()])
    made.loop.size = made.iterations
    carry, _, _ = made.loop.advance(made.loop.begin(), made.iterations)
    policy = jax.vmap(made.algorithm.policy)(carry.state)
    np.testing.assert_array_equal(made.evaluate(policy, 4), 1.0)


@pytest.mark.slow
def test_a_clock_tells_the_steps_apart():
    config = dataclasses.replace(PROBE, discount=0.5, clock=True)
    loop = program(DQN, config, [0], [Treadmill(jnp.array(True))]).loop
    loop.size = 750
    carry, _, _ = loop.advance(loop.begin(), 750)
    online = jax.tree.map(lambda leaf: leaf[0], carry.state.averaged)
    values = [float(online(jnp.array([1.0, *row]), jnp.array(0)).max()) for row in np.eye(3)]
    np.testing.assert_allclose(values, [1.75, 1.5, 1.0], atol=0.05)


@pytest.mark.parametrize("name", DQN_CONFIGS)
def test_named_settings_are_sound(name):
    config = DQN_CONFIGS[name]
    algorithm = config.baseline()
    assert (algorithm.steps, algorithm.copies) == (config.steps, config.copies)
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
    changes = {"total_steps": "500", "clock": "True", "alpha": "0"}
    config = changed(DQN_CONFIGS["paper-control-dqn"], changes)
    assert (config.total_steps, config.clock, config.alpha, config.batch) == (500, True, 0.0, 32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hiden": "3"}, "unknown setting 'hiden'; did you mean 'hidden'"),
        ({"hidden": "wide"}, "hidden must be a whole number, got 'wide'"),
        ({"hidden": "0"}, "hidden must be at least 1, got 0"),
        ({"clock": "3"}, "clock must be true or false, got '3'"),
        ({"discount": "1.5"}, r"discount must be at most 1, got 1\.5"),
        ({"learning_rate": "0"}, "learning_rate must be above 0"),
        ({"learning_rate": "nan"}, "learning_rate must be a finite number, got nan"),
        ({"beta": "-1"}, r"beta must not be negative, got -1\.0"),
        ({"capacity": "999"}, "capacity must hold learning_starts"),
        ({"total_steps": "0"}, "total_steps must be at least 1"),
    ],
)
def test_settings_that_make_no_sense(changes, message):
    with pytest.raises(UserError, match=message):
        changed(DQN_CONFIGS["e3rl-dqn"], changes)


def test_how_a_network_is_trained_follows_from_the_settings():
    config = dataclasses.replace(PROBE, copies=4, steps=5, updates=3, total_steps=200, huber=2.0)
    step = config.step()
    assert (step.decay, step.left, step.huber, step.target_period) == (10 * 3, 0.0, 2.0, 10)
    assert dataclasses.replace(config, anneal=False).step().decay == 0
