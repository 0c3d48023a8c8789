"""Reading entries off each other, in a world where it is known which are thrown after the state was decided."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from e3rl.models.reading import ENOUGH, MEMORY, OPEN, Read, Reader, optimiser

BITS = 6
STATE, OPPOSITE, OFTEN, COIN, ECHO, CUE = range(BITS)
"""The state; its opposite; a coin that is thrown in one state and 0 in the other; a coin; another that tells nothing of
the rest; one that the past foretells and the rest does not."""


def observations(count, seed=0):
    generator = np.random.default_rng(seed)
    obs = generator.integers(0, 2, (count, BITS)).astype(np.float32)
    obs[:, OPPOSITE] = 1 - obs[:, STATE]
    obs[:, OFTEN] *= obs[:, STATE]
    return obs


@pytest.fixture(scope="module")
def reader():
    obs = jnp.asarray(observations(400))

    @jax.jit
    def step(carry, key):
        reader, state = carry
        rows = obs[jax.random.randint(key, (64,), 0, len(obs))]
        with jax.numpy_dtype_promotion("standard"):
            change, state = optimiser().update(jax.grad(Reader.loss)(reader, rows), state, reader)
        return (optax.apply_updates(reader, change), state), None

    start = Reader.fresh(BITS)
    (fitted, _), _ = jax.lax.scan(
        step, (start, optimiser().init(start)), jax.random.split(jax.random.key(0), 2_000)
    )
    return fitted


def losses(chances, obs):
    return -np.log(np.where(obs > 0.5, chances, 1 - chances))


def test_its_own_entry_tells_nothing(reader):
    obs = jnp.asarray(observations(5, seed=2))
    for i in range(BITS):
        flipped = obs.at[:, i].set(1.0 - obs[:, i])
        np.testing.assert_allclose(reader(obs)[:, i], reader(flipped)[:, i], rtol=1e-5)


def test_the_loss_is_that_of_its_chances(reader):
    obs = observations(50, seed=3)
    expected = losses(np.asarray(reader(jnp.asarray(obs))), obs).sum(axis=1).mean()
    np.testing.assert_allclose(reader.loss(jnp.asarray(obs)), expected, rtol=1e-4)


def test_what_is_read_off_the_others(reader):
    obs = observations(2_000, seed=1)
    found = losses(np.asarray(reader(jnp.asarray(obs))), obs).mean(axis=0)
    assert (found[[STATE, OPPOSITE]] < 0.1).all()
    assert abs(found[OFTEN] - 0.5 * np.log(2)) < 0.05
    assert (abs(found[[COIN, ECHO]] - np.log(2)) < 0.05).all()


def test_what_is_thrown(reader):
    """What the others leave open and the past does not tell better; not before enough was seen."""
    obs = observations(250, seed=4)
    by_others = losses(np.asarray(reader(jnp.asarray(obs))), obs)
    by_mean = losses(obs.mean(axis=0), obs)
    by_past = by_others + 0.1  # the past knows less than the rest of the same moment
    by_past[:, CUE] = 0.05
    new = jnp.arange(250) < 240
    read = Read.nothing(BITS).and_then(new, *map(jnp.asarray, (by_others, by_mean, by_past)))
    np.testing.assert_array_equal(read.open, [False, False, True, True, True, True])
    np.testing.assert_array_equal(read.thrown, [False, False, True, True, True, False])
    little = Read.nothing(BITS).and_then(
        jnp.arange(250) < int(ENOUGH) - 1, *map(jnp.asarray, (by_others, by_mean, by_past))
    )
    assert not little.thrown.any()


def test_counts_against_loops():
    generator = np.random.default_rng(0)
    read, counted = Read.nothing(BITS), 0.0
    sums, beyond = np.zeros((2, BITS)), np.zeros((2, BITS))
    for rows in (5, 8):
        others, mean, past = generator.random((3, rows, BITS)).astype(np.float32)
        new = np.arange(rows) < rows - 2
        read = read.and_then(jnp.asarray(new), *map(jnp.asarray, (others, mean, past)))
        keep = np.exp(-(rows - 2) / MEMORY)
        counted, sums, beyond = keep * counted + rows - 2, keep * sums, keep * beyond
        for i in range(rows - 2):
            sums += np.stack([others[i], mean[i]])
            better = others[i] - past[i]
            beyond += np.stack([better, better**2])
    np.testing.assert_allclose(read.counted, counted, rtol=1e-5)
    np.testing.assert_allclose(read.losses, sums, rtol=1e-5)
    np.testing.assert_allclose(read.beyond, beyond, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(read.open, sums[0] > OPEN * sums[1])
