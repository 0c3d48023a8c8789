"""How a result was made, and how long a figure took, in the words of the page."""

import json

import pytest

from e3rl.experiments.sweep import Outcome, write_sweep
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.page.document import figure
from e3rl.reports.page.figures import charts
from e3rl.reports.page.made import made_by, repeated_by, seeds_of, spans, took
from e3rl.reports.page.of_results import page


@pytest.mark.parametrize(
    ("seeds", "words"), [([], ""), ([3], "3"), ([0, 1, 2], "0 to 2"), ([0, 1, 4, 7, 8], "0 to 1, 4, 7 to 8")]
)
def test_seeds_that_follow_one_another(seeds, words):
    assert spans(seeds) == words


@pytest.mark.parametrize(
    ("about", "seeds"),
    [
        ({"settings": {"seeds": [0, 1]}, "final": {"501": {}, "500": {}}}, [500, 501]),
        ({"settings": {"seeds": [0, 1]}}, [0, 1]),
        ({"settings": {"seed": 7}}, [7]),
        ({}, []),
    ],
)
def test_the_seeds_that_were_run_not_those_of_the_settings(about, seeds):
    assert seeds_of(about) == seeds


def test_what_was_not_written_down_is_not_made_up():
    assert made_by({}) == ""
    about = {"commit": "12ab34cd" * 5, "version": "0.1.0", "device": "cpu", "machine": "Linux, 2 CPUs"}
    assert made_by(about) == "cpu, Linux, 2 CPUs, 0.1.0 at 12ab34cd"
    machines = [{"device": "cpu", "machine": "a"}, {"device": "gpu", "machine": "b"}]
    assert made_by({"machines": machines, "device": "gpu"}) == "cpu, a; then gpu, b"
    assert repeated_by({"experiment": "maze/5-e3rl"}) == "<code>e3rl reproduce maze/5-e3rl</code>"
    assert "&lt;b&gt;" in repeated_by({"command": "a<b", "config": "<b>"})


def sweep(root, count=2):
    outcomes = [Outcome("maze/5-e3rl", 100.0), Outcome("maze/5-ue2", 80.0)][:count]
    write_sweep(root, "figure-2c", "e3rl reproduce figure-2c --workers 2", outcomes, 180.0)


@pytest.mark.parametrize(
    ("count", "begins"), [(2, "All 2 cells took 3 min on "), (1, "Its cell took 3 min on ")]
)
def test_how_long_a_figure_took(tmp_path, count, begins):
    sweep(tmp_path, count)
    told = took(Evidence.under(tmp_path), "figure-2c")
    assert told.startswith(f'<p class="soft">{begins}')
    assert ": <code>e3rl reproduce figure-2c --workers 2</code>" in told
    assert took(Evidence.under(tmp_path), "figure-2d") == ""


def test_it_stands_by_its_figure_and_is_no_experiment(tmp_path):
    sweep(tmp_path)
    sweep(tmp_path / "confirm")
    assert "0 experiments have results here" in page(tmp_path)
    final = {
        "return_mean": 1.0,
        "episodes": 5,
        "bar": 0.5,
        "over_bar": 3,
        "seconds": 1.0,
        "optimal_return": 1.0,
    }
    about = {"experiment": "baselines-maze/5-dqn", "final": {"0": final}}
    for name, text in (("json", json.dumps(about)), ("csv", "seed,episode,return_mean\n0,5,1.0\n")):
        (tmp_path / f"5-dqn.{name}").write_text(text)
    evidence = Evidence.under(tmp_path)
    [chart] = charts(evidence)
    told = figure(chart, took(evidence, chart.figure))
    assert "All 2 cells took 3 min on " in told
    assert "Confirmatory seeds: all 2 cells took" in told
