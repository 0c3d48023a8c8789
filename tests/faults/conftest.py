"""The trial of what is promised about interruptions, files and errors (docs/promises.md).

A quick part runs with all other tests. The whole is behind the marker `faults`: `make faults`, which also writes
what was counted to results/faults/.
"""

import json
import os
import platform
import shlex
import time
from collections import Counter
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

from e3rl._version import __version__
from e3rl.runs.checkout import git_commit

OUT = Path(os.environ["E3RL_FAULTS_OUT"]).absolute() if "E3RL_FAULTS_OUT" in os.environ else None
"""Where counts are written; tests may change the current folder."""
PASSED = pytest.StashKey[bool]()


class Tally(Counter):
    """What happened how often, in one test."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture
def tally(request):
    """Counts that are written to a file of the test's name, where E3RL_FAULTS_OUT names a folder."""
    counted, began = Tally(), time.monotonic()
    yield counted
    if OUT is None or not counted:
        return
    path = OUT / f"{request.node.originalname.removeprefix('test_')}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    before = json.loads(path.read_text()) if path.exists() else {}
    found = {
        "passed": request.node.stash[PASSED],
        "counts": dict(sorted(counted.items())),
        "seconds": round(time.monotonic() - began),
        **provenance(request.config),
    }
    path.write_text(json.dumps({**before, request.node.name: found}, indent=2) + "\n")


def provenance(config):
    """How these counts can be had again."""
    chosen = [f"{name}={os.environ[name]}" for name in sorted(os.environ) if name.startswith("E3RL_FAULTS_")]
    return {
        "command": shlex.join([*chosen, "pytest", *map(str, config.invocation_params.args)]),
        "commit": git_commit(),
        "versions": {
            "e3rl": __version__,
            "python": platform.python_version(),
            **{package.__name__: package.__version__ for package in (jax, np, gymnasium)},
        },
    }
