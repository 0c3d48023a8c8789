"""Where the runs of several seeds lie, and what is said of them together."""

import numpy as np
import pytest

from e3rl.runs.checkpoint import commit_file, staged
from e3rl.runs.folder import RunFolder, write_json
from e3rl.runs.seed_folders import left_apart, refuse_mixture, seed_folders, what_is_kept
from e3rl.types import UserError

ABOUT = {"algo": "neural-e3", "env": "id", "env_options": {"horizon": 3}, "seed": 0, "config": {"hidden": 8}}


def saved(path, epoch):
    """A run that has come so far."""
    folder = RunFolder(path)
    folder.begin(ABOUT, resume=True)
    folder.stage_checkpoint({"weight": np.zeros(2)}, epoch=epoch)
    commit_file(folder.state)
    folder.lock.release()
    return folder


def test_seeds_are_in_the_order_of_their_numbers(tmp_path):
    for name in ("seed10", "seed9", "seed100", "seed1"):
        write_json(tmp_path / name / "config.json", {})
    (tmp_path / "seed2").mkdir()  # nothing began there
    assert [path.name for path in seed_folders(tmp_path)] == ["seed1", "seed9", "seed10", "seed100"]


def test_several_seeds_go_into_a_folder_of_their_own(tmp_path):
    (tmp_path / "learning.png").write_text("mine")
    paths = [tmp_path / "seed0", tmp_path / "seed1"]
    with pytest.raises(UserError, match=r"holds no runs \(learning.png is there\)"):
        refuse_mixture(tmp_path, paths)
    write_json(paths[0] / "config.json", ABOUT)
    refuse_mixture(tmp_path, paths)  # by now the picture is that of these runs


def test_seeds_that_were_trained_together_are_at_the_same_epoch(tmp_path):
    folders = [RunFolder(tmp_path / f"seed{seed}") for seed in range(2)]
    assert not left_apart(folders)
    saved(folders[0].path, 2)
    assert left_apart(folders)
    saved(folders[1].path, 2)
    assert not left_apart(folders)
    saved(folders[1].path, 3)
    assert left_apart(folders)
    folders[0].stage_checkpoint({"weight": np.zeros(2)}, epoch=3)
    assert not left_apart(folders)  # a kill came before the last of them was committed
    staged(folders[0].state).write_bytes(b"torn")
    assert left_apart(folders)


def test_what_is_kept_names_every_seed_that_has_a_checkpoint(tmp_path):
    folders = [RunFolder(tmp_path / f"seed{seed}") for seed in range(3)]
    assert what_is_kept(folders) == "nothing to save yet"
    saved(folders[2].path, 1)
    assert what_is_kept(folders) == f"saved in {folders[2].path} by its last checkpoint"
    saved(folders[0].path, 5)
    places = f"{folders[0].path}, {folders[2].path}"
    assert what_is_kept(folders) == f"saved in {places} by their last checkpoints"
