"""Strict settings for every test: no silent dtype promotion, compiled programs kept between runs."""

import os
from pathlib import Path

import jax

jax.config.update("jax_numpy_dtype_promotion", "strict")
CACHE = Path(os.environ.get("E3RL_TEST_CACHE", Path(__file__).parents[1] / ".cache" / "jax"))
jax.config.update("jax_compilation_cache_dir", str(CACHE))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
