"""What every environment promises, on a tiny instance of each."""

import warnings

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from e3rl.envs import ENVIRONMENTS, FunctionalGymEnv, build, register, rollout, uniform_policy
from e3rl.types import UserError

TINY = {
    "e3rl/CombinationLock-v0": {"horizon": 4, "antishaped": True, "noise_bits": 3},
    "e3rl/Maze-v0": {"size": 5},
    "e3rl/KeyDoor-v0": {"size": 5, "time_limit": 6},
    "e3rl/MountainCar-v0": {"time_limit": 6},
    "e3rl/Acrobot-v1": {"time_limit": 6},
    "e3rl/CartPole-v1": {"time_limit": 6},
    "e3rl/RiverSwim-v0": {"n": 4, "horizon": 6},
    "e3rl/Chain-v0": {"n": 4, "slip": 0.2},
    "e3rl/FourRooms-v0": {"size": 7, "slip": 0.3, "observation": "image", "time_limit": 9},
    "e3rl/RandomMDP-v0": {"num_states": 4, "horizon": 5},
    "e3rl/LowRankMDP-v0": {"num_states": 5, "rank": 2, "horizon": 5},
    "e3rl/FactoredMDP-v0": {"num_factors": 2, "num_values": 3, "horizon": 5},
    "e3rl/LatentLock-v0": {"horizon": 4},
}


ONE_START = {"e3rl/RiverSwim-v0", "e3rl/Chain-v0", "e3rl/FourRooms-v0"}


@pytest.fixture(params=TINY)
def env_id(request):
    return request.param


@pytest.fixture
def env(env_id):
    return build(env_id, **TINY[env_id])


@eqx.filter_jit
def play(env, key):
    return rollout(env, uniform_policy(env.num_actions), key)


def assert_equal(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(np.testing.assert_array_equal, one, other)


def on_host(env, obs):
    return np.asarray(obs, env.observation_space.dtype)[()]


def test_every_environment_is_in_this_suite():
    assert set(TINY) == set(ENVIRONMENTS)


@pytest.mark.filterwarnings("ignore:.*A Box observation space m:UserWarning")  # CartPole's velocities
def test_check_env(env_id):
    env = gymnasium.make(env_id, **TINY[env_id], render_mode="rgb_array")
    check_env(env.unwrapped)
    env.close()


def test_twin_rollouts_are_equal(env_id):
    key = jax.random.key(3)
    twins = [play(build(env_id, **TINY[env_id]), key) for _ in range(2)]
    assert_equal(*twins)


def test_vmap_equals_loop(env):
    keys = jax.random.split(jax.random.key(0), 3)
    together = eqx.filter_vmap(play, in_axes=(None, 0))(env, keys)
    for i, key in enumerate(keys):
        alone = play(env, key)
        for batched, single in zip(together, alone, strict=True):
            np.testing.assert_allclose(batched[i], single, rtol=1e-5, atol=1e-6)


def test_jit_equals_no_jit(env):
    key_reset, key_step = jax.random.split(jax.random.key(1))
    action = jnp.array(1, jnp.int32)
    plain = env.reset(key_reset)
    compiled = eqx.filter_jit(env.reset)(key_reset)
    after = env.step(key_step, plain[0], action), eqx.filter_jit(env.step)(key_step, plain[0], action)
    for one, other in [(plain, compiled), after]:
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, other)
        assert [leaf.dtype for leaf in jax.tree.leaves(one)] == [
            leaf.dtype for leaf in jax.tree.leaves(other)
        ]


def test_different_seeds_differ(env_id, env):
    episodes = [play(env, jax.random.key(seed)) for seed in range(8)]
    # Observations only: the actions would differ in any environment.
    assert len({np.asarray(episode.obs).tobytes() for episode in episodes}) > 1
    starts = {np.asarray(episode.obs[0]).tobytes() for episode in episodes}
    assert (len(starts) == 1) == (env_id in ONE_START)


def test_observations_lie_in_the_space(env):
    episode = play(env, jax.random.key(2))
    steps = int(episode.valid.sum())
    for obs in [episode.obs[0], *episode.next_obs[:steps]]:
        assert env.observation_space.contains(on_host(env, obs))
        assert obs.shape == env.observation_space.shape
        if not isinstance(
            env.observation_space, gymnasium.spaces.Discrete
        ):  # int64, which JAX has not by default
            assert obs.dtype == env.observation_space.dtype
    assert np.isfinite(episode.reward).all()


def test_episode_ends_by_its_time_limit(env):
    episodes = eqx.filter_vmap(play, in_axes=(None, 0))(env, jax.random.split(jax.random.key(4), 4))
    ended = (episodes.terminated | episodes.truncated) & episodes.valid
    # Exactly one end each, on its last valid step, never both kinds at once.
    assert np.array_equal(ended.sum(axis=1), np.ones(4))
    assert np.array_equal(np.argmax(ended, axis=1) + 1, episodes.valid.sum(axis=1))
    assert not np.any(episodes.terminated & episodes.truncated)


def test_render_gives_an_rgb_picture(env):
    state, _ = env.reset(jax.random.key(0))
    picture = env.render(state)
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert picture.shape[2] == 3
    assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 1


def test_gymnasium_class_plays_the_functional_environment(env_id, env):
    """The seed of `reset` fixes the episode, which is the functional code's, in host types."""
    wrapped = FunctionalGymEnv(env)
    obs, info = wrapped.reset(seed=5)
    root = jax.random.key(int(np.random.default_rng(np.random.SeedSequence(5)).integers(2**31)))
    key, key_reset = jax.random.split(root)
    state, expected = eqx.filter_jit(env.reset)(key_reset)
    np.testing.assert_array_equal(obs, on_host(env, expected))
    assert info == {}
    for action in (0, 1):
        obs, reward, terminated, truncated, _ = wrapped.step(action)
        key, key_step = jax.random.split(key)
        state, expected, expected_reward, *ends = eqx.filter_jit(env.step)(key_step, state, jnp.array(action))
        np.testing.assert_allclose(obs, on_host(env, expected), rtol=1e-5, atol=1e-6)
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        assert (reward, [terminated, truncated]) == (
            pytest.approx(float(expected_reward)),
            [bool(e) for e in ends],
        )
        if terminated or truncated:
            break


def test_environment_seed_is_not_the_episode_seed():
    one, other = (
        gymnasium.make("e3rl/CombinationLock-v0", horizon=4, seed=seed).unwrapped for seed in (0, 1)
    )
    assert not np.array_equal(one.functional.successor, other.functional.successor)
    np.testing.assert_array_equal(one.reset(seed=7)[0], other.reset(seed=7)[0])
    before = np.asarray(one.functional.successor)
    one.reset(seed=8)
    np.testing.assert_array_equal(before, one.functional.successor)


def test_unseeded_resets_go_on_from_the_seed():
    env = FunctionalGymEnv(build("e3rl/CombinationLock-v0", noise_bits=30))
    first = [env.reset(seed=1)[0], env.reset()[0], env.reset()[0]]
    second = [env.reset(seed=1)[0], env.reset()[0], env.reset()[0]]
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first, axis=0)) == 3


def test_step_needs_a_running_episode_and_an_action_of_the_space():
    env = FunctionalGymEnv(build("e3rl/RandomMDP-v0", horizon=1))
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset(seed=0)
    for action in (2, -1, 0.5, None):
        with pytest.raises(UserError, match="action must be an integer"):
            env.step(action)
    assert env.step(1)[2] is True
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)


def test_gymnasium_class_bad_inputs():
    with pytest.raises(UserError, match="render_mode"):
        FunctionalGymEnv("e3rl/RandomMDP-v0", render_mode="ascii")
    with pytest.raises(UserError, match="takes no arguments, got horizon"):
        FunctionalGymEnv(build("e3rl/RandomMDP-v0"), horizon=3)
    with pytest.raises(UserError, match="takes no argument 'horizonn'; did you mean 'horizon'"):
        gymnasium.make("e3rl/CombinationLock-v0", horizonn=3)
    with pytest.raises(gymnasium.error.ResetNeeded):
        FunctionalGymEnv("e3rl/RandomMDP-v0", render_mode="rgb_array").render()


def test_registering_again_is_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register()
    assert set(ENVIRONMENTS) <= set(gymnasium.registry)
