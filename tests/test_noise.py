"""Noise from the counter hash: as random as it has to be, for keys that are random and for keys that are not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from e3rl.noise import GOLDEN, hashed, uniform_noise

NUMBERS = 2**16
SURE = 1e-6
"""P-values of good noise are below this once in a million tests; those of a bad hash are zero."""


def split(count):
    return jax.random.split(jax.random.key(7), count)


def counted(count):
    """Keys that nobody mixed: 0, 1, 2, …"""
    return jax.random.wrap_key_data(jnp.array([[0, n] for n in range(count)], jnp.uint32))


def turned(count):
    """The same in the other word."""
    return jax.random.wrap_key_data(jnp.array([[n, 0] for n in range(count)], jnp.uint32))


KEYS = pytest.mark.parametrize("keys", [split, counted, turned])


@jax.jit
def streams(keys):
    return jax.vmap(lambda key: uniform_noise(key, (NUMBERS,)))(keys)


def normal(z):
    """Two-sided p-value."""
    return 2 * stats.norm.sf(abs(z))


def slow_mixed(x, between=0):
    """In Python's whole numbers."""
    word = 2**32
    x = ((x ^ (x >> 17)) * 0xED5AD4BB + between) % word
    x = (x ^ (x >> 11)) * 0xAC4C1B51 % word
    x = (x ^ (x >> 15)) * 0x31848BAB % word
    return x ^ (x >> 14)


def slow_hash(counter, first, second):
    another = slow_mixed(second ^ GOLDEN)
    start = slow_mixed((first + another) % 2**32)
    return slow_mixed((counter * GOLDEN + start) % 2**32, another)


def test_the_hash_is_that_of_whole_numbers():
    rng = np.random.default_rng(0)
    counter, first, second = rng.integers(2**32, size=(3, 50), dtype=np.uint32)
    for a, b, c in zip(counter, first, second, strict=True):
        assert int(hashed(jnp.asarray([a]), jnp.asarray(b), jnp.asarray(c))[0]) == slow_hash(
            *map(int, (a, b, c))
        )


def test_noise_is_a_function_of_key_and_place():
    key = jax.random.key(3)
    whole = np.asarray(uniform_noise(key, (4, 5, 6)))
    np.testing.assert_array_equal(whole, uniform_noise(key, (4, 5, 6)))
    np.testing.assert_array_equal(whole.ravel(), uniform_noise(key, (120,)))
    np.testing.assert_array_equal(whole, jax.jit(lambda key: uniform_noise(key, (4, 5, 6)))(key))
    first, second = map(int, jax.random.key_data(key))
    slow = [((slow_hash(n, first, second) >> 9) + 0.5) * 2.0**-23 for n in range(120)]
    np.testing.assert_array_equal(whole.ravel(), np.array(slow, np.float32))
    assert not np.array_equal(whole, uniform_noise(jax.random.key(4), (4, 5, 6)))
    assert uniform_noise(key, (3, 0)).shape == (3, 0)


@KEYS
def test_numbers_are_uniform(keys):
    u = np.asarray(streams(keys(16)), float)
    assert (u.min() > 0.0, u.max() < 1.0) == (True, True)
    n = u.size
    assert normal((u.mean() - 0.5) / np.sqrt(1 / 12 / n)) > SURE
    assert normal((u.var() - 1 / 12) / np.sqrt(1 / 180 / n)) > SURE
    cells = np.bincount((u.ravel() * 4096).astype(int), minlength=4096)
    assert SURE < stats.chisquare(cells).pvalue < 1 - SURE  # too even is not random either
    for stream in u:
        assert normal((stream.mean() - 0.5) / np.sqrt(1 / 12 / NUMBERS)) > SURE


@KEYS
def test_neighbours_tell_nothing(keys):
    """Serial correlation within a stream, and pairs of neighbours on a grid: a lattice shows there."""
    u = np.asarray(streams(keys(8)), float) - 0.5
    for lag in (
        1,
        2,
        3,
        8,
        13,
        64,
        100,
        1300,
        6500,
    ):  # also as far as entries, particles and members are apart
        products = u[:, lag:] * u[:, :-lag]
        assert normal(products.mean() * 12 * np.sqrt(products.size)) > SURE, lag
        cells = (64 * (u[:, lag:] + 0.5)).astype(int) * 64 + (64 * (u[:, :-lag] + 0.5)).astype(int)
        assert stats.chisquare(np.bincount(cells.ravel(), minlength=4096)).pvalue > SURE, lag


@KEYS
def test_streams_tell_nothing_of_each_other(keys):
    u = np.asarray(streams(keys(64)), float) - 0.5
    correlation = np.corrcoef(u)[np.triu_indices(64, 1)] * np.sqrt(NUMBERS)
    assert normal(np.abs(correlation).max()) * len(correlation) > SURE
    assert stats.kstest(correlation, "norm").pvalue > SURE
    for one, other in ((0, 1), (0, 2), (1, 32), (5, 37), (30, 31)):
        cells = (64 * (u[one] + 0.5)).astype(int) * 64 + (64 * (u[other] + 0.5)).astype(int)
        assert stats.chisquare(np.bincount(cells, minlength=4096)).pvalue > SURE
        apart = np.bincount((((u[one] - u[other]) % 1.0) * 256).astype(int), minlength=256)
        assert stats.chisquare(apart).pvalue > SURE  # no constant shift


@KEYS
def test_bits_are_fair_and_independent(keys):
    """Every bit is set half of the time, whatever any other bit is; patterns of neighbouring coins are as frequent."""
    u = np.asarray(streams(keys(16))).ravel()
    whole = (u.astype(float) * 2**23).astype(np.int64)
    bits = (whole[:, None] >> np.arange(23)) & 1
    n = len(bits)
    signs = 2.0 * bits - 1.0
    assert normal(np.abs(signs.mean(0)).max() * np.sqrt(n)) * 23 > SURE
    between = (signs.T @ signs / n)[np.triu_indices(23, 1)]
    assert normal(np.abs(between).max() * np.sqrt(n)) * len(between) > SURE
    for chance in (0.5, 0.1):
        coins = (u < chance).astype(int)[: n // 10 * 10].reshape(-1, 10)
        patterns = np.bincount(coins @ 2 ** np.arange(10), minlength=1024)
        ones = np.array([bin(p).count("1") for p in range(1024)])
        expected = len(coins) * chance**ones * (1 - chance) ** (10 - ones)
        often = expected > 5
        seen = np.append(patterns[often], patterns[~often].sum())
        told = np.append(expected[often], expected[~often].sum())
        seen, told = (
            (seen, told) if told[-1] > 5 else (seen[:-1], told[:-1] * seen[:-1].sum() / told[:-1].sum())
        )
        assert stats.chisquare(seen, told).pvalue > SURE


def test_one_bit_of_a_key_or_counter_changes_half_of_the_bits():
    """Strict avalanche, of every bit of the input on every bit that is used."""
    rng = np.random.default_rng(1)
    given = rng.integers(2**32, size=(3, 4096), dtype=np.uint32)
    evaluate = jax.jit(jax.vmap(hashed))
    before = np.asarray(evaluate(*given))
    for word in range(3):
        for bit in range(32):
            flipped = given.copy()
            flipped[word] ^= np.uint32(1 << bit)
            changed = before ^ np.asarray(evaluate(*flipped))
            share = ((changed[:, None] >> np.arange(9, 32)) & 1).mean(0)
            assert np.abs(share - 0.5).max() < 0.06, (word, bit)


def weak(counter, first, second):
    """A counter that is scaled and shifted: uniform, and nothing else."""
    return counter * np.uint32(GOLDEN) + first + second


@pytest.mark.parametrize(
    "broken",
    [
        test_neighbours_tell_nothing,
        test_streams_tell_nothing_of_each_other,
        test_bits_are_fair_and_independent,
    ],
)
def test_these_tests_would_notice_a_weak_hash(monkeypatch, broken):
    monkeypatch.setattr("e3rl.noise.hashed", weak)
    monkeypatch.setitem(globals(), "streams", fresh)
    with pytest.raises(AssertionError):
        broken(split)


def fresh(keys):
    """`streams`, not compiled before."""
    return jax.vmap(lambda key: uniform_noise(key, (NUMBERS,)))(keys)
