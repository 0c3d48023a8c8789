"""PPO's losses by hand, what clipping and entropy do, and values of probe environments."""

import dataclasses
import math

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_baselines import TINY_RND, program

from e3rl.baselines import PPO, PPO_CONFIGS, PPORND, PPOConfig
from e3rl.baselines.base import Rollout
from e3rl.baselines.bonus import NoBonus
from e3rl.baselines.networks import ActorCritic, Network, orthogonal
from e3rl.baselines.ppo import (
    Choice,
    ProximalPolicy,
    Samples,
    entropy,
    log_probability,
    surrogate,
    value_error,
)
from e3rl.baselines.rnd import Rnd
from e3rl.envs.base import AbstractEnvironment
from e3rl.runs.settings import changed
from e3rl.types import UserError

# One configuration with one network for everything, one with two and a bonus. Values start at zero, and the learning
# rate falls to zero over two rollouts.
PLAIN = PPOConfig(
    copies=4, steps=6, epochs=3, minibatches=2, hidden=16, total_steps=48, shared_trunk=True,
    learning_rate=1e-2, entropy_coefficient=1.0, value_gain=0.0,
)  # fmt: skip
BONUS = dataclasses.replace(PLAIN, shared_trunk=False, bonus=Rnd(embedding=8))
SHAPE, ACTIONS = (3,), 4

init = eqx.filter_jit(ProximalPolicy.init)
learn = eqx.filter_jit(ProximalPolicy.learn)


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


@eqx.filter_jit
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


@pytest.fixture(scope="module", params=[PLAIN, BONUS], ids=["plain", "with a bonus"])
def fresh(request):
    """Configuration, algorithm, its first state and a rollout."""
    config = request.param
    algorithm = config.baseline()
    state = init(algorithm, jax.random.key(0), SHAPE, ACTIONS)
    return config, algorithm, state, rollout_of(algorithm, state, jax.random.key(1), SHAPE)


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


def test_the_loss_is_the_sum_of_its_parts(fresh):
    config, algorithm, state, rollout = fresh
    obs = rollout.obs[:5, 0]
    logits, value = state.learned.network.many(obs)
    action = jnp.array([0, 1, 0, 1, 1])
    before = Choice(log_probability(logits, action) - 0.1, value)
    advantage = jnp.array([1.0, -1.0, 0.5, 0.0, 2.0])
    plain = dataclasses.replace(config, normalise_advantages=False, value_coefficient=0.25).baseline()
    batch = Samples(obs, obs, action, before, advantage, value + 2.0)
    total, metrics = eqx.filter_jit(plain.loss)(state.learned, state.novelty, batch, jax.random.key(2))
    policy = surrogate(before.log_probability + 0.1, before.log_probability, advantage, 0.2).item()
    parts = policy + 0.25 * 4.0 * value.shape[-1] - entropy(logits).item()
    if algorithm.bonus is not None:
        error = algorithm.bonus.error(state.learned.predictor, state.novelty, obs)
        parts += float(jnp.mean(error))
    assert total.item() == pytest.approx(parts, rel=1e-4)
    assert metrics["divergence"].item() == pytest.approx(math.exp(0.1) - 1.1, abs=1e-5)
    assert metrics["clipped"].item() == 0.0


def test_the_first_policy_is_nearly_uniform_and_seeds_differ(fresh):
    _, algorithm, state, rollout = fresh
    np.testing.assert_allclose(rollout.extra.log_probability, -math.log(ACTIONS), atol=0.05)
    other = init(algorithm, jax.random.key(1), SHAPE, ACTIONS)
    first, second = (jax.tree.leaves(eqx.filter(one.learned, eqx.is_array)) for one in (state, other))
    assert any(bool(jnp.any(a != b)) for a, b in zip(first, second, strict=True))


def test_weights_are_orthogonal(fresh):
    square = fresh[2].learned.network.policy.weights[1]
    np.testing.assert_allclose(square @ square.T, 2.0 * np.eye(16), atol=1e-4)
    tall = jax.jit(lambda key: orthogonal(key, 5, 3, 0.5))(jax.random.key(0))
    np.testing.assert_allclose(tall.T @ tall, 0.25 * np.eye(3), atol=1e-5)


def test_many_observations_are_those_one_by_one(fresh):
    network, obs = fresh[2].learned.network, fresh[3].obs[0]
    streams = 1 if fresh[1].bonus is None else 2
    logits, values = eqx.filter_jit(ActorCritic.many)(network, obs)
    assert (logits.shape, values.shape) == ((4, ACTIONS), (4, streams))
    each = eqx.filter_jit(ActorCritic.__call__)
    for n in range(4):
        one = each(network, obs[n])
        np.testing.assert_allclose(logits[n], one[0], atol=1e-6)
        np.testing.assert_allclose(values[n], one[1], atol=1e-5)
    alone = eqx.filter_jit(Network.__call__)(network.policy, (obs[0] - 0.5) * network.input_gain)
    np.testing.assert_allclose(alone[:ACTIONS], logits[0], atol=1e-6)


def drawn(*args):
    """An actor and critic whose weights are quicker to draw than orthogonal ones."""
    rng = np.random.default_rng(0)
    shapes = eqx.filter_eval_shape(eqx.Partial(ActorCritic, *args, key=jax.random.key(0)))
    return jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape), leaf.dtype), shapes)


def convolved(frame, kernel, stride):
    """Window by window; the padding is half of what is missing, the smaller half above and to the left."""
    sides = [-(-side // stride) for side in frame.shape[:2]]
    before = [(stride * (out - 1) + 3 - side) // 2 for out, side in zip(sides, frame.shape, strict=False)]
    padded = np.pad(frame, [(before[0], 2), (before[1], 2), (0, 0)])
    out = np.zeros((*sides, kernel.shape[-1]))
    for i, j in np.ndindex(*sides):
        window = padded[stride * i : stride * i + 3, stride * j : stride * j + 3]
        out[i, j] = np.tensordot(window, kernel, axes=3)
    return out


def test_images_against_the_convolutions_written_out():
    """Two of them with ReLU, strides 1 and 2, before the layers that a vector passes too."""
    network = drawn((6, 5, 2), ACTIONS, 1, 16, 3, True, 1.0)
    obs = np.random.default_rng(1).uniform(size=(6, 5, 2)).astype(np.float32)
    x = obs - 0.5
    for kernel, stride in zip(network.policy.kernels, (1, 2), strict=True):
        x = np.maximum(convolved(x, np.asarray(kernel), stride), 0.0)
    *layers, (weight, bias) = zip(network.policy.weights, network.policy.biases, strict=True)
    x = x.reshape(-1)
    for inner, shift in layers:
        x = np.tanh(inner @ x + shift)
    logits, value = eqx.filter_jit(ActorCritic.__call__)(network, jnp.asarray(obs))
    np.testing.assert_allclose(np.concatenate([logits, value]), weight @ x + bias, rtol=1e-4, atol=1e-4)


def test_learning_moves_every_network_but_the_target(fresh):
    _, algorithm, state, rollout = fresh
    after, metrics = learn(algorithm, state, jax.random.key(2), rollout)
    assert all(bool(jnp.isfinite(value)) for value in metrics.values())
    moved = jax.tree.map(lambda a, b: bool(jnp.any(a != b)), state.learned, after.learned)
    assert all(jax.tree.leaves(moved))
    assert (metrics["bonus"].item() > 0.0) == (algorithm.bonus is not None)
    if algorithm.bonus is not None:
        assert bool(eqx.tree_equal(state.novelty.target, after.novelty.target))
        assert float(after.novelty.obs.seen) == algorithm.steps * algorithm.copies
    one = rollout.obs[0, 0]
    kept = algorithm.policy(after)
    action = algorithm.greedy(kept, jax.random.key(0), one, jnp.array(0))
    assert action.item() == int(jnp.argmax(after.learned.network(one)[0]))
    assert (kept.optimiser, kept.novelty, kept.learned.predictor) == (None, None, None)


def test_an_entropy_bonus_widens_a_narrow_policy(fresh):
    """Where nothing pays and values start at zero, the entropy is all there is to gain."""
    _, algorithm, state, _ = fresh
    if algorithm.bonus is not None:
        return
    where = lambda state: state.learned.network.policy.weights[-1]  # noqa: E731
    state = eqx.tree_at(where, state, 1_000.0 * where(state))
    rollout = rollout_of(algorithm, state, jax.random.key(1), SHAPE)._replace(reward=jnp.zeros((6, 4)))
    after, _ = learn(algorithm, state, jax.random.key(2), rollout)
    obs = rollout.obs.reshape(-1, 3)
    narrow, wide = (entropy(one.learned.network.many(obs)[0]).item() for one in (state, after))
    assert narrow < 0.9 * math.log(ACTIONS)
    assert wide > narrow + 0.01


def test_the_learning_rate_falls_to_zero_over_the_run(fresh):
    """After all its updates, annealed PPO no longer learns."""
    _, algorithm, state, rollout = fresh
    for _ in range(2):
        state, _ = learn(algorithm, state, jax.random.key(2), rollout)
    after, _ = learn(algorithm, state, jax.random.key(2), rollout)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-7), state.learned, after.learned)


def test_a_stream_that_never_paid_says_nothing(fresh):
    """With value heads that start at zero the extrinsic advantage stays exactly zero until the first reward."""
    _, algorithm, state, rollout = fresh
    state, _ = learn(algorithm, state, jax.random.key(2), rollout._replace(reward=jnp.zeros((6, 4))))
    values = state.learned.network.many(rollout.obs[0])[1]
    assert not np.any(np.asarray(values[:, 0]))
    if algorithm.bonus is not None:
        assert np.any(np.asarray(values[:, 1]))


CORRIDOR = PPOConfig(
    copies=16, steps=6, epochs=4, hidden=16, learning_rate=1e-2, discount=0.5, gae_lambda=0.95,
    total_steps=16 * 6 * 80,
)  # fmt: skip


def trained(agent, config, seed, iterations, **options):
    loop = program(agent, config, [seed], **options).loop
    loop.size = 80
    carry, _, _ = loop.advance(loop.begin(), iterations)
    return jax.tree.map(lambda leaf: leaf[0], carry.state.learned)


@pytest.mark.parametrize(
    ("agent", "config", "options"),
    [
        (PPO, CORRIDOR, {"envs": [Corridor(jnp.array(True))]}),
        pytest.param(PPORND, TINY_RND, {}, marks=pytest.mark.slow),
    ],
    ids=["ppo", "ppo-rnd"],
)
def test_twin_seeds_are_equal_and_others_are_not(agent, config, options):
    one, twin, other = (trained(agent, config, seed, 3, **options) for seed in (3, 3, 4))
    assert bool(eqx.tree_equal(one, twin))
    assert not bool(eqx.tree_equal(one, other))


@pytest.mark.parametrize(("ends", "worth"), [(True, (1.75, 1.5, 1.0)), (False, (2.0, 2.0, 2.0))])
def test_values_and_actions_of_the_corridor(ends, worth):
    network = trained(PPO, CORRIDOR, 0, 80, envs=[Corridor(jnp.array(ends))]).network
    logits, value = network.many(jnp.eye(3))
    np.testing.assert_array_equal(jnp.argmax(logits, axis=-1), 1)
    np.testing.assert_allclose(value[:, 0], worth, atol=0.05)


def test_the_papers_tables_by_name():
    lock, control = PPO_CONFIGS["paper-lock-ppo-rnd"], PPO_CONFIGS["paper-control-ppo-rnd"]
    for config, rate, extrinsic in ((lock, 1e-3, 100.0), (control, 1e-4, 2.0)):
        assert (config.learning_rate, config.extrinsic_coefficient) == (rate, extrinsic)
        assert (config.hidden, config.discount, config.gae_lambda) == (64, 0.999, 0.95)
        assert (config.bonus.discount, config.bonus.coefficient) == (0.99, 1.0)
    assert dataclasses.replace(PPO_CONFIGS["paper-lock-ppo"], bonus=lock.bonus) == lock


def test_the_bonus_by_name():
    config = changed(PPO_CONFIGS["e3rl-ppo"], {"bonus": "rnd", "bonus.embedding": "32"})
    assert config.bonus == Rnd(embedding=32)
    assert changed(config, {"bonus": "none"}).bonus == NoBonus()
    assert NoBonus().stream(8, 1, 1) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"copies": 3, "minibatches": 5}, "minibatches must divide"),
        ({"clip": 0.0}, "clip must be above 0"),
        ({"gae_lambda": 1.5}, "gae_lambda must be at most 1"),
        ({"bonus": "rnd", "bonus.predictor_share": -0.1}, "predictor_share must not be negative"),
        ({"bonus.embedding": 8}, "bonus 'none' has no setting 'embedding'; it has none"),
        ({"bonus": "curiosity"}, "unknown bonus 'curiosity'; known: none, rnd"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        changed(PPOConfig(), changes)


def test_input_gain_spreads_observations_around_the_middle():
    obs = jnp.array([[0.6, 0.3]])
    plain, spread = (drawn((2,), 3, 1, 4, 1, False, 1.0, gain) for gain in (1.0, 4.0))
    for ours, same in zip(spread.many(obs), plain.many(0.5 + 4.0 * (obs - 0.5)), strict=True):
        np.testing.assert_allclose(ours, same, rtol=1e-5, atol=1e-7)
    assert not np.allclose(spread.many(obs)[1], plain.many(obs)[1])
