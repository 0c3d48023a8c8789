"""Strict settings for every test: no silent dtype promotion, compiled programs kept between runs."""

import gc
import os
from pathlib import Path

import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
CACHE = Path(os.environ.get("E3RL_TEST_CACHE", Path(__file__).parents[1] / ".cache" / "jax"))
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
# Tests compile far more than they compute: a quarter of their time is saved. What is frozen to the bit turns this off.
jax.config.update("jax_disable_most_optimizations", True)

MAPS = Path("/proc/self/maps")
MANY_MAPS = 30_000
"""Every compiled program takes a few memory mappings, and a Linux process may have 65,530: beyond that it crashes."""


def pytest_runtest_teardown(item, nextitem):
    """Between two files, forget compiled programs before there are too many."""
    same_file = nextitem is not None and nextitem.path == item.path
    if not same_file and MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()
        gc.collect()
