"""The line that people watch: a bar on a terminal, a line every few seconds elsewhere."""

import io
import math

import pytest
from rich.console import Console

from e3rl.runs import progress as progress_module
from e3rl.runs.progress import LiveLine, Progress, nobody


def at(phase, episode, seconds, mean_return=1.5, disagreement=0.25):
    return Progress(phase, episode, 10, mean_return, disagreement, seconds)


@pytest.fixture
def clock(monkeypatch):
    """The time that passes between two lines."""
    now = [100.0]
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now[0])
    return now


def test_lines(clock, capsys):
    with LiveLine() as line:
        line(at("compiling", 0, 0.0))
        line(at("explore", 1, 20.0))
        line(at("explore", 2, 21.0))  # too soon
        clock[0] += 6.0
        line(at("explore", 6, 25.0, disagreement=math.nan))
        line(at("explore", 10, 29.0))  # the last one is always said
        line(at("training to exploit", 10, 29.0))
        line(at("exploit", 110, 40.0))
    assert capsys.readouterr().err.splitlines() == [
        "compiling; the first episode takes some seconds",
        "explore: episode 1/10, return 1.50, disagreement 0.25",
        "explore: episode 6/10, return 1.50, 4 s left",
        "explore: episode 10/10, return 1.50, disagreement 0.25, 0 s left",
        "training to exploit: episode 10/10, no more episodes needed for this",
        "exploit: episode 110/10, return 1.50, disagreement 0.25",
    ]


def test_steps_are_called_steps(clock, capsys):
    with LiveLine() as line:
        line(at("train", 5, 1.0))
    assert capsys.readouterr().err == "train: step 5/10, return 1.50, disagreement 0.25\n"


def test_nothing_where_nobody_wants_it(capsys):
    with LiveLine(quiet=True) as line:
        line(at("compiling", 0, 0.0))
        line(at("explore", 10, 1.0))
    nobody(at("explore", 10, 1.0))
    assert capsys.readouterr() == ("", "")


def test_a_bar_on_a_terminal():
    screen = io.StringIO()
    with LiveLine() as line:
        line.console = Console(file=screen, force_terminal=True, width=120)
        line(at("compiling", 0, 0.0))
        assert line.bar is not None
        line(at("explore", 4, 1.0))
        [task] = line.bar.tasks
        assert (task.description, task.completed, task.total) == ("explore", 4, 10)
        assert task.fields["note"] == "return 1.50, disagreement 0.25"
        line(at("exploit", 110, 2.0))
        assert (task.completed, task.total) == (110, 110)
    assert "exploit" in screen.getvalue()
    assert line.bar.finished


@pytest.mark.parametrize("quiet", [False, True])
def test_notes_are_said_once_the_run_is_under_way_or_done_but_not_before_an_error(quiet, capsys):
    with LiveLine(quiet) as line:
        line.notes.append("first")
        line(at("compiling", 0, 0.0))
        line.notes.append("second")
        assert capsys.readouterr().err.splitlines()[0] == "first"
    assert capsys.readouterr().err == "second\n"

    def refused():
        with LiveLine(quiet) as line:
            line.notes.append("third")
            raise ValueError("refused")

    with pytest.raises(ValueError, match="refused"):
        refused()
    assert capsys.readouterr().err == ""
