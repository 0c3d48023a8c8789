"""The command line, called in-process: what it prints, where, and with which exit code."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest
from matplotlib import image
from safetensors.numpy import save_file

import e3rl
from e3rl import cli
from e3rl.cli import environments, neural
from e3rl.envs.lock import CombinationLock
from e3rl.envs.registration import ENVIRONMENTS
from e3rl.experiments import runner
from e3rl.neural.config import named
from e3rl.neural.lanes import lanes_for
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.runs.settings import changed
from e3rl.reports import learning
from e3rl.types import UserError


def test_envs_json_is_one_object_that_agrees_with_gymnasium(capsys):
    assert cli.main(["envs", "--json"]) == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)["envs"]
    assert err == ""
    assert [row["id"] for row in rows] == list(ENVIRONMENTS)
    for row in rows:
        env = gymnasium.make(row["id"], **row["options"])
        assert row["observation_space"] == str(env.observation_space)
        assert row["action_space"] == str(env.action_space)
        assert row["time_limit"] == env.unwrapped.functional.time_limit


def test_envs_table_names_every_id_actions_and_time_limit(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    assert cli.main(["envs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for env_id in ENVIRONMENTS:
        assert any(env_id in line for line in lines)
    maze = next(line for line in lines if "e3rl/Maze-v0" in line)
    assert re.split("  +", maze.strip())[:4] == ["e3rl/Maze-v0", "Box 10×10×3", "4", "100"]


def test_draw_writes_the_panels_and_the_combined_figure(tmp_path, capsys):
    assert cli.main(["envs", "--draw", str(tmp_path / "new"), "--json"]) == 0
    drawn = [Path(path) for path in json.loads(capsys.readouterr().out)["drawn"]]
    assert sorted(drawn) == sorted((tmp_path / "new").iterdir())
    names = ["lock", "maze-1", "maze-2", "mountain-car", "acrobot", "environments"]
    assert [path.name for path in drawn] == [f"{name}.png" for name in names]
    pictures = {path.stem: image.imread(path) for path in drawn}
    for picture in pictures.values():
        assert len(np.unique(picture.reshape(-1, picture.shape[-1]), axis=0)) >= 3  # not blank
    assert not np.array_equal(pictures["maze-1"], pictures["maze-2"])


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "COMMAND"),
        (["nonsense"], "nonsense"),
        (["envs", "--colour"], "--colour"),
        (["envs", "--draw"], "--draw"),
        (["bench", "nonsense"], "nonsense"),
    ],
)
def test_bad_input_is_one_line_on_stderr_and_exit_code_2(argv, words, capfd):
    assert cli.main(argv) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert re.fullmatch(rf"e3rl: error: .*{words}.*\n", err)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, capsys):
    blocker = tmp_path / "file"
    blocker.write_text("")
    assert cli.main(["envs", "--draw", str(blocker / "inside")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("e3rl: error: ")
    assert str(blocker) in err
    assert err.count("\n") == 1


def raising(error):
    def run(args):
        raise error

    return run


def test_user_errors_become_one_line_and_bugs_keep_their_traceback(capsys, monkeypatch):
    monkeypatch.setattr(cli, "envs", raising(UserError("first\nsecond")))
    assert cli.main(["envs"]) == 2
    assert capsys.readouterr().err == "e3rl: error: first second\n"
    monkeypatch.setattr(cli, "envs", raising(ValueError("a bug")))
    with pytest.raises(ValueError, match="a bug"):
        cli.main(["envs"])


def test_interrupt_exits_with_130(monkeypatch):
    monkeypatch.setattr(cli, "envs", raising(KeyboardInterrupt()))
    assert cli.main(["envs"]) == 130


def test_a_reader_that_leaves_is_no_error():
    command = [
        sys.executable,
        "-c",
        "import sys; from e3rl.cli import main; sys.exit(main(['envs', '--json']))",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_it_runs_as_a_module_and_its_help_imports_no_experiment():
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "e3rl.cli", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert done.stdout.startswith("usage: e3rl")
    assert "e3rl.experiments" not in done.stderr
    assert "matplotlib" not in done.stderr


def test_help_and_version(capsys):
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "envs" in text
    assert "bench" in text
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"e3rl {e3rl.__version__}\n"


def test_bench_outside_a_checkout_says_so(tmp_path, monkeypatch, capsys):
    installed = tmp_path / "lib" / "site-packages" / "e3rl" / "cli" / "environments.py"
    monkeypatch.setattr(environments, "__file__", str(installed))
    assert cli.main(["bench", "envs"]) == 2
    assert re.fullmatch("e3rl: error: .*checkout.*\n", capsys.readouterr().err)


def test_bench_prints_and_saves_what_the_benchmarks_report(tmp_path, monkeypatch, capsys):
    row = {"name": "fake/a", "ours_s": 0.5, "yardstick": "theirs", "yardstick_s": 2.0, "ratio": 4.0}
    lone = {"name": "fake/b", "ours_s": 0.25, "yardstick": None, "yardstick_s": None, "ratio": None}
    report = {"rows": [row, lone], "config": {"fake": {"unit": "seconds a go"}}, "machine": {"commit": None}}
    checkout = tmp_path / "checkout"
    (checkout / "benchmarks").mkdir(parents=True)
    (checkout / "benchmarks" / "run.py").write_text(f"print({json.dumps(report)!r})")
    source = checkout / "src" / "e3rl" / "cli" / "environments.py"
    monkeypatch.setattr(environments, "__file__", str(source))
    assert cli.main(["bench", "--json", "--out", str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out) == report
    saved = json.loads((tmp_path / "out" / "fake.json").read_text())
    assert saved == {"rows": [row, lone], "config": {"unit": "seconds a go"}, "machine": {"commit": None}}
    monkeypatch.setenv("COLUMNS", "120")
    assert cli.main(["bench"]) == 0
    lines = [re.split("  +", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert ["fake/a", "0.5 s", "2 s", "4.0×", "theirs"] in lines
    assert ["fake/b", "0.25 s"] in lines
    assert ["fake: seconds a go"] in lines


# `e3rl train`, on a lock of three levels with everything small.

TINY = {
    "explore_episodes": 7, "ensemble_size": 2, "hidden": 8, "model_updates": 2, "model_batch": 4, "value_updates": 2,
    "value_batch": 4, "exploit_updates": 20, "evaluation_episodes": 5, "playouts": 4, "particles": 2, "dqn_batch": 4,
    "round_episodes": 3, "round_updates": 2,
}  # fmt: skip
LOCK = ["lock", "--horizon", "3", "--antishaped", "--env", "noise_bits=1", "--seed", "3"]
SUMMARY = {
    "seed": 0, "exploit_return_mean": 1.0, "exploit_return_ci": None, "explore_episodes": 7, "wall_seconds": 1.0,
}  # fmt: skip
SET = ["--set", *(f"{key}={value}" for key, value in TINY.items())]


def train(out, *more):
    return cli.main(["train", *LOCK, *SET, "--out", str(out), *more])


@pytest.fixture(scope="module")
def compiled():
    """Held here, the compiled functions serve every run of this module."""
    settings = changed(named("e3rl"), {key: str(value) for key, value in TINY.items()})
    return lanes_for(CombinationLock(3, noise_bits=1), settings)


@pytest.fixture(scope="module")
def trained(compiled, tmp_path_factory):
    out = tmp_path_factory.mktemp("trained")
    assert train(out / "run") == 0
    return out / "run"


def assert_same_run(one, other):
    assert RunFolder(one).policy.read_bytes() == RunFolder(other).policy.read_bytes()
    tables = [[{**row, "seconds": None} for row in read_metrics(path)] for path in (one, other)]
    assert tables[0] == tables[1]


def one_line(capsys, words):
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"e3rl: error: .*{words}.*\n", err), err


def test_train_prints_its_verdict_and_draws_its_picture(compiled, tmp_path, capsys):
    assert train(tmp_path / "run") == 0
    out, err = capsys.readouterr()
    verdict, picture, following = out.splitlines()
    assert re.fullmatch(
        r"seed 3: return -?\d\.\d{3} \(95% interval .*\), -?\d+% of the optimum 4\.333, "
        r"after 7 exploration episodes, \d+ s \(.*run\)",
        verdict,
    )
    assert picture == f"picture: {tmp_path / 'run' / 'learning.png'}"
    assert image.imread(tmp_path / "run" / "learning.png").size > 0
    assert following == f"next: e3rl evaluate {tmp_path / 'run'} --episodes 1000"
    assert "compiling" in err
    assert "explore: episode 7/7" in err
    assert "exploit: episode 12/12" in err


def test_train_json_is_one_object_and_nothing_else(compiled, tmp_path, capsys):
    assert train(tmp_path / "run", "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    report = json.loads(out, parse_constant=pytest.fail)
    assert report["runs"] == [RunFolder(tmp_path / "run").summary()]
    assert Path(report["figure"]).is_file()
    assert report["runs"][0]["env_options"] == {
        "horizon": 3, "antishaped": True, "noise_bits": 1, "seed": 3,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("argv", "folder"),
    [
        (["--horizon", "10", "--antishaped"], "lock-neural-e3-horizon10-antishaped-seed0"),
        (["--seed", "2", "--seeds", "3"], "lock-neural-e3-seeds2-4"),
        (["--algo", "ue2", "--config", "paper-lock-h5"], "lock-ue2-paper-lock-h5-seed0"),
        (["--set", "hidden=8", "ucb=0.5", "--env", "noise_bits=1"], "lock-neural-e3-noise_bits1-hidden8-ucb0.5-seed0"),
    ],
)  # fmt: skip
def test_the_default_folder_names_all_that_was_chosen(argv, folder, tmp_path, monkeypatch, capsys):
    """Seen in the hint, with the training itself left out."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "train", lambda env, options, config, seeds, out, *rest: ([out], [SUMMARY]))
    monkeypatch.setattr(learning, "draw_runs", lambda paths, picture: picture)
    assert cli.main(["train", "lock", *argv]) == 0
    verdict, picture, following = capsys.readouterr().out.splitlines()
    assert verdict.endswith(f"(runs/{folder})")
    assert picture == f"picture: runs/{folder}/learning.png"
    assert following == f"next: e3rl evaluate runs/{folder} --episodes 1000"


def test_the_default_folder_of_many_settings_can_be_made(tmp_path):
    def folder(hidden):
        args = cli.parser().parse_args(["train", "../ä", "--config", "e3rl"])
        settings = {f"setting{i}": "long" * 5 for i in range(20)} | {"hidden": hidden}
        return neural._default_folder(args, {}, settings, range(2))

    (tmp_path / folder("1")).mkdir(parents=True)
    assert folder("1").parent == Path("runs")
    assert folder("1") != folder("2")
    assert folder("1").name.endswith("-seeds0-1")


def test_nothing_is_kept_for_a_user_without_a_home(monkeypatch):
    def nobody():
        raise RuntimeError("Could not determine home directory.")

    kept = jax.config.jax_compilation_cache_dir
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", nobody)
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        neural._keep_compiled_programs()
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", kept)


def test_evaluate(trained, capsys):
    assert cli.main(["evaluate", str(trained), "--episodes", "6", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["episodes"] == 6
    assert report["optimal_return"] == pytest.approx(5 - 2 / 3)
    assert report["share_of_optimum"] == pytest.approx(report["return_mean"] / report["optimal_return"])
    assert cli.main(["evaluate", str(trained), "--episodes", "6"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"6 greedy episodes: return {report['return_mean']:.3f} (95% interval ")


def test_evaluating_one_episode_has_no_interval(trained, capsys):
    assert cli.main(["evaluate", str(trained), "--episodes", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["return_ci"] is None
    assert cli.main(["evaluate", str(trained), "--episodes", "1"]) == 0
    assert "interval" not in capsys.readouterr().out


def test_report(trained, capsys):
    (trained / "learning.png").unlink()
    assert cli.main(["report", str(trained), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == {
        "runs": [RunFolder(trained).summary()],
        "figure": str(trained / "learning.png"),
        "figures": [],  # those of searches and predictions, which a lock has not
    }
    assert (trained / "learning.png").stat().st_size > 0
    assert cli.main(["report", str(trained)]) == 0
    assert "seed 3: return" in capsys.readouterr().out


def test_several_seeds(compiled, tmp_path, capsys):
    assert train(tmp_path / "runs", "--seeds", "2", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert [run["seed"] for run in report["runs"]] == [3, 4]
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["learning.png", "seed3", "seed4"]
    assert cli.main(["report", str(tmp_path / "runs"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["runs"] == report["runs"]
    assert cli.main(["evaluate", str(tmp_path / "runs")]) == 2
    one_line(capsys, f"holds the runs of several seeds: evaluate one, such as {tmp_path / 'runs' / 'seed3'}")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["lock", "--set", "hiden=8"], "unknown setting 'hiden'; did you mean 'hidden'"),
        (["lock", "--config", "papr"], "unknown config 'papr'; known: auto, e3rl, .*paper-lock-h5"),
        (["lock", "--set", "particles=0"], "particles must be at least 1, got 0"),
        (["lock", "--set", "ensemble_size=0"], "ensemble_size must be at least 1, got 0"),
        (["lock", "--set", "value_target_rate=0"], "value_target_rate must be above 0"),
        (["lock", "--set", "hidden"], "--set takes key=value, got 'hidden'"),
        (["lock", "--set", "hidden=big"], "hidden must be a whole number, got 'big'"),
        (["lock", "--set", "ucb=nan"], "ucb must be a finite number"),
        (["lock", "--set", "value_heads=yes"], "value_heads must be true or false, got 'yes'"),
        (["lock", "--horizon", "0"], "horizon must be at least 1, got 0"),
        (["lock", "--horizon", "x"], "--horizon"),
        (["lock", "--env", "horizn=3"], "takes no argument 'horizn'; did you mean 'horizon'"),
        (
            ["lock", "--env", "horizon=three"],
            "CombinationLock-v0: horizon must be a whole number, got 'three'",
        ),
        (
            ["lock", "--env", "noise_bits=2.5"],
            "CombinationLock-v0: noise_bits must be a whole number, got 2.5",
        ),
        (["lock", "--env", f"seed={10**20}"], r"seed must be a whole number from 0 to .*, got 10{20}"),
        (["lock", "--env", "antishaped=no"], "antishaped must be true or false, got 'no'"),
        (["lock", "--env", "switch=true"], "switch must be a number, got True"),
        (["maze", "--env", "size=5.5"], "Maze-v0: size must be a whole number, got 5.5"),
        (["lock", "--env", "noise_bits"], "--env takes key=value, got 'noise_bits'"),
        (["lock", "--size", "3"], "--size belongs to maze"),
        (["lock", "--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["lock", "--seed", "-1"], "--seed must be from 0"),
        (["lock", "--seed", "2147483648"], "--seed must be from 0"),
        (["lock", "--algo", "sarsa"], "sarsa"),
        (["mountaincar", "--horizon", "3"], "--horizon belongs to lock: mountaincar has no horizon"),
        (["maze", "--set", "family=mlp"], "family 'mlp' is for vectors: use 'conv' here"),
        (["CartPole-v1", "--config", "e3rl"], "family 'bernoulli' is for binary vectors: use 'mlp' for Box"),
        (["lock", "--async"], "only Gymnasium environments given by their id can be asynchronous"),
        (["CartPole-v1", "--algo", "dqn", "--async"], "--async is not for dqn"),
        (["Pendulum-v1"], "continuous action space"),
        (["CartPol-v1"], "unknown environment 'CartPol-v1'"),
        (["e3rl/Lock-v0"], "unknown environment 'e3rl/Lock-v0'"),
    ],
)
def test_training_with_bad_input_is_one_line_and_leaves_no_folder(argv, words, tmp_path, capsys):
    assert cli.main(["train", *argv, "--out", str(tmp_path / "run")]) == 2
    one_line(capsys, words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["evaluate", "nowhere"], "nowhere holds no run"),
        (["report", "nowhere"], "nowhere holds no run"),
        (["reproduce", "lock/h6"], "unknown experiment 'lock/h6'"),
        (["reproduce", "lock/h5", "--seeds", "a,b"], "--seeds takes whole numbers .* got 'a,b'"),
        (["reproduce", "lock/h5", "--seeds", "-1"], "seeds must be from 0 to .*, got -1"),
        (["reproduce", "lock/h5", "--seeds", f"0,{2**31}"], "seeds must be from 0 to .*, got 0, 2147483648"),
    ],
)
def test_other_commands_with_bad_input(argv, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(argv) == 2
    one_line(capsys, words)
    assert list(tmp_path.iterdir()) == []


def test_reproduce_lists_its_experiments(capsys):
    assert cli.main(["reproduce", "--json"]) == 0
    assert "lock/h5" in json.loads(capsys.readouterr().out)["experiments"]
    assert cli.main(["reproduce"]) == 0
    assert "lock/h5" in capsys.readouterr().out.splitlines()


def test_report_on_planning_experiments(tmp_path, capsys):
    (tmp_path / "planning-mcts.csv").write_text(
        "experiment,seed,episodes,return_mean,solved,paid_episodes\nplanning/mcts,0,64,4.0,True,9\n"
    )
    assert cli.main(["report", str(tmp_path), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)["table"]
    assert table.splitlines()[2:] == ["| mcts | 1 of 1 | 4.00 | 9 |"]
    assert cli.main(["report", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{table}\n"


def test_a_folder_with_a_run(trained, capsys):
    before = (trained / "summary.json").read_bytes()
    assert train(trained) == 2
    one_line(capsys, "already holds a run: give --resume to go on with it, or another --out")
    assert train(trained, "--resume", "--set", "hidden=9") == 2
    one_line(capsys, "holds another run: config.hidden is 8 there, 9 was given")
    assert train(trained, "--resume", "--seed", "4") == 2
    one_line(capsys, "holds another run: env_options.seed is 3 there, 4 was given")
    assert (trained / "summary.json").read_bytes() == before


def test_a_place_that_cannot_hold_a_run(compiled, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert train(tmp_path / "file") == 2
    one_line(capsys, "cannot write .*file/config.json: File exists")


def unfinished(trained, path):
    """The run as it was before it was finished."""
    folder = RunFolder(path)
    folder.state.parent.mkdir(parents=True)
    for name in ("config.json", "metrics.csv", "checkpoint/state.safetensors"):
        (path / name).write_bytes((trained / name).read_bytes())
    return folder


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda f: f.state.write_bytes(f.state.read_bytes()[:-100]), "state.safetensors is damaged"),
        (lambda f: f.state.write_bytes(os.urandom(3000)), "state.safetensors is damaged"),
        (
            lambda f: save_file({"w": np.zeros(3)}, f.state),
            "state.safetensors is not a checkpoint of this package",
        ),
        (lambda f: (f.path / "metrics.csv").unlink(), "metrics.csv is missing"),
        (
            lambda f: (f.path / "metrics.csv").write_text(
                "".join((f.path / "metrics.csv").read_text().splitlines(keepends=True)[:4])
            ),
            "metrics.csv has 3 rows, the checkpoint 7",
        ),
        (lambda f: (f.path / "config.json").write_text("{"), "config.json is damaged"),
    ],
    ids=["truncated", "random", "foreign", "no metrics", "few metrics", "config"],
)
def test_resuming_a_damaged_run_is_one_line_and_changes_nothing(trained, tmp_path, damage, words, capsys):
    folder = unfinished(trained, tmp_path / "run")
    damage(folder)
    before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
    assert train(folder.path, "--resume") == 2
    one_line(capsys, words)
    assert {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()} == before


def test_an_unfinished_run_is_not_evaluated_and_resumes_exactly(trained, tmp_path, capsys):
    folder = unfinished(trained, tmp_path / "run")
    assert cli.main(["evaluate", str(folder.path)]) == 2
    one_line(capsys, "has no trained policy yet: finish the run with --resume first")
    assert train(folder.path, "--resume") == 0
    assert_same_run(folder.path, trained)


KILLED = """
import os, signal, sys
from e3rl.cli import main
from e3rl.neural.training import Training

after_epoch, save = Training._after_epoch, Training._save_pending

def killed(self, t, models, replay):
    if t == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    after_epoch(self, t, models, replay)
    if t == 2:
        save(self)

Training._after_epoch = killed
main(sys.argv[1:])
"""


def test_a_run_killed_by_the_system_resumes_to_the_same_bytes(trained, tmp_path):
    """Checkpoint after episode 3, SIGKILL during episode 6, the rest in another process."""
    cache = {"JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir)}
    command = [sys.executable, "-c", KILLED, "train", *LOCK, *SET, "--out", str(tmp_path / "run")]
    done = subprocess.run(command, env={**os.environ, **cache}, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    folder = RunFolder(tmp_path / "run")
    assert folder.about_checkpoint()["epoch"] == 3
    assert not folder.policy.exists()
    assert train(folder.path, "--resume") == 0
    assert_same_run(folder.path, trained)


def test_a_loss_that_explodes_is_one_line_that_names_the_epoch(tmp_path, capsys):
    assert train(tmp_path / "run", "--json", "--set", "model_learning_rate=1e30") == 2
    one_line(capsys, "the model loss of seed 3 became (nan|inf) in epoch [0-6]")


# Environments of other kinds, with everything small.

SMALL = {
    "explore_episodes": 2, "episodes_per_epoch": 2, "ensemble_size": 2, "hidden": 8, "model_updates": 2,
    "model_batch": 4, "nodes": 20, "playouts": 4, "particles": 4, "leaf": "zero", "exploit": "dqn",
    "exploit_updates": 4, "snapshots": 1, "dqn_batch": 4, "evaluation_episodes": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("env", "options", "family", "planner"),
    [
        ("FrozenLake-v1", ["max_episode_steps=6"], "factored", "mcts"),
        ("mountaincar", ["time_limit=6"], "mlp", "graph"),
    ],
)
def test_training_chooses_by_the_environments_looks(env, options, family, planner, tmp_path, capsys):
    """`--config auto`, the default, then `evaluate` and `report` on what it left."""
    changes = [f"{key}={value}" for key, value in SMALL.items()]
    argv = [
        "train",
        env,
        "--env",
        *options,
        "--config",
        "auto",
        "--set",
        *changes,
        "--out",
        str(tmp_path / "run"),
    ]
    assert cli.main([*argv, "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["runs"]
    assert (run["config"]["family"], run["config"]["planner"]) == (family, planner)
    assert {key: run["config"][key] for key in SMALL} == SMALL
    assert run["optimal_return"] is None
    rows = read_metrics(tmp_path / "run")
    assert [row["phase"] for row in rows] == ["explore"] * 2 + ["exploit"] * 2
    assert max(int(row["length"]) for row in rows) <= 6
    assert cli.main(["evaluate", str(tmp_path / "run"), "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["share_of_optimum"] is None
    assert cli.main(["report", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.startswith("seed 0: return")


def test_auto_is_the_lock_settings_on_a_lock():
    options = {"horizon": 3}
    assert runner.settings("e3rl/CombinationLock-v0", options, "neural-e3", "auto", {}) == named("e3rl")
