"""Compiled programs are kept for the next process, where there is a place for them."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from e3rl.runs import kept_programs
from e3rl.runs.kept_programs import compiled_so_far, keep_compiled_programs, what_became_of_compiling
from tests.compiling import as_users_do


@pytest.fixture
def no_cache():
    kept = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    jax.config.update("jax_compilation_cache_dir", kept)
    kept_programs.compilation_cache.reset_cache()


def where(monkeypatch, home):
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    keep_compiled_programs()
    return jax.config.jax_compilation_cache_dir


def test_programs_are_kept_in_the_users_cache(no_cache, monkeypatch, tmp_path):
    assert where(monkeypatch, tmp_path) == str(tmp_path / "e3rl" / "jax")
    # What was said once stays.
    assert where(monkeypatch, tmp_path / "other") == str(tmp_path / "e3rl" / "jax")


def test_nothing_is_kept_for_a_user_without_a_home(no_cache, monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    keep_compiled_programs()
    assert jax.config.jax_compilation_cache_dir is None


def test_nothing_is_kept_where_nothing_can_be_written(no_cache, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    assert where(monkeypatch, tmp_path / "file") is None
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert where(monkeypatch, tmp_path) is None


def test_nothing_is_kept_for_those_who_do_not_want_it(no_cache, monkeypatch, tmp_path):
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        assert where(monkeypatch, tmp_path) is None
    finally:
        jax.config.update("jax_enable_compilation_cache", True)


def test_what_was_not_used_for_longest_goes_first(no_cache, monkeypatch, tmp_path):
    folder = tmp_path / "e3rl" / "jax"
    folder.mkdir(parents=True)
    for age, name in enumerate("abc"):
        (folder / name).write_bytes(bytes(400))
        os.utime(folder / name, (1000 - age, 1000 - age))
    (folder / "torn").touch()
    monkeypatch.setattr(kept_programs, "LARGEST", 1_000)
    where(monkeypatch, tmp_path)
    assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]


COMPILES = """
import jax, sys
jax.numpy.arange(3.0) + 1  # compiled before anybody asked
from e3rl.runs.kept_programs import *
keep_compiled_programs()
before = compiled_so_far()
jax.jit(lambda x: jax.numpy.linalg.qr(jax.numpy.sort(x) @ x.T))(jax.numpy.ones((3, 3)))
print(what_became_of_compiling(before))
"""


def compile_in_a_process(home):
    own = as_users_do() | {"XDG_CACHE_HOME": str(home)}
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        own.pop(name)
    command = [sys.executable, "-c", COMPILES]
    return subprocess.run(command, env=own, check=True, capture_output=True, text=True)


def test_the_next_process_takes_them_and_damage_is_no_more_than_compiling_again(tmp_path):
    folder = tmp_path / "e3rl" / "jax"
    assert (
        compile_in_a_process(tmp_path).stdout
        == f"compiled; programs are kept in {folder} for the next time\n"
    )
    taken = f"programs were taken from {folder}, where they had been kept\n"
    assert compile_in_a_process(tmp_path).stdout == taken
    for entry in folder.iterdir():
        entry.write_bytes(entry.read_bytes()[:100])
    assert compile_in_a_process(tmp_path).stdout != taken


def test_nothing_compiled_is_nothing_to_tell():
    assert what_became_of_compiling(compiled_so_far()) == ""
