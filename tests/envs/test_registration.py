"""`build`: arguments are checked against the defaults before anything is made of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.envs.registration import ENVIRONMENTS, build
from e3rl.types import UserError

LOCK, MAZE = "e3rl/CombinationLock-v0", "e3rl/Maze-v0"


@pytest.mark.parametrize(
    ("env_id", "name", "value", "words"),
    [
        (LOCK, "noise_bits", 2.5, "a whole number, got 2.5"),
        (LOCK, "noise_bits", True, "a whole number, got True"),
        (LOCK, "horizon", "three", "a whole number, got 'three'"),
        (LOCK, "horizon", True, "a whole number, got True"),
        (LOCK, "horizon", None, "a whole number, got None"),
        (LOCK, "antishaped", "no", "true or false, got 'no'"),
        (LOCK, "antishaped", 1, "true or false, got 1"),
        (LOCK, "switch", False, "a number, got False"),
        (LOCK, "switch", "0.1", "a number, got '0.1'"),
        (LOCK, "seed", 10**20, r"a whole number from 0 to 2\*\*31 − 1, got 10{20}"),
        (LOCK, "seed", -1, "a whole number from 0 to .*, got -1"),
        (LOCK, "seed", 1.0, "a whole number from 0 to .*, got 1.0"),
        (LOCK, "seed", True, "a whole number from 0 to .*, got True"),
        (LOCK, "seed", jnp.ones(3), "a whole number from 0 to .*, got Array"),
        (MAZE, "size", 5.5, "a whole number, got 5.5"),
        ("e3rl/RandomMDP-v0", "seed", 2**31, "a whole number from 0 to .*, got 2147483648"),
        ("e3rl/MountainCar-v0", "scale_observation", "yes", "true or false, got 'yes'"),
    ],
)
def test_an_argument_of_the_wrong_type(env_id, name, value, words):
    with pytest.raises(UserError, match=f"^{env_id}: {name} must be {words}"):
        build(env_id, **{name: value})


@pytest.mark.parametrize("seed", [0, np.int64(3), 2**31 - 1, jax.random.key(0), jax.random.PRNGKey(0)])
def test_seeds(seed):
    assert build(LOCK, seed=seed).horizon == 10


def test_what_passes():
    lock = build(LOCK, horizon=np.int32(4), antishaped=np.True_, switch=0, noise_bits=None)
    assert (lock.horizon, lock.antishaped, lock.switch) == (4, True, 0.0)
    assert build(LOCK, noise_bits=2, switch=np.float32(0.5)).switch == 0.5


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_arguments_have_names(env_id):
    with pytest.raises(UserError, match="takes no argument 'colour'"):
        build(env_id, colour=1)
