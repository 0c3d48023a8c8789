"""What made a result, for whoever wants to make it again: command, commit, versions and kind of machine."""

import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

import jax

from e3rl._version import __version__
from e3rl.runs.folder import git_commit

PACKAGES = ("equinox", "gymnasium", "jaxlib", "mctx", "numpy", "optax", "scipy")
"""Whose versions numbers may depend on, beside jax itself."""


def provenance(command: str) -> dict[str, Any]:
    """Of a result that is made here and now."""
    return {
        "command": command,
        "version": __version__,
        "commit": git_commit(),
        "python": platform.python_version(),
        "jax": jax.__version__,
        "packages": {name: version(name) for name in PACKAGES},
        "device": jax.devices()[0].device_kind,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }


def reproduce_command(name: str, seeds: Sequence[int] = (), smoke: bool = False) -> str:
    """What to type to repeat an experiment; without seeds, with its own."""
    chosen = f" --seeds {','.join(map(str, seeds))}" if seeds else ""
    return f"e3rl reproduce {name}{chosen}{' --scale smoke' if smoke else ''}"
