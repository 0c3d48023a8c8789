"""Pictures of runs: drawn for every kind of run, and the numbers in them against plain counting."""

import json
import math
import shutil

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib import image

from e3rl import cli
from e3rl.replay import Replay
from e3rl.reports import learning
from e3rl.reports.learning import draw_runs, lock_visits, running_mean
from e3rl.runs.folder import COLUMNS, RunFolder, checkpoint_together, read_metrics
from e3rl.runs.statistics import mean_interval
from e3rl.types import Trajectory, UserError

ABOUT = {"algo": "neural-e3", "env": "e3rl/CombinationLock-v0", "env_options": {"horizon": 3, "seed": 0}}
LATENT = np.array([[0, 1, 2], [1, 1, 0], [0, 2, 2], [0, 0, 1]])
"""The states of four episodes of three steps."""


def make_run(path, explore=4, exploit=2, about=ABOUT, optimum=5.0, phase="explore"):
    """A run's folder, written as training writes it."""
    folder = RunFolder(path)
    folder.write_config(about)
    for episode in range(explore + exploit):
        values = dict.fromkeys(COLUMNS, float(episode)) | {"phase": phase, "episode": episode + 1}
        if phase == "train":  # agents without models
            values |= dict.fromkeys(("disagreement", "model_loss", "v_explore"), math.nan)
        folder.add_row(**values | ({} if episode < explore else {"phase": "exploit"}))
    obs = jnp.concatenate([jnp.eye(3, dtype=jnp.int8)[LATENT], jnp.ones((4, 3, 1), jnp.int8)], axis=-1)
    zeros = jnp.zeros((4, 3))
    flags = jnp.zeros((4, 3), bool)
    episodes = Trajectory(obs, zeros.astype(jnp.int32), zeros, obs, flags, flags, ~flags)
    replay = Replay.empty(20, obs[0, 0]).append(episodes)  # with room left over, which must not count
    state = (None, None, replay) if phase == "explore" else {"weights": np.zeros(3)}
    checkpoint_together([folder], [state], [{"epoch": explore}])
    if exploit:
        summary = {
            **about, "seed": 0, "optimal_return": optimum, "exploit_return_mean": 4.5, "exploit_return_ci": None,
            "explore_episodes": explore, "wall_seconds": 1.0,
        }  # fmt: skip
        folder.finish({"weight": np.zeros(1)}, summary)
    return path


@pytest.fixture
def drawn(monkeypatch):
    """The figures that are drawn, by the name of the file, which is left out."""
    figures = {}
    monkeypatch.setattr(
        learning, "save_figure", lambda figure, path, **rest: figures.update({path.name: figure})
    )
    return figures


def panels(figure):
    """What is written beside each panel's vertical axis, or above the panel, without colour bars."""
    return [
        axes.get_ylabel() or axes.get_title(loc="left").partition(",")[0]
        for axes in figure.axes
        if axes.get_xlabel()
    ]


HEAT_MAP = "Where exploration went: share of the visits to each level"


def colours(path):
    picture = image.imread(path)
    return len(np.unique(picture.reshape(-1, picture.shape[-1]), axis=0))


def test_visits_are_counted_by_state_and_level(tmp_path):
    visits = lock_visits(make_run(tmp_path))
    counted = np.zeros((3, 3))
    for episode in LATENT:
        for level, state in enumerate(episode):
            counted[state, level] += 1
    np.testing.assert_array_equal(visits, counted)
    np.testing.assert_array_equal(visits.sum(axis=0), 4)


def test_titles_are_for_people_and_say_what_is_not_finished(tmp_path, drawn):
    done, begun = make_run(tmp_path / "seed0"), make_run(tmp_path / "seed1", exploit=0)
    for name, paths in (("one.png", [done]), ("open.png", [begun]), ("two.png", [done, begun])):
        draw_runs(paths, tmp_path / name)
    title = "Neural-E³: combination lock, 3 levels, "
    assert drawn["one.png"].get_suptitle() == f"{title}1 seed"
    assert drawn["open.png"].get_suptitle() == f"{title}1 seed (not finished)"
    assert drawn["two.png"].get_suptitle() == f"{title}2 seeds (1 not finished)"
    labels = [text.get_text() for axes in drawn["one.png"].axes for text in axes.get_yticklabels()]
    assert {"good state 1", "good state 2", "dead state"} <= set(labels)


@pytest.mark.parametrize("exploit", [2, 0])
def test_a_run_is_drawn_finished_or_not(tmp_path, exploit):
    picture = draw_runs([make_run(tmp_path / "run", exploit=exploit)], tmp_path / "new" / "learning.png")
    assert picture == tmp_path / "new" / "learning.png"
    assert colours(picture) > 20


def test_practice_has_a_part_of_its_own(tmp_path, drawn):
    path = make_run(tmp_path / "run")
    folder = RunFolder(path)
    folder.rows = [[*row.values()] for row in read_metrics(path)]
    folder.rows[2:4] = [["practice", *row[1:]] for row in folder.rows[2:4]]
    folder.write_rows()
    draw_runs([path], tmp_path / "learning.png")
    legend = [text.get_text() for text in drawn["learning.png"].axes[0].get_legend().get_texts()]
    assert [text.partition(" (")[0] for text in legend[1:4]] == ["explore", "practice", "exploit"]


def test_several_seeds_are_one_picture(tmp_path):
    paths = [make_run(tmp_path / f"seed{seed}", exploit=exploit) for seed, exploit in ((0, 2), (1, 1))]
    assert colours(draw_runs(paths, tmp_path / "learning.png")) > 20


@pytest.mark.parametrize("env", ["e3rl/Maze-v0", None])
def test_other_environments_have_no_map_of_visits(tmp_path, env, drawn):
    draw_runs([make_run(tmp_path / "lock")], tmp_path / "lock.png")
    path = make_run(tmp_path / "run", about=ABOUT | {"env": env, "env_options": {}}, optimum=None)
    draw_runs([path], tmp_path / "learning.png")
    assert panels(drawn["lock.png"]) == ["return", "disagreement of the models", HEAT_MAP]
    assert panels(drawn["learning.png"]) == ["return", "disagreement of the models"]


@pytest.mark.parametrize("algo", ["dqn", "ppo", "ppo-rnd"])
def test_agents_without_models_show_the_lengths_of_episodes(tmp_path, algo, drawn):
    path = make_run(tmp_path / "run", about=ABOUT | {"algo": algo}, phase="train")
    draw_runs([path], tmp_path / "learning.png")
    figure = drawn["learning.png"]
    assert panels(figure) == ["return", "steps of the episode"]
    _, labels = figure.axes[0].get_legend_handles_labels()
    assert labels == ["episode", "train (mean of 1)", "exploit (mean of 1)", "optimal return"]
    for axes in figure.axes:
        np.testing.assert_array_equal(axes.lines[0].get_xydata(), [[i + 1, i] for i in range(6)])


def test_report_on_a_baseline(tmp_path, capsys):
    """The picture itself; a lock without a map of visits is flatter."""
    path = make_run(tmp_path / "dqn", about=ABOUT | {"algo": "dqn"}, phase="train")
    assert cli.main(["report", str(path)]) == 0
    verdict, picture, _ = capsys.readouterr().out.splitlines()
    assert verdict == "seed 0: return 4.500, 90% of the optimum 5.000, after 4 training episodes, 1 s"
    assert picture == f"picture: {path / 'learning.png'}"
    lock = draw_runs([make_run(tmp_path / "lock")], tmp_path / "lock.png")
    assert image.imread(path / "learning.png").shape[0] < image.imread(lock).shape[0]


def test_a_run_without_a_checkpoint_yet_has_no_map_of_visits(tmp_path, drawn):
    path = make_run(tmp_path / "run", exploit=0)
    shutil.rmtree(path / "checkpoint")
    draw_runs([path], tmp_path / "learning.png")
    assert panels(drawn["learning.png"]) == ["return", "disagreement of the models"]


def test_an_agent_nobody_knows_any_more_is_drawn_too(tmp_path, drawn):
    path = make_run(tmp_path / "run", about=ABOUT | {"algo": "sarsa"})
    draw_runs([path], tmp_path / "learning.png")
    assert panels(drawn["learning.png"]) == ["return", "disagreement of the models"]


def test_what_is_no_run(tmp_path):
    with pytest.raises(UserError, match=r"config.json is missing"):
        draw_runs([tmp_path], tmp_path / "x.png")
    make_run(tmp_path)
    table = tmp_path / "metrics.csv"
    text = table.read_text()
    table.write_text(text.replace("explore,1,0,0,", "explore,1,0,much,"))
    with pytest.raises(UserError, match=r"metrics.csv is damaged: .*'much'"):
        draw_runs([tmp_path], tmp_path / "x.png")
    table.unlink()
    with pytest.raises(UserError, match=r"metrics.csv is missing"):
        draw_runs([tmp_path], tmp_path / "x.png")
    table.write_text(text)
    (tmp_path / "checkpoint" / "state.safetensors").write_bytes(b"half")
    with pytest.raises(UserError, match=r"state\.safetensors is damaged"):
        draw_runs([tmp_path], tmp_path / "x.png")
    (tmp_path / "config.json").write_text(json.dumps({"env": None}))
    assert colours(draw_runs([tmp_path], tmp_path / "x.png")) > 20


def test_running_mean_looks_back():
    row = np.array([2.0, 4.0, 9.0, 1.0])
    np.testing.assert_allclose(running_mean(row, 1), row)
    np.testing.assert_allclose(running_mean(row, 3), [2, 3, 5, 14 / 3])
    np.testing.assert_allclose(running_mean(row, 9), [2, 3, 5, 4])


def test_mean_and_interval_by_hand():
    mean, low, high = mean_interval(np.array([1.0, 3.0]))
    assert (mean, low, high) == pytest.approx((2.0, 2.0 - 1.96, 2.0 + 1.96))  # deviation √2 over √2
    assert np.isnan(mean_interval(np.array([7.0]))[1:]).all()
