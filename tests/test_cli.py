"""The command line, called in-process: what it prints, where, and with which exit code."""

import json
import re
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from matplotlib import image

import e3rl
from e3rl import cli
from e3rl.envs.registration import ENVIRONMENTS
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


def test_help_and_version(capsys):
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert "envs" in text
    assert "bench" in text
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"e3rl {e3rl.__version__}\n"


def test_bench_outside_a_checkout_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "site-packages" / "e3rl" / "cli.py"))
    assert cli.main(["bench", "envs"]) == 2
    assert re.fullmatch("e3rl: error: .*checkout.*\n", capsys.readouterr().err)


def test_bench_prints_and_saves_what_the_benchmarks_report(tmp_path, monkeypatch, capsys):
    row = {"name": "fake/a", "ours_s": 0.5, "yardstick": "theirs", "yardstick_s": 2.0, "ratio": 4.0}
    lone = {"name": "fake/b", "ours_s": 0.25, "yardstick": None, "yardstick_s": None, "ratio": None}
    report = {"rows": [row, lone], "config": {"fake": {"unit": "seconds a go"}}, "machine": {"commit": None}}
    checkout = tmp_path / "checkout"
    (checkout / "benchmarks").mkdir(parents=True)
    (checkout / "benchmarks" / "run.py").write_text(f"print({json.dumps(report)!r})")
    monkeypatch.setattr(cli, "__file__", str(checkout / "src" / "e3rl" / "cli.py"))
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
