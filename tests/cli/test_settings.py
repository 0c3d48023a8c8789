"""`e3rl settings` and `e3rl train ENV --help-settings`: every setting with what it may be and what it means."""

import json
import re
from pathlib import Path

import gymnasium
import pytest

from e3rl import cli
from e3rl.experiments.agents import AGENTS
from e3rl.neural.presets import PRESETS
from e3rl.runs.settings import changed, settings_of


def said(capsys, *argv):
    assert cli.main(list(argv)) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def test_all_of_them_with_parts_and_presets(capsys):
    text = said(capsys, "settings")
    lines = text.splitlines()
    assert "explore.per_epoch=1   a whole number ≥ 1" in lines
    after = lines[lines.index("explore.per_epoch=1   a whole number ≥ 1") + 1]
    assert after.startswith("    n of Algorithm 1, episodes between model updates")
    for agent in AGENTS.values():
        for path in settings_of(agent.settings()):
            if "." not in path and f"{path}=" not in text:
                assert f"{path}." in text  # a group
        assert set(agent.presets) <= set(lines)
    assert "planner=graph" in lines
    assert any(line.startswith("planner.nodes=2000   a whole number ≥ 2") for line in lines)
    assert max(map(len, lines)) <= 110


def test_json_has_everything(capsys):
    found = json.loads(said(capsys, "settings", "--json"))["algorithms"]
    assert sorted(name for each in found for name in each["names"]) == sorted(AGENTS)
    [neural] = [each for each in found if "neural-e3" in each["names"]]
    assert set(neural["presets"]) == set(PRESETS)
    assert changed(PRESETS["e3rl"], neural["presets"]["paper-control"]) == PRESETS["paper-control"]
    [frontier] = [row for row in neural["parts"]["planner"]["graph"] if row["path"] == "planner.frontier"]
    assert (frontier["default"], frontier["allowed"]) == ("nearest", "nearest, root")


def test_one_preset_and_one_algorithm(capsys):
    text = said(capsys, "settings", "paper-control")
    assert "explore.episodes=100   (default 0)   a whole number ≥ 0" in text
    assert "planner=graph   (default value)   " in text
    assert "planner.frontier=root   (default nearest)   nearest, root" in text
    assert "Presets, for --config: e3rl, e3rl-budgets, e3rl-long" in " ".join(text.split())
    tabular = said(capsys, "settings", "tabular-e3")
    assert "explore.update_every=" in tabular
    assert "planner" not in tabular


def test_unknown_ones(capsys):
    assert cli.main(["settings", "paper-contrl"]) == 2
    assert re.fullmatch(
        r"e3rl: error: unknown preset or algorithm 'paper-contrl'; did you mean 'paper-control'\? known: .*\n",
        capsys.readouterr().err,
    )


def test_those_of_a_command(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = ["train", "--set", "planner=graph", "planner.nodes=7", "lock", "--help-settings"]
    text = said(capsys, *command)
    assert text.startswith("Settings of neural-e3 for e3rl/CombinationLock-v0")
    assert "planner.nodes=7   (default 2000)   a whole number ≥ 2" in text
    rows = json.loads(said(capsys, *command, "--json"))["settings"]
    [nodes] = [row for row in rows if row["path"] == "planner.nodes"]
    assert (nodes["value"], nodes["default"]) == ("7", "2000")
    assert cli.main([*command, "--set", "planner.nodes=0"]) == 2
    assert "nodes must be at least 2, got 0" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("algo", AGENTS)
def test_those_of_every_algorithm(algo, capsys):
    assert said(capsys, "train", "lock", "--algo", algo, "--help-settings").startswith(
        f"Settings of {algo} for "
    )


def test_troubleshooting_names_settings_that_there_are(capsys):
    found = json.loads(said(capsys, "settings", "--json"))["algorithms"]
    known = {row["path"] for each in found for row in each["settings"]}
    known |= {
        row["path"]
        for each in found
        for choices in each["parts"].values()
        for rows in choices.values()
        for row in rows
    }
    text = (Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
    named = set(re.findall(r"`((?:explore|fit|planner|exploit|model|rounds)\.[\w.]+)`", text))
    assert len(named) > 10
    assert named <= known


class Talkative(gymnasium.Env):
    """Says something whenever it is asked for anything."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("here I am")
        return self.observation_space.sample(), {}

    def step(self, action):
        print("there I go")
        return self.observation_space.sample(), 0.0, True, False, {}


def test_what_an_environment_prints_is_no_part_of_its_settings(capsys):
    gymnasium.register("Talkative-v0", Talkative, max_episode_steps=3)
    try:
        assert cli.main(["train", "Talkative-v0", "--help-settings", "--json"]) == 0
    finally:
        del gymnasium.registry["Talkative-v0"]
    told = capsys.readouterr()
    assert json.loads(told.out)["of"].endswith("Talkative-v0")
    assert "here I am" in told.err
