"""What is different where the `e3rl` command is starting. Like `signals`, this needs the standard library alone."""

import gc
import os
import sys

BETWEEN_COLLECTIONS = 50_000
"""New objects, net of those that are gone, after which Python looks for garbage that refers to itself."""


def is_command() -> bool:
    """Whether this process is the `e3rl` command, rather than a program that uses the library."""
    script, module = sys.orig_argv[1:2], sys.orig_argv[1:3]
    named = [os.path.splitext(os.path.basename(name))[0] for name in script]
    return named == ["e3rl"] or module in (["-m", "e3rl"], ["-m", "e3rl.cli"])


def collect_rarely() -> None:
    """Imports and the tracing of programs make objects by the hundred thousand that stay: going through them again and
    again for garbage takes a tenth of the time until the first episode."""
    gc.set_threshold(BETWEEN_COLLECTIONS, *gc.get_threshold()[1:])
