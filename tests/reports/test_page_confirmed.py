"""Confirmatory seeds on the page: beside the paper's and never among them."""

import json

import pytest

from e3rl.experiments import confirm
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.page.confirmed import command, confirmed, numbers, waiting
from e3rl.reports.page.figures import charts

CELL = "stopping-protocol/h5"


def save(folder, seeds, solved):
    """A lock whose seeds end after 10, 20, ... episodes."""
    folder.mkdir(parents=True)
    about = {"experiment": CELL, "settings": {"seeds": seeds}, "config": {"a": 1}, "commit": "12ab34cd" * 5}
    (folder / "h5.json").write_text(json.dumps(about))
    rows = [
        f"5,standard,{seed},{10 * (i + 1)},{float(good)},{good}"
        for i, (seed, good) in enumerate(zip(seeds, solved, strict=True))
    ]
    head = "horizon,reward,seed,episodes,return_mean,solved"
    (folder / "h5.csv").write_text("\n".join([head, *rows]) + "\n")


@pytest.fixture
def folder(tmp_path):
    save(tmp_path / "stopping", [0, 1], [True, False])
    save(tmp_path / "confirm" / "stopping", [500, 501, 502], [True] * 3)
    return tmp_path


def test_both_stand_side_by_side(folder):
    evidence = Evidence.under(folder)
    told = confirmed(evidence, evidence.confirmed())
    ours, theirs = told.index("seeds 0 to 1</div>"), told.index("seeds 500 to 502</div>")
    assert "standard, 10 to 20 episodes: 1 of 2 [1%, 99%] solved" in told[ours:theirs]
    assert "standard, 10 to 30 episodes: 3 of 3 [29%, 100%] solved" in told[theirs:]
    assert f"<code>e3rl reproduce {CELL} --seeds 500,501,502</code>" in told
    assert "12ab34cd" in told


def test_what_the_papers_seeds_have_not(folder):
    apart = Evidence.under(folder).confirmed()
    assert ">not run</td>" in confirmed(Evidence({}), apart)


def test_they_are_series_of_their_own(folder):
    [chart] = charts(Evidence.under(folder))
    [ours, theirs] = chart.panels[0].series
    assert (ours.name, ours.confirmatory) == ("Neural-E³, ends by itself", False)
    assert (theirs.name, theirs.confirmatory) == ("Neural-E³, ends by itself (confirmatory)", True)
    assert (ours.x, ours.middle, ours.low, ours.high) == ([15.0], [0.5], [0.0], [1.0])
    assert (theirs.x, theirs.middle, theirs.low, theirs.high) == ([20.0], [1.0], [1.0], [1.0])
    assert "hollow marks: confirmatory seeds" in chart.caption


def test_without_them_nothing_is_said_of_them(folder):
    (folder / "confirm").rename(folder.parent / "elsewhere")
    [chart] = charts(Evidence.under(folder))
    assert len(chart.panels[0].series) == 1
    assert "confirmatory" not in chart.caption


def test_frozen_cells_that_nobody_has_run(folder):
    frozen = {CELL: {}, "maze/5-e3rl": {}}
    (folder / "confirm" / "settings.json").write_text(json.dumps(frozen))
    told = waiting(folder, Evidence.under(folder).confirmed())
    assert "nobody has run them: 1 cell<" in told
    assert "<code>e3rl reproduce maze/5-e3rl --confirm</code>" in told
    assert CELL not in told


def test_the_command_names_the_seeds():
    """`--confirm` does where they are those kept for the cell."""
    kept = list(confirm.seeds_of(CELL))
    assert command(CELL, kept) == f"e3rl reproduce {CELL} --confirm"
    assert command(CELL, kept[:2]) == f"e3rl reproduce {CELL} --seeds 500,501"


def test_numbers_of_other_kinds_by_hand():
    final = [(-100.0, 40), (-200.0, None), (-150.0, 60)]
    about = {
        "final": {
            str(500 + i): {"return_mean": value, "bar": -150.0, "over_bar": when, "episodes": 900}
            for i, (value, when) in enumerate(final)
        }
    }
    assert list(numbers(Evidence({}), "x", about)) == [
        "return −150.00 (−200.00 to −100.00)",
        "mean of 100 above −150.0: 2 of 3 [9%, 99%], median 60 episodes",
    ]
    about = {"exploit": [{"seed": i, "budget": 50, "return_mean": float(i)} for i in range(3)]}
    assert list(numbers(Evidence({}), "x", about)) == ["50 episodes: return 1.00 (0.00 to 2.00)"]
