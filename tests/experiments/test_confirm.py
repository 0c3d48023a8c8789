"""Confirmatory results: every way in which settings and data can come in the wrong order is found, in a repository made
for it."""

import json
import subprocess

import pytest

from e3rl import cli
from e3rl.cli import reproduction
from e3rl.experiments import confirm
from e3rl.experiments.catalogue import config_of
from e3rl.runs.settings import as_dict, changed

CELL, BASELINE = "maze/5-e3rl", "baselines-maze/5-dqn"
NOBODY = ["-c", "user.name=Nobody", "-c", "user.email=nobody@example.org", "-c", "commit.gpgsign=false"]


class Repository:
    """Where things are committed one after the other."""

    def __init__(self, path):
        self.path = path
        (path / confirm.FOLDER).mkdir(parents=True)
        self.git("init", "--quiet")
        self.first = self.commit("first.txt", "begun")

    def git(self, *words):
        done = subprocess.run(
            ["git", *NOBODY, *words], cwd=self.path, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, name, text):
        (self.path / name).write_text(text)
        self.git("add", name)
        self.git("commit", "--quiet", "-m", name)
        return self.git("rev-parse", "HEAD")

    def freeze(self, settings=None):
        return self.commit(confirm.FOLDER / "settings.json", json.dumps(settings or confirm.settings()))

    def result(self, made_by, cell=CELL, **more):
        about = {"experiment": cell, "settings": {"seeds": list(confirm.seeds_of(cell))}, "commit": made_by}
        about |= {"config": as_dict(config_of(cell)), **more}
        return self.commit(confirm.FOLDER / f"{cell.replace('/', '-')}.json", json.dumps(about))

    @property
    def faults(self):
        return list(confirm.faults(self.path))


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def test_in_the_right_order_there_is_no_fault(repository):
    frozen = repository.freeze()
    repository.result(frozen)
    later = repository.commit("page.md", "words")
    repository.result(later, BASELINE, final={"500": {}, "509": {}})
    assert repository.faults == []


def test_nothing_was_frozen(repository):
    repository.result(repository.first)
    [fault] = repository.faults
    assert fault == "results/confirm/settings.json is missing: no settings were frozen"


def test_cells_that_came_later_are_frozen_beside(repository, monkeypatch, capsys):
    """Those of before may have been run long ago."""
    every = confirm.settings()
    own = {cell: every.pop(cell) for cell in list(every) if cell == BASELINE}
    before = repository.freeze(every)
    repository.result(before)
    repository.result(before, BASELINE, final={"500": {}})
    assert repository.faults == [
        f"results/confirm/baselines-maze-5-dqn.json: the settings of {BASELINE} were not frozen"
    ]
    monkeypatch.chdir(repository.path)
    assert confirm.main(["--freeze"]) == 0
    path = confirm.FOLDER / "settings-2.json"
    assert capsys.readouterr().out.startswith(f"{path}: 1 cells")
    assert json.loads(path.read_text()) == own
    assert repository.faults == [f"{path} is not committed as it is"]
    repository.commit(path, path.read_text())
    [fault] = repository.faults
    assert "before settings were frozen" in fault
    assert confirm.main(["--freeze"]) == 0
    assert capsys.readouterr().out == "all cells are frozen\n"


def test_settings_that_are_not_committed_are_not_frozen(repository):
    repository.freeze()
    (repository.path / confirm.FOLDER / "settings.json").write_text("{}")
    assert repository.faults == ["results/confirm/settings.json is not committed as it is"]


def test_data_of_before(repository):
    repository.freeze()
    repository.result(repository.first)
    [fault] = repository.faults
    assert "before settings were frozen in" in fault


def test_settings_that_were_frozen_again_want_new_data(repository):
    repository.result(repository.freeze())
    settings = confirm.settings()
    settings[BASELINE]["seeds"] = [600]
    repository.freeze(settings)
    faults = repository.faults
    assert any("before settings were frozen" in fault for fault in faults)
    assert f"{BASELINE}: its settings have changed since they were frozen" in faults


def test_settings_that_have_changed_since(repository, monkeypatch):
    repository.result(repository.freeze())
    today = config_of(CELL)
    monkeypatch.setattr(
        confirm,
        "config_of",
        lambda cell: changed(today, {"fit.updates": 7}) if cell == CELL else config_of(cell),
    )
    assert repository.faults == [f"{CELL}: its settings have changed since they were frozen"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"config": {}}, "made with other settings than those frozen"),
        ({"settings": {"seeds": [0, 1]}}, "made with other seeds than those kept for it: 0, 1"),
        ({"commit": None}, "it does not say by which commit it was made (None)"),
        ({"commit": f"{'f' * 40}-dirty"}, "made with changes that ffffffffffff does not have"),
        ({"commit": "f" * 40}, f"it does not say by which commit it was made ({'f' * 40})"),
    ],
)
def test_what_a_result_says_of_itself(repository, more, words):
    repository.result(repository.freeze(), **more)
    [fault] = repository.faults
    assert fault.endswith(words)


def test_other_cells_were_not_frozen(repository):
    repository.result(repository.freeze(), "lock/h50")
    [fault] = repository.faults
    assert fault.endswith("the settings of lock/h50 were not frozen")


def test_once_means_once(repository):
    frozen = repository.freeze()
    repository.result(frozen)
    repository.result(frozen, more=1)
    [fault] = repository.faults
    assert fault.endswith("it was committed 2 times: run once means once")


def test_data_that_is_not_committed(repository):
    frozen = repository.freeze()
    added = repository.result(frozen)
    repository.git("reset", "--quiet", "--soft", f"{added}~1")
    [fault] = repository.faults
    assert fault.endswith("it is not committed")


def test_seeds_that_nobody_has_looked_at():
    assert confirm.seeds_of("maze/20-paper") == confirm.seeds_of(BASELINE) == tuple(range(500, 510))
    assert confirm.seeds_of("lock/h5") == tuple(range(500, 520))


def test_the_command_line_runs_them_apart(monkeypatch, capsys):
    asked = []
    monkeypatch.setattr(reproduction, "_swept", lambda tasks, args: asked.extend(tasks) or [])
    assert cli.main(["reproduce", "figure-2c", "--confirm"]) == 0
    assert {task.seeds for task in asked} == {tuple(range(500, 510))}
    assert {str(task.out) for task in asked} == {"results/confirm/maze", "results/confirm/baselines"}
    for more in (["--seeds", "1"], ["--scale", "smoke"]):
        assert cli.main(["reproduce", "figure-2c", "--confirm", *more]) == 2
        assert "--confirm names the seeds itself" in capsys.readouterr().err


def test_as_a_command(repository, monkeypatch, capsys):
    monkeypatch.chdir(repository.path)
    assert confirm.main(["--freeze"]) == 0
    assert confirm.main([]) == 1
    repository.git("add", ".")
    repository.git("commit", "--quiet", "-m", "frozen")
    capsys.readouterr()
    assert confirm.main([]) == 0
    assert capsys.readouterr().out == "settings came first, and are still the same\n"
    assert confirm.main(["--thaw"]) == 2
