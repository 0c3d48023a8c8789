"""How long experiments took, by tables of which the answer is known."""

import json

import pytest

from e3rl.experiments.durations import device_of, measured

STOPPING = "experiment,reward,seed,by_itself,seconds"
UNIFIED = "experiment,agent,reward,seed,seconds"
LOCK = "experiment,reward,seed,ratio,seconds"
REACH = "experiment,seed,seconds,together"


@pytest.mark.parametrize(
    ("head", "rows", "device", "seconds"),
    [
        # Two rewards of a seed in a program, and another seed that happened to take as long.
        (STOPPING, ["standard,0,True,9.5", "antishaped,0,True,9.5", "standard,1,True,9.5"], "cpu", 19.0),
        (STOPPING, ["standard,0,True,9.5", "antishaped,0,True,4.0"], "cpu", 13.5),
        (STOPPING, ["standard,0,True,9.5", "standard,1,True,9.5"], "NVIDIA H200", 9.5),
        (UNIFIED, ["a,standard,0,3.0", "a,antishaped,0,3.0", "b,standard,0,3.0"], "cpu", 9.0),
        (LOCK, ["standard,0,5,3.0", "standard,0,10,7.0"], "cpu", 7.0),
        (REACH, ["0,8.0,2", "1,8.0,2"], "cpu", 8.0),
    ],
)
def test_tables(tmp_path, head, rows, device, seconds):
    folder = tmp_path / "family"
    folder.mkdir()
    (folder / "one.csv").write_text("\n".join([head, *(f"one,{row}" for row in rows), ""]))
    (folder / "one.json").write_text(json.dumps({"experiment": "one", "device": device}))
    assert measured(tmp_path)["one"] == (seconds, device)


def test_what_is_told_outright(tmp_path):
    folder = tmp_path / "family"
    folder.mkdir()
    (folder / "one.csv").write_text(f"{STOPPING}\none,standard,0,True,1.0\n")
    (folder / "one.json").write_text(json.dumps({"experiment": "one", "device": "cpu", "seconds": 7.5}))
    assert measured(tmp_path)["one"].seconds == 7.5


def test_seeds_of_earlier_commands_say_where_they_were_computed():
    """Not where they were put together."""
    here, there = {"device": "cpu", "settings": {"seeds": [0, 1]}}, "NVIDIA H200"
    assert device_of(here) == "cpu"
    assert device_of(here | {"earlier": [{"device": there, "seeds": [seed]} for seed in (0, 1)]}) == there
    assert device_of(here | {"earlier": [{"device": there, "seeds": [1]}]}) == f"{there} and cpu"


def test_what_went_on_on_another_machine_says_both():
    machines = [{"device": "NVIDIA H200", "machine": "there"}, {"device": "cpu", "machine": "here"}]
    assert device_of({"device": "cpu", "settings": {}, "machines": machines}) == "NVIDIA H200 and cpu"
