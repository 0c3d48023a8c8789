"""Figures 1, 3 and 5 on the page: the picture, a chart of its numbers, what makes it."""

import json
import re

import pytest
from PIL import Image

from e3rl.reports import drawn, figure1
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.page.of_results import page
from e3rl.reports.page.pictures import found, plates
from e3rl.types import UserError

MADE = {
    "command": "e3rl reproduce predictions",
    "commit": "12ab34cd" * 5,
    "device": "cpu",
    "config": {"a": 1},
}


def paint(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), "red").save(path)


def save(path, **said):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**MADE, **said}))


def predictions(folder):
    steps = [{"step": i, "disagreement": 2.0 * i, "largest_error": 3.0 * i} for i in (1, 2)]
    save(folder / "predictions.json", settings={"options": {"size": 10}, "seed": 0}, steps=steps)


def ellipsoids(folder):
    rounds = [
        {"round": 1, "models_before": 9, "models_after": 4, "volume_ratio": 0.1, "sliced_ratio": 0.2, "bound": 0.6}
    ]  # fmt: skip
    save(
        folder / "ellipsoid.json",
        practical={"phi": 0.05, "rounds": rounds},
        theorem={"phi": 1e-3, "rounds": []},
    )


def series_of(text):
    return [
        one for each in json.loads(re.search(r'"application/json">(.*?)</script>', text)[1]) for one in each
    ]


def test_a_picture_with_its_chart_and_what_made_it(tmp_path):
    predictions(tmp_path / "figure5")
    paint(tmp_path / "figure5" / "predictions.png")
    told = plates(tmp_path, Evidence.under(tmp_path))
    assert re.search(r'<img class="paper" alt="A maze of 10 × 10[^"]+" src="data:image/webp;base64,', told)
    assert "<code>e3rl reproduce predictions</code><details><summary>configuration" in told
    assert "cpu at 12ab34cd" in told
    error, apart = series_of(told)
    assert (error["name"], error["x"], error["y"]) == ("largest error of a model", [1, 2], [3, 6])
    assert (apart["name"], apart["x"], apart["y"]) == ("largest disagreement of two models", [1, 2], [2, 4])
    assert "figure-3" not in told


def test_rounds_of_ellipsoids_by_hand(tmp_path):
    """A run without rounds is no series."""
    ellipsoids(tmp_path)
    told = plates(tmp_path, Evidence.under(tmp_path))
    assert [one["y"] for one in series_of(told)] == [[0.1], [0.2], [9, 4]]
    assert series_of(told)[2]["x"] == [0, 1]
    assert "at most so much, by Lemma 3" in told
    assert "<img" not in told


def test_where_they_are_not_there_the_page_says_what_makes_them(tmp_path):
    (tmp_path / "figures").mkdir()
    paint(tmp_path / "figures" / "unfinished" / "environments.png")
    absent = page(tmp_path).partition('id="missing"')[2]
    for cell in ("environments", "ellipsoids", "predictions"):
        assert f"<code>e3rl reproduce {cell}</code>" in absent
    paint(tmp_path / "anywhere" / "environments.png")
    text = page(tmp_path)
    assert 'id="figure-1"' in text
    assert "commit and machine were not written down" in text
    assert "<code>e3rl reproduce environments</code>" in text.partition('id="missing"')[2]
    save(tmp_path / "anywhere" / "environments.json", command="e3rl reproduce environments")
    assert "<code>e3rl reproduce environments</code>" not in page(tmp_path).partition('id="missing"')[2]


def test_only_what_is_unfinished_below_the_folder_is_left_out(tmp_path):
    paint(tmp_path / "unfinished" / "environments.png")
    assert 'id="figure-1"' not in plates(tmp_path, Evidence.under(tmp_path))
    assert 'id="figure-1"' in plates(tmp_path / "unfinished", Evidence.under(tmp_path))


def test_environments_say_how_they_were_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(figure1, "draw_panels", lambda folder, seed: [paint(folder / "environments.png")])
    drawn.environments("environments", tmp_path / "figures" / "figure1", [].append)
    save(tmp_path / "faults" / "environments.json", command="of somebody else")
    told = plates(tmp_path, Evidence.under(tmp_path))
    assert "<code>e3rl reproduce environments</code><details>" in told
    assert "CPUs" in told
    assert "not written down" not in told


def test_of_two_files_the_less_deep(tmp_path):
    paint(tmp_path / "a" / "b" / "x.png")
    paint(tmp_path / "z" / "x.png")
    assert found(tmp_path, "x.png") == tmp_path / "z" / "x.png"
    assert found(tmp_path, "y.png") is None


def test_damaged_data_are_named(tmp_path):
    (tmp_path / "ellipsoid.json").write_text("{")
    with pytest.raises(UserError, match=r"ellipsoid\.json is damaged"):
        plates(tmp_path, Evidence({}))
