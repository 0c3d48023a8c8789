"""Results on disk: read back as they were written, and damage is one line."""

import pytest

from e3rl.experiments import tables
from e3rl.experiments.curves import POINTS, stretches
from e3rl.experiments.provenance import provenance_of, reproduce_command, this_machine
from e3rl.experiments.tables import (
    forget_runs,
    note_machine,
    stored_table,
    table_path,
    truth,
    unfinished_runs,
    write_table,
)
from e3rl.types import UserError

KINDS = {"seed": int, "solved": truth, "return": float}
ROWS = [{"seed": 1, "solved": True, "return": 2.5}, {"seed": 2, "solved": False, "return": -1.0}]


@pytest.fixture
def path(tmp_path):
    path = table_path(tmp_path, "lock/tiny")
    write_table(path, tuple(KINDS), ROWS, {"experiment": "lock/tiny", "config": {}})
    return path


def test_a_table_is_read_back(path):
    about, rows = stored_table(path, KINDS)
    assert rows == ROWS
    assert about["command"] == "e3rl reproduce lock/tiny"
    assert {"commit", "jax", "packages", "device", "machine", "python", "version"} <= about.keys()


@pytest.mark.parametrize("lost", [".csv", ".json"])
def test_half_of_it_is_nothing(path, lost):
    path.with_suffix(lost).unlink()
    assert stored_table(path, KINDS) is None


@pytest.mark.parametrize("damage", [("2.5", "two"), ("True", "yes"), ("seed", "number"), (",-1.0", "")])
def test_damage_is_one_line(path, damage):
    path.write_text(path.read_text().replace(*damage))
    with pytest.raises(UserError, match=r"lock-tiny\.csv is damaged: \w+Error: ") as raised:
        stored_table(path, KINDS)
    assert "\n" not in str(raised.value)


def test_runs_are_forgotten_one_experiment_at_a_time(tmp_path):
    for name in ("lock/a", "lock/b"):
        (unfinished_runs(tmp_path, name) / "seed0").mkdir(parents=True)
    forget_runs(tmp_path, "lock/a")
    assert [path.name for path in (tmp_path / "unfinished").iterdir()] == ["lock-b"]
    forget_runs(tmp_path, "lock/b")
    forget_runs(tmp_path, "lock/b")
    assert list(tmp_path.iterdir()) == []


def test_what_to_type():
    assert reproduce_command("lock/h5") == "e3rl reproduce lock/h5"
    assert reproduce_command("lock/h5", (1, 2), True) == "e3rl reproduce lock/h5 --seeds 1,2 --scale smoke"


def test_stretches():
    assert stretches([]) == []
    assert stretches([1.0, 2.0]) == [(1, 1.0), (2, 2.0)]
    found = stretches([float(i) for i in range(250)])
    assert (len(found), found[-1][0], found[0]) == (POINTS, 250, (3, 1.0))


def test_machines_are_named_where_one_goes_on_with_what_another_has_left(tmp_path, monkeypatch):
    assert note_machine(tmp_path, "lock/a") == note_machine(tmp_path, "lock/a") == {}
    here, other = this_machine(), {"device": "fast", "machine": "elsewhere"}
    monkeypatch.setattr(tables, "this_machine", lambda: other)
    assert note_machine(tmp_path, "lock/a") == note_machine(tmp_path, "lock/a") == {"machines": [here, other]}
    assert note_machine(tmp_path, "lock/b") == {}
    done = {"experiment": "lock/c", **here}
    assert note_machine(tmp_path, "lock/c", done) == {"machines": [here, other]}
    assert note_machine(tmp_path, "lock/d", {**done, **other}) == {}


def test_a_result_names_all_its_machines():
    one, other = {"device": "fast", "machine": "there"}, {"device": "cpu", "machine": "here"}
    assert provenance_of({"experiment": "lock/a", **other})["machine"] == "here"
    both = provenance_of({"experiment": "lock/a", **other, "machines": [one, other]})
    assert both["machine"] == "fast, there; then cpu, here"
