"""A run that a scheduler ends with SIGTERM and queues again until it is finished: `job.sbatch` is a job for Slurm.

Run with `python examples/batch_scheduler.py`, a minute or two: this script plays the scheduler. At SIGTERM the run
saves a checkpoint and leaves; the same command goes on from there, to the very results of an undisturbed run.
"""

import argparse
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

JOB = ["train", "lock", "--horizon", "6", "--antishaped", "--resume"]
QUICK = ["train", "FrozenLake-v1", "--set", "explore.episodes=400", "explore.epsilon=0", "--resume"]
TURNS = 20
"""After so many the scheduler gives up."""


def one_turn(job: list[str], out: Path, seconds: float | None) -> int:
    """Run the job, for so many seconds or to its end; its exit code."""
    command = [sys.executable, "-m", "e3rl.cli", *job, "--out", str(out)]
    with subprocess.Popen(command) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM)
            return process.wait()


def episodes(out: Path) -> int:
    """Rows of metrics.csv so far."""
    table = out / "metrics.csv"
    return max(len(table.read_text().splitlines()) - 1, 0) if table.exists() else 0


def main(quick: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        for turn in range(1, TURNS + 1):
            # Every turn is longer than the one before: starting and compiling takes some seconds.
            code = one_turn(QUICK if quick else JOB, out, (4.0 if quick else 20.0) * turn)
            print(
                f"turn {turn} ended with exit code {code}, after {episodes(out)} episodes in all", flush=True
            )
            if code == 0:
                break
        summary = json.loads((out / "summary.json").read_text())
        print(f"finished: return {summary['exploit_return_mean']:.2f}, {summary['total_episodes']} episodes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smaller run")
    main(parser.parse_args().quick)
