"""Tables of the documentation are what the data say today, and follow when the data change."""

import json
import re
from pathlib import Path

import pytest

from e3rl.reports import documented, numbers
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.documented import BEGIN, END, INLINE, PARTS, made, main, pages
from e3rl.reports.numbers import NUMBERS, number
from e3rl.types import UserError

ROOT = Path(__file__).parents[2]
MARKS = re.compile(BEGIN.format("(.*?)"))


@pytest.fixture(scope="module")
def evidence():
    return Evidence.under(ROOT / "results")


@pytest.mark.parametrize("path", pages(ROOT / "docs"), ids=lambda path: path.stem)
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


def test_every_number_is_told_somewhere():
    text = "".join(path.read_text() for path in pages(ROOT / "docs"))
    assert {key.split()[0] for key in INLINE.findall(text)} == NUMBERS.keys()


@pytest.mark.parametrize("path", pages(ROOT / "docs"), ids=lambda path: path.stem)
def test_numbers_leave_a_sentence_whole(path):
    """A line that begins with a comment would end the paragraph."""
    text = path.read_text()
    assert not re.search(r"^ *<!-- /?n", text, re.MULTILINE)
    assert text.count("<!-- n: ") == text.count("<!-- /n -->") == len(INLINE.findall(text))


TYPED = re.compile(
    r"H=\d+|\d+ × \d+|horizons? \d+( to \d+)?|[Aa]fter \d+( exploration\s+episodes)?|E³|Baselines3"
)
"""What was set, and what is a name: not measured."""


@pytest.mark.parametrize(
    ("name", "title"), [("README.md", "## What is here"), ("docs/index.md", "## Where it stands")]
)
def test_what_is_said_first_is_measured(name, title):
    """No number is typed there."""
    part = (ROOT / name).read_text().partition(title)[2].partition("\n## ")[0]
    prose = re.sub(r"\]\(.*?\)|`.*?`", "", INLINE.sub("", part))
    assert re.findall(r".{0,20}\d+.{0,20}", TYPED.sub("", prose)) == []


def test_a_number_that_nobody_knows():
    with pytest.raises(UserError, match="no number is called 'tea'"):
        number("tea for two", Evidence({}))
    with pytest.raises(UserError, match="a page tells of lock/h5, which has no results"):
        number("solved lock/h5", Evidence({}))
    with pytest.raises(UserError, match="the number 'budget' cannot be told: TypeError"):
        number("budget", Evidence({}))


def lock_row(reward, episodes, solved):
    return f"stopping/h5,5,{reward},320,{episodes},True,{solved}\n"


def test_numbers_follow_the_data(tmp_path):
    docs, results = tmp_path / "docs", tmp_path / "results" / "stopping"
    docs.mkdir()
    results.mkdir(parents=True)
    front = tmp_path / "README.md"
    front.write_text(
        "Solved <!-- n: solved stopping/h5 -->all<!-- /n -->, in <!-- n: levels most stopping/h5 --><!-- /n -->."
    )
    (results / "stopping-h5.json").write_text(json.dumps({"experiment": "stopping/h5"}))
    rows = [("standard", 50, True), ("standard", 75, True), ("antishaped", 100, False)]
    header = "experiment,horizon,reward,seed,episodes,by_itself,solved\n"
    (results / "stopping-h5.csv").write_text(header + "".join(lock_row(*row) for row in rows))
    main(docs, tmp_path / "results")
    assert re.sub("<!--.*?-->", "", front.read_text()) == "Solved 2 of 3, in 20."


def test_words_for_numbers():
    assert (numbers.signed(-0.3), numbers.signed(-2.25, 1), numbers.signed(1234.0)) == ("0", "−2.2", "1234")
    assert (numbers.ends([8.4, 15.6]), numbers.ends([15.2, 15.4])) == ("8 to 16", "15")
    assert (numbers.listed(["a"]), numbers.listed(["a", "b", "c"]), numbers.listed([])) == (
        "a",
        "a, b and c",
        "",
    )
    assert numbers.each(["stopping/h5,10", "maze/5-ue2"]) == ["stopping/h5", "stopping/h10", "maze/5-ue2"]


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
