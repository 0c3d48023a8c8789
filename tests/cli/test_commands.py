"""The command line, called in-process: what it prints, where, and with which exit code. Here all but training."""

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from matplotlib import image

import e3rl
from e3rl import cli
from e3rl.cli import benchmarks
from e3rl.dreem import certify
from e3rl.envs.registration import ENVIRONMENTS
from e3rl.experiments import dreem_certify, dreem_results
from e3rl.experiments.catalogue import EXPERIMENTS, results_folder
from e3rl.experiments.durations import durations, measured
from e3rl.reports import dreem_figures, figure1
from e3rl.reports.drawn import DRAWN
from e3rl.signals import Stopped
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


def test_what_was_drawn_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(figure1, "draw_panels", lambda folder: [folder / "lock.png"])
    assert cli.main(["envs", "--draw", str(tmp_path)]) == 0
    assert capsys.readouterr().out.endswith(f"wrote {tmp_path / 'lock.png'}\n")


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
    def run(*args):
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


@pytest.mark.parametrize(
    ("number", "name", "code"), [(2, "SIGINT", 130), (15, "SIGTERM", 143), (1, "SIGHUP", 129)]
)
def test_an_interrupted_run_says_where_it_is_saved_and_how_to_go_on(number, name, code, monkeypatch, capsys):
    error = Stopped(number)
    error.add_note("saved in runs/a b after 40 episodes")
    monkeypatch.setattr(cli, "train", raising(error))
    assert cli.main(["train", "lock", "--out", "runs/a b"]) == code
    assert capsys.readouterr().err == (
        f"e3rl: ended by {name}; saved in runs/a b after 40 episodes; go on with: e3rl train lock --out 'runs/a b' "
        "--resume\n"
    )
    monkeypatch.setattr(cli, "envs", raising(KeyboardInterrupt()))
    assert cli.main(["envs"]) == 130
    assert capsys.readouterr().err == "e3rl: interrupted\n"


TRAIN = ["train", "FrozenLake-v1", "--algo", "tabular-e3", "--set", "explore.episodes=2", "--out", "run"]
MOMENTS = {
    "before": ("e3rl.experiments.agents.AGENTS.called", "training had not begun"),
    "in set-up": ("e3rl.runs.train.open_environment", "nothing to save yet"),
    "in the end": ("e3rl.tabular.training.TabularProgram.close", "training is complete, in run"),
    "after": ("e3rl.reports.learning.draw_runs", "training is complete, in run"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_outside_of_training_too_the_line_says_what_is_kept(moment, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    place, kept = MOMENTS[moment]
    monkeypatch.setattr(place, raising(Stopped(15)))
    assert cli.main(TRAIN) == 143
    assert capsys.readouterr().err.endswith(f"e3rl: ended by SIGTERM; {kept}\n")


def test_while_it_is_taken_up_again_the_last_checkpoint_is_what_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run" / "checkpoint").mkdir(parents=True)
    (tmp_path / "run" / "checkpoint" / "state.safetensors").touch()
    (tmp_path / "run" / "config.json").write_text('{"algo": "tabular-e3"}')
    monkeypatch.setattr("e3rl.runs.train.open_environment", raising(Stopped(2)))
    assert cli.main([*TRAIN, "--resume"]) == 130
    line = "e3rl: ended by SIGINT; saved in run by its last checkpoint; go on with: e3rl train FrozenLake-v1"
    assert capsys.readouterr().err.startswith(line)


@pytest.mark.parametrize(
    ("argv", "variable"), [(["--debug", "envs"], ""), (["envs", "--debug"], ""), (["envs"], "1")]
)
def test_debugging_shows_the_traceback_of_an_error(argv, variable, monkeypatch, capsys):
    def fail(args):
        try:
            raise ZeroDivisionError("theirs")
        except ZeroDivisionError as cause:
            error = UserError("no good")
            error.add_note("in a process of its own")
            raise error from cause

    monkeypatch.setenv("E3RL_DEBUG", variable)
    monkeypatch.setattr(cli, "envs", fail)
    assert cli.main(argv) == 2
    err = capsys.readouterr().err
    assert "ZeroDivisionError: theirs" in err
    assert "in a process of its own" in err
    assert err.endswith("e3rl: error: no good\n")
    monkeypatch.setenv("E3RL_DEBUG", "0")
    assert cli.main(["envs"]) == 2
    assert capsys.readouterr().err == "e3rl: error: no good\n"


class JaxRuntimeError(RuntimeError):
    """Named as JAX's own."""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(27, "File too large"), "File too large, says the system; --debug shows where"),
        (OSError(27, "File too large", "a.png"), "a.png: File too large"),
        (OSError("odd"), "odd, says the system; --debug shows where"),
        (MemoryError("no 3 GiB"), "out of memory: lower what the run holds (no 3 GiB)"),
        (JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"),
         "out of memory while computing: lower the sizes of networks, batches and buffers, or the seeds"),
        (JaxRuntimeError("INTERNAL: xla/service/cpu/executable.cc:33 at 0x7f"),
         "a compiled program failed (INTERNAL); --debug shows everything"),
        (RuntimeError("Unable to initialize backend 'gpu': INTERNAL: no"),
         "JAX cannot use the device that JAX_PLATFORMS=gpu names: unset it, or take JAX_PLATFORMS=cpu"),
    ],
)  # fmt: skip
def test_errors_of_the_system_are_one_line_without_internals(error, words, monkeypatch, capsys):
    monkeypatch.setenv("JAX_PLATFORMS", "gpu")
    monkeypatch.setattr(cli, "envs", raising(error))
    assert cli.main(["envs"]) == 2
    assert capsys.readouterr().err == f"e3rl: error: {words}\n"


def test_warnings_of_libraries_wait_until_all_went_well(monkeypatch, capsys):
    def warn(args):
        for _ in range(2):
            warnings.warn("\x1b[33mWARN: out of\ndate\x1b[0m", stacklevel=1)
        if args.json:
            raise UserError("no good")
        return 0

    monkeypatch.setattr(cli, "envs", warn)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert cli.main(["envs"]) == 0
        assert capsys.readouterr().err == "e3rl: warning: WARN: out of date\n"
        assert cli.main(["envs", "--json"]) == 2
        assert capsys.readouterr().err == "e3rl: error: no good\n"


@pytest.mark.parametrize(
    ("redirection", "code", "err"),
    [
        (">&-", 0, ""), (">&- 2>&-", 0, ""),
        (">/dev/full", 2, "e3rl: error: cannot write to the standard output: No space left on device\n"),
    ],
)  # fmt: skip
def test_nowhere_to_write_to(redirection, code, err):
    command = (
        f'"{sys.executable}" -m e3rl.cli theory --horizon 2 --actions 2 --rank 2 --models 2 --policies 2 '
    )
    command += f"--epsilon 0.1 --delta 0.1 {redirection}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (code, err)


@pytest.mark.parametrize(
    "changes",
    [
        ["--horizon", f"1{'0' * 400}"], ["--epsilon", "1e-320"], ["--delta", "1e-320", "--models", f"1{'0' * 200}"],
        ["--rank", f"1{'0' * 300}"], ["--epsilon", "1e-160"],
    ],
)  # fmt: skip
def test_constants_that_no_number_holds(changes, capsys):
    argv = ["--horizon", "2", "--actions", "2", "--rank", "2", "--models", "2", "--policies", "2"]
    argv += ["--epsilon", "0.1", "--delta", "0.1", *changes]
    for more in ([], ["--json"]):
        assert cli.main(["theory", *argv, *more]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith(
            "e3rl: error: the constants of Theorem 1 are beyond 1e308 for these: lower the sizes"
        )


def test_a_reader_that_leaves_is_no_error():
    command = [
        sys.executable,
        "-c",
        "import sys; from e3rl.cli import main; sys.exit(main(['reproduce']))",
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
    installed = tmp_path / "lib" / "site-packages" / "e3rl" / "cli" / "benchmarks.py"
    monkeypatch.setattr(benchmarks, "__file__", str(installed))
    assert cli.main(["bench", "envs"]) == 2
    assert re.fullmatch("e3rl: error: .*checkout.*\n", capsys.readouterr().err)


def test_bench_prints_and_saves_what_the_benchmarks_report(tmp_path, monkeypatch, capsys):
    row = {"name": "fake/a", "ours_s": 0.5, "yardstick": "theirs", "yardstick_s": 2.0, "ratio": 4.0}
    lone = {"name": "fake/b", "ours_s": 0.25, "yardstick": None, "yardstick_s": None, "ratio": None}
    report = {"rows": [row, lone], "config": {"fake": {"unit": "seconds a go"}}, "machine": {"commit": None}}
    checkout = tmp_path / "checkout"
    (checkout / "benchmarks").mkdir(parents=True)
    (checkout / "benchmarks" / "run.py").write_text(f"print({json.dumps(report)!r})")
    source = checkout / "src" / "e3rl" / "cli" / "benchmarks.py"
    monkeypatch.setattr(benchmarks, "__file__", str(source))
    assert cli.main(["bench", "--json", "--out", str(tmp_path / "out")]) == 0
    nothing = {"compared": 0, "slower": [], "faster": [], "other_settings": []}
    recorded = str(checkout / "results" / "bench")
    assert json.loads(capsys.readouterr().out) == {**report, "changes": {"against": recorded, **nothing}}
    saved = json.loads((tmp_path / "out" / "fake.json").read_text())
    about = {"command": "e3rl bench fake", "config": {"unit": "seconds a go"}, "machine": {"commit": None}}
    assert saved == {"rows": [row, lone], **about}
    monkeypatch.setenv("COLUMNS", "120")
    assert cli.main(["bench"]) == 0
    lines = [re.split("  +", line.strip()) for line in capsys.readouterr().out.splitlines()]
    assert ["fake/a", "0.5 s", "2 s", "4.0×", "theirs"] in lines
    assert ["fake/b", "0.25 s"] in lines
    assert ["fake: seconds a go"] in lines
    assert [f"nothing to compare with in {recorded}"] in lines


def test_bench_says_what_became_slower(tmp_path, monkeypatch, capsys):
    def run(ours_s):
        row = {"name": "fake/a", "ours_s": ours_s, "yardstick": "theirs", "yardstick_s": 2.0}
        report = {"rows": [{**row, "ratio": 2.0 / ours_s}], "config": {"fake": {"unit": "s"}}, "machine": {}}
        (tmp_path / "benchmarks").mkdir(exist_ok=True)
        (tmp_path / "benchmarks" / "run.py").write_text(f"print({json.dumps(report)!r})")

    monkeypatch.setattr(benchmarks, "__file__", str(tmp_path / "src" / "e3rl" / "cli" / "benchmarks.py"))
    run(0.5)
    quick = tmp_path / "results" / "bench" / "quick"
    assert cli.main(["bench", "--quick", "--out", str(quick)]) == 0
    assert json.loads((quick / "fake.json").read_text())["command"] == "e3rl bench --quick fake"
    capsys.readouterr()
    run(1.0)
    assert cli.main(["bench", "--quick"]) == 0
    assert "slower: fake/a 2.00× (4× to 2× theirs)" in capsys.readouterr().out
    assert cli.main(["bench", "--json", "--against", str(quick)]) == 0
    [slower] = json.loads(capsys.readouterr().out)["changes"]["slower"]
    assert slower["name"] == "fake/a"
    (quick / "fake.json").write_text("{")
    assert cli.main(["bench", "--quick"]) == 2
    assert "cannot read" in capsys.readouterr().err


def test_bench_shows_the_columns_that_a_benchmark_names(tmp_path, monkeypatch, capsys):
    row = {"name": "fake/a", "ours_s": 0.5, "yardstick": None, "yardstick_s": None, "ratio": None}
    report = {
        "rows": [{**row, "good": [None, 0.123], "bad": [7.0]}],
        "config": {"fake": {"unit": "how good", "columns": ["good", "bad"]}},
        "machine": {},
    }
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "run.py").write_text(f"print({json.dumps(report)!r})")
    monkeypatch.setattr(benchmarks, "__file__", str(tmp_path / "src" / "e3rl" / "cli" / "benchmarks.py"))
    monkeypatch.setenv("COLUMNS", "120")
    assert cli.main(["bench"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["benchmark", "good", "bad"] in lines
    assert ["fake/a", "–", "0.12", "7"] in lines
    assert not any("yardstick" in line for line in lines)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["evaluate", "nowhere"], "nowhere holds no run"),
        (["report", "nowhere"], "nowhere holds no run"),
        (["reproduce", "figure-2b", "--parts", "a"], "--parts puts seeds of lock .*, and figure-2b is none"),
        (["reproduce", "--parts", "a"], "--parts puts seeds of lock .*, and a list is none"),
        (["reproduce", "lock/h5", "--parts", "a", "--workers", "2"], "--parts runs nothing: only --out and"),
        (["reproduce", "lock/h6"], "unknown experiment 'lock/h6'"),
        (["reproduce", "lock/h5", "--seeds", "a,b"], "--seeds takes whole numbers .* got 'a,b'"),
        (["reproduce", "lock/h5", "--seeds", "-1"], "seeds must be from 0 to .*, got -1"),
        (["reproduce", "lock/h5", "--seeds", f"0,{2**31}"], "seeds must be from 0 to .*, got 0, 2147483648"),
        (["reproduce", "baselines-acrobot/dqn", "--seeds", "-1"], "seeds must be from 0 to .*, got -1"),
    ],
)
def test_other_commands_with_bad_input(argv, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"e3rl: error: .*{words}.*\n", err), err
    assert list(tmp_path.iterdir()) == []


def test_a_report_on_nothing_but_damaged_json_names_the_file(tmp_path, capsys):
    (tmp_path / "odd.json").write_text('{"experiment": "lock')
    assert cli.main(["report", str(tmp_path)]) == 2
    assert re.fullmatch(r"e3rl: error: .*odd\.json is damaged: .*\n", capsys.readouterr().err)


def test_reproduce_lists_its_experiments(monkeypatch, capsys):
    assert cli.main(["reproduce", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    names = listed["experiments"]
    assert names == [*EXPERIMENTS, *DRAWN, "dreem"] == [each["id"] for each in listed["details"]]
    assert listed["figures"]["figure-3"] == ["ellipsoids"]
    assert set(listed["figures"]["paper"]) <= set(names)
    assert all(each["description"] for each in listed["details"])
    assert sum(each["seconds"] is not None for each in listed["details"]) > 40
    monkeypatch.setenv("COLUMNS", "250")
    for argv in (["reproduce"], ["reproduce", "--list"]):
        assert cli.main(argv) == 0
        lines = [words(line) for line in capsys.readouterr().out.splitlines()]
        assert [name for line in lines for name in names if line[0] == name] == names
        assert any(line[0] == "figure-2c" for line in lines)
        [lock] = [line for line in lines if line[0] == "lock/h10"]
        assert re.fullmatch(r"\d+ (s|min), \S.*", lock[1])
        about = "Neural-E³, lock of 10 levels, 10 to 50 episodes per level, e3rl's settings"
        assert lock[2] == about


def test_how_long_experiments_take_is_about_what_they_took():
    """`python -m e3rl.experiments.durations results` brings it up to date."""
    kept, found = durations(), measured(Path(__file__).parents[2] / "results")
    assert set(kept) <= set(EXPERIMENTS)
    for name in kept.keys() & found.keys():
        assert 1 / 3 < kept[name].seconds / found[name].seconds < 3, name


@pytest.mark.parametrize("json_too", [True, False])
def test_reproduce_runs_an_experiment_where_its_results_belong(json_too, monkeypatch, tmp_path, capsys):
    asked = []

    def run(name, out, say, seeds):
        asked.append((name, out, seeds))
        say("half of it is done")
        return [{"seed": 5}]

    monkeypatch.setitem(EXPERIMENTS, "lock/h5", run)
    more = ["--json"] if json_too else []
    assert cli.main(["reproduce", "lock/h5", *more]) == 0
    out, err = capsys.readouterr()
    assert (json.loads(out) if json_too else out) == ({"rows": [{"seed": 5}]} if json_too else "")
    assert err == "half of it is done\n"
    assert cli.main(["reproduce", "lock/h5", "--seeds", "5,6", "--out", str(tmp_path), *more]) == 0
    assert asked == [("lock/h5", Path("results/lock"), ()), ("lock/h5", tmp_path, (5, 6))]


def test_where_results_belong():
    folders = {
        "lock/h5": "lock", "lock-paper/h5": "lock", "mountaincar/e3rl": "control", "acrobot/e3rl": "control",
        "maze/5-e3rl": "maze", "planning/mcts": "planning", "baselines-lock/h5-standard-dqn": "baselines",
    }  # fmt: skip
    for name, folder in folders.items():
        assert name in EXPERIMENTS
        assert results_folder(name) == Path("results") / folder


def test_reproduce_dreem_runs_and_draws(monkeypatch, tmp_path, capsys):
    asked = []
    monkeypatch.setattr(dreem_results, "run", lambda out, say: asked.append(out))
    monkeypatch.setattr(dreem_figures, "draw", lambda out: [out / "one.png", out / "two.png"])
    pictures = [str(tmp_path / "one.png"), str(tmp_path / "two.png")]
    assert cli.main(["reproduce", "dreem", "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == pictures
    assert cli.main(["reproduce", "dreem", "--out", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"figures": pictures}
    assert asked == [tmp_path, tmp_path]


def words(line):
    return re.split("  +", line.strip())


def test_certify_shows_a_line_for_every_family(monkeypatch, capsys):
    row = {
        "runs": 2, "failures": 0, "true_model_eliminated": 0, "rounds_max": 3, "rounds_bound": 4e7,
        "trajectories_max": 10**13, "models_left_per_round": [5.0, 1.5],
    }  # fmt: skip
    found = {"families": [{"family": family, **row} for family in ("random", "tree")]}
    monkeypatch.setattr(certify, "certify_all", lambda names, runs, **options: found)
    monkeypatch.setenv("COLUMNS", "120")
    argv = ["dreem", "--certify", "--family", "all", "--runs", "2"]
    assert cli.main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert ["tree", "2", "0", "0", "3", "4e+07", "1e+13"] in [words(line) for line in lines]
    assert lines[-1] == "tree: models left after each round, on average: 5.0 1.5"
    assert cli.main([*argv, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found


def test_below_theory_shows_how_far_it_still_works(monkeypatch, capsys, tmp_path):
    asked = []

    def below_theory(out, say, runs, names, **options):
        asked.append((out, runs, names))
        say("halfway")
        return [{"family": "tree"}]

    works = [{"family": "tree", "phi_rule": "theorem", "largest_shrink": 10**6, "n": None}]
    monkeypatch.setattr(dreem_certify, "below_theory", below_theory)
    monkeypatch.setattr(dreem_certify, "still_works", lambda rows, share: works)
    argv = ["dreem", "--below-theory", "--family", "tree", "--runs", "3"]
    assert cli.main(argv) == 0
    out, err = capsys.readouterr()
    assert ["tree", "theorem", "1e+06"] in [words(line) for line in out.splitlines()]
    assert err == "halfway\n"
    assert cli.main([*argv, "--json", "--out", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == {"rows": [{"family": "tree"}], "still_works": works}
    assert asked == [(Path("results/dreem"), 3, ["tree"]), (tmp_path, 3, ["tree"])]
