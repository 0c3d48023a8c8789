"""Several seeds in one program: what they do at once, each does alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.runs.lanes import as_lane, by_lane, lane_of, over_lanes, seed_keys, side_by_side
from e3rl.types import key_for

PLACES = jnp.array([[1.0, 2.0], [3.0, 5.0], [7.0, 11.0]])


class Jump(eqx.Module):
    """A function of arrays with numbers of its own, as a policy is."""

    size: jax.Array
    times: int = eqx.field(static=True)


def walk(place, jump, key, count):
    """Some steps, of a number that every lane shares."""
    noise = jax.random.normal(key, (count,))
    return {"place": place + jump.size * jump.times, "path": jnp.cumsum(noise)}, jnp.sum(place)


def arguments(lanes):
    chosen = jnp.array(lanes)
    return PLACES[chosen], Jump(jnp.array([0.5, 1.5, 2.5])[chosen], 2), seed_keys([8, 9, 10])[chosen], 4


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_lanes_are_single_lanes_side_by_side(backend, monkeypatch):
    """Each for itself on a CPU, bit for bit, as one vmapped program elsewhere."""
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    walked = over_lanes(walk)
    together = walked(*arguments([0, 1, 2]))
    alone = side_by_side([lane_of(walked(*arguments([lane]))) for lane in range(3)])
    turned = walked(*arguments([2, 1, 0]))
    for one, other, back in zip(*map(jax.tree.leaves, (together, alone, turned)), strict=True):
        np.testing.assert_allclose(one, other, rtol=0.0 if backend == "cpu" else 1e-6)
        np.testing.assert_allclose(one, back[::-1], rtol=1e-6)  # where a lane stands is no matter
    np.testing.assert_array_equal(together[1], [3.0, 8.0, 18.0])
    assert together[0]["path"].shape == (3, 4)


def test_plain_numbers_are_shared_and_compiled_in():
    traced = []

    def add(x, n):
        traced.append(n)
        return x + n

    added = over_lanes(add)
    np.testing.assert_array_equal(added(jnp.array([1.0, 2.0]), 3.0), [4.0, 5.0])
    np.testing.assert_array_equal(added(jnp.array([1.0]), 3.0), [4.0])
    np.testing.assert_array_equal(added(jnp.array([2.0]), 3.0), [5.0])
    assert traced == [3.0]
    np.testing.assert_array_equal(added(jnp.array([2.0]), 4.0), [6.0])
    assert traced == [3.0, 4.0]


def test_lanes_that_are_over_cost_nothing():
    called = []

    def counted(x, y):
        jax.debug.callback(lambda x: called.append(float(x)), x)
        return x + y

    added = over_lanes(counted)
    given = jnp.array([1.0, 2.0, 3.0, 4.0]), jnp.array([10.0, 20.0, 30.0, 40.0])
    found = added(*given, over=np.array([False, True, False, True]))
    jax.effects_barrier()
    np.testing.assert_array_equal(np.asarray(found)[[0, 2]], [11.0, 33.0])
    assert found.shape == (4,)
    assert sorted(called) == [1.0, 3.0]
    np.testing.assert_array_equal(added(*given), [11.0, 22.0, 33.0, 44.0])


def test_trees_become_lanes_and_lanes_trees():
    trees = [{"a": np.arange(3) + i, "b": np.float32(i)} for i in range(2)]
    lanes = side_by_side(trees)
    assert lanes["a"].shape == (2, 3)
    for i, (own, host) in enumerate(zip(trees, by_lane(lanes, 2), strict=True)):
        for found in (lane_of(lanes, i), host):
            np.testing.assert_array_equal(found["a"], own["a"])
            np.testing.assert_array_equal(found["b"], own["b"])
        assert isinstance(host["a"], np.ndarray)
    np.testing.assert_array_equal(as_lane(trees[1])["a"], [[1, 2, 3]])


def test_keys_differ_by_seed_name_and_index():
    names = [
        "models",
        "value",
        "collect",
        "fit models",
        "fit value",
        "v_explore",
        "exploit",
        "exploit episodes",
    ]
    keys = seed_keys([0, 1])
    each = [key_for(key, name, index) for key in keys for name in names for index in range(3)]
    assert len({tuple(np.asarray(jax.random.key_data(key)).tolist()) for key in each}) == len(each)
    same = key_for(jax.random.key(0), "collect", jnp.array(2))
    np.testing.assert_array_equal(
        jax.random.key_data(same), jax.random.key_data(key_for(keys[0], "collect", 2))
    )
