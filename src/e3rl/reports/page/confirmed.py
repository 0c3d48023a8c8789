"""Cells that were run again with confirmatory seeds, beside what the paper's seeds gave."""

from collections.abc import Iterator
from html import escape
from pathlib import Path

import numpy as np

from e3rl.experiments import confirm
from e3rl.experiments.names import spread as ends
from e3rl.experiments.provenance import reproduce_command
from e3rl.reports.baselines import episodes_to_bar
from e3rl.reports.claims.evidence import CONFIRM, Evidence
from e3rl.reports.deterministic import budget_words
from e3rl.reports.page.document import table
from e3rl.reports.page.made import About, made_by, repeated_by, seeds_of, spans
from e3rl.reports.page.missing import never_run, what
from e3rl.reports.statistics.intervals import Share, spread
from e3rl.reports.wording import signed

HEAD = ("experiment", "the paper's seeds", "confirmatory seeds", "the command that repeats it", "made by")
WORDS = (
    '<p class="soft">The same experiments on seeds that nobody had looked at, with settings that a commit froze '
    "before (<code>settings.json</code> and others beside the results), which "
    "<code>python -m e3rl.experiments.confirm</code> checks by the git history. Returns are greedy ones, the median "
    "over seeds and the range from worst to best; shares of seeds have 95% intervals.</p>"
)


def confirmed(evidence: Evidence, apart: Evidence) -> str:
    """`apart` are the confirmatory results."""
    rows = []
    for name, result in sorted(apart.named.items()):
        seeds = seeds_of(result.about)
        cells = (
            f"<strong>{escape(name)}</strong><div>{escape(what(name))}</div>",
            _told(evidence, name),
            _told(apart, name),
            repeated_by(result.about, command(name, seeds)),
            escape(made_by(result.about)),
        )
        rows.append(("", cells))
    return WORDS + table(HEAD, rows)


def waiting(folder: Path, apart: Evidence) -> str:
    """Cells whose settings are frozen and whose seeds nobody has run."""
    names = [name for name in confirm.frozen_before(folder / CONFIRM) if name not in apart.named]
    if not names:
        return ""
    cells = f"{len(names)} cell{'s' * (len(names) != 1)}"
    return (
        f"<h3>Confirmatory seeds</h3><details><summary>Settings are frozen, and nobody has run them: {cells}</summary>"
        f"{never_run(names, lambda name: command(name, list(confirm.seeds_of(name))))}</details>"
    )


def command(name: str, seeds: list[int]) -> str:
    """Results of earlier versions do not say the seeds in theirs."""
    kept = name in confirm.CELLS and set(seeds) == set(confirm.seeds_of(name))
    return f"{reproduce_command(name)} --confirm" if kept else reproduce_command(name, seeds)


def _told(evidence: Evidence, name: str) -> str:
    result = evidence.find(name)
    if result is None:
        return "not run"
    seeds = f'<div class="soft">seeds {escape(spans(seeds_of(result.about)))}</div>'
    return seeds + "".join(f"<div>{escape(line)}</div>" for line in numbers(evidence, name, result.about))


def numbers(evidence: Evidence, name: str, about: About) -> Iterator[str]:
    """What its seeds came to, by what kind of experiment it is."""
    if "final" in about:
        finals = list(about["final"].values())
        yield f"return {_spread([one['return_mean'] for one in finals])}"
        bar = signed(float(np.median([one["bar"] for one in finals])), 1)
        yield f"mean of 100 above {bar}: {episodes_to_bar(finals)} episodes"
    elif "exploit" in about:
        for budget in sorted({one["budget"] for one in about["exploit"]}):
            own = [one for one in about["exploit"] if one["budget"] == budget]
            yield f"{budget_words(own)} episodes: return {_spread([one['return_mean'] for one in own])}"
    else:
        yield from _solved(evidence.rows(name) or [])


def _solved(rows: list[dict[str, str]]) -> Iterator[str]:
    """Of a lock, by reward and budget; where exploration ends by itself there is no budget."""
    for reward, ratio in dict.fromkeys((row["reward"], row.get("ratio")) for row in rows):
        own = [row for row in rows if (row["reward"], row.get("ratio")) == (reward, ratio)]
        share = Share(sum(row["solved"] == "True" for row in own), len(own))
        yield f"{reward}, {ends([int(row['episodes']) for row in own])} episodes: {share} solved"


def _spread(values: list[float]) -> str:
    return spread(values).replace("-", "−")
