"""Encodings against values written out by hand and, for flat spaces, against Gymnasium's own flattening."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from e3rl.envs.encoding import Encoding
from e3rl.types import UserError

NESTED = spaces.Dict(
    {
        "z": spaces.Tuple((spaces.Discrete(2, start=5), spaces.MultiBinary(2))),
        "a": spaces.Dict({"speed": spaces.Box(-1.0, 2.0, (2,)), "gear": spaces.MultiDiscrete([2, 3])}),
    }
)


@pytest.mark.parametrize(
    ("space", "obs", "encoded", "parts"),
    [
        (spaces.Discrete(3), 1, [0, 1, 0], [("categorical", 0, 3)]),
        (spaces.Discrete(3, start=-1), np.int64(-1), [1, 0, 0], [("categorical", 0, 3)]),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), [1, 0, 1], [("binary", 0, 3)]),
        (spaces.MultiBinary([2, 2]), np.array([[1, 0], [0, 1]], np.int8), [1, 0, 0, 1], [("binary", 0, 4)]),
        (
            spaces.MultiDiscrete([2, 3], start=[0, 4]),
            np.array([1, 4]),
            [0, 1, 1, 0, 0],
            [("categorical", 0, 2), ("categorical", 2, 5)],
        ),
        (
            spaces.Box(-2.0, 2.0, (2,)),
            np.array([-1.5, 0.25], np.float32),
            [-1.5, 0.25],
            [("continuous", 0, 2)],
        ),
        (
            spaces.Box(0.0, 9.0, (2, 2)),
            np.array([[1, 2], [3, 4]], np.float32),
            [1, 2, 3, 4],
            [("continuous", 0, 4)],
        ),
        (spaces.Box(0, 1, (2,), np.uint8), np.array([1, 0], np.uint8), [1, 0], [("binary", 0, 2)]),
        (
            spaces.Box(0, 255, (3,), np.uint8),
            np.array([0, 51, 255], np.uint8),
            [0, 0.2, 1],
            [("continuous", 0, 3)],
        ),
        (spaces.Box(-1.0, 1.0, ()), np.array(0.5, np.float32), [0.5], [("continuous", 0, 1)]),
        (
            NESTED,
            {
                "z": (6, np.array([0, 1], np.int8)),
                "a": {"speed": np.array([0.5, -0.5], np.float32), "gear": np.array([1, 2])},
            },
            [0, 1, 0, 0, 1, 0.5, -0.5, 0, 1, 0, 1],  # a.gear, a.speed, z.0, z.1
            [
                ("categorical", 0, 2),
                ("categorical", 2, 5),
                ("continuous", 5, 7),
                ("categorical", 7, 9),
                ("binary", 9, 11),
            ],
        ),
    ],
)
def test_encodings_by_hand(space, obs, encoded, parts):
    encoding = Encoding(space)
    assert encoding.parts == tuple(parts)
    assert encoding.shape == (len(encoded),)
    on_host = encoding.encode(obs)
    assert isinstance(on_host, np.ndarray)
    assert on_host.dtype == np.float32
    np.testing.assert_allclose(on_host, encoded, rtol=1e-6)
    traced = jax.jit(encoding.encode)(jax.tree.map(jnp.asarray, obs))
    assert traced.dtype == jnp.float32
    np.testing.assert_allclose(traced, encoded, rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_vectors_agree_with_gymnasium_and_lie_within_the_bounds(seed):
    encoding = Encoding(NESTED)
    NESTED.seed(seed)
    obs = NESTED.sample()
    encoded = encoding.encode(obs)
    np.testing.assert_array_equal(encoded, spaces.flatten(NESTED, obs).astype(np.float32))
    assert np.all((encoding.low <= encoded) & (encoded <= encoding.high))


@pytest.mark.parametrize(
    ("shape", "expected"), [((6, 7, 3), (6, 7, 3)), ((3, 6, 7), (6, 7, 3)), ((6, 7), (6, 7, 1))]
)
def test_images_keep_their_shape_with_channels_last(shape, expected):
    encoding = Encoding(spaces.Box(0, 255, shape, np.uint8))
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    encoded = encoding.encode(image)
    assert encoding.shape == encoded.shape == encoding.low.shape == expected
    assert encoding.parts == (("continuous", 0, 6 * 7 * expected[2]),)
    for row, column, channel in np.ndindex(expected):
        index = {(6, 7, 3): (row, column, channel), (3, 6, 7): (channel, row, column), (6, 7): (row, column)}[
            shape
        ]
        assert encoded[row, column, channel] == pytest.approx(image[index] / 255)
    np.testing.assert_array_equal(jax.jit(encoding.encode)(jnp.asarray(image)), encoded)
    assert (encoding.low.min(), encoding.high.max()) == (0.0, 1.0)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16])
def test_a_table_of_whole_numbers_is_an_image_and_keeps_them(dtype):
    encoding = Encoding(spaces.Box(0, 9, (2, 3), dtype))
    table = np.array([[1, 2, 0], [3, 9, 5]], dtype)
    assert encoding.shape == (2, 3, 1)
    np.testing.assert_array_equal(encoding.encode(table)[..., 0], table)
    assert (encoding.low.min(), encoding.high.max()) == (0.0, 9.0)


def test_a_float_image_is_an_image():
    assert Encoding(spaces.Box(0.0, 1.0, (5, 5, 3))).shape == (5, 5, 3)
    assert Encoding(spaces.MultiBinary([5, 5, 3])).shape == (5, 5, 3)
    assert Encoding(spaces.Dict({"only": spaces.Box(0.0, 1.0, (5, 5, 3))})).shape == (75,)


def test_bounds():
    low, high = np.array([-1.0, -np.inf, 0.0]), np.array([1.0, np.inf, 1e300])
    encoding = Encoding(spaces.Box(low, high, dtype=np.float64))
    np.testing.assert_array_equal(encoding.low, np.array([-1.0, -np.inf, 0.0], np.float32))
    np.testing.assert_array_equal(encoding.high, np.array([1.0, np.inf, np.inf], np.float32))


def test_the_encoded_array_is_a_copy():
    encoding = Encoding(spaces.Box(-1.0, 1.0, (2,)))
    obs = np.zeros(2, np.float32)
    encoded = encoding.encode(obs)
    obs[:] = 1.0
    np.testing.assert_array_equal(encoded, [0.0, 0.0])


def test_vmap_encodes_a_batch():
    batch = jax.vmap(Encoding(spaces.Discrete(3)).encode)(jnp.array([2, 0]))
    np.testing.assert_array_equal(batch, [[0, 0, 1], [1, 0, 0]])


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(4), "Text.* is not supported"),
        (spaces.Sequence(spaces.Discrete(2)), "Sequence.* is not supported"),
        (spaces.Graph(spaces.Discrete(2), None), "Graph.* is not supported"),
        (spaces.Dict({"a": spaces.Tuple([spaces.Text(4)])}), r"Text.* \(at a.0\) is not supported"),
        (spaces.Dict({}), "no entries"),
    ],
)
def test_unsupported_spaces(space, message):
    with pytest.raises(UserError, match=message):
        Encoding(space)
