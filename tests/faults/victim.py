"""Runs of the `e3rl` command that kill themselves, in processes forked from this one, which has imported everything.

Reads {"argv": ..., "moment": ..., "said": FILE} as lines of JSON; answers with the process's id and, when it has ended,
with its exit code. Moments are counted over everything that a run does to its files or says: the MOMENT-th is its last.
With 0 it lives and says how many there were. What it says goes to FILE.
"""

import json
import os
import signal
import sys
from pathlib import Path

import e3rl.experiments.agents
import e3rl.reports.learning
import e3rl.runs.train  # noqa: F401 - nothing is left to import
from e3rl import cli
from e3rl.runs import checkpoint, folder, record, seeds_in_processes

moments = 0
last = 0


def moment():
    global moments
    moments += 1
    if moments == last:
        os.kill(os.getpid(), signal.SIGKILL)


def counted(function):
    def wrapped(*args, **kwargs):
        moment()
        result = function(*args, **kwargs)
        moment()
        return result

    return wrapped


def live(argv, said):
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(0, 1)
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    code = cli.main(argv)
    print(f"moments {moments}", file=sys.stderr)
    cli.leave(code)


seeds_in_processes.processors = lambda: [
    0
]  # several seeds are one program, all of whose moments are counted here
os.fsync = counted(os.fsync)
Path.replace = counted(Path.replace)
for module, name in (
    (checkpoint, "stage_file"), (folder, "append_file"), (folder, "write_file"), (folder, "commit_file"),
    (record.Record, "say"), (record.Record, "hold"), (record.Record, "finish"),
):  # fmt: skip
    setattr(module, name, counted(getattr(module, name)))
for line in sys.stdin:
    asked = json.loads(line)
    pid = os.fork()
    if not pid:
        last = asked["moment"]
        live(asked["argv"], asked["said"])
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
