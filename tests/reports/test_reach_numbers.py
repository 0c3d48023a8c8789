"""What sentences say of `e3rl reproduce reach`."""

import json

import pytest

from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.numbers import number


@pytest.fixture
def evidence(tmp_path):
    folder = tmp_path / "reach"
    folder.mkdir()
    header = "experiment,algo,seed,explore_episodes,steps,return_mean,positive,seconds\n"
    for name, explore, returns in (
        ("acrobot", {"epsilon": 0.0}, (-80, -91, -93)),
        ("mountain-car", {"epsilon": 0.0, "epsilon_share": 0.2}, (-80, -85, -89)),
    ):
        configs = {"neural-e3": {"explore": explore, "rounds": {"count": 4, "episodes": 5}}}
        about = {"experiment": f"reach/{name}", "chosen": "neural-e3", "configs": configs, "target": -90.0}
        (folder / f"{name}.json").write_text(json.dumps({**about, "episodes": 50, "share": False}))
        rows = [
            f"x,neural-e3,{seed},{45 + seed},9,{value},0,{60 * seed}" for seed, value in enumerate(returns)
        ]
        (folder / f"{name}.csv").write_text(header + "\n".join([*rows, "x,dqn,0,9,9,-500,0,1"]) + "\n")
    return Evidence.under(tmp_path)


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("reach acrobot return_mean median", "−91"),
        ("reach acrobot return_mean worst", "−93"),
        ("reach acrobot short range 1", "1.0 to 3.0"),
        ("reach mountain-car short", "nothing"),
        ("reach acrobot minutes", "0 to 2"),
        ("reach every seed", "0 to 2"),
        ("reach-targets", "1 of 2"),
        ("reach-targets missed", "acrobot (1 of 3)"),
        ("reach-ends itself", "mountain-car"),
        ("reach-ends ceiling", "acrobot"),
    ],
)
def test_numbers(evidence, key, text):
    assert number(key, evidence) == text
