"""The page about a folder of results: what the paper said and what was measured, figures, cells."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from e3rl.experiments.catalogue import EXPERIMENTS, about, family_of
from e3rl.experiments.durations import device_of, durations
from e3rl.experiments.tables import UNFINISHED
from e3rl.reports.claims.claim import DAMAGE, Judged, Verdict
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.claims.table import counted, judged
from e3rl.reports.page.document import Section, document, figure, folded, picture, shown_commit, table
from e3rl.reports.page.figures import charts
from e3rl.reports.page.missing import missing
from e3rl.reports.results import Result
from e3rl.runs.summary import duration
from e3rl.types import UserError

PICTURES = {
    "environments.png": "Figure 1: the environments",
    "predictions.png": "Figure 5: what every model of the ensemble predicts in a maze, and where they part",
    "predictions-5.png": "Figure 5 in a maze of 5 × 5, which a CPU learns",
    "ellipsoids.png": "Lemma 3: ellipsoids around the models that are left",
    "ranks.png": "Propositions 1 to 3: ranks of misfit matrices and their bounds",
}
"""By the names of files, wherever they lie below the folder."""
KINDS = {Verdict.HOLDS: "holds", Verdict.DIFFERS: "differs", Verdict.NOT_TESTED: "open"}


def page(folder: Path) -> str:
    try:
        return _page(folder)
    except DAMAGE as error:
        raise UserError(f"results in {folder} are damaged: {type(error).__name__}: {error}") from error


def _page(folder: Path) -> str:
    evidence = Evidence.under(folder)
    named = evidence.named
    families = {family_of(name) for name in named}
    claims = judged(folder)
    whole = not any(folder.glob("*.json"))
    if not whole:  # of some families, which say nothing about the others
        claims = [one for one in claims if any(family_of(cell) in families for cell in one.cells)]
    shown = charts(evidence)
    found = {
        path.name: path
        for path in sorted(folder.rglob("*.png"), reverse=True)
        if UNFINISHED not in path.parts
    }
    drawn = [picture(found[name], words) for name, words in PICTURES.items() if name in found]
    sections = [
        Section("claims", "The paper said, we measured", _claims(claims)),
        Section("figures", "Figures", "".join(map(figure, shown)) + "".join(drawn)),
        Section("cells", "Cells", _cells(named)),
        Section("missing", "What is missing", missing(folder, named, whole)),
    ]
    lead = (
        "Explicit explore-exploit reinforcement learning (Henaff, NeurIPS 2019), reproduced. Of "
        f"{len(claims)} claims {counted(claims)}; {len(named)} experiments have results here."
    )
    return document("e3rl: the paper and what was measured", lead, sections)


def _claims(claims: list[Judged]) -> str:
    rows = []
    for one in claims:
        whose = (
            f'<div class="soft">settings: {escape(one.claim.settings)}</div>' if one.claim.settings else ""
        )
        rule = f'<div class="soft">holds if {escape(one.claim.holds_if)}</div>'
        note = f'<div class="soft">{escape(one.claim.note)}</div>' if one.claim.note else ""
        says = f"{escape(one.claim.says)}{whose}"
        measured = f"{escape(one.measured)}{rule}{note}"
        rows.append((KINDS[one.verdict], (escape(one.claim.place), says, measured, one.verdict.value)))
    words = (
        '<p class="soft">Verdicts are computed from the data. <em>Holds</em>: the data show it. <em>Differs</em>: they '
        "do not. <em>Not tested</em>: there are none, or too few. Intervals in brackets are 95% ones.</p>"
    )
    return words + table(("place", "the paper said", "we measured", "verdict"), rows)


def _cells(named: dict[str, Result]) -> str:
    took = durations()
    rows = []
    for name, result in sorted(named.items()):
        said = result.about
        what = about(name) if name in EXPERIMENTS else ""
        command = said.get("command", f"e3rl reproduce {name}")
        seeds = said.get("settings", {}).get("seeds", [])
        time = duration(took[name].seconds) if name in took else ""
        made = ", ".join(filter(None, (device_of(said), said.get("version"))))
        commit = f" at {shown_commit(said['commit'])}" if said.get("commit") else ""
        config = said.get("config", said.get("configs"))
        cells = (
            f"<strong>{escape(name)}</strong><div>{escape(what)}</div>",
            f"<code>{escape(command)}</code>{'' if config is None else folded('configuration', config)}",
            escape(_runs(seeds)),
            escape(", ".join(filter(None, (made + commit, time)))),
        )
        rows.append(("", cells))
    return table(("experiment", "the command that repeats it", "seeds", "made by"), rows)


def _runs(seeds: Sequence[int]) -> str:
    """Such as "0 to 4, 7": what follows one another is told by its ends."""
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(str(own[0]) if len(own) == 1 else f"{own[0]} to {own[-1]}" for own in parts)
