"""By which commit a result was made, and whether the code was that commit's."""

import subprocess
from pathlib import Path

import pytest

from e3rl.runs import checkout
from e3rl.runs.checkout import CHANGED, git_commit


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A checkout of its own, and what git says there."""
    monkeypatch.delenv("E3RL_COMMIT", raising=False)
    monkeypatch.setattr(checkout, "__file__", str(tmp_path / "src" / "e3rl" / "runs" / "checkout.py"))
    checkout._commit.cache_clear()
    yield tmp_path
    checkout._commit.cache_clear()


def git(source, *words):
    named = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", *named, *words], cwd=source, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def head(source):
    """The commit of a checkout with some code and some results."""
    for name in ("src/code.py", "results/numbers.csv", "README.md"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text("1\n")
    git(source, "init", "--quiet")
    git(source, "add", ".")
    git(source, "commit", "--quiet", "-m", "all")
    return git(source, "rev-parse", "HEAD")


def test_this_checkout(monkeypatch):
    monkeypatch.delenv("E3RL_COMMIT", raising=False)
    checkout._commit.cache_clear()
    here = Path(checkout.__file__).parents[3]
    if not (here / ".git").exists():
        assert git_commit() is None
    else:
        assert git_commit().removesuffix(CHANGED) == git(here, "rev-parse", "HEAD")


def test_results_and_pages_may_change(source, head):
    assert git_commit() == head
    checkout._commit.cache_clear()
    (source / "results" / "numbers.csv").write_text("2\n")
    (source / "results" / "more.csv").write_text("3\n")
    (source / "README.md").write_text("two\n")
    assert git_commit() == head


@pytest.mark.parametrize(("name", "staged"), [("code.py", False), ("code.py", True), ("new.py", False)])
def test_changes_that_were_not_committed_are_told(source, head, name, staged):
    (source / "src" / name).write_text("2\n")
    if staged:
        git(source, "add", ".")
    assert git_commit() == f"{head}-dirty"


def test_what_runs_is_what_was_there_at_first(source, head):
    assert git_commit() == head
    (source / "src" / "code.py").write_text("2\n")
    assert git_commit() == head


def test_a_copy_without_its_history_is_told_its_commit(source, monkeypatch):
    assert git_commit() is None
    monkeypatch.setenv("E3RL_COMMIT", "abc123")
    assert git_commit() == "abc123"


def test_without_git(source, monkeypatch):
    (source / ".git").mkdir()
    monkeypatch.setenv("PATH", "")
    assert git_commit() is None
