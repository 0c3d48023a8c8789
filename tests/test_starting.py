"""What the `e3rl` command does differently from a program that uses the library."""

import gc
import subprocess
import sys

import pytest

from e3rl import starting


@pytest.mark.parametrize(
    ("words", "is_command"),
    [
        (["/usr/bin/python", "/home/me/bin/e3rl", "train", "lock"], True),
        (["/usr/bin/python", "C:/Scripts/e3rl.exe"], True),
        (["/usr/bin/python", "-m", "e3rl", "bench"], True),
        (["/usr/bin/python", "-m", "e3rl.cli"], True),
        (["/usr/bin/python", "-m", "e3rl.reports.documented"], False),
        (["/usr/bin/python", "train_with_e3rl.py"], False),
        (["/usr/bin/python", "-c", "import e3rl"], False),
        (["/usr/bin/python"], False),
    ],
)
def test_the_command_is_known_by_its_words(monkeypatch, words, is_command):
    monkeypatch.setattr(sys, "orig_argv", words)
    assert starting.is_command() == is_command


def test_garbage_is_collected_rarely_in_the_command_alone():
    say = "import gc, e3rl; print(gc.get_threshold()[0])"
    library = subprocess.run([sys.executable, "-c", say], capture_output=True, text=True, check=True)
    assert int(library.stdout) == gc.get_threshold()[0] < starting.BETWEEN_COLLECTIONS
    as_command = f"import sys; sys.orig_argv = ['python', '-m', 'e3rl']; {say}"
    command = subprocess.run([sys.executable, "-c", as_command], capture_output=True, text=True, check=True)
    assert int(command.stdout) == starting.BETWEEN_COLLECTIONS
