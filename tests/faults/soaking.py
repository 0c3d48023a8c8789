"""Trains over and over in a process of its own, as a user's loop would: `python soaking.py FOLDER SECONDS`.

Without the run-time checks of shapes that tests run under, which keep every annotation that they meet. After every
round a line tells what the process uses.
"""

import gc
import json
import os
import sys
import threading
import time
from pathlib import Path

from tiny import CHANGES, LOCK, OPTIONS

from e3rl.experiments.agents import AGENTS
from e3rl.runs.train import train

SMALL = {
    "tabular-e3": ("FrozenLake-v1", {}, {"explore.episodes": "5", "evaluation_episodes": "3"}),
    "dqn": ("CartPole-v1", {}, {"total_steps": "600", "evaluation_episodes": "2", "hidden": "8"}),
    "neural-e3": (LOCK, OPTIONS, CHANGES),
}


def used():
    """Resident MiB, open files, threads and Python's blocks of memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "MiB": pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        "open files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
        "blocks": sys.getallocatedblocks(),
    }


def soak(folder, seconds):
    began, i = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        for algo, (env, options, changes) in SMALL.items():
            train(AGENTS[algo], env, options, "auto", [i % 100 + 200], folder / f"{algo}{i}", changes=changes)
        i += 1
        print(json.dumps({"seconds": passed, **used()}), flush=True)


if __name__ == "__main__":
    soak(Path(sys.argv[1]), float(sys.argv[2]))
