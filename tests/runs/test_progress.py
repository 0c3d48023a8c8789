"""The line that people watch: a bar on a terminal, a line every few seconds elsewhere."""

import io
import math

import pytest
from rich.console import Console

from e3rl.runs import progress as progress_module
from e3rl.runs.progress import LiveLine, Progress, TimeLeft, nobody


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
        line(at("compiling", 0, 0.0)._replace(what="the models"))
        line(at("fitting models", 0, 10.0))
        line(at("explore", 1, 20.0, disagreement=8.5e10))
        for episode, seconds in ((2, 30.0), (3, 31.0), (4, 32.0), (5, 33.0)):
            line(at("explore", episode, seconds))  # too soon to be said
        clock[0] += 6.0
        line(at("explore", 6, 34.0, disagreement=math.nan))
        line(at("explore", 10, 38.0))  # the last one is always said
        line(at("training to exploit", 10, 38.0))
        line(at("exploit", 110, 40.0))
    assert capsys.readouterr().err.splitlines() == [
        "compiling, up to a minute: the models",
        "fitting models: episode 0/10, which takes a while for images and on a CPU",
        "explore: episode 1/10, return 1.50, disagreement 8.5e+10",
        "explore: episode 6/10, return 1.50, about 4 s left",
        "explore: episode 10/10, return 1.50, disagreement 0.25",
        "training to exploit: episode 10/10, no more episodes needed; compiled if new, up to a minute",
        "exploit: episode 110/10, return 1.50, disagreement 0.25",
    ]


def after(*reports):
    """What is said to be left after reports of (episode, seconds), of a hundred episodes."""
    left = TimeLeft()
    return [left(at("explore", episode, seconds)._replace(episodes=100)) for episode, seconds in reports]


def test_time_left_is_told_once_it_is_stable():
    # Two reports that compile, then a second an episode.
    assert after((1, 30), (2, 60), (3, 61), (4, 62), (5, 63), (6, 64)) == [None] * 4 + [95, 94]
    # A pace that keeps changing is not told.
    assert after((1, 30), (2, 60), (3, 61), (4, 71), (5, 72), (6, 100), (7, 101)) == [None] * 7
    # A slower pace that lasts is.
    assert after((1, 1), (2, 2), (3, 3), *((t, 10 * t) for t in range(4, 20)))[-1] == 10 * (100 - 19)
    # A run without episodes in between, and one that was there already.
    assert after((5, 1), (5, 2), (5, 3), (5, 4)) == [None] * 4


def test_an_end_by_itself_leaves_at_most_so_much(clock, capsys):
    with LiveLine() as line:
        for episode in range(1, 10):
            clock[0] += 6.0
            line(at("explore", episode, episode)._replace(at_most=True, episodes=200))
    assert capsys.readouterr().err.endswith(", at most 3 min left\n")


def test_steps_are_called_steps(clock, capsys):
    with LiveLine() as line:
        line(at("train", 5, 1.0))
    assert capsys.readouterr().err == "train: step 5/10, return 1.50, disagreement 0.25\n"


def test_rounds_of_practice_say_which(clock, capsys):
    with LiveLine() as line:
        line(at("training to exploit", 5, 1.0)._replace(what="round 2/4"))
        line(at("practising", 7, 2.0, disagreement=math.nan)._replace(what="round 2/4"))
    assert capsys.readouterr().err.splitlines() == [
        "training to exploit: episode 5/10, for round 2/4; compiled if new, up to a minute",
        "practising: round 2/4, return 1.50",
    ]


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
        [task] = line.bar.tasks
        assert (task.description, task.total) == (
            "compiling, up to a minute: the agent",
            None,
        )
        line(at("explore", 4, 1.0))
        [task] = line.bar.tasks
        assert (task.description, task.completed, task.total) == ("explore", 4, 10)
        assert task.fields["note"] == "return 1.50, disagreement 0.25"
        line(at("training to exploit", 10, 1.5))
        assert task.total is None  # the spinner goes on
        line(at("practising", 8, 1.8)._replace(what="round 1/2"))
        assert (task.description, task.completed, task.total) == ("practising: round 1/2", 8, 10)
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
