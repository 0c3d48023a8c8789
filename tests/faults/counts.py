"""What the trial counted, as the table of docs/promises.md: `python tests/faults/counts.py` writes it there."""

import json
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "promises.md"
RESULTS = ROOT / "results" / "faults"
BEGIN, END = "<!-- counts -->\n", "<!-- end of counts -->\n"


def table():
    """A row for every file: its tests together."""
    rows = [
        "| trial | tests passed | minutes | what was counted |",
        "|---|---|---|---|",
    ]
    for path in sorted(RESULTS.glob("*.json")):
        tests = json.loads(path.read_text()).values()
        counts = sum((Counter(test["counts"]) for test in tests), Counter())
        passed = sum(test["passed"] for test in tests)
        words = "; ".join(f"{name} {count:,}" for name, count in sorted(counts.items()))
        minutes = sum(test["seconds"] for test in tests) / 60.0
        rows.append(f"| {path.stem.replace('_', ' ')} | {passed} of {len(tests)} | {minutes:.1f} | {words} |")
    return "\n".join(rows) + "\n"


def with_table(page):
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert end, f"{PAGE} has no place for the table"
    return f"{before}{BEGIN}{table()}{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
