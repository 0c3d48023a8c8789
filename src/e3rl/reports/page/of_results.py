"""The page about a folder of results: what the paper said and what was measured, figures, cells."""

from html import escape
from pathlib import Path

from e3rl.experiments.catalogue import family_of
from e3rl.experiments.durations import durations
from e3rl.experiments.figures import FIGURES
from e3rl.reports.claims.claim import DAMAGE, Judged, Verdict
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.claims.table import counted, judged
from e3rl.reports.page.confirmed import confirmed, waiting
from e3rl.reports.page.document import Section, document, figure, table
from e3rl.reports.page.figures import charts
from e3rl.reports.page.made import made_by, repeated_by, seeds_of, spans, took
from e3rl.reports.page.missing import missing, what
from e3rl.reports.page.pictures import plates
from e3rl.reports.results import Result
from e3rl.runs.summary import duration
from e3rl.types import UserError

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
    apart = evidence.confirmed()
    absent = missing(folder, named, whole)
    sections = [
        Section("claims", "The paper said, we measured", _claims(claims)),
        Section("figures", "Figures", _figures(folder, evidence)),
        Section("cells", "Cells", _cells(named)),
    ]
    lead = (
        "Explicit explore-exploit reinforcement learning (Henaff, NeurIPS 2019), reproduced. Of "
        f"{len(claims)} claims {counted(claims)}; {len(named)} experiments have results here."
    )
    if apart is not None and apart.named:
        sections.insert(2, Section("confirmed", "Confirmatory seeds", confirmed(evidence, apart)))
        lead += f" Confirmatory seeds have been run of {len(apart.named)}."
    if apart is not None:
        absent += waiting(folder, apart)
    sections.append(Section("missing", "What is missing", absent))
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


def _figures(folder: Path, evidence: Evidence) -> str:
    """By the paper's numbers, each with how long all its cells took."""
    everything = [took(evidence, name) for name in FIGURES if not name.startswith("figure-")]
    drawn = [figure(chart, took(evidence, chart.figure)) for chart in charts(evidence)]
    return "".join([*everything, *drawn, plates(folder, evidence)])


def _cells(named: dict[str, Result]) -> str:
    known = durations()
    rows = []
    for name, result in sorted(named.items()):
        time = duration(known[name].seconds) if name in known else ""
        cells = (
            f"<strong>{escape(name)}</strong><div>{escape(what(name))}</div>",
            repeated_by(result.about),
            escape(spans(seeds_of(result.about))),
            escape(", ".join(filter(None, (made_by(result.about), time)))),
        )
        rows.append(("", cells))
    return table(("experiment", "the command that repeats it", "seeds", "made by"), rows)
