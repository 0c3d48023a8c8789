"""Which revision of this package makes a result."""

import os
import subprocess
from functools import cache
from pathlib import Path

CHANGED = "-dirty"
"""Behind the name of a commit when the code that ran was not quite that commit's."""
CODE = ("src", "benchmarks")
"""What numbers depend on. Results that have just been written, or a page that is being edited, change none of them."""


def git_commit() -> str | None:
    """The commit of the checkout this package runs from, marked if there are changes to the code that it does not have;
    None where it is installed without one."""
    if named := os.environ.get("E3RL_COMMIT"):  # for copies of a checkout without its history
        return named
    return _commit(Path(__file__).parents[3])


@cache  # what was imported stays what it was, whatever happens to the files while a process runs
def _commit(source: Path) -> str | None:
    if not (source / ".git").exists():
        return None
    try:
        head = _git(source, "rev-parse", "HEAD")
        return (
            f"{head}{CHANGED}"
            if head and _git(source, "status", "--porcelain", "--", *CODE)
            else head or None
        )
    except OSError:
        return None


def _git(source: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=source, capture_output=True, text=True, check=False)
    return done.stdout.strip()
