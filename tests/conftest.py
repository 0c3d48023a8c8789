"""Strict settings for every test: no silent dtype promotion, compiled programs kept between runs."""

import gc
from pathlib import Path

import jax
from compiling import compile_quickly

jax.config.update("jax_numpy_dtype_promotion", "strict")
compile_quickly()

MAPS = Path("/proc/self/maps")
MANY_MAPS = 30_000
"""Every compiled program takes a few memory mappings, and a Linux process may have 65,530: beyond that it crashes."""


LONGEST = ("golden", "neural", "envs")
"""Folders whose files take longest."""


def pytest_collection_modifyitems(items):
    """The longest first, so that in the end no process waits for another."""
    items.sort(key=lambda item: item.path.parent.name not in LONGEST)


def pytest_runtest_teardown(item, nextitem):
    """Between two files, forget compiled programs before there are too many."""
    same_file = nextitem is not None and nextitem.path == item.path
    if not same_file and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()
        gc.collect()
