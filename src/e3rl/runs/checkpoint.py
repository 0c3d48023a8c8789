"""Checkpoints: arrays and a little text in one safetensors file. Reading one runs no code of the file's."""

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from e3rl.types import UserError

FORMAT = "e3rl checkpoint with checksum"
UNCHECKED = "e3rl checkpoint 2"
"""Files from before there was a checksum. Damage cannot make one of those out of a file of today: the names are too far
apart."""
EARLIER = "e3rl checkpoint "
CHECKSUM = "checksum"
"""Beside what is said about the arrays: a digest of everything."""
Tree = TypeVar("Tree")


def staged(path: Path) -> Path:
    """Where the next content of `path` waits until it is complete."""
    return path.with_name(f".{path.name}.tmp")


def stage_file(path: Path, data: bytes) -> None:
    """Put `data` on the disk beside `path`; on failure nothing of it stays."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with staged(path).open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        discard_staged(path)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from error
        raise


def commit_file(path: Path) -> None:
    """The staged content takes the place of the old one, all at once."""
    try:
        staged(path).replace(path)
    except OSError as error:
        raise _unwritable(path, error) from error


def discard_staged(path: Path) -> None:
    with contextlib.suppress(OSError):  # such as a parent that is no folder
        staged(path).unlink(missing_ok=True)


def write_file(path: Path, data: bytes) -> None:
    """Replace `path` as a whole or not at all: a crash or a full disk leaves the old file."""
    stage_file(path, data)
    try:
        commit_file(path)
    except UserError:
        discard_staged(path)
        raise


def append_file(path: Path, data: bytes, durably: bool) -> None:
    """Add to the end of a file that is there; a kill may leave the last line torn."""
    try:
        with path.open("r+b") as file:
            file.seek(0, os.SEEK_END)
            file.write(data)
            file.flush()
            if durably:
                os.fsync(file.fileno())
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> UserError:
    kept = "; what was there before is kept" if path.is_file() else ""
    return UserError(f"cannot write {path}: {error.strerror or error}{kept}")


def tree_bytes(tree: Any, **about: Any) -> bytes:
    """Every array of `tree` under its own name, with `about` as JSON beside them."""
    arrays = {name: np.array(leaf, order="C") for name, leaf in _named(tree).items()}
    # In the one text that there is: safetensors writes several in any order.
    return save(arrays, metadata={FORMAT: json.dumps({**about, CHECKSUM: checksum(arrays, about)})})


def checksum(arrays: dict[str, np.ndarray], about: dict[str, Any]) -> str:
    """A digest of names, types, shapes, every byte, and what is said about them."""
    found = hashlib.blake2b(json.dumps(about, sort_keys=True).encode(), digest_size=16)
    for name, array in sorted(arrays.items()):
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return found.hexdigest()


def save_tree(path: Path, tree: Any, **about: Any) -> None:
    write_file(path, tree_bytes(tree, **about))


def load_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The arrays by name, and what was saved about them."""
    if not path.is_file():
        raise UserError(f"no checkpoint at {path}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            name = next((name for name in (FORMAT, UNCHECKED) if name in metadata), None)
            if name is None:
                raise UserError(f"{path} is not {_what_it_is(metadata)}")
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        about = json.loads(metadata[name])
        if not isinstance(about, dict):
            raise ValueError("what is said about its arrays is no JSON object")
        told = about.pop(CHECKSUM, None)
        if told != checksum(arrays, about) and not (told is None and name == UNCHECKED):
            raise ValueError("its bytes are not those that were written, the checksum says")
    except (SafetensorError, ValueError, TypeError, OSError, RecursionError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{path} is damaged: {' '.join(str(error).split())}") from error
    return arrays, about


def _what_it_is(metadata: dict[str, str]) -> str:
    if any(key.startswith(EARLIER) for key in metadata):
        return "of this version's format but of another: train again into another folder (--out), nothing here is lost"
    return "a checkpoint of this package"


def load_tree(path: Path, like: Tree) -> tuple[Tree, dict[str, Any]]:
    """The tree saved at `path`, which must have the names, shapes and types of `like`."""
    arrays, about = load_arrays(path)
    wanted = _named(like)
    if arrays.keys() != wanted.keys():
        odd = sorted(arrays.keys() ^ wanted.keys())[0]
        raise UserError(f"{path} belongs to another kind of run: {odd!r} does not match")
    for name, leaf in wanted.items():
        found = arrays[name]
        if found.shape != leaf.shape or found.dtype != leaf.dtype:
            raise UserError(
                f"{path} belongs to another configuration: {name} is {found.dtype}{list(found.shape)}, "
                f"expected {leaf.dtype}{list(leaf.shape)}"
            )
    leaves = [jnp.asarray(arrays[name]) for name in wanted]
    return jax.tree.unflatten(jax.tree.structure(like), leaves), about


def _named(tree: Any) -> dict[str, Any]:
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
