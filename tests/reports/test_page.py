"""The page: whole without a script, safe from what it shows, the same twice, and nobody's own file is lost.

What a browser makes of it is in `test_page_in_a_browser.py`.
"""

import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from e3rl import cli
from e3rl.experiments.agents import AGENTS
from e3rl.experiments.failed import note_failure
from e3rl.neural.config import NeuralE3Config
from e3rl.reports.page import of_run, svg
from e3rl.reports.page.chart import Chart, Panel, Series
from e3rl.reports.page.document import MADE, Section, document, figure, write_page
from e3rl.reports.page.of_results import page
from e3rl.runs.folder import COLUMNS
from e3rl.runs.settings import as_dict, changed
from e3rl.types import UserError

ROOT = Path(__file__).parents[2]
MOST_BYTES = 2_000_000
OPEN_ENDED = {"meta", "link", "img"}


class Outline(HTMLParser):
    """Elements that were not closed in order, everything that would be fetched, and ids."""

    def __init__(self, text):
        super().__init__()
        self.open, self.fetched, self.ids, self.links = [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" else []
        self.fetched += [
            given[name]
            for name in ("src", "href")
            if name in given and not given[name].startswith(("data:", "#"))
        ]
        if tag not in OPEN_ENDED:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def whole():
    return page(ROOT / "results")


def test_the_committed_page_is_made_from_the_data(whole):
    """`e3rl report results` makes it again."""
    assert (ROOT / "results" / "report.html").read_text() == whole


def test_one_file_that_fetches_nothing(whole):
    outline = Outline(whole)
    assert outline.open == []
    assert outline.fetched == []
    assert len(outline.ids) == len(set(outline.ids))
    assert {link.removeprefix("#") for link in outline.links} <= set(outline.ids)
    assert len(whole.encode()) < MOST_BYTES
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", whole)


def test_every_figure_is_a_picture_without_a_script(whole):
    for name in (
        "figure-2a-standard",
        "figure-2b-antishaped",
        "figure-2c",
        "figure-2d",
        "budgets",
        "profile",
    ):
        [found] = re.findall(rf'<figure class="chart" id="{name}".*?</figure>', whole, re.DOTALL)
        assert found.count('class="line"') > 0
    assert "e3rl reproduce lock/h20" in whole
    assert "The paper said, we measured" in whole
    absent, _, frozen = whole.partition('id="missing"')[2].partition("<h3>Confirmatory seeds")
    assert "lock-paper/h20" not in absent
    assert "baselines-lock/h5-standard-dqn" not in frozen


def test_confirmatory_seeds_are_on_it_and_told_apart(whole):
    part = whole.partition('<section id="confirmed">')[2].partition("</section>")[0]
    for path in (ROOT / "results" / "confirm").glob("*/*.json"):
        assert f"<strong>{json.loads(path.read_text())['experiment']}</strong>" in part
    assert "<code>e3rl reproduce baselines-lock/h5-standard-dqn --confirm</code>" in part
    [chart] = re.findall(r'<figure class="chart" id="figure-2d".*?</figure>', whole, re.DOTALL)
    both = re.findall(r'<li class="([^"]*)" data-name="Neural-E³( \(confirmatory\))?"', chart)
    assert both == [("", ""), ("confirmatory", " (confirmatory)")]


def test_figures_that_are_pictures(whole):
    for name in ("figure-1", "figure-3", "figure-5"):
        part = whole.partition(f'<figure class="plate" id="{name}">')[2].partition('<figure class="plate"')[0]
        assert 'src="data:image/webp;base64,' in part
        assert "<code>e3rl reproduce " in part


def test_cells_that_failed_are_shown_with_what_repeats_them(tmp_path):
    folder = tmp_path / "results" / "maze"
    folder.mkdir(parents=True)
    note_failure(folder, "maze/20-paper", "out of <memory>", (500,))
    (folder / "unfinished" / "maze-10-paper").mkdir()
    part = page(tmp_path / "results").partition('id="missing"')[2]
    failed, _, never = part.partition("Begun and not finished")
    assert "out of &lt;memory&gt;" in failed
    assert "<code>e3rl reproduce maze/20-paper --seeds 500</code>" in failed
    assert never.startswith("; the same command goes on with them: maze-10-paper.")
    assert "maze/20-paper<" not in never
    assert "<code>e3rl reproduce predictions</code>" in never
    assert never.index("Figure 2c: mazes") < never.index("Figure 5: predictions in a maze")


PANEL = Panel(
    "title", [Series("a<b", "#123", [1, 10, 100], [0.0, 5.0, 10.0], [0.0] * 3, [10.0] * 3)], "x", "y"
)


def test_axes_by_hand():
    """The logarithmic axis has 10 in the middle of 1 and 100, the linear one begins at 0."""
    drawn = svg.draw(PANEL)
    lines = re.findall(r'class="line" d="M(.*?)"', drawn)
    linear, log = ([float(point.split()[0]) for point in line.split("L")] for line in lines)
    span = svg.RIGHT - svg.LEFT
    np.testing.assert_allclose(log, [svg.LEFT, svg.LEFT + span / 2, svg.RIGHT], atol=0.1)
    np.testing.assert_allclose(linear, [svg.LEFT + span * x / 100 for x in (1, 10, 100)], atol=0.1)
    heights = [float(point.split()[1]) for point in lines[0].split("L")]
    assert heights[0] > heights[1] > heights[2] > svg.TOP
    assert 'data-linear="0,100" data-log="1,100"' in drawn


def test_nothing_is_counted_by_halves():
    drawn = svg.draw(Panel("t", [Series("a", "#123", [1, 2], [0.0, 1.0])], "round", "y"))
    linear = drawn.partition('class="scale linear"')[2].partition('class="scale log"')[0]
    assert re.findall(r'class="tick x".*?>(.*?)<', linear) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.0, 5.0, [0, 1, 2, 3, 4, 5]), (-200.0, -90.0, [-200, -180, -160, -140, -120, -100]), (3.0, 3.0, [3])],
)
def test_ticks_are_round(low, high, expected):
    assert svg.ticks(low, high) == pytest.approx(expected)


def test_powers_of_ten_and_between():
    assert svg.powers(20.0, 20_000.0) == [100.0, 1_000.0, 10_000.0]
    assert svg.powers(20.0, 100.0) == [20.0, 50.0, 100.0]


def test_many_points_are_thinned_to_both_ends():
    assert svg.thinned(3) == [0, 1, 2]
    kept = svg.thinned(1_000, 50)
    assert (kept[0], kept[-1], len(kept)) == (0, 999, 50)


@pytest.mark.parametrize(
    "series", [[], [Series("a", "#123", [], [])], [Series("a", "#123", [1], [float("nan")])]]
)
def test_nothing_to_show(series):
    assert "not run" in svg.draw(Panel("t", series, "x", "y"))


def test_a_single_point():
    drawn = svg.draw(Panel("t", [Series("a", "#123", [5], [2.0], marks=True)], "x", "y", (2.0, "best")))
    assert drawn.count("<circle") == 2
    assert "nan" not in drawn


def test_names_cannot_break_out():
    evil = "</script><script>alert(1)</script>"
    chart = Chart("c", evil, evil, [Panel(evil, [Series(evil, "#123", [1], [2.0])], evil, evil)])
    text = document(evil, "", [Section("s", evil, figure(chart))])
    assert "<script>alert" not in text
    assert Outline(text).open == []
    data = re.search(r'<script type="application/json">(.*?)</script>', text).group(1)
    assert json.loads(data)[0][0]["name"] == evil


def test_somebodys_own_page_is_left_alone(tmp_path):
    written = write_page(tmp_path, document("t", "", []))
    assert MADE in written.read_text()
    write_page(tmp_path, document("t", "", []))
    written.write_text("<html>mine</html>")
    with pytest.raises(UserError, match="left alone"):
        write_page(tmp_path, document("t", "", []))
    assert written.read_text() == "<html>mine</html>"


def test_folders_of_results(tmp_path, capsys):
    """Below it a family of experiments; a folder without any is no folder of results."""
    (tmp_path / "reach").mkdir()
    about = {"experiment": "reach/chain", "command": "e3rl reproduce reach/chain", "config": {"a": "<b>"}}
    (tmp_path / "reach" / "chain.json").write_text(json.dumps(about))
    assert cli.main(["report", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"page": str(tmp_path / "report.html")}
    text = (tmp_path / "report.html").read_text()
    assert "<code>e3rl reproduce reach/chain</code>" in text
    assert "&lt;b&gt;" in text
    assert cli.main(["report", str(tmp_path), "--watch"]) == 2
    assert "nothing to watch" in capsys.readouterr().err


def test_damaged_results_are_one_line(tmp_path, capsys):
    (tmp_path / "maze").mkdir()
    (tmp_path / "maze" / "5.json").write_text(
        json.dumps({"experiment": "maze/5-e3rl", "exploit": [{"a": 1}]})
    )
    assert cli.main(["report", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "damaged" in err


def save_run(path, seed=3, finished=False, episodes=4, **config):
    path.mkdir(parents=True)
    settings = as_dict(changed(NeuralE3Config(), config))
    about = {"algo": "neural-e3", "env": "My-v0", "env_options": {"size": 3, "dark": True}, "seed": seed}
    (path / "config.json").write_text(json.dumps({**about, "config": settings, "format": 0}))
    rows = [row(i) for i in range(1, episodes + 1)]
    (path / "metrics.csv").write_text("".join([",".join(COLUMNS) + "\n", *rows]))
    if finished:
        finish(path, seed)


def row(episode):
    known = {"phase": "explore", "episode": episode, "disagreement": 9 - episode, "epsilon_hat": 1 / episode}
    return ",".join(str(known.get(name, 1.0)) for name in COLUMNS) + "\n"


def finish(path, seed=3):
    summary = {
        "algo": "neural-e3", "env": "My-v0", "seed": seed, "explore_episodes": 4, "total_episodes": 4,
        "exploit_return_mean": 1.0, "exploit_return_ci": None, "optimal_return": None, "wall_seconds": 3.0,
    }  # fmt: skip
    (path / "summary.json").write_text(json.dumps(summary))


def test_a_run_and_the_command_that_repeats_it(tmp_path):
    run = tmp_path / "run"
    save_run(run, finished=True, **{"planner": "graph", "planner.nodes": 77, "fit.members": 3})
    text = of_run.page(run, [run])
    assert Outline(text).open == []
    assert "http-equiv" not in text
    assert "return that may be missed" in text
    words = shlex.split(of_run.command(run, json.loads((run / "config.json").read_text())))
    assert words[:7] == ["e3rl", "train", "My-v0", "--algo", "neural-e3", "--seed", "3"]
    assert words[words.index("--env") + 1 :][:2] == ["size=3", "dark=true"]
    preset = AGENTS["neural-e3"].presets[words[words.index("--config") + 1]]
    changes = dict(word.split("=", 1) for word in words[words.index("--set") + 1 :])
    wanted = changed(NeuralE3Config(), {"planner": "graph", "planner.nodes": 77, "fit.members": 3})
    assert changed(preset, changes) == wanted


def test_several_seeds_have_a_range(tmp_path):
    for seed in (3, 4):
        save_run(tmp_path / f"seed{seed}", seed, episodes=seed)
    text = of_run.page(tmp_path, [tmp_path / "seed3", tmp_path / "seed4"])
    assert 'class="band"' in text
    assert "seed4: not finished, 4 episodes so far" in text


def test_following_a_run_until_it_ends(tmp_path, monkeypatch):
    run, said, seen = tmp_path / "run", [], []
    save_run(run)

    def wait(seconds):
        seen.append((run / "report.html").read_text())
        with (run / "metrics.csv").open("a") as file:
            file.write(row(5) + "explore,6,")  # and a row that is not whole yet
        if len(seen) == 2:
            finish(run)

    monkeypatch.setattr(of_run.time, "sleep", wait)
    of_run.follow(run, [run], said.append)
    assert "4 episodes so far" in seen[0]
    assert "5 episodes so far" in seen[1]
    assert all('http-equiv="refresh"' in text for text in seen)
    assert len(said) == 1
    assert (run / "report.html").as_uri() in said[0]


def test_watching_from_the_command_line_ends_with_the_report(tmp_path, monkeypatch, capsys):
    run = tmp_path / "run"
    save_run(run)
    monkeypatch.setattr(of_run.time, "sleep", lambda seconds: finish(run))
    assert cli.main(["report", str(run), "--watch"]) == 0
    out, err = capsys.readouterr()
    assert err.startswith("open file://")
    assert out.splitlines()[-1] == f"page: {run / 'report.html'}"
    assert "http-equiv" not in (run / "report.html").read_text()
