"""`e3rl train` without any training: what it refuses, and what it calls things."""

import json
import re
import sys
from pathlib import Path

import gymnasium
import pytest
from matplotlib.figure import Figure

from e3rl import cli
from e3rl.cli import training
from e3rl.experiments.agents import AGENTS
from e3rl.neural.agent import NeuralE3
from e3rl.reports import learning
from e3rl.reports.saving import save_figure
from e3rl.runs import train as train_module
from e3rl.types import UserError

SUMMARY = {
    "seed": 0, "exploit_return_mean": 1.0, "exploit_return_ci": None, "explore_episodes": 7, "wall_seconds": 1.0,
    "total_episodes": 9,
}  # fmt: skip


def one_line(capsys, words):
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"e3rl: error: .*{words}.*\n", err), err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["lock", "--set", "hiden=8"], "unknown setting 'hiden'; did you mean 'model.hidden'"),
        (["lock", "--set", "model.hiden=8"], "model 'bernoulli' has no setting 'hiden'; it has hidden, "),
        (["lock", "--set", "planner=graph", "planner.playouts=3"], "'graph' has no setting 'playouts'; it has nodes, "),
        (["lock", "--set", "planner.playouts=3"], "planner 'value' has no setting 'playouts'; it has value"),
        (["lock", "--set", "planner=xyz"], "unknown planner 'xyz'; known: value, "),
        (["lock", "--set", "planner=graph", "playouts=3"],
         "playouts is now called planner.playouts or exploit.playouts, which the parts chosen here do not have"),
        (["lock", "--set", "fit=3"], "fit is a group: set one of its own settings, such as fit.members"),
        (["lock", "--set", "clock.x=3"], "clock is true or false: it has no setting 'x'"),
        (["lock", "--config", "papr"], "unknown config 'papr'; `e3rl settings` lists them all"),
        (["lock", "--config", "e3rl-contrl"], "unknown config 'e3rl-contrl'; did you mean 'e3rl-control'"),
        (["lokc"], "unknown environment 'lokc'; did you mean 'lock'"),
        (["lock", "--algo", "dqn", "--config", "e3rl"], "unknown config 'e3rl'; known: auto, e3rl-dqn, "),
        (["lock", "--set", "fit.members=0"], "members must be at least 1, got 0"),
        (["lock", "--set", "planner.value.target_rate=0"], "target_rate must be above 0"),
        (["lock", "--set", "model.hidden"], "--set takes key=value, got 'model.hidden'"),
        (["lock", "--set", "model.hidden=big"], "hidden must be a whole number, got 'big'"),
        (["lock", "--set", "utility.caution=nan"], "caution must be a finite number"),
        (["lock", "--set", "planner.value.heads=yes"], "heads must be true or false, got 'yes'"),
        (["lock", "--algo", "ppo", "--set", "bonus.embedding=4"], "bonus 'none' has no setting 'embedding'"),
        (["lock", "--algo", "ppo-rnd", "--set", "bonus=none"], "ppo-rnd needs a bonus: bonus=rnd, or train ppo"),
        (["lock", "--horizon", "0"], "horizon must be at least 1, got 0"),
        (["lock", "--horizon", "x"], "--horizon"),
        (["lock", "--env", "horizn=3"], "takes no argument 'horizn'; did you mean 'horizon'"),
        (["lock", "--env", "horizon=three"], "CombinationLock-v0: horizon must be a whole number, got 'three'"),
        (["lock", "--env", "noise_bits=2.5"], "CombinationLock-v0: noise_bits must be a whole number, got 2.5"),
        (["lock", "--env", f"seed={10**20}"], r"seed must be a whole number from 0 to .*, got 10{20}"),
        (["lock", "--env", "antishaped=no"], "antishaped must be true or false, got 'no'"),
        (["lock", "--env", "switch=true"], "switch must be a number, got True"),
        (["maze", "--env", "size=5.5"], "Maze-v0: size must be a whole number, got 5.5"),
        (["lock", "--env", "noise_bits"], "--env takes key=value, got 'noise_bits'"),
        (["lock", "--size", "3"], "--size belongs to maze"),
        (["lock", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["lock", "--seed", "-1"], "--seed must be from 0"),
        (["lock", "--seed", "2147483648"], "--seed must be from 0"),
        (["lock", "--algo", "sarsa"], f"unknown algorithm 'sarsa'; known: {', '.join(AGENTS)}"),
        (["lock", "--algo", "ppo-rdn"], "unknown algorithm 'ppo-rdn'; did you mean 'ppo-rnd'. known: neural-e3, "),
        (["mountaincar", "--horizon", "3"], "--horizon belongs to lock: mountaincar has no horizon"),
        (["maze", "--config", "e3rl-image", "--set", "model=mlp"], "'mlp' is for vectors: use 'conv' for Box"),
        (["CartPole-v1", "--config", "e3rl"], "'bernoulli' is for binary vectors: use 'mlp' for Box"),
        (["lock", "--async"], "only Gymnasium environments given by their id can be asynchronous"),
        (["lock", "--algo", "dqn", "--async"], "only Gymnasium environments given by their id can be asynchronous"),
        (["Pendulum-v1"], "continuous action space"),
        (["CartPol-v1"], "unknown environment 'CartPol-v1'.*named with its module, as in my_package:Mine-v0"),
        (["no_such_module:Mine-v0"], "needs a package that is not installed: No module named 'no_such_module'"),
        (["--set", "fit.members=2"], "the following arguments are required: ENV"),
        (["lock", "--log", "wandb"], "--log"),
        (["e3rl/Lock-v0"], "unknown environment 'e3rl/Lock-v0'"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_and_leaves_no_folder(argv, words, tmp_path, capsys):
    assert cli.main(["train", *argv, "--out", str(tmp_path / "run")]) == 2
    one_line(capsys, words)
    assert not (tmp_path / "run").exists()


def test_a_place_that_cannot_hold_a_run(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["train", "lock", "--horizon", "3", "--out", str(tmp_path / "file")]) == 2
    one_line(capsys, "file is a file: give a folder as --out")
    assert cli.main(["train", "lock", "--out", ""]) == 2
    one_line(capsys, "argument --out: a folder's name is missing")


@pytest.fixture
def trained(monkeypatch):
    """Training left out: what was asked for instead."""
    asked = []

    def train(agent, env, options, config, seeds, out, **more):
        asked.append((agent, env, options, config, list(seeds), more))
        return [out], [SUMMARY]

    monkeypatch.setattr(train_module, "train", train)
    monkeypatch.setattr(learning, "draw_runs", lambda paths, picture: picture)
    return asked


@pytest.mark.parametrize(
    ("argv", "folder"),
    [
        (["--horizon", "10", "--antishaped"], "lock-neural-e3-horizon10-antishaped-seed0"),
        (["--seed", "2", "--seeds", "3"], "lock-neural-e3-seeds2-4"),
        (["--algo", "ue2", "--config", "paper-lock-h5"], "lock-ue2-paper-lock-h5-seed0"),
        (["--set", "model.hidden=8", "fit.batch=4", "--env", "noise_bits=1"],
         "lock-neural-e3-noise_bits1-model.hidden8-fit.batch4-seed0"),
    ],
)  # fmt: skip
def test_the_default_folder_names_all_that_was_chosen(argv, folder, trained, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["train", "lock", *argv]) == 0
    verdict, picture, following = capsys.readouterr().out.splitlines()
    assert verdict.endswith(f"(runs/{folder})")
    assert picture == f"picture: runs/{folder}/learning.png"
    assert following == f"next: e3rl evaluate runs/{folder} --episodes 1000"


@pytest.mark.parametrize("json_too", [[], ["--json"]])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            UserError("cannot write run/learning.png: File too large"),
            "cannot write run/learning.png: File too large",
        ),
        (OSError(27, "File too large", "run/learning.png"), "run/learning.png: File too large"),
    ],
)
def test_a_picture_that_cannot_be_drawn_hides_no_result(
    error, words, json_too, trained, tmp_path, monkeypatch, capsys
):
    def draw(paths, picture):
        raise error

    monkeypatch.setattr(learning, "draw_runs", draw)
    assert cli.main(["train", "lock", "--out", str(tmp_path), "--algo", "neural-e3", *json_too]) == 0
    out, err = capsys.readouterr()
    assert err == f"e3rl: no picture: {words}\n"
    if json_too:
        assert json.loads(out) == {"runs": [SUMMARY], "figure": None}
    else:
        assert [line.partition(":")[0] for line in out.splitlines()] == ["seed 0", "next"]


def test_a_picture_is_written_whole_or_its_error_names_it(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot write .*file/picture.png: "):
        save_figure(Figure(), tmp_path / "file" / "picture.png")
    save_figure(Figure(), tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_options_reach_the_training_as_they_were_meant(trained, tmp_path):
    argv = ["lock", "--horizon", "4", "--env", "switch=0.25", "antishaped=True", "name=x", "--seed", "3"]
    argv += ["--algo", "neural-e3"]
    argv += ["--resume", "--async", "--set", "fit.batch=4", "--out", str(tmp_path)]
    assert cli.main(["train", *argv]) == 0
    [(agent, env, options, config, seeds, more)] = trained
    assert (agent, env, config, seeds) == (NeuralE3, "e3rl/CombinationLock-v0", "auto", [3])
    assert options == {"switch": 0.25, "antishaped": True, "name": "x", "horizon": 4}
    assert (more["resume"], more["asynchronous"], more["changes"]) == (True, True, {"fit.batch": "4"})


@pytest.mark.parametrize(
    "argv",
    [["--set", "fit.batch=4", "lock"], ["--env", "noise_bits=1", "lock", "--set", "fit.batch=4"],
     ["--seed", "0", "--set", "fit.batch=4", "lock", "--horizon", "4"],
     ["--seed", "0", "lock", "--set", "fit.batch=4"]],
)  # fmt: skip
def test_the_environment_may_stand_behind_a_setting(argv, trained, tmp_path):
    assert cli.main(["train", *argv, "--out", str(tmp_path)]) == 0
    [(_, env, options, _, _, more)] = trained
    assert (env, more["changes"]) == ("e3rl/CombinationLock-v0", {"fit.batch": "4"})
    assert all("=" not in str(value) for value in options.values())


OWN = """
import gymnasium
gymnasium.register("Coin-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=5)
"""


def test_an_environment_of_the_current_folder_is_found_by_its_module(tmp_path, monkeypatch, trained):
    name = "own_environment_of_the_current_folder"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])  # as an installed command has it
    try:
        assert cli.main(["train", f"{name}:Coin-v0"]) == 0
    finally:
        sys.modules.pop(name, None)
        gymnasium.registry.pop("Coin-v0", None)
    assert trained[0][1] == f"{name}:Coin-v0"


@pytest.mark.parametrize("algo", AGENTS)
def test_every_algorithm_of_the_registry_can_be_named(algo, trained, tmp_path, capsys):
    assert cli.main(["train", "lock", "--algo", algo, "--out", str(tmp_path)]) == 0
    assert trained[0][0] is AGENTS[algo]
    kind = "exploration" if AGENTS[algo].explores_first else "training"
    assert f"after 7 {kind} episodes" in capsys.readouterr().out


def test_the_default_folder_of_many_settings_can_be_made(tmp_path):
    def folder(hidden):
        args = cli.parser().parse_args(["train", "../ä", "--config", "e3rl"])
        settings = {f"setting{i}": "long" * 5 for i in range(20)} | {"hidden": hidden}
        return training._default_folder(args, {}, settings, range(2))

    (tmp_path / folder("1")).mkdir(parents=True)
    assert folder("1").parent == Path("runs")
    assert folder("1") != folder("2")
    assert folder("1").name.endswith("-seeds0-1")
