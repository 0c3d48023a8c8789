"""Checkpoints: what comes back is what was saved, and no failure costs what was there before."""

import errno
import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import save_file

from e3rl.runs import checkpoint
from e3rl.runs.checkpoint import load_arrays, load_tree, save_tree, write_file
from e3rl.types import UserError


class Tree(NamedTuple):
    weight: jax.Array
    flags: jax.Array
    count: jax.Array
    bits: jax.Array
    missing: None = None


def tree():
    weight = np.array([[0.1, -0.0, np.inf], [1e-40, np.nan, -3.0]], np.float32)
    return Tree(
        jnp.asarray(weight), jnp.array([True, False]), jnp.array(7, jnp.int32), jnp.zeros((0, 3), jnp.int8)
    )


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "state.safetensors"
    save_tree(path, tree(), epoch=3, words="ε")
    return path


def test_round_trip_keeps_every_bit(saved):
    found, about = load_tree(saved, jax.eval_shape(tree))
    assert about == {"epoch": 3, "words": "ε"}
    assert found.missing is None
    for new, old in zip(found[:-1], tree()[:-1], strict=True):
        assert new.dtype == old.dtype
        assert new.shape == old.shape
        assert np.asarray(new).tobytes() == np.asarray(old).tobytes()


def test_the_same_tree_is_the_same_file(saved, tmp_path):
    save_tree(tmp_path / "again", tree(), epoch=3, words="ε")
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()


def test_arrays_that_are_not_contiguous_are_saved_as_they_read(tmp_path):
    turned = np.arange(6).reshape(2, 3).T
    save_tree(tmp_path / "file", {"a": turned})
    np.testing.assert_array_equal(load_arrays(tmp_path / "file")[0]["['a']"], turned)


def test_every_truncation_is_noticed(saved):
    whole = saved.read_bytes()
    for length in range(0, len(whole), 7):
        saved.write_bytes(whole[:length])
        with pytest.raises(UserError, match=r"state\.safetensors is damaged"):
            load_arrays(saved)


def test_random_bytes_are_noticed(saved):
    rng = np.random.default_rng(0)
    for length in (8, 100, 5000):
        saved.write_bytes(rng.bytes(length))
        with pytest.raises(UserError, match="is damaged"):
            load_arrays(saved)


def test_a_file_of_others_is_refused(tmp_path):
    save_file({"weight": np.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(UserError, match="foreign is not a checkpoint of this package"):
        load_arrays(tmp_path / "foreign")


def test_a_checkpoint_of_an_earlier_version_is_refused_with_what_to_do(tmp_path):
    save_file({"weight": np.zeros(3)}, tmp_path / "old", metadata={"e3rl checkpoint 1": "{}"})
    with pytest.raises(UserError, match=r"old is not of this version's format .*: train again .*--out"):
        load_arrays(tmp_path / "old")


def test_no_file(tmp_path):
    with pytest.raises(UserError, match=r"no checkpoint at .*nowhere"):
        load_arrays(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("like", "message"),
    [
        ({"weight": jnp.zeros(1)}, "belongs to another kind of run: '.bits'"),
        (tree()._replace(count=jnp.zeros(2, jnp.int32)), r"\.count is int32\[\], expected int32\[2\]"),
        (tree()._replace(flags=jnp.zeros(2, jnp.int8)), r"\.flags is bool\[2\], expected int8\[2\]"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(saved, like, message):
    with pytest.raises(UserError, match=message):
        load_tree(saved, like)


def full_disk(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def interrupt(*_):
    raise KeyboardInterrupt


def test_a_full_disk_keeps_the_old_file_and_leaves_no_other(saved, monkeypatch):
    old = saved.read_bytes()
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(UserError, match=r"cannot write .*: No space left on device; what was .* is kept"):
        save_tree(saved, tree(), epoch=4)
    assert saved.read_bytes() == old
    assert list(saved.parent.iterdir()) == [saved]


def test_a_full_disk_before_anything_was_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(UserError, match=r"cannot write .*new: No space left on device$"):
        write_file(tmp_path / "new", b"data")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_writing_keeps_the_old_file_and_leaves_no_other(saved, monkeypatch):
    old = saved.read_bytes()
    monkeypatch.setattr(checkpoint.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_tree(saved, tree(), epoch=4)
    assert saved.read_bytes() == old
    assert list(saved.parent.iterdir()) == [saved]


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*inside"):
        write_file(tmp_path / "file" / "inside", b"data")
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*folder: Is a directory$"):
        write_file(tmp_path / "folder", b"data")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def flipped(data, place):
    changed = bytearray(data)
    changed[place] ^= 1 << (place % 8)
    return bytes(changed)


def test_every_flipped_bit_of_the_arrays_is_noticed(saved):
    whole = saved.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for place in range(header, len(whole)):
        saved.write_bytes(flipped(whole, place))
        with pytest.raises(UserError, match=r"is damaged: its bytes are not those that were written"):
            load_arrays(saved)


def test_a_flipped_bit_anywhere_is_noticed_or_changes_nothing(saved):
    whole, good = saved.read_bytes(), load_arrays(saved)
    for place in range(0, 8 + int.from_bytes(whole[:8], "little"), 3):
        saved.write_bytes(flipped(whole, place))
        try:
            arrays, _ = load_arrays(saved)
        except UserError:
            continue
        assert arrays.keys() == good[0].keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(array, good[0][name])


def test_what_is_said_about_the_arrays_is_part_of_the_checksum(saved):
    whole = saved.read_bytes()
    assert b'epoch\\": 3' in whole
    saved.write_bytes(whole.replace(b'epoch\\": 3', b'epoch\\": 9'))
    with pytest.raises(UserError, match="the checksum says"):
        load_arrays(saved)


def test_a_checksum_that_is_missing_is_noticed(saved):
    whole = saved.read_bytes()
    assert whole.count(b"checksum\\") == 1
    saved.write_bytes(whole.replace(b"checksum\\", b"bhecksum\\"))
    with pytest.raises(UserError, match="the checksum says"):
        load_arrays(saved)


def test_a_file_from_before_there_were_checksums_is_read(tmp_path):
    path = tmp_path / "old.safetensors"
    save_file({"['w']": np.arange(3)}, path, {"e3rl checkpoint 2": '{"epoch": 7}'})
    arrays, about = load_arrays(path)
    assert about == {"epoch": 7}
    np.testing.assert_array_equal(arrays["['w']"], np.arange(3))


@pytest.mark.parametrize("text", ["[1]", "7", "{", "[" * 100_000])
def test_words_about_the_arrays_that_are_no_object(tmp_path, text):
    save_file({"w": np.arange(3)}, tmp_path / "odd", {"e3rl checkpoint 2": text})
    with pytest.raises(UserError, match="is damaged"):
        load_arrays(tmp_path / "odd")
