"""Whatever ends a run, and when: resumed it ends with the same bytes, no file is torn and nothing is doubled."""

import os
import random
import sys
from contextlib import closing
from pathlib import Path

import pytest
from faults.runs import Nursery, assert_same, assert_sound, kill_once, whole

sys.path.insert(0, str(Path(__file__).parents[1] / "golden"))
from runs import EXPLOITED, LOCK, PLANNED, RUNS, SMALL

KILLS = int(os.environ.get("E3RL_FAULTS_KILLS", "200"))
TABULAR = ["FrozenLake-v1", "--algo", "tabular-e3", "--set", "explore.episodes=12", "evaluation_episodes=3"]
INSIDE = [
    *LOCK,
    *SMALL,
    *PLANNED,
    *EXPLOITED,
    "exploit.value.batch=4",
    "explore.episodes=4",
    "explore.update_every=2",
]
CASES = {**RUNS, "inside": INSIDE, "tabular": TABULAR}


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    with closing(Nursery(tmp_path_factory.mktemp("nursery"))) as found:
        yield found


def trial(argv, tmp_path, kills, seed, tally, nursery):
    """Break a run off over and over, during resuming too, until that has happened so often; then let it end."""
    rng, left, rounds = random.Random(seed), kills, 0
    run = ["train", *argv, "--seed", str(200 + seed % 50), "--out"]
    moments = whole([*run, str(tmp_path / "whole")], nursery)
    while left > 0:
        out = tmp_path / f"cut{rounds}"
        for _ in range(min(left, rng.randint(1, 4))):
            left -= kill_once([*run, str(out), "--resume"], out, moments, rng, tally, nursery)
            assert_sound(out)
        whole([*run, str(out), "--resume"], nursery)
        assert_same(out, tmp_path / "whole")
        tally["resumed to the same bytes"] += 1
        rounds += 1


def test_a_kill(tmp_path, tally, nursery):
    """The quick part: an agent that keeps a table, on an environment in Python."""
    trial(TABULAR, tmp_path, 1, 1, tally, nursery)


@pytest.mark.faults
@pytest.mark.parametrize("name", CASES)
def test_kills(name, tmp_path, tally, nursery):
    each = -(-KILLS // len(CASES))
    trial(CASES[name], tmp_path, each, list(CASES).index(name), tally, nursery)
