"""Every result in the repository says how it was made: command, configuration, commit, versions, kind of machine."""

import json
import re
from pathlib import Path

import pytest

from e3rl.experiments.provenance import NOT_RECORDED, provenance, provenance_of

RESULTS = Path(__file__).parents[1] / "results"
DERIVED = {
    "peers/summary.json": "peers/runs",
    "peers/summary.csv": "peers/runs",
    **{f"confirm/{path.name}": "confirm" for path in (RESULTS / "confirm").glob("settings*.json")},
}
"""Made of what lies elsewhere, which says more."""
NO_MACHINE = re.compile(
    r"faults/|peers/runs/|dreem/(certify|certify-doubling|below-theory|lock-neural|lock-sweep)\.json"
)
"""Where the kind of machine was not written down; new results do not belong here."""
NO_VERSIONS = re.compile(r"dreem/lock-(neural|sweep)\.json")
FILES = sorted(
    path.relative_to(RESULTS).as_posix() for path in RESULTS.rglob("*") if path.suffix in (".csv", ".json")
)


def told(path):
    """What each entry of a file says; the trial of promises has an entry for each test."""
    about = json.loads(path.read_text())
    return list(about.values()) if path.parent.name in ("faults", "failed") else [about]


def speaker_for(path):
    """The JSON that speaks for a table: of the same name, or one that names it."""
    own = path.with_suffix(".json")
    if own.is_file():
        return own
    named = [each for each in path.parent.glob("*.json") if path.name in told(each)[0].get("more_tables", ())]
    assert len(named) == 1, f"nobody speaks for {path.name}"
    return named[0]


@pytest.mark.parametrize("name", [name for name in FILES if name not in DERIVED])
def test_a_result_says_how_it_was_made(name):
    path = RESULTS / name
    spoken = speaker_for(path) if path.suffix == ".csv" else path
    short = spoken.relative_to(RESULTS).as_posix()
    for about in told(spoken):
        found = provenance_of(about)
        if NO_MACHINE.match(short):
            found["machine"] = NOT_RECORDED
        if NO_VERSIONS.match(short):
            assert found.pop("versions") == NOT_RECORDED
        if short.startswith("faults/"):
            found["config"] = found["config"] or found["command"]  # which holds all there is to set
        assert [what for what, value in found.items() if not value] == []
        assert re.fullmatch(r"[0-9a-f]{40}", found["commit"])
        assert re.match(r"(e3rl|python|E3RL_\w+=|make) ?", found["command"])
        kept = {what for what, value in found.items() if value == NOT_RECORDED}
        assert kept <= {"machine"}


def test_what_is_derived_has_its_source():
    for name, source in DERIVED.items():
        if (RESULTS / name).exists():
            assert any((RESULTS / source).iterdir())


def test_new_results_say_everything():
    found = provenance_of({**provenance("e3rl reproduce lock/h5"), "config": {"a": 1}})
    assert all(found.values())
    assert provenance_of({"experiment": "lock/h5"})["command"] == "e3rl reproduce lock/h5"
    assert provenance_of({})["commit"] is None
    assert provenance_of({"made_with": {"commit": "c", "jax": "1"}})["versions"] == {
        "commit": "c",
        "jax": "1",
    }


def test_nothing_tells_of_a_person_or_a_machine_by_name():
    said = json.dumps(provenance("e3rl reproduce lock/h5"))
    assert "/" not in said.replace("lock/h5", "")
