"""CartPole against Gymnasium's own, step for step."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.envs.cart_pole import CartPole, CartPoleState

STEPS = 1_500
FREE_STEPS = 50
"""A pole falls: an error of rounding is 1e17 times as large after 500 steps, so the free run takes Gymnasium's state
again every so often."""
KEY = jax.random.key(0)  # deterministic: `step` uses no randomness
OURS = CartPole()


@pytest.fixture(scope="module")
def theirs():
    """Random play, then steering by angle and spin, which lasts to the time limit; a row is the step from `state`."""
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    draw = np.random.default_rng(0)
    env.reset(seed=0)
    rows, elapsed = [], 0
    for step in range(STEPS):
        state = np.array(env.unwrapped.state, np.float64)
        # Mostly against the fall, and a little back to the middle.
        lean = state @ [0.05, 0.1, 1.0, 0.5]
        action = int(lean > 0) if step > 300 else int(draw.integers(2))
        obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((state, elapsed, action, obs, reward, terminated, truncated))
        elapsed += 1
        if terminated or truncated:
            env.reset()
            elapsed = 0
    env.close()
    return [np.array(column) for column in zip(*rows, strict=True)]


def test_both_kinds_of_ending_are_there(theirs):
    assert theirs[5].sum() >= 5
    assert theirs[6].any()


def test_each_float32_step_from_gymnasiums_state(theirs):
    state, elapsed, action, obs, reward, terminated, truncated = theirs

    def step(cart, time, action):
        return OURS.step(KEY, CartPoleState(cart, time), action)[1:]

    after = jax.jit(jax.vmap(step))(
        jnp.array(state, jnp.float32), jnp.array(elapsed, jnp.int32), jnp.array(action, jnp.int32)
    )
    np.testing.assert_allclose(after[0], obs, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(after[1], reward)
    np.testing.assert_array_equal(after[2], terminated)
    np.testing.assert_array_equal(after[3], truncated)


def test_free_running_in_float64(theirs):
    state, elapsed, action, obs, *_ = theirs

    def step(held, inputs):
        cart, time, action = inputs
        fresh = CartPoleState(cart, time)
        held = jax.tree.map(lambda new, old: jnp.where(time % FREE_STEPS == 0, new, old), fresh, held)
        held, seen, *_ = OURS.step(KEY, held, action)
        return held, (held.cart, seen)

    with jax.enable_x64(True):
        inputs = jnp.array(state), jnp.array(elapsed, jnp.int32), jnp.array(action, jnp.int32)
        _, (carts, seen) = jax.lax.scan(step, CartPoleState(inputs[0][0], inputs[1][0]), inputs)
        np.testing.assert_allclose(seen, obs, rtol=0, atol=1e-6)
        going_on = elapsed[1:] % FREE_STEPS > 0
        np.testing.assert_allclose(np.asarray(carts)[:-1][going_on], state[1:][going_on], rtol=0, atol=1e-9)


def test_starts_fill_the_same_range():
    _, obs = jax.jit(jax.vmap(OURS.reset))(jax.random.split(KEY, 4_000))
    for quantile, wanted in [(0.0, -0.05), (0.25, -0.025), (0.5, 0.0), (0.75, 0.025), (1.0, 0.05)]:
        np.testing.assert_allclose(np.quantile(obs, quantile, axis=0), wanted, atol=0.003)


def test_the_spaces_are_gymnasiums():
    env = gymnasium.make("CartPole-v1")
    assert OURS.observation_space == env.observation_space
    assert OURS.action_space == env.action_space
    env.close()
