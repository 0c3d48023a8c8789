"""The options that make MountainCar and the maze stochastic."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.envs.maze import Maze
from e3rl.envs.mountain_car import MountainCar
from e3rl.types import UserError

KEYS = jax.random.split(jax.random.key(0), 4000)


def steps(env, action):
    state, _ = env.reset(jax.random.key(1))
    step = jax.jit(jax.vmap(lambda key: env.step(key, state, jnp.array(action, jnp.int32))))
    return step(KEYS), state


def test_an_engine_fails_as_often_as_asked():
    noisy, _ = steps(MountainCar(push_failure=0.3), 2)
    sure, _ = steps(MountainCar(), 2)
    idle, _ = steps(MountainCar(), 1)
    velocity = np.asarray(noisy[0].velocity)
    failed = velocity == np.asarray(idle[0].velocity)
    assert np.all(failed | (velocity == np.asarray(sure[0].velocity)))
    assert failed.mean() == pytest.approx(0.3, abs=0.03)


def test_an_engine_that_always_fails_is_no_engine():
    for one, other in zip(
        steps(MountainCar(push_failure=1.0), 0)[0], steps(MountainCar(), 1)[0], strict=True
    ):
        jax.tree.map(np.testing.assert_array_equal, one, other)


def test_a_slip_is_a_uniformly_random_move():
    noisy, _ = steps(Maze(7, slip=0.4), 0)
    lands = [np.asarray(steps(Maze(7), action)[0][0].agent[0]) for action in range(4)]
    agent = np.asarray(noisy[0].agent)
    places = {tuple(place) for place in lands}
    for place in places:
        wanted = sum((0.6 * (a == 0) + 0.1) for a in range(4) if tuple(lands[a]) == place)
        assert np.mean(np.all(agent == place, axis=1)) == pytest.approx(wanted, abs=0.03)
    assert {tuple(place) for place in agent} == places


@pytest.mark.parametrize("make", [lambda p: MountainCar(push_failure=p), lambda p: Maze(5, slip=p)])
@pytest.mark.parametrize("chance", [-0.1, 1.5])
def test_a_chance_lies_between_0_and_1(make, chance):
    with pytest.raises(UserError, match="between 0 and 1"):
        make(chance)
