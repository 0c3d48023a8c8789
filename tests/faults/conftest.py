"""The trial of what is promised about interruptions, files and errors (docs/promises.md).

A quick part runs with all other tests. The whole is behind the marker `faults`: `make faults`, which also writes
what was counted to results/faults/.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest


class Tally(Counter):
    """What happened how often, in one test."""


@pytest.fixture
def tally(request):
    """Counts that are written to a file of the test's name, where E3RL_FAULTS_OUT names a folder."""
    counted = Tally()
    yield counted
    out = os.environ.get("E3RL_FAULTS_OUT")
    if out and counted:
        path = Path(out) / f"{request.node.originalname.removeprefix('test_')}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(
            json.dumps({**before, request.node.name: dict(sorted(counted.items()))}, indent=2) + "\n"
        )
