"""Several seeds in one program: what they do at once, each does alone."""

import threading
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.runs import lanes
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


OURS = ("jit(walk)", "jit(slow)", "jit(compiled)")
"""The last is what a function is called where its types are checked."""


class Compiled:
    """How many programs over lanes were compiled since, by a helper and by others."""

    def __init__(self):
        self.by_helpers = self.by_others = 0
        jax.monitoring.register_event_duration_secs_listener(self.listen)

    def listen(self, event, _, fun_name="", **others):
        if event.endswith("backend_compile_duration") and fun_name in OURS:
            helps = threading.current_thread().name.startswith(lanes.COMPILES)
            self.by_helpers += helps
            self.by_others += not helps


@pytest.fixture
def compiled():
    seen = Compiled()
    yield seen
    jax.monitoring.unregister_event_duration_listener(seen.listen)


def helper():
    return ThreadPoolExecutor(1, thread_name_prefix=lanes.COMPILES)


@pytest.mark.parametrize(("which", "lane_by_lane"), [([1], True), ([0, 1, 2], True), ([0, 1, 2], False)])
def test_what_was_compiled_ahead_is_not_compiled_again(which, lane_by_lane, compiled, monkeypatch):
    monkeypatch.setattr(lanes, "lane_by_lane", lambda: lane_by_lane)
    usual, walked = over_lanes(walk), over_lanes(walk)
    place, jump, key, count = arguments(which)
    with helper() as pool:
        walked.compile_ahead(pool, jax.ShapeDtypeStruct(place.shape, place.dtype), jump, key, count)
    found = walked(place, jump, key, count)
    assert (compiled.by_helpers, compiled.by_others) == (1, 0)
    expected = usual(place, jump, key, count)
    assert (compiled.by_helpers, compiled.by_others) == (1, 1)
    for one, other in zip(*map(jax.tree.leaves, (found, expected)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_who_comes_while_it_is_compiled_waits_and_who_comes_before_does_it_himself(compiled):
    given = arguments([0])
    begun, go_on = threading.Event(), threading.Event()

    def slow(*args):
        if threading.current_thread() is not threading.main_thread():
            begun.set()
            assert go_on.wait(60)
        return walk(*args)

    waited, own = over_lanes(slow), over_lanes(walk)
    with helper() as pool:
        waited.compile_ahead(pool, *given)
        own.compile_ahead(pool, *given)
        assert begun.wait(60)
        own(*given)
        assert (compiled.by_helpers, compiled.by_others) == (0, 1)
        threading.Timer(0.3, go_on.set).start()
        waited(*given)
    assert (compiled.by_helpers, compiled.by_others) == (1, 1)


def test_what_cannot_be_compiled_says_so_when_it_is_called():
    def wrong(x):
        raise ValueError(f"not with {x.shape}")

    added = over_lanes(wrong)
    with helper() as pool:
        added.compile_ahead(pool, jnp.zeros((1, 2)))
    with pytest.raises(ValueError, match=r"not with \(2,\)"):
        added(jnp.zeros((1, 2)))


def test_somebody_helps_where_a_processor_is_to_spare(monkeypatch):
    """For an accelerator several do."""
    monkeypatch.setattr(lanes, "processors", lambda: [3])
    with lanes.compiling() as pool:
        assert pool is None
    monkeypatch.setattr(lanes, "processors", lambda: [3, 4])
    go_on = threading.Event()
    with lanes.compiling() as pool:
        under_way, never = pool.submit(go_on.wait, 60), pool.submit(list)
    assert never.cancelled()
    go_on.set()
    assert under_way.result()
    monkeypatch.setattr(lanes, "lane_by_lane", lambda: False)
    monkeypatch.setattr(lanes, "processors", lambda: [3, 4, 5])
    together = threading.Barrier(2, timeout=60)
    with lanes.compiling() as pool:
        for waiting in [pool.submit(together.wait) for _ in range(2)]:
            waiting.result()


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
