"""Tiny runs of every part, as they were: to the bit on the kind of machine that recorded them, in numbers elsewhere."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from compiling import as_users_do
from tiny import TINY

from e3rl.neural.agent import NeuralE3
from e3rl.runs.folder import read_json
from e3rl.runs.settings import from_dict

_spec = importlib.util.spec_from_file_location("golden_runs", Path(__file__).with_name("runs.py"))
runs = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(runs)

KNOWN = json.loads(runs.PLACE.read_text())
QUICK = ("tiny", "graph", "dqn", "ppo-rnd")
NAMES = [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in runs.RUNS]


SERVANT = """
import json, sys
from pathlib import Path
from runs import frozen

for line in sys.stdin:
    name, out = json.loads(line)
    print(json.dumps(frozen(name, Path(out))), flush=True)
"""


@pytest.fixture(scope="module")
def frozen():
    """A process that runs what it is asked to, compiled as users' runs are."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    with subprocess.Popen(
        [sys.executable, "-c", SERVANT],
        env={**as_users_do(), "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as servant:

        def ask(name, out):
            servant.stdin.write(json.dumps([name, str(out)]) + "\n")
            servant.stdin.flush()
            return json.loads(servant.stdout.readline())

        yield ask


def same_machine():
    """Whether programs round as they did when the runs were recorded."""
    return jax.default_backend() == "cpu" and runs.machine() == KNOWN["machine"]


def assert_close(found, known):
    """Every number to three digits."""
    assert found.keys() == known.keys()
    for name in ("returns", "disagreement"):
        np.testing.assert_allclose(found[name], known[name], rtol=1e-3, atol=1e-5, err_msg=name)
    for group, norm in known["norms"].items():
        assert found["norms"][group] == pytest.approx(norm, rel=1e-3), group


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_as_it_was(name, frozen, tmp_path):
    found = frozen(name, tmp_path / "run")
    known = KNOWN["runs"][name]
    assert found.keys() == known.keys()
    for folder, before in known.items():
        now = found[folder]
        assert_close(now["numbers"], before["numbers"])
        if same_machine():
            assert (now["table"], now["weights"]) == (before["table"], before["weights"])
    if name == "tiny":  # otherwise it would have programs of its own
        assert from_dict(NeuralE3.settings, read_json(tmp_path / "run" / "config.json")["config"]) == TINY


def test_every_run_is_recorded():
    assert KNOWN["runs"].keys() == runs.RUNS.keys()
    assert set(QUICK) <= runs.RUNS.keys()
