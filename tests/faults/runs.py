"""Runs that are broken off and resumed, and what has to be the same afterwards."""

import json
import os
import random
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np

from e3rl.runs.checkpoint import load_arrays
from e3rl.runs.folder import RunFolder, read_metrics

VICTIM = Path(__file__).with_name("victim.py")
UNLIKE = ("wall_seconds", "steps_per_second")
LIMIT = 300.0
"""Seconds after which a run counts as one that hangs."""


def environment(**more):
    """A process that computes as this one does, and makes a checkpoint of every epoch."""
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "JAX_PLATFORMS": "cpu",
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": str(jax.config.read("jax_disable_most_optimizations")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "E3RL_CHECKPOINT_SECONDS": "0",
        **more,
    }


class Nursery:
    """Runs in processes of their own, one at a time, by `victim.py`."""

    def __init__(self, folder):
        self._said = folder / "said"
        self._process = subprocess.Popen(
            [sys.executable, str(VICTIM)], env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )  # fmt: skip
        self._pid, self._code = 0, None

    def start(self, argv, moment=0):
        asked = {"argv": argv, "moment": moment, "said": str(self._said)}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        self._pid, self._code = int(self._process.stdout.readline()), None

    def ended(self, within=0.0):
        """Whether the run has ended, or does so within some seconds."""
        if self._code is None and select.select([self._process.stdout], [], [], within)[0]:
            self._code = int(self._process.stdout.readline())
        return self._code is not None

    def send(self, number):
        if not self.ended():
            os.kill(self._pid, number)

    def finish(self):
        """Exit code and what was said on stderr."""
        if not self.ended(LIMIT):
            self.send(signal.SIGKILL)
            raise TimeoutError(self._said.read_text())
        said = self._said.read_text()
        assert "Traceback" not in said, said
        return self._code, said

    def close(self):
        self._process.communicate()


def whole(argv, nursery):
    """Train to the end; how many moments there were."""
    nursery.start(argv)
    code, said = nursery.finish()
    assert code == 0, said
    return int(re.search(r"moments (\d+)", said)[1])


def kill_once(argv, out, moments, rng: random.Random, tally, nursery):
    """Break a run off: at a moment of its own, or at a time of somebody else's, by whichever signal. False where it had
    ended before."""
    how = rng.choice(["moment", "moment", "SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"])
    number = signal.SIGKILL if how == "moment" else signal.Signals[how]
    nursery.start(argv, rng.randint(1, moments) if how == "moment" else 0)
    if how != "moment":
        while not nursery.ended(0.02) and not any(Path(out).rglob(".lock")):
            pass  # until the run is under way: imports are another test's
        time.sleep(rng.uniform(0.0, 3.0))
        nursery.send(number)
    code, said = nursery.finish()
    assert code in (0, -number, 128 + number), (code, said)
    tally[f"killed by {how}" if code else f"ended before {how}"] += 1
    if code > 0:
        note = "saved in .* go on with: e3rl train .*|nothing to save yet.*|training (had not begun|is complete, in .*)"
        kept = re.search(rf"^e3rl: ended by {how}; ({note})$", said, re.M)
        assert kept, said
        outside = kept[1].startswith("training")
        tally["said so outside of training" if outside else "said where it is saved, or that nothing is"] += 1
    return code != 0


def folders(out):
    return sorted(path.parent for path in Path(out).rglob("config.json"))


def assert_same(out, other):
    """To the byte, but for the time that it took."""
    for one, two in zip(folders(out), folders(other), strict=True):
        tables = [[{**row, "seconds": None} for row in read_metrics(path)] for path in (one, two)]
        assert tables[0] == tables[1]
        for name in ("policy", "state"):
            arrays = [load_arrays(getattr(RunFolder(path), name))[0] for path in (one, two)]
            assert arrays[0].keys() == arrays[1].keys()
            for key, array in arrays[0].items():
                np.testing.assert_array_equal(array, arrays[1][key])
        assert RunFolder(one).policy.read_bytes() == RunFolder(two).policy.read_bytes()
        told = [
            {k: v for k, v in RunFolder(path).summary().items() if k not in UNLIKE} for path in (one, two)
        ]
        assert told[0] == told[1]


def assert_sound(out):
    """No torn file: whatever is there can be read."""
    for path in folders(out):
        run = RunFolder(path)
        run.summary()
        for file in (run.state, run.policy):
            if file.exists():
                load_arrays(file)
        if (path / "metrics.csv").exists():
            episodes = [int(row["episode"]) for row in read_metrics(path)]
            assert episodes == list(range(1, len(episodes) + 1))  # nothing doubled, nothing missing
