"""What `e3rl train` leaves of two seeds on a lock of three levels, and what other commands make of it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from matplotlib import image
from PIL import Image
from safetensors.numpy import save_file
from tiny import CHANGES

from e3rl import cli
from e3rl.experiments import agents
from e3rl.runs import seeds_in_processes
from e3rl.runs.folder import COLUMNS, RunFolder, read_metrics
from e3rl.runs.processors import processors

LOCK = ["lock", "--horizon", "3", "--antishaped", "--env", "noise_bits=1", "--seed", "3", "--seeds", "2"]
SET = ["--set", *(f"{path}={value}" for path, value in CHANGES.items())]
SEEDS = ("seed3", "seed4")


def train(out, *more, settings=SET):
    return cli.main(["train", *LOCK, *settings, "--out", str(out), *more])


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """A finished run's folder, and what was said on the way."""
    out = tmp_path_factory.mktemp("trained") / "runs"
    with pytest.MonkeyPatch.context() as patch:
        lines = {"stdout": [], "stderr": []}
        for stream, kept in lines.items():
            patch.setattr(sys, stream, Lines(kept))
        patch.setattr(seeds_in_processes, "processors", lambda: (processors() * 2)[:2])
        assert train(out) == 0
    return out, lines


class Lines:
    """A stream that keeps what is written to it."""

    def __init__(self, kept):
        self.kept = kept

    def write(self, text):
        self.kept.append(text)

    def flush(self):
        pass

    def isatty(self):
        return False


@pytest.fixture(scope="module")
def trained(told):
    return told[0]


def assert_same_runs(one, other):
    for seed in SEEDS:
        assert RunFolder(one / seed).policy.read_bytes() == RunFolder(other / seed).policy.read_bytes()
        tables = [[{**row, "seconds": None} for row in read_metrics(path / seed)] for path in (one, other)]
        assert tables[0] == tables[1]


def one_line(capsys, words):
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"e3rl: error: .*{words}.*\n", err), err


def test_train_prints_its_verdicts_and_draws_its_picture(told):
    out, lines = told
    *verdicts, picture, following = "".join(lines["stdout"]).splitlines()
    for seed, verdict in zip(SEEDS, verdicts, strict=True):
        assert re.fullmatch(
            rf"seed {seed[-1]}: return -?\d\.\d{{3}} \(95% interval .*\), -?\d+% of the optimum 4\.333, "
            r"after 7 exploration episodes, \d+ s; exploration ended after 7 episodes, the most that it was given: "
            rf".* \({out / seed}\)",
            verdict,
        )
    assert picture == f"picture: {out / 'learning.png'}"
    assert image.imread(out / "learning.png").size > 0
    assert following == f"next: e3rl evaluate {out / 'seed3'} --episodes 1000"
    said = "".join(lines["stderr"])
    assert said.startswith(
        "e3rl/CombinationLock-v0: 4 bits, episodes of 3 steps → neural-e3; force another with --algo\n"
    )
    assert "compiling" in said
    assert "explore: episode 14/14" in said
    assert "exploit: episode 24/24" in said
    assert said.count("compiling") == said.count("programs") == 1  # not by every process
    assert sorted(path.name for path in out.iterdir()) == ["learning.png", *SEEDS]


def test_a_finished_run_trained_again_is_told_in_json(trained, capsys):
    """One object and nothing else; the settings of its folder are those that were given."""
    assert train(trained, "--resume", "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    report = json.loads(out, parse_constant=pytest.fail)
    assert report["runs"] == [RunFolder(trained / seed).summary() for seed in SEEDS]
    assert Path(report["figure"]).is_file()
    run = report["runs"][0]
    assert run["env_options"] == {"horizon": 3, "antishaped": True, "noise_bits": 1, "seed": 3}
    assert (run["config"]["planner"]["name"], run["config"]["fit"]["batch"]) == ("value", 4)


OLD = {
    "explore_ratio": 2, "explore_episodes": 7, "ensemble_size": 2, "hidden": 8, "model_updates": 2, "model_batch": 4,
    "planner": "value", "value_updates": 2, "value_batch": 4, "exploit_updates": 20, "evaluation_episodes": 5,
    "round_episodes": 3, "round_updates": 2, "family": "bernoulli",
}  # fmt: skip


def test_names_of_earlier_versions_are_understood(trained, capsys):
    """The same run by its old settings, with a line for each that has another name now."""
    settings = ["--set", *(f"{name}={value}" for name, value in OLD.items())]
    assert train(trained, "--resume", "--json", settings=settings) == 0
    out, err = capsys.readouterr()
    assert [run["seed"] for run in json.loads(out)["runs"]] == [3, 4]
    lines = err.splitlines()
    assert (
        "e3rl: hidden is now called model.hidden and planner.value.hidden and exploit.value.hidden" in lines
    )
    assert "e3rl: family is now called model" in lines
    assert len(lines) == len(OLD.keys() - {"planner", "evaluation_episodes"})
    assert all(line.startswith("e3rl: ") and " is now called " in line for line in lines)


def test_evaluate(trained, capsys):
    run = str(trained / "seed3")
    assert cli.main(["evaluate", run, "--episodes", "5", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["episodes"] == 5
    assert report["optimal_return"] == pytest.approx(5 - 2 / 3)
    assert report["share_of_optimum"] == pytest.approx(report["return_mean"] / report["optimal_return"])
    assert cli.main(["evaluate", run, "--episodes", "5"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"5 greedy episodes: return {report['return_mean']:.3f} (95% interval ")
    assert text.endswith("of the optimum 4.333\n")


def test_one_episode_has_no_interval_and_most_problems_no_known_optimum(monkeypatch, capsys):
    program = SimpleNamespace(spec=SimpleNamespace(optimal_return=None))
    closed = []
    agent = SimpleNamespace(evaluate=np.ones, close=lambda: closed.append(True), program=program)
    monkeypatch.setattr(agents, "load", lambda path: agent)
    assert cli.main(["evaluate", "here", "--episodes", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert report == {
        "episodes": 1, "return_mean": 1.0, "return_ci": None, "optimal_return": None, "share_of_optimum": None,
    }  # fmt: skip
    assert cli.main(["evaluate", "here", "--episodes", "1"]) == 0
    assert capsys.readouterr().out == "1 greedy episodes: return 1.000\n"
    assert closed == [True, True]


def test_several_seeds_are_evaluated_one_by_one(trained, capsys):
    assert cli.main(["evaluate", str(trained)]) == 2
    one_line(capsys, f"holds the runs of several seeds: evaluate one, such as {trained / 'seed3'}")


@pytest.mark.parametrize(("folder", "seeds"), [("", SEEDS), ("seed4", SEEDS[1:])])
def test_report(trained, folder, seeds, capsys):
    path = trained / folder
    (path / "learning.png").unlink(missing_ok=True)
    assert cli.main(["report", str(path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == {
        "runs": [RunFolder(trained / seed).summary() for seed in seeds],
        "figure": str(path / "learning.png"),
        "figures": [],  # those of searches and predictions, which a lock has not
        "page": str(path / "report.html"),
        "unfinished": [],
    }
    assert (path / "learning.png").stat().st_size > 0
    assert cli.main(["report", str(path)]) == 0
    *verdicts, picture, page = capsys.readouterr().out.splitlines()
    assert [verdict.partition(":")[0] for verdict in verdicts] == [f"seed {seed[-1]}" for seed in seeds]
    assert (picture, page) == (f"picture: {path / 'learning.png'}", f"page: {path / 'report.html'}")


def test_a_folder_with_a_run(trained, capsys):
    before = (trained / "seed3" / "summary.json").read_bytes()
    assert train(trained) == 2
    one_line(capsys, "already holds a run: give --resume to go on with it, or another --out")
    assert train(trained, "--resume", "--set", "model.hidden=9") == 2
    one_line(capsys, "holds another run: config.model.hidden is 8 there, 9 was given")
    assert train(trained, "--resume", "--set", "planner=graph", settings=()) == 2
    one_line(capsys, "holds another run: config.evaluation_episodes is 5 there, 100 was given")
    assert train(trained, "--resume", "--env", "seed=9") == 2
    one_line(capsys, "holds another run: env_options.seed is 3 there, 9 was given")
    assert (trained / "seed3" / "summary.json").read_bytes() == before


def unfinished(trained, path):
    """The run as it was before it was finished; its first seed."""
    for seed in SEEDS:
        for name in ("config.json", "metrics.csv", "checkpoint/state.safetensors"):
            (path / seed / name).parent.mkdir(parents=True, exist_ok=True)
            (path / seed / name).write_bytes((trained / seed / name).read_bytes())
    return RunFolder(path / SEEDS[0])


def test_report_says_what_is_not_finished(trained, tmp_path, capsys):
    unfinished(trained, tmp_path)
    shutil.copy(trained / "seed3" / "summary.json", tmp_path / "seed3")
    assert cli.main(["report", str(tmp_path)]) == 0
    first, second, picture, _ = capsys.readouterr().out.splitlines()
    going_on = "12 episodes so far; the same command with --resume goes on"
    assert first == f"{tmp_path / 'seed4'}: not finished, {going_on}"
    assert second.startswith("seed 3: return ")
    assert picture == f"picture: {tmp_path / 'learning.png'}"
    assert cli.main(["report", str(tmp_path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["unfinished"] == [str(tmp_path / "seed4")]
    assert len(report["runs"]) == 1


def test_report_on_a_run_without_an_episode(trained, tmp_path, capsys):
    shutil.copy(trained / "seed3" / "config.json", tmp_path)
    assert cli.main(["report", str(tmp_path)]) == 0
    going_on = "0 episodes so far; the same command with --resume goes on"
    assert capsys.readouterr().out == f"{tmp_path}: not finished, {going_on}\n"
    assert cli.main(["report", str(tmp_path), "--json"]) == 0
    nothing = {"runs": [], "figure": None, "figures": [], "page": None, "unfinished": [str(tmp_path)]}
    assert json.loads(capsys.readouterr().out) == nothing


def test_an_episode_is_filmed(trained, tmp_path, capsys):
    film = tmp_path / "films" / "lock.gif"
    argv = ["evaluate", str(trained / "seed3"), "--episodes", "5", "--gif", str(film)]
    assert cli.main(argv) == 0
    played, told = capsys.readouterr().out.splitlines()
    assert played.startswith("5 greedy episodes: return ")
    assert re.fullmatch(rf"film: {film}, an episode with return -?\d\.\d{{3}}", told)
    with Image.open(film) as pictures:
        assert (pictures.format, pictures.n_frames) == ("GIF", 4)  # the start, and three steps
    assert cli.main([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["film"] == str(film)
    assert cli.main([*argv[:-1], "lock.mp4"]) == 2
    out, err = capsys.readouterr()
    assert out == ""  # nothing is played for a film that cannot be
    assert err == "e3rl: error: a film is a GIF: name it something.gif, not lock.mp4\n"


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
    damage(unfinished(trained, tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert train(tmp_path, "--resume") == 2
    one_line(capsys, words)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_an_unfinished_run_is_not_evaluated_and_resumes_exactly(trained, tmp_path, monkeypatch, capsys):
    """Here in one program, where there is one processor."""
    monkeypatch.setattr(seeds_in_processes, "processors", lambda: processors()[:1])
    folder = unfinished(trained, tmp_path)
    assert cli.main(["evaluate", str(folder.path)]) == 2
    one_line(capsys, "has no trained policy yet: finish the run with --resume first")
    assert train(tmp_path, "--resume") == 0
    assert_same_runs(tmp_path, trained)


KILLED = """
import os, signal, sys
from e3rl.cli import main
from e3rl.runs import seeds_in_processes
from e3rl.runs.record import Record

seeds_in_processes.processors = lambda: [0]
hold = Record.hold

def killed(self, epoch, state, abouts=()):
    if epoch == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    hold(self, epoch, state, abouts)
    if epoch == 3:
        self.save()

Record.hold = killed
main(sys.argv[1:])
"""


def test_a_run_killed_by_the_system_resumes_to_the_same_bytes(trained, tmp_path):
    """Checkpoint after episode 3 of a program of both seeds, SIGKILL after episode 6, the rest in other processes."""
    settings = {
        "JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir),
        # Otherwise it would round differently.
        "JAX_DISABLE_MOST_OPTIMIZATIONS": str(jax.config.read("jax_disable_most_optimizations")),
    }
    command = [sys.executable, "-c", KILLED, "train", *LOCK, *SET, "--out", str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    for seed in SEEDS:
        folder = RunFolder(tmp_path / seed)
        assert folder.about_checkpoint()["epoch"] == 3
        assert not folder.policy.exists()
    assert train(tmp_path, "--resume") == 0
    assert_same_runs(tmp_path, trained)


SMALL = {
    "explore.episodes": 2, "explore.per_epoch": 2, "fit.members": 2, "fit.updates": 2, "fit.batch": 4,
    "model.hidden": 8, "exploit": "dqn", "exploit.value.updates": 4, "exploit.value.batch": 4, "exploit.snapshots": 1,
    "rounds.count": 2, "rounds.episodes": 1, "evaluation_episodes": 2,
}  # fmt: skip
TREE = {"planner.playouts": 4, "planner.particles": 4, "planner.leaf": "zero"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "options", "changes", "chosen"),
    [
        ("FrozenLake-v1", "max_episode_steps=6", TREE, ("factored", "mcts")),
        ("mountaincar", "time_limit=6", {"planner.nodes": 20}, ("mlp", "graph")),
    ],
)
def test_training_chooses_by_the_environments_looks(env, options, changes, chosen, tmp_path, capsys):
    """`--config auto`, the default, then `evaluate` and `report` on what it left."""
    settings = [f"{path}={value}" for path, value in {**SMALL, **changes}.items()]
    argv = ["train", env, "--algo", "neural-e3", "--env", options, "--set", *settings, "--json"]
    argv += ["--out", str(tmp_path / "run")]
    assert cli.main(argv) == 0
    (run,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)["runs"]
    assert (run["config"]["model"]["name"], run["config"]["planner"]["name"]) == chosen
    assert run["optimal_return"] is None
    rows = read_metrics(tmp_path / "run")
    assert [row["phase"] for row in rows] == ["explore"] * 2 + ["practice"] * 2 + ["exploit"] * 2
    assert max(int(row["length"]) for row in rows) <= 6
    assert cli.main(["evaluate", str(tmp_path / "run"), "--episodes", "2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["share_of_optimum"] is None
    assert cli.main(["report", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.startswith("seed 0: return")


# Runs of earlier versions: settings in one flat table, and checkpoints of another format.

FLAT = {"explore_episodes": 3, "hidden": 8, "planner": "value"}


@pytest.fixture
def earlier(tmp_path):
    """A run as version 0.1.0 left it, written by hand."""
    path = tmp_path / "earlier"
    about = {
        "algo": "neural-e3", "env": "e3rl/CombinationLock-v0", "env_options": {"horizon": 3, "seed": 3}, "seed": 3,
        "config": FLAT,
    }  # fmt: skip
    result = {
        "exploit_return_mean": 4.0, "exploit_return_ci": [3.5, 4.5], "optimal_return": 5.0, "explore_episodes": 3,
        "total_episodes": 4, "wall_seconds": 2.0,
    }  # fmt: skip
    (path / "checkpoint").mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({**about, "version": "0.1.0", "commit": None}))
    (path / "summary.json").write_text(json.dumps({**about, **result}))
    rows = [f"{'explore' if i < 3 else 'exploit'},{i + 1},{3 * i},{i}.0,3,0.5,0.1,1.0,0.2" for i in range(4)]
    (path / "metrics.csv").write_text("\n".join([",".join(COLUMNS[:-1]), *rows, ""]))  # before there was an ε̂
    for name in ("state", "policy"):
        made = json.dumps({"epoch": 3, "rows": 3})
        save_file(
            {"w": np.zeros(3)}, path / "checkpoint" / f"{name}.safetensors", {"e3rl checkpoint 1": made}
        )
    return path


def test_a_run_of_an_earlier_version_cannot_be_taken_up(earlier, capsys):
    before = {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()}
    words = (
        f"{earlier} holds a run of an earlier version \\(0\\.1\\.0\\), which this one cannot take up: train again with"
        " another --out; its metrics and summary stay readable"
    )
    resume = ["train", "lock", "--horizon", "3", "--seed", "3", "--out", str(earlier), "--resume"]
    for argv in (resume, ["evaluate", str(earlier)], [*resume, "--algo", "dqn"]):
        assert cli.main(argv) == 2
        one_line(capsys, words)
    assert {path: path.read_bytes() for path in earlier.rglob("*") if path.is_file()} == before


def test_a_report_on_a_run_of_an_earlier_version(earlier, capsys):
    assert cli.main(["report", str(earlier)]) == 0
    verdict, picture, page = capsys.readouterr().out.splitlines()
    assert page == f"page: {earlier / 'report.html'}"
    assert verdict.startswith(
        "seed 3: return 4.000 (95% interval 3.500 to 4.500), 80% of the optimum 5.000, after 3"
    )
    assert picture == f"picture: {earlier / 'learning.png'}"
    assert image.imread(earlier / "learning.png").size > 0


def test_a_report_on_several_seeds_of_an_earlier_version(earlier, tmp_path, capsys):
    for seed in SEEDS:
        shutil.copytree(earlier, tmp_path / "runs" / seed)
    assert cli.main(["report", str(tmp_path / "runs"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert len(report["runs"]) == 2
    assert Path(report["figure"]).stat().st_size > 0
