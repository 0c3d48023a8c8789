"""The code of docs/dreem.md runs as it stands, from top to bottom in one namespace."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "dreem.md"


def test_code_blocks_run(capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 6
    namespace: dict = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), namespace)
    printed = capsys.readouterr().out
    assert "[1, 2, 3]" in printed  # the ranks the page names
    assert namespace["run"].value == namespace["run"].optimal_value
    assert namespace["given"].phi == pytest.approx(6.7e-5, rel=0.01)
