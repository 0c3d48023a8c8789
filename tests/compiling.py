"""How tests compile: quickly, since they compile far more than they compute. What is frozen to the bit is compiled as
users' runs are, in a process of its own."""

import os
from pathlib import Path

import jax

CACHE = Path(os.environ.get("E3RL_TEST_CACHE", Path(__file__).parents[1] / ".cache" / "jax"))
LONG_ENOUGH = 0.2
"""Seconds of compiling that are worth a file in the cache."""
QUICKLY = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
UNTRIED = (0, 11)
"""The first version of JAX that was not tried with these options; with one that it does not know it does not start."""


def compile_quickly():
    """For this process and those that it starts; before anything is compiled."""
    flags = os.environ.get("XLA_FLAGS", "")
    if jax.__version_info__ < UNTRIED and QUICKLY not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {QUICKLY}".strip()
    jax.config.update("jax_disable_most_optimizations", True)
    jax.config.update("jax_compilation_cache_dir", str(CACHE))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LONG_ENOUGH)


def as_users_do():
    """The variables of a process that compiles as well as it can."""
    return {
        **os.environ,
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "").replace(QUICKLY, "").strip(),
        "JAX_COMPILATION_CACHE_DIR": str(CACHE),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": str(LONG_ENOUGH),
    }
