"""The `e3rl` command that kills itself: `python victim.py MOMENT ARGUMENT...`.

Moments are counted over everything that a run does to its files or says: the MOMENT-th is its last. With 0 it lives and
prints how many there were.
"""

import os
import signal
import sys
from pathlib import Path

from e3rl import cli
from e3rl.runs import checkpoint, folder, record

moments = 0
last = int(sys.argv[1])


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


os.fsync = counted(os.fsync)
Path.replace = counted(Path.replace)
for module, name in (
    (checkpoint, "stage_file"), (folder, "append_file"), (folder, "write_file"), (folder, "commit_file"),
    (record.Record, "say"), (record.Record, "hold"), (record.Record, "finish"),
):  # fmt: skip
    setattr(module, name, counted(getattr(module, name)))
code = cli.main(sys.argv[2:])
print(f"moments {moments}", file=sys.stderr)
cli.leave(code)
