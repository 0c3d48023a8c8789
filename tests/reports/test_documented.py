"""Tables of the documentation are what the data say today, and follow when the data change."""

import json
import re
from pathlib import Path

import pytest

from e3rl.reports import documented
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.documented import BEGIN, END, PARTS, made, main
from e3rl.types import UserError

ROOT = Path(__file__).parents[2]
MARKS = re.compile(BEGIN.format("(.*?)"))


@pytest.fixture(scope="module")
def evidence():
    return Evidence.under(ROOT / "results")


@pytest.mark.parametrize("path", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.stem)
def test_pages_have_what_was_measured(path, evidence):
    """`make page` brings them up to date."""
    text = path.read_text()
    assert made(text, evidence) == text
    assert text.count(END) >= len(MARKS.findall(text))


def test_every_table_has_its_place():
    shown = [
        name for path in sorted((ROOT / "docs").glob("*.md")) for name in MARKS.findall(path.read_text())
    ]
    assert sorted(shown) == sorted(PARTS)


def test_a_table_that_nobody_makes():
    with pytest.raises(UserError, match="no table is called 'tea'"):
        made(f"{BEGIN.format('tea')}\n{END}", Evidence({}))


def test_pages_follow_the_data(tmp_path):
    docs, results = tmp_path / "docs", tmp_path / "results" / "dreem"
    docs.mkdir()
    results.mkdir(parents=True)
    page = docs / "page.md"
    page.write_text(f"before\n{BEGIN.format('doubling')}\nold\n{END}\nafter\n")
    row = {"family": "tree", "trajectories_max": 10, "rank": 3, "rank_guess_max": 2, "failures": 1, "runs": 9}
    for name, times in (("certify", 1), ("certify-doubling", 4)):
        rows = [{**row, "true_model_eliminated": 0, "trajectories_max": 10 * times}]
        (results / f"{name}.json").write_text(json.dumps({"rows": rows}))
    main(docs, tmp_path / "results")
    *_, line, end, after = page.read_text().splitlines()
    assert (line, end, after) == ("| tree | 3 | 2 | 1 of 9 | 0 | 4.00 |", END, "after")


def test_how_far_below_the_theorem():
    columns = "family", "phi_rule", "shrink", "n", "runs", "success_rate", "unfinished", "suboptimal"
    cases = (
        ("a", "theorem", "1", "1e9", "30", "1.0", "0", "0"),
        ("a", "theorem", "10", "1e8", "30", "0.9", "3", "1"),
    )
    rows = [{**dict(zip(columns, case, strict=True)), "everything_eliminated": "0"} for case in cases]
    found = documented._smallest_n(rows, "a", "theorem")
    assert found == "n = 1.0e+09, 1/1 of the theorem's; then unfinished in 3 of 30"
    assert documented._smallest_n(rows[1:], "a", "theorem") == "none; unfinished"
