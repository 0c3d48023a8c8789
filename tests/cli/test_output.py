"""What a command prints, and that nothing else gets between."""

import os
import subprocess
import sys

import pytest

from e3rl.cli.output import short, stdout_kept, table

TALKATIVE = """
import os, subprocess, sys
from e3rl.cli.output import stdout_kept

with stdout_kept({kept}):
    print("from Python")
    subprocess.run([sys.executable, "-c", "print('from a process')"], check=True)
    os.write(1, b"from below\\n")
print("ours")
"""


@pytest.mark.parametrize("kept", [True, False])
def test_stdout_is_kept_for_what_the_command_says(kept):
    done = subprocess.run(
        [sys.executable, "-c", TALKATIVE.format(kept=kept)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    others = "from Python\nfrom a process\nfrom below\n"
    assert (done.stdout, done.stderr) == (("ours\n", others) if kept else (f"{others}ours\n", ""))


def test_stdout_comes_back_after_an_error(capsys):
    with pytest.raises(ValueError, match="mine"), stdout_kept(True):
        raise ValueError("mine")
    print("here again")
    assert capsys.readouterr().out == "here again\n"


def test_large_numbers_are_powers_of_ten():
    assert [short(value) for value in (None, 3, 2_000_000, 0.123456)] == ["", "3", "2e+06", "0.1235"]


@pytest.mark.parametrize("width", [80, 24])
def test_words_stand_below_where_there_is_no_room_beside(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    table(
        ["id", "took", "what it is"],
        [["lock/h5", "2 s", "a lock"], ["lock/h10", "", "a longer lock of ten levels"]],
    )
    out = capsys.readouterr().out
    assert "lock/h5" in out
    assert max(map(len, out.splitlines())) <= width
    if width < 80:
        assert out.splitlines()[:4] == ["id  took", "    what it is", "lock/h5  2 s", "    a lock"]
