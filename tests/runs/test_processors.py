"""Who gets which processors."""

import os
import subprocess
import sys

import pytest

from e3rl.runs.processors import bound_to, processors, shares


@pytest.mark.parametrize(
    ("workers", "wanted"),
    [
        (1, [{4, 5, 6, 7}]),
        (2, [{4, 6}, {5, 7}]),
        (4, [{4}, {5}, {6}, {7}]),
        (6, [{4}, {5}, {6}, {7}, {4}, {5}]),
    ],
)
def test_processors_of_their_own(workers, wanted):
    assert shares([4, 5, 6, 7], workers) == wanted


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processors cannot be chosen here")
def test_a_process_is_born_where_it_belongs():
    own, before = processors()[-1], processors()
    with bound_to({own}):
        command = [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.communicate()[0] == f"{own}\n"
    assert processors() == before
