"""Continuous integration looks for a browser, and goes on without one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / ".ci" / "browser"
TOOLS = ("bash", "cat", "dirname", "env", "head", "id", "mktemp", "rm", "tail", "timeout")
pytestmark = pytest.mark.skipif(
    not SCRIPT.is_file() or not all(map(shutil.which, TOOLS)), reason="needs a checkout and a Unix shell"
)


@pytest.fixture
def checkout(tmp_path):
    """One whose machine has next to nothing: programs are added by what they are to do."""
    for name in (".ci", ".venv/bin", "bin"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / ".ci")
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))

    def add(place, does):
        path = tmp_path / place
        path.write_text(f"#!/usr/bin/env bash\n{does}\n")
        path.chmod(0o755)

    add("bin/sudo", 'shift; exec "$@"')
    return tmp_path, add


def look(checkout):
    folder, _ = checkout
    known = {"PATH": str(folder / "bin"), "TMPDIR": str(folder)}
    done = subprocess.run(
        [folder / ".ci" / "browser"], env=known, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(os.listdir(folder)) == [".ci", ".venv", "bin"]
    [line] = done.stdout.splitlines()
    return line


def test_without_a_network_it_is_one_line(checkout):
    _, add = checkout
    no = "browser: tests of the page will be skipped: no Chromium, and it cannot be installed here"
    assert look(checkout).startswith(no)
    add("bin/apt-get", "echo 'could not resolve' >&2; exit 100")
    assert look(checkout) == f"{no} (could not resolve)"
    add("bin/chromium", "true")
    add(".venv/bin/python", "echo 'no such host' >&2; exit 1")
    assert look(checkout).endswith("no Playwright, and it cannot be installed here (no such host)")


def test_what_is_missing_is_installed(checkout):
    folder, add = checkout
    made = f"printf '#!/usr/bin/env bash\\n' > {folder}/bin/chromium; chmod +x {folder}/bin/chromium"
    add("bin/chmod", f'exec {shutil.which("chmod")} "$@"')
    add("bin/apt-get", f'case "$*" in *install*) {made} ;; esac')
    mark = folder / ".venv" / "playwright"
    does = f'case "$*" in *pip*) > {mark} ;; *version*) echo 9.9 ;; *) [ -e {mark} ] ;; esac'
    add(".venv/bin/python", does)
    assert look(checkout) == f"browser: {folder}/bin/chromium, Playwright 9.9"
