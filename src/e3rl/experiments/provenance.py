"""What made a result, for whoever wants to make it again: command, commit, versions and kind of machine."""

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any

import jax

from e3rl._version import __version__
from e3rl.runs.checkout import git_commit

NOT_RECORDED = "not recorded"
"""Said of what was not written down when a result was made, and cannot be found out any more."""
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
        **this_machine(),
    }


def this_machine() -> dict[str, str]:
    return {
        "device": jax.devices()[0].device_kind,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
    }


def provenance_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """What a result says about how it was made, whichever version wrote it; None where it does not say."""
    made: Mapping[str, Any] = about.get("made_with", {})
    machine = about.get("machine")
    told: Mapping[str, Any] = machine if isinstance(machine, Mapping) else {}
    experiment = about.get("experiment")
    versions = {name: about[name] for name in ("version", "jax") if name in about}
    return {
        "command": about.get("command") or (experiment and reproduce_command(experiment)),
        "config": next((about[key] for key in ("config", "configs", "settings") if key in about), None),
        "commit": about.get("commit") or made.get("commit") or told.get("commit"),
        "versions": about.get("versions") or told.get("versions") or made or versions or None,
        "machine": "; then ".join(map(_named, about.get("machines", ()))) or machine or about.get("device"),
    }


def _named(one: Mapping[str, Any]) -> str:
    return ", ".join(filter(None, (one["device"], one["machine"])))


def reproduce_command(name: str, seeds: Sequence[int] = (), smoke: bool = False) -> str:
    """What to type to repeat an experiment; without seeds, with its own."""
    chosen = f" --seeds {','.join(map(str, seeds))}" if seeds else ""
    return f"e3rl reproduce {name}{chosen}{' --scale smoke' if smoke else ''}"
