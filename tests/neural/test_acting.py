"""Only those who need a plan pay for one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.neural.acting import for_those


def double(number, word):
    return number * 2, word + 1


@pytest.mark.parametrize("at_once", [1, 2, 3, 16])
@pytest.mark.parametrize("wanted", ["00000", "10101", "11111", "00001", "01111"])
def test_wanted_rows_are_computed_and_others_left(wanted, at_once):
    flags = jnp.array([letter == "1" for letter in wanted])
    numbers = jnp.arange(10.0).reshape(5, 2)
    words = jnp.arange(5, dtype=jnp.int32)
    rest = jnp.full((5, 2), -1.0), jnp.full(5, -1, jnp.int32)
    found = jax.jit(for_those, static_argnums=(1, 4))(flags, double, (numbers, words), rest, at_once)
    np.testing.assert_array_equal(found[0], np.where(np.asarray(flags)[:, None], numbers * 2, -1.0))
    np.testing.assert_array_equal(found[1], np.where(np.asarray(flags), words + 1, -1))


def test_the_function_is_called_only_for_wanted_rows():
    called = []

    def told(number):
        jax.debug.callback(lambda seen: called.append(int(seen)), number)
        return number * 2

    plan = jax.jit(lambda flags: for_those(flags, told, (jnp.arange(5),), jnp.zeros(5, jnp.int32), 1))
    for rows in ([0, 2, 4], [], [3], [0, 1, 2, 3, 4]):
        called.clear()
        jax.block_until_ready(plan(jnp.isin(jnp.arange(5), jnp.array(rows, jnp.int32))))
        jax.effects_barrier()
        assert sorted(called) == rows


def test_lanes_may_want_different_numbers():
    flags = jnp.array([[True, False, True], [False, False, False], [True, True, True]])
    numbers = jnp.arange(9.0).reshape(3, 3)
    words = jnp.zeros((3, 3), jnp.int32)

    def lane(flags, numbers, words):
        return for_those(flags, double, (numbers, words), (jnp.zeros(3), words), 2)[0]

    np.testing.assert_array_equal(jax.vmap(lane)(flags, numbers, words), np.where(flags, numbers * 2, 0.0))
