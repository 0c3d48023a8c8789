"""What is said in titles and lists instead of ids."""

import pytest

from e3rl.experiments import catalogue
from e3rl.experiments.names import algorithm_name, settings_name, spread, task_name


@pytest.mark.parametrize(
    ("env", "options", "name"),
    [
        ("e3rl/CombinationLock-v0", {"horizon": 15, "antishaped": True, "seed": 3, "switch": 0.2},
         "combination lock, 15 levels, antishaped rewards, switch=0.2"),
        ("e3rl/CombinationLock-v0", {"antishaped": False}, "combination lock, standard rewards"),
        ("e3rl/Maze-v0", {"size": 10}, "maze, 10 × 10"),
        ("e3rl/SomethingNew-v2", {}, "SomethingNew"),
        ("my_package:Mine-v0", {"size": 3}, "my_package:Mine-v0, size=3"),
        (None, None, "an environment without an id"),
    ],
)  # fmt: skip
def test_tasks(env, options, name):
    assert task_name(env, options) == name


def test_algorithms_settings_and_numbers():
    assert [algorithm_name(algo) for algo in ("neural-e3", "ppo-rnd", "mine")] == [
        "Neural-E³",
        "PPO+RND",
        "mine",
    ]
    assert settings_name("paper-control") == "the paper's settings"
    assert settings_name("steadied-control") == "the paper's settings, steadied"
    assert settings_name("optimistic-lock-dqn-h5") == "the paper's settings, optimistic"
    assert (settings_name("e3rl-long"), settings_name("e3rl")) == (
        "settings for long locks",
        "e3rl's settings",
    )
    assert (spread([5, 8, 25]), spread([50])) == ("5 to 25", "50")


def test_an_experiment_that_does_not_describe_itself_is_described_by_its_module(monkeypatch):
    monkeypatch.delitem(catalogue.SETTINGS, "lock/h5")
    assert catalogue.about("lock/h5").startswith("Figure 2's combination locks (section 5.1)")
