"""Who looks deterministic."""

import random

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.envs.adapter import make
from e3rl.envs.determinism import looks_deterministic
from e3rl.envs.lock import CombinationLock
from e3rl.envs.maze import Maze
from e3rl.envs.registration import FunctionalGymEnv

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("env_id", "arguments", "answer"),
    [
        ("MountainCar-v0", {}, True),
        ("CartPole-v1", {}, True),
        ("Acrobot-v1", {}, True),
        ("FrozenLake-v1", {"is_slippery": False}, True),
        ("Taxi-v4", {}, True),
        ("CliffWalking-v1", {}, True),
        ("e3rl/Maze-v0", {}, True),
        ("e3rl/MountainCar-v0", {}, True),
        ("e3rl/Acrobot-v1", {}, True),
        ("FrozenLake-v1", {}, False),
        ("CliffWalkingSlippery-v1", {}, False),
        ("Taxi-v4", {"is_rainy": True}, False),
        ("Blackjack-v1", {}, False),
        ("e3rl/CombinationLock-v0", {}, False),
        ("e3rl/CombinationLock-v0", {"noise_bits": 0}, False),  # the switch alone
        ("e3rl/CombinationLock-v0", {"switch": 0.0}, False),  # the noise alone
        ("e3rl/CombinationLock-v0", {"switch": 0.0, "noise_bits": 0}, True),
    ],
)
def test_answers(env_id, arguments, answer):
    assert looks_deterministic(make(env_id, **arguments), KEY) is answer


@pytest.mark.parametrize(("functional", "answer"), [(Maze(5), True), (CombinationLock(5), False)])
def test_functional_environments_behind_a_wrapper_are_copied_with_another_key(functional, answer):
    wrapped = gymnasium.wrappers.TransformReward(FunctionalGymEnv(functional), lambda reward: reward)
    assert looks_deterministic(make(wrapped), KEY, steps=20) is answer


class Noisy(gymnasium.Env):
    """Where its noise comes from is a function of the environment, called at every step."""

    observation_space = spaces.Box(0.0, 1.0, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, noise):
        self.noise = noise
        self.legacy, self.own = np.random.RandomState(0), {"deep": [random.Random(0)]}
        self.tosses = np.random.Generator(np.random.MT19937(0))
        self.key, self.raw_key = jax.random.key(0), jax.random.PRNGKey(0)
        self.pending = 0.0
        self.cannot_copy = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.np_random.random(1, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.array([self.noise(self)], np.float32), 0.0, self.count == 5, False, {}


def from_key(env):
    env.key, key = jax.random.split(env.key)
    return jax.random.uniform(key)


def from_raw_key(env):
    env.raw_key, key = jax.random.split(env.raw_key)
    return jax.random.uniform(key)


def a_step_late(env):
    noise, env.pending = env.pending, env.np_random.random()
    return noise


@pytest.mark.parametrize(
    ("noise", "answer"),
    [
        (lambda env: env.count / 5, True),
        (lambda env: env.np_random.random(), False),
        (lambda env: env.legacy.random(), False),
        (lambda env: env.own["deep"][0].random(), False),
        (lambda env: env.tosses.random(), False),
        (lambda env: float(env.observation_space.sample()[0]), False),
        (lambda env: random.random(), False),
        (lambda env: np.random.random(), False),  # noqa: NPY002 - what users do
        (from_key, False),
        (from_raw_key, False),
        (a_step_late, False),
    ],
)
def test_sources_of_noise(noise, answer):
    env = make(gymnasium.wrappers.TimeLimit(Noisy(noise), 10))
    assert looks_deterministic(env, KEY, steps=30) is answer


class CannotCopy:
    def __deepcopy__(self, memo):
        raise TypeError("a handle cannot be copied")


def test_what_cannot_be_copied_or_fails_counts_as_stochastic_and_stays_usable():
    env = make(Noisy(lambda env: env.count / 5))
    env.env.cannot_copy = CannotCopy()
    assert not looks_deterministic(env, KEY)
    env.reset(seed=0)
    assert env.step(0)[0] == np.float32(0.2)
    assert not looks_deterministic(make(Noisy(lambda env: 1 / 0)), KEY)
    assert not looks_deterministic(make(Noisy(lambda env: np.nan)), KEY)


def test_the_environment_goes_on_as_if_nothing_had_happened():
    env, untouched = (make("Taxi-v4", is_rainy=True) for _ in range(2))
    looks_deterministic(env, KEY)
    for each in (env, untouched):
        each.reset(seed=3)
    for _ in range(20):
        np.testing.assert_array_equal(env.step(1)[0], untouched.step(1)[0])


class Hidden(CombinationLock):
    """A coin is tossed at every step and shown one step later."""

    def reset(self, key):
        return (jnp.int32(0), jnp.array(False)), jnp.zeros(1, jnp.int8)

    def step(self, key, state, action):
        time, coin = state
        toss = jax.random.bernoulli(key)
        last = time == self.horizon - 1
        return (time + 1, toss), coin.astype(jnp.int8)[None], jnp.zeros(()), last, jnp.array(False)


def test_noise_that_shows_late_in_a_functional_environment():
    assert not looks_deterministic(Hidden(5), KEY)
