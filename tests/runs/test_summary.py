"""A summary is a mapping, prints as one line and has its entries as attributes."""

import copy
import json
import pickle

import pytest

from e3rl.runs.summary import Summary, duration

ENTRIES = {
    "algo": "echo", "seed": 3, "explore_episodes": 7, "exploit_return_mean": 1.5, "exploit_return_ci": [1.0, 2.0],
    "optimal_return": 3.0, "wall_seconds": 12.4,
}  # fmt: skip


def test_it_prints_as_one_line():
    wanted = "seed 3: return 1.500 (95% interval 1.000 to 2.000), 50% of the optimum 3.000, after 7 {} episodes, 12 s"
    assert str(Summary(ENTRIES, explores=True)) == wanted.format("exploration")
    assert repr(Summary(ENTRIES, explores=False)) == wanted.format("training")
    practised = str(Summary({**ENTRIES, "practice_episodes": 4}, explores=True))
    assert "after 7 exploration and 4 practice episodes, " in practised
    little = Summary(
        {"seed": 3, "exploit_return_mean": 1.5, "exploit_return_ci": None, "wall_seconds": 1}, True
    )
    assert f"{little}" == "seed 3: return 1.500, 1 s"


def test_it_is_the_mapping_that_it_was():
    summary = Summary(ENTRIES, True)
    assert summary == ENTRIES
    assert isinstance(summary, dict)
    assert json.loads(json.dumps(summary)) == ENTRIES
    assert {**summary, "seed": 4}["seed"] == 4
    for twin in (copy.copy(summary), copy.deepcopy(summary), pickle.loads(pickle.dumps(summary))):
        assert (twin, str(twin)) == (ENTRIES, str(summary))


def test_its_entries_are_attributes():
    summary = Summary(ENTRIES, True)
    assert (summary.exploit_return_mean, summary.seed, summary.finished) == (1.5, 3, True)
    assert "explore_episodes" in dir(summary)
    with pytest.raises(AttributeError, match="a summary has no 'reward'; it has algo, seed, "):
        _ = summary.reward


def test_lengths_of_time_as_people_say_them():
    seconds = (0.4, 40.0, 89.6, 100.0, 1_200.0, 5_300.0, 5_500.0, 7_200.0, 90_000.0)
    assert [duration(each) for each in seconds] == [
        "0 s", "40 s", "90 s", "2 min", "20 min", "88 min", "1 h 30 min", "2 h", "25 h",
    ]  # fmt: skip
