"""Pictures of runs: drawn for every kind of run, and the numbers in them against plain counting."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib import image

from e3rl.runs.folder import COLUMNS, RunFolder, checkpoint_together
from e3rl.runs.statistics import mean_interval
from e3rl.replay import Replay
from e3rl.reports.learning import _running_mean, draw_runs, lock_visits
from e3rl.types import Trajectory, UserError

ABOUT = {"algo": "neural-e3", "env": "e3rl/CombinationLock-v0", "env_options": {"horizon": 3, "seed": 0}}
LATENT = np.array([[0, 1, 2], [1, 1, 0], [0, 2, 2], [0, 0, 1]])
"""The states of four episodes of three steps."""


def make_run(path, explore=4, exploit=2, about=ABOUT, optimum=5.0):
    """A run's folder, written as training writes it."""
    folder = RunFolder(path)
    folder.write_config(about)
    for episode in range(explore + exploit):
        phase = "explore" if episode < explore else "exploit"
        values = dict.fromkeys(COLUMNS, float(episode)) | {"phase": phase, "episode": episode + 1}
        folder.add_row(**values)
    obs = jnp.concatenate([jnp.eye(3, dtype=jnp.int8)[LATENT], jnp.ones((4, 3, 1), jnp.int8)], axis=-1)
    zeros = jnp.zeros((4, 3))
    flags = jnp.zeros((4, 3), bool)
    episodes = Trajectory(obs, zeros.astype(jnp.int32), zeros, obs, flags, flags, ~flags)
    replay = Replay.empty(20, obs[0, 0]).append(episodes)  # with room left over, which must not count
    checkpoint_together([folder], [(None, None, replay)], [{"epoch": explore}])
    if exploit:
        folder.finish({"weight": np.zeros(1)}, {"optimal_return": optimum})
    return path


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


@pytest.mark.parametrize("exploit", [2, 0])
def test_a_run_is_drawn_finished_or_not(tmp_path, exploit):
    picture = draw_runs([make_run(tmp_path / "run", exploit=exploit)], tmp_path / "new" / "learning.png")
    assert picture == tmp_path / "new" / "learning.png"
    assert colours(picture) > 20


def test_several_seeds_are_one_picture(tmp_path):
    paths = [make_run(tmp_path / f"seed{seed}", exploit=exploit) for seed, exploit in ((0, 2), (1, 1))]
    assert colours(draw_runs(paths, tmp_path / "learning.png")) > 20


@pytest.mark.parametrize("env", ["e3rl/Maze-v0", None])
def test_other_environments_have_no_map_of_visits(tmp_path, env):
    lock = draw_runs([make_run(tmp_path / "lock")], tmp_path / "lock.png")
    path = make_run(tmp_path / "run", about=ABOUT | {"env": env, "env_options": {}}, optimum=None)
    picture = draw_runs([path], tmp_path / "learning.png")
    assert colours(picture) > 20
    assert image.imread(picture).shape[0] < image.imread(lock).shape[0]


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
    (tmp_path / "checkpoint" / "state.safetensors").unlink()
    with pytest.raises(UserError, match="no checkpoint at"):
        draw_runs([tmp_path], tmp_path / "x.png")
    (tmp_path / "config.json").write_text(json.dumps({"env": None}))
    assert colours(draw_runs([tmp_path], tmp_path / "x.png")) > 20


def test_running_mean_looks_back():
    row = np.array([2.0, 4.0, 9.0, 1.0])
    np.testing.assert_allclose(_running_mean(row, 1), row)
    np.testing.assert_allclose(_running_mean(row, 3), [2, 3, 5, 14 / 3])
    np.testing.assert_allclose(_running_mean(row, 9), [2, 3, 5, 4])


def test_mean_and_interval_by_hand():
    mean, low, high = mean_interval(np.array([1.0, 3.0]))
    assert (mean, low, high) == pytest.approx((2.0, 2.0 - 1.96, 2.0 + 1.96))  # deviation √2 over √2
    assert np.isnan(mean_interval(np.array([7.0]))[1:]).all()
