"""The paper's figures as lists of cells: every cell is one that can be run, and the docs show the map."""

from pathlib import Path

import pytest

from e3rl.experiments.catalogue import EXPERIMENTS, IS_DONE, SETTINGS, results_folder
from e3rl.experiments.figures import FIGURES
from e3rl.experiments.names import LOCK
from e3rl.reports.claims.table import judged
from e3rl.reports.drawn import DRAWN
from e3rl.reports.reproduction import BEGIN, END, made

PAGE = Path(__file__).parents[2] / "docs" / "reproduce.md"
RESULTS = PAGE.parents[1] / "results"


def test_every_cell_can_be_run_and_told_done():
    for figure in FIGURES.values():
        assert len(set(figure.cells)) == len(figure.cells) > 0
        for cell in figure.cells:
            assert cell in DRAWN or (cell in EXPERIMENTS and cell in IS_DONE)
    assert {cell for figure in FIGURES.values() for cell in figure.cells} == set(FIGURES["all"].cells)
    assert not set(FIGURES["beside"].cells) & set(FIGURES["paper"].cells)


def test_claims_rest_on_cells_of_the_figures_and_those_beside():
    """But for what has a command of its own: planning with the true dynamics, DREEM, and another library's agents."""
    asked = {cell for one in judged(RESULTS) for cell in one.cells}
    others = {cell for cell in asked if cell.startswith(("dreem/", "perfect-model/", "peers/"))}
    assert asked - others <= set(FIGURES["all"].cells)
    assert set(FIGURES["beside"].cells) <= asked


@pytest.mark.parametrize(
    ("figure", "antishaped"), [("figure-2a", False), ("figure-2b", True), ("figure-4", None)]
)
def test_lock_figures_have_every_method_at_every_horizon(figure, antishaped):
    found = set()
    for cell in FIGURES[figure].cells:
        experiment = SETTINGS[cell]
        if cell.startswith("baselines"):
            options = dict(experiment.options)
            assert (experiment.env, options["antishaped"]) == (
                LOCK,
                options["antishaped"] if antishaped is None else antishaped,
            )
            found.add((experiment.algo, options["horizon"]))
        else:
            assert set(experiment.rewards) == {"standard", "antishaped"}
            found.add(("neural-e3", experiment.horizon))
    methods = ("neural-e3", "dqn", "ppo", "ppo-rnd")
    assert found == {(method, horizon) for method in methods for horizon in (5, 10, 15, 20)}


def test_more_episodes_are_more():
    for cell in FIGURES["figure-4"].cells:
        if cell.startswith("baselines-long/"):
            short = SETTINGS[cell.replace("-long/", "-lock/")]
            assert SETTINGS[cell].steps > short.steps
            assert (SETTINGS[cell].options, SETTINGS[cell].algo) == (short.options, short.algo)


def test_mazes_and_control_tasks_have_the_papers_methods():
    mazes, control = set(FIGURES["figure-2c"].cells), set(FIGURES["figure-2d"].cells)
    for size in (5, 10, 20):
        assert {f"maze/{size}-paper", f"maze/{size}-paper-ue2", f"baselines-maze/{size}-dqn"} <= mazes
        assert SETTINGS[f"baselines-maze/{size}-dqn"].config == "paper-maze-dqn"
    for task in ("mountaincar", "acrobot"):
        assert {f"{task}/paper", f"baselines-{task}/dqn", f"baselines-{task}/ppo-rnd"} <= control


def test_where_cells_lie():
    assert results_folder("predictions") == Path("results/figures/figure5")
    assert results_folder("ellipsoids", Path("there")) == Path("there/dreem")
    assert results_folder("baselines-long/h5-standard-dqn") == Path("results/baselines")


def test_the_page_is_as_the_code_has_it():
    """`python -m e3rl.reports.reproduction docs/reproduce.md` brings it up to date."""
    page = PAGE.read_text()
    assert made(page) == page
    assert "| figure-2c | `e3rl reproduce figure-2c` |" in page
    assert (
        "| C.3 E³ | `paper-control` | DQN Learning Rate | 0.0003 | `exploit.value.learning_rate` 0.0003 |"
        in page
    )
    assert made(page.replace("0.0003", "0.3")) == page


def test_a_page_without_its_marks_is_no_page():
    with pytest.raises(AssertionError, match="lost its mark of figures"):
        made(PAGE.read_text().replace(BEGIN.format("figures"), END))
