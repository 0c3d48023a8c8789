"""DREEM's guarantee measured: Theorem 1's constants over several families, and how far below its n they still work."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from e3rl.dreem.certify import FAMILIES, certify
from e3rl.experiments.provenance import provenance
from e3rl.experiments.tables import write_rows
from e3rl.runs.folder import write_json

SHRINKS = tuple(10.0**k for k in range(9))
RULES = {"theorem": None, "follows n": 1.0, "follows n / 5": 0.2}
"""φ as in the theorem, as the deviation bound at the n used, or a fifth of that: the bound is loose."""
MAX_ROUNDS = 50
"""Below the theorem's n a round may eliminate nothing, and then none after it does."""
COLUMNS = (
    "family", "phi_rule", "shrink", "n", "phi", "runs", "success_rate", "suboptimal", "unfinished",
    "true_model_eliminated", "everything_eliminated", "rounds_max", "gap_max",
)  # fmt: skip


def below_theory(
    out: Path,
    say: Callable[[str], None],
    runs: int = 50,
    families: Sequence[str] = tuple(FAMILIES),
    shrinks: Sequence[float] = SHRINKS,
    **options: Any,
) -> list[dict[str, Any]]:
    """Success with n = theory / shrink under each rule for φ."""
    rows = []
    for name in families:
        for rule, scale in RULES.items():
            for shrink in shrinks:
                report = certify(
                    name,
                    runs,
                    shrink=shrink,
                    phi_scale=scale,
                    max_rounds=MAX_ROUNDS,
                    **options,
                )
                row = {**report, "phi_rule": rule, "shrink": shrink}
                rows.append({column: row[column] for column in COLUMNS})
                say(f"{name}, φ {rule}, n/{shrink:.0e} = {row['n']:.3g}: success {row['success_rate']:.0%}")
    save("below-theory", out, rows, {"runs": runs, "max_rounds": MAX_ROUNDS, **options})
    return rows


def still_works(rows: Sequence[dict[str, Any]], required: float) -> list[dict[str, Any]]:
    """Per family and rule, the largest shrink up to which every measured one reaches the required rate."""
    summary = []
    for name, rule in dict.fromkeys((row["family"], row["phi_rule"]) for row in rows):
        best = None
        for row in sorted(
            (row for row in rows if (row["family"], row["phi_rule"]) == (name, rule)),
            key=lambda row: row["shrink"],
        ):
            if row["success_rate"] < required:
                break
            best = row
        summary.append(
            {
                "family": name,
                "phi_rule": rule,
                "largest_shrink": None if best is None else best["shrink"],
                "n": None if best is None else best["n"],
            }
        )
    return summary


def save(name: str, out: Path, rows: Sequence[dict[str, Any]], settings: dict[str, Any]) -> None:
    """`out`/NAME.csv with the rows and .json with how they came about."""
    write_rows(out / f"{name}.csv", list(rows[0]), rows)
    about = {"rows": list(rows), "settings": settings, **provenance(command(name, rows, settings))}
    write_json(out / f"{name}.json", json.loads(json.dumps(about)))


def command(name: str, rows: Sequence[dict[str, Any]], settings: dict[str, Any]) -> str:
    """What to type to repeat it; what is not set has the same default there."""
    what = {
        "certify": "--certify",
        "certify-doubling": "--certify --doubling",
        "below-theory": "--below-theory",
    }
    flags = {
        "models": "models",
        "extra_policies": "policies",
        "epsilon": "epsilon",
        "delta": "delta",
        "seed": "seed",
    }
    families = list(dict.fromkeys(row["family"] for row in rows))
    words = ["e3rl dreem", what[name], f"--family {families[0] if len(families) == 1 else 'all'}"]
    words.append(f"--runs {settings.get('runs', rows[0]['runs'])}")
    words += [f"--{flag} {settings[key]}" for key, flag in flags.items() if key in settings]
    return " ".join(words)
