"""PPO's losses by hand, what clipping and entropy do, and values of probe environments."""

import dataclasses
import math

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.baselines.networks import ActorCritic
from e3rl.baselines.base import Rollout
from e3rl.baselines.loop_jax import CompiledProgram
from e3rl.baselines.ppo import PPO, Choice, Samples, entropy, log_probability, surrogate, value_error
from e3rl.baselines.ppo_config import PPO_CONFIGS, PPOConfig
from e3rl.envs.base import AbstractEnvironment
from e3rl.types import UserError

TINY = PPOConfig(copies=4, steps=6, epochs=3, minibatches=2, hidden=16, total_steps=480)
TINY_RND = dataclasses.replace(TINY, rnd=True, embedding=8)


class Corridor(AbstractEnvironment):
    """Three places in a row; at each, action 1 pays 1 and action 0 nothing, and either goes on. At the last place an
    episode terminates where `ends` is set, and is cut otherwise, though the place would go on paying.

    At γ = ½ the places are worth 1¾, 1½ and 1, or, as a cut is not an end, 2 each.
    """

    ends: jax.Array
    time_limit: int = eqx.field(static=True, default=3)

    @property
    def observation_space(self):
        return gymnasium.spaces.Discrete(3)

    @property
    def action_space(self):
        return gymnasium.spaces.Discrete(2)

    def reset(self, key):
        return jnp.array(0, jnp.int32), jnp.array(0, jnp.int32)

    def step(self, key, state, action):
        last, place = state == 2, jnp.minimum(state + 1, 2)
        return place, place, action.astype(jnp.float32), last & self.ends, last & ~self.ends

    def render(self, state):
        return np.zeros((1, 1, 3), np.uint8)


def rollout_of(algorithm, state, key, shape):
    """Any rollout at all, with what the policy says about it."""
    k_obs, k_act, k_reward = jax.random.split(key, 3)
    size = (algorithm.steps, algorithm.copies)
    obs = jax.random.uniform(k_obs, (algorithm.steps + 1, algorithm.copies, *shape))
    keys = jax.random.split(k_act, algorithm.steps)
    action, extra = jax.vmap(lambda k, o: algorithm.act(state, k, o))(keys, obs[:-1])
    reward = jax.random.normal(k_reward, size)
    ended = jnp.arange(algorithm.steps)[:, None] % 3 == jnp.arange(algorithm.copies) % 3
    return Rollout(obs[:-1], action, reward, obs[1:], ended, jnp.zeros_like(ended), extra)


def test_surrogate_by_hand():
    """Ratios 2 and ½, clipped to 1.2 and 0.8: min(2, 1.2)·1 and min(−½·2, −0.8·2)."""
    before = jnp.log(jnp.array([0.25, 0.5]))
    now = jnp.log(jnp.array([0.5, 0.25]))
    loss = surrogate(now, before, jnp.array([1.0, -2.0]), 0.2)
    assert loss.item() == pytest.approx(-(1.2 - 1.6) / 2)


def test_clipping_stops_the_gradient_only_where_it_would_go_on():
    before = jnp.log(jnp.full(4, 0.5))
    now = jnp.log(jnp.array([0.9, 0.9, 0.1, 0.1]))
    advantage = jnp.array([1.0, -1.0, 1.0, -1.0])
    gradient = jax.grad(lambda x: surrogate(x, before, advantage, 0.2))(now)
    np.testing.assert_array_equal(gradient != 0.0, [False, True, True, False])


def test_value_error_by_hand():
    """Two streams: (3 − 1)² + (0 − 1)² and (1 − 1)² + (2 − 0)², on average 4.5."""
    value = jnp.array([[3.0, 0.0], [1.0, 2.0]])
    target = jnp.array([[1.0, 1.0], [1.0, 0.0]])
    before = jnp.array([[3.0, 0.0], [0.0, 2.0]])
    assert value_error(value, before, target, 0.0).item() == pytest.approx(4.5)
    # Held within ½ of what it was, the third value is ½, with an error of ¼ instead of 0.
    assert value_error(value, before, target, 0.5).item() == pytest.approx(4.5 + 0.25 / 2)


def test_entropy_and_log_probability_by_hand():
    logits = jnp.log(jnp.array([[0.5, 0.5], [0.25, 0.75]]))
    by_hand = math.log(2) - (0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert entropy(logits).item() == pytest.approx(by_hand / 2)
    taken = log_probability(logits + 7.0, jnp.array([0, 1]))
    np.testing.assert_allclose(taken, np.log([0.5, 0.75]), rtol=1e-5)


def test_the_loss_is_the_sum_of_its_parts():
    config = dataclasses.replace(
        TINY, normalise_advantages=False, value_coefficient=0.25, entropy_coefficient=0.1
    )
    algorithm = PPO(config)
    state = algorithm.init(jax.random.key(0), (3,), 2)
    obs = jax.random.uniform(jax.random.key(1), (5, 3))
    logits, value = jax.vmap(state.learned.network)(obs)
    action = jnp.array([0, 1, 0, 1, 1])
    before = Choice(log_probability(logits, action) - 0.1, value)
    advantage = jnp.array([1.0, -1.0, 0.5, 0.0, 2.0])
    batch = Samples(obs, obs, action, before, advantage, value + 2.0)
    total, metrics = algorithm.loss(state.learned, None, batch, jax.random.key(2))
    policy = surrogate(before.log_probability + 0.1, before.log_probability, advantage, 0.2).item()
    assert total.item() == pytest.approx(policy + 0.25 * 4.0 - 0.1 * entropy(logits).item(), rel=1e-5)
    assert metrics["divergence"].item() == pytest.approx(math.exp(0.1) - 1.1, abs=1e-5)
    assert metrics["clipped"].item() == 0.0


def test_the_first_policy_is_nearly_uniform_and_seeds_differ():
    algorithm = PPO(TINY)
    obs = jax.random.uniform(jax.random.key(5), (4, 3))
    states = [algorithm.init(jax.random.key(seed), (3,), 5) for seed in (0, 1)]
    for state in states:
        _, choice = algorithm.act(state, jax.random.key(1), obs)
        np.testing.assert_allclose(choice.log_probability, -math.log(5), atol=0.05)
    first, second = (jax.tree.leaves(eqx.filter(state.learned, eqx.is_array)) for state in states)
    assert any(bool(jnp.any(a != b)) for a, b in zip(first, second, strict=True))


def test_hidden_layers_are_orthogonal():
    network = PPO(TINY).init(jax.random.key(0), (3,), 5).learned.network
    square = network.policy.weights[1]
    np.testing.assert_allclose(square @ square.T, 2.0 * np.eye(16), atol=1e-4)


@pytest.mark.parametrize(("shape", "shared"), [((3,), False), ((6, 5, 2), True)], ids=["vector", "image"])
def test_many_observations_are_those_one_by_one(shape, shared):
    network = (
        PPO(dataclasses.replace(TINY, shared_trunk=shared)).init(jax.random.key(0), shape, 5).learned.network
    )
    obs = jax.random.uniform(jax.random.key(1), (4, *shape))
    logits, values = eqx.filter_jit(type(network).many)(network, obs)
    assert logits.shape == (4, 5)
    assert values.shape == (4, 1)
    each = eqx.filter_jit(type(network).__call__)
    for n in range(4):
        one = each(network, obs[n])
        np.testing.assert_allclose(logits[n], one[0], atol=1e-6)
        np.testing.assert_allclose(values[n], one[1], atol=1e-5)


@pytest.mark.parametrize(
    ("config", "shape", "shared"),
    [(TINY, (3,), True), (TINY_RND, (6, 5, 2), False)],
    ids=["ppo-shared-vector", "ppo-rnd-image"],
)
def test_learning_moves_every_network_but_the_target(config, shape, shared):
    algorithm = PPO(dataclasses.replace(config, shared_trunk=shared))
    state = algorithm.init(jax.random.key(0), shape, 3)
    rollout = rollout_of(algorithm, state, jax.random.key(1), shape)
    after, metrics = eqx.filter_jit(algorithm.learn)(state, jax.random.key(2), rollout)
    assert all(bool(jnp.isfinite(value)) for value in metrics.values())
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), state.learned, after.learned)
    assert all(jax.tree.leaves(moved))
    if config.rnd:
        assert bool(eqx.tree_equal(state.novelty.target, after.novelty.target))
        assert float(after.novelty.obs.seen) == algorithm.steps * algorithm.copies
        assert metrics["bonus"].item() > 0.0
    one = rollout.obs[0, 0]
    kept = algorithm.policy(after)
    action = algorithm.greedy(kept, jax.random.key(0), one, jnp.array(0))
    assert action.item() == int(jnp.argmax(after.learned.network(one)[0]))


def test_an_entropy_bonus_widens_a_narrow_policy():
    """Where nothing pays and values start at zero, the entropy is all there is to gain."""
    config = dataclasses.replace(TINY, entropy_coefficient=1.0, value_gain=0.0, learning_rate=1e-2)
    algorithm = PPO(config)
    state = algorithm.init(jax.random.key(0), (3,), 4)
    where = lambda state: state.learned.network.policy.weights[-1]  # noqa: E731
    state = eqx.tree_at(where, state, 1_000.0 * where(state))
    rollout = rollout_of(algorithm, state, jax.random.key(1), (3,))._replace(reward=jnp.zeros((6, 4)))
    after, _ = eqx.filter_jit(algorithm.learn)(state, jax.random.key(2), rollout)
    obs = rollout.obs.reshape(-1, 3)
    narrow, wide = (entropy(jax.vmap(one.learned.network)(obs)[0]).item() for one in (state, after))
    assert narrow < 0.9 * math.log(4)
    assert wide > narrow + 0.01


def test_the_learning_rate_falls_to_zero_over_the_run():
    """After all its updates, annealed PPO no longer learns."""
    algorithm = PPO(dataclasses.replace(TINY, total_steps=48))
    state = algorithm.init(jax.random.key(0), (3,), 4)
    rollout = rollout_of(algorithm, state, jax.random.key(1), (3,))
    learn = eqx.filter_jit(algorithm.learn)
    for _ in range(2):
        state, _ = learn(state, jax.random.key(2), rollout)
    after, _ = learn(state, jax.random.key(2), rollout)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), state.learned, after.learned)


@pytest.mark.parametrize("config", [TINY, TINY_RND], ids=["ppo", "ppo-rnd"])
def test_twin_seeds_are_equal_and_others_are_not(config):
    def train(seed):
        program = CompiledProgram(PPO(config), [Corridor(jnp.array(True))], [seed], clock=False)
        return program.advance(program.begin(), 3)[0].state.learned.network

    one, twin, other = train(3), train(3), train(4)
    assert bool(eqx.tree_equal(one, twin))
    assert not bool(eqx.tree_equal(one, other))


@pytest.mark.parametrize(("ends", "worth"), [(True, (1.75, 1.5, 1.0)), (False, (2.0, 2.0, 2.0))])
def test_values_and_actions_of_the_corridor(ends, worth):
    config = PPOConfig(
        copies=16, steps=6, epochs=4, hidden=16, learning_rate=1e-2, discount=0.5, gae_lambda=0.95,
        total_steps=16 * 6 * 80,
    )  # fmt: skip
    program = CompiledProgram(PPO(config), [Corridor(jnp.array(ends))], [0], clock=False)
    carry, _, _ = program.advance(program.begin(), 80)
    network = jax.tree.map(lambda leaf: leaf[0], carry.state.learned.network)
    logits, value = jax.vmap(network)(jnp.eye(3))
    np.testing.assert_array_equal(jnp.argmax(logits, axis=-1), 1)
    np.testing.assert_allclose(value[:, 0], worth, atol=0.05)


def test_a_stream_that_never_paid_says_nothing():
    """With value heads that start at zero the extrinsic advantage stays exactly zero until the first reward."""
    algorithm = PPO(dataclasses.replace(TINY_RND, value_gain=0.0))
    state = algorithm.init(jax.random.key(0), (3,), 4)
    rollout = rollout_of(algorithm, state, jax.random.key(1), (3,))._replace(reward=jnp.zeros((6, 4)))
    state, _ = eqx.filter_jit(algorithm.learn)(state, jax.random.key(2), rollout)
    values = jax.vmap(state.learned.network)(rollout.obs.reshape(-1, 3))[1]
    assert not np.any(np.asarray(values[:, 0]))
    assert np.any(np.asarray(values[:, 1]))


def test_the_papers_tables_by_name():
    lock, control = PPO_CONFIGS["paper-lock-ppo-rnd"], PPO_CONFIGS["paper-control-ppo-rnd"]
    for config, rate, extrinsic in ((lock, 1e-3, 100.0), (control, 1e-4, 2.0)):
        assert (config.learning_rate, config.extrinsic_coefficient) == (rate, extrinsic)
        assert (config.hidden, config.intrinsic_discount, config.discount) == (64, 0.99, 0.999)
        assert (config.gae_lambda, config.intrinsic_coefficient, config.rnd) == (0.95, 1.0, True)
    assert dataclasses.replace(PPO_CONFIGS["paper-lock-ppo"], rnd=True) == lock


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"copies": 3, "minibatches": 5}, "minibatches must divide"),
        ({"clip": 0.0}, "clip must be above 0"),
        ({"gae_lambda": 1.5}, "gae_lambda must be at most 1"),
        ({"predictor_share": -0.1}, "predictor_share must not be negative"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        PPOConfig(**changes)


def test_input_gain_spreads_observations_around_the_middle():
    obs = jnp.array([[0.6, 0.3]])
    plain, spread = (
        ActorCritic((2,), 3, 1, 4, 1, False, 1.0, gain, key=jax.random.key(0)) for gain in (1.0, 4.0)
    )
    for ours, same in zip(spread.many(obs), plain.many(0.5 + 4.0 * (obs - 0.5)), strict=True):
        np.testing.assert_allclose(ours, same, rtol=1e-5, atol=1e-7)
    assert not np.allclose(spread.many(obs)[1], plain.many(obs)[1])
