"""The page of promises shows what was counted, and nothing else."""

import json

from faults.counts import PAGE, RESULTS, with_table


def test_the_page_shows_what_was_counted():
    assert with_table(PAGE.read_text()) == PAGE.read_text()


def test_all_of_it_passed():
    for path in RESULTS.glob("*.json"):
        for name, found in json.loads(path.read_text()).items():
            assert found["passed"], name
            assert found["commit"], name
