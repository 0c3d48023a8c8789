"""Tables of the documentation are what the data say today, and follow when the data change."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from e3rl.reports import dreem_tables, numbers
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.documented import BEGIN, END, INLINE, PARTS, made, main, pages
from e3rl.reports.numbers import NUMBERS, number
from e3rl.reports.results import Result
from e3rl.types import UserError

ROOT = Path(__file__).parents[2]
MARKS = re.compile(BEGIN.format("(.*?)"))


@pytest.fixture(scope="module")
def evidence():
    return Evidence.under(ROOT / "results")


def with_other_numbers(text):
    """The page, with another last digit in every table and number that is made."""
    parts = [*re.finditer(rf"{BEGIN.format('.*?')}\n(?P<made>.*?){END}", text, re.DOTALL)]
    parts += re.finditer(INLINE.pattern.replace("-->.*?<!--", "-->(?P<made>.*?)<!--"), text, re.DOTALL)
    changed = list(text)
    for part in parts:
        for digit in [*re.finditer(r"\d", part["made"])][-1:]:
            changed[part.start("made") + digit.start()] = str((int(digit[0]) + 1) % 10)
    return "".join(changed), len(parts)


@pytest.mark.parametrize("path", pages(ROOT / "docs"), ids=lambda path: path.stem)
def test_pages_have_what_was_measured(path, evidence):
    """`make page` brings them up to date. What a page has makes no difference: whoever edits a number is noticed."""
    text = path.read_text()
    edited, parts = with_other_numbers(text)
    assert (edited != text) == (parts > 0)
    assert made(edited, evidence) == text
    assert text.count(END) >= len(MARKS.findall(text))


@pytest.mark.parametrize("name", ["benchmarks", "reach"])
def test_no_table_is_typed(name):
    """On pages about measurements only."""
    text = (ROOT / "docs" / f"{name}.md").read_text()
    typed = re.sub(rf"{BEGIN.format('.*?')}\n.*?{END}", "", text, flags=re.DOTALL)
    assert re.findall(r"^\|.*", typed, re.MULTILINE) == []


@pytest.mark.parametrize("name", sorted(PARTS))
def test_a_table_of_nothing_says_so_in_one_line(name):
    page = made(f"{BEGIN.format(name)}\n{END}", Evidence({})).splitlines()
    assert len(page) == 3
    assert page[1].startswith("Not recorded yet: nothing of it is in the results of ")


def test_a_table_of_something_else_is_one_line():
    found = {"bench/neural": Result(Path("neural.json"), {"rows": [{"name": "neural/growth/H=5"}]})}
    with pytest.raises(
        UserError, match="the table 'bench neural growth' cannot be made: KeyError: 'over_paper'"
    ):
        made(f"{BEGIN.format('bench neural growth')}\n{END}", Evidence(found))


def test_the_command_says_which_page_in_one_line(tmp_path):
    docs, results = tmp_path / "docs", tmp_path / "results"
    docs.mkdir()
    results.mkdir()
    (docs / "page.md").write_text("Solved <!-- n: solved lock/h5 -->all<!-- /n -->.")
    command = [sys.executable, "-m", "e3rl.reports.documented", str(docs), str(results)]
    done = subprocess.run(command, capture_output=True, text=True)
    line = f"e3rl: error: {docs / 'page.md'}: a page tells of lock/h5, which has no results\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


def test_every_table_has_its_place():
    shown = [
        name for path in sorted((ROOT / "docs").glob("*.md")) for name in MARKS.findall(path.read_text())
    ]
    assert sorted(shown) == sorted(PARTS)


def test_every_number_is_told_somewhere():
    text = "".join(path.read_text() for path in pages(ROOT / "docs"))
    assert {key.removeprefix("confirmed ").split()[0] for key in INLINE.findall(text)} == NUMBERS.keys()


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


def test_what_a_file_says():
    about = {"rounds": [{"MiB at the end": 1114}, {"share": 0.00162}]}
    found = Evidence({"a/file": Result(Path("file.json"), about)})
    assert number("value a/file rounds.0.MiB_at_the_end ,", found) == "1,114"
    assert number("value a/file rounds.1.share .4f", found) == "0.0016"
    with pytest.raises(UserError, match="cannot be told: KeyError: 'tea'"):
        number("value a/file rounds.0.tea", found)


def test_what_locks_paid_and_are_worth_seed_by_seed(tmp_path):
    lines = ["reward,seed,episodes,return_mean,paid_episodes"]
    lines += [
        "standard,0,50,0.0,1",
        "standard,0,100,4.96,7",
        "standard,1,100,-0.04,0",
        "antishaped,0,100,4.1,3",
    ]
    (tmp_path / "lock-h5.csv").write_text("\n".join([*lines, ""]))
    (tmp_path / "lock-h5.json").write_text(json.dumps({"experiment": "lock/h5"}))
    found = Evidence.under(tmp_path)
    assert number("paid lock/h5 standard", found) == "7 and 0"
    assert number("opened lock/h5 standard", found) == "5.0 and -0.0"
    assert number("paid lock/h5 antishaped", found) == "3"


def test_when_locks_first_paid(tmp_path):
    lines = ["experiment,reward,seed,episode,return_mean"]
    lines += [f"a,standard,0,{end},{mean}" for end, mean in ((50, 0.0), (100, 0.1), (150, 0.0), (200, 0.4))]
    lines += ["a,standard,1,50,0.0", "a,antishaped,0,50,0.1"]
    (tmp_path / "lock-h5-exploring.csv").write_text("\n".join([*lines, ""]))
    (tmp_path / "lock-h5.csv").touch()
    (tmp_path / "lock-h5.json").write_text(json.dumps({"experiment": "lock/h5", "settings": {"horizon": 5}}))
    assert number("met lock/h5", Evidence.under(tmp_path)) == "20H and never"


def test_what_greedy_episodes_are_worth(tmp_path):
    told = {(0, 20): (-200.0, 0.0), (1, 20): (-104.4, 0.9), (2, 20): (-150.0, 1.0), (0, 50): (-100.0, 1.0)}
    exploit = [
        {"seed": seed, "budget": budget, "return_mean": mean, "reached": reached}
        for (seed, budget), (mean, reached) in told.items()
    ]
    about = {"experiment": "mountaincar/e3rl", "exploit": exploit}
    found = Evidence({"mountaincar/e3rl": Result(tmp_path / "a.json", about)})
    assert number("greedy mountaincar/e3rl 20", found) == "−150"
    assert number("greedy mountaincar/e3rl 20 worst", found) == "−200"
    assert number("greedy mountaincar/e3rl 20 seeds 1", found) == "−200.0, −104.4 and −150.0"
    assert number("greedy-seeds mountaincar/e3rl 20 -150", found) == "2 of 3"
    assert number("greedy-seeds mountaincar/e3rl 20 goal", found) == "2 of 3"
    assert number("greedy-seeds mountaincar/e3rl 50 goal", found) == "1 of 1"


def test_what_seeds_of_a_baseline_came_to(tmp_path):
    final = {
        "0": {"first_found": 1_500, "return_mean": -99.6},
        "1": {"first_found": None, "return_mean": 0.0},
    }
    found = Evidence({"a/dqn": Result(tmp_path / "a.json", {"experiment": "a/dqn", "final": final})})
    assert number("finals first_found first a/dqn", found) == "1,500"
    assert number("finals first_found count a/dqn", found) == "1 of 2"
    assert number("finals return_mean seeds a/dqn", found) == "−100 and 0"
    assert number("finals first_found seeds a/dqn", found) == "1,500"
    nobody = {"0": {"first_found": None}}
    found = Evidence({"a/dqn": Result(tmp_path / "a.json", {"experiment": "a/dqn", "final": nobody})})
    assert number("finals first_found count a/dqn", found) == "0 of 1"


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
    found = dreem_tables._smallest_n(rows, "a", "theorem")
    assert found == "n = 1.0e+09, 1/1 of the theorem's; then unfinished in 3 of 30"
    assert dreem_tables._smallest_n(rows[1:], "a", "theorem") == "none; unfinished"
