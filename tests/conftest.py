"""Strict settings for every test: no silent dtype promotion, compiled programs kept between runs."""

import gc
from contextlib import ExitStack, nullcontext
from pathlib import Path
from unittest import mock

import jax
import pytest
from compiling import compile_quickly

jax.config.update("jax_numpy_dtype_promotion", "strict")
compile_quickly()

MAPS = Path("/proc/self/maps")
MANY_MAPS = 30_000
"""Every compiled program takes a few memory mappings, and a Linux process may have 65,530: beyond that it crashes."""


LONGEST = ("golden", "neural", "envs")
"""Folders whose files take longest."""


@pytest.fixture(scope="session", autouse=True)
def nobody_compiles_ahead():
    """Tests run side by side, so that no processor is to spare, and some put plain functions in place of programs."""
    from e3rl.experiments import deterministic, stopping
    from e3rl.neural import training

    with ExitStack() as patched:
        for module in (training, deterministic, stopping):
            patched.enter_context(mock.patch.object(module, "compiling", nullcontext))
        yield


def pytest_collection_modifyitems(items):
    """The longest first, so that in the end no process waits for another."""
    items.sort(key=lambda item: item.path.parent.name not in LONGEST)


def pytest_runtest_teardown(item, nextitem):
    """Between two files, forget compiled programs before there are too many."""
    same_file = nextitem is not None and nextitem.path == item.path
    if not same_file and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()
        gc.collect()
