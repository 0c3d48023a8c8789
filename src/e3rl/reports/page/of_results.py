"""The page about a folder of results: what the paper said and what was measured, figures, cells."""

from html import escape
from pathlib import Path

from e3rl.experiments.catalogue import EXPERIMENTS, about, family_of
from e3rl.experiments.durations import durations
from e3rl.reports.claims.claim import DAMAGE, Judged, Verdict
from e3rl.reports.claims.evidence import UNFINISHED, Evidence
from e3rl.reports.claims.table import counted, judged
from e3rl.reports.page.document import Section, document, figure, folded, picture, table
from e3rl.reports.page.figures import charts
from e3rl.reports.results import Result
from e3rl.runs.summary import duration
from e3rl.types import UserError

PICTURES = {
    "environments.png": "Figure 1: the environments",
    "predictions.png": "Figure 5: what every model of the ensemble predicts in a maze, and where they part",
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
    if any(folder.glob("*.json")):  # of some families, which say nothing about the others
        claims = [one for one in claims if any(family_of(cell) in families for cell in one.cells)]
    shown = charts(evidence)
    found = {
        path.name: path
        for path in sorted(folder.rglob("*.png"), reverse=True)
        if UNFINISHED not in path.parts
    }
    drawn = [picture(found[name], words) for name, words in PICTURES.items() if name in found]
    missing = [name for name in EXPERIMENTS if name not in named and family_of(name) in families]
    begun = sorted(path.name for path in folder.rglob(f"{UNFINISHED}/*") if path.is_dir())
    sections = [
        Section("claims", "The paper said, we measured", _claims(claims)),
        Section("figures", "Figures", "".join(map(figure, shown)) + "".join(drawn)),
        Section("cells", "Cells", _cells(named)),
        Section("missing", "What is missing", _missing(missing, begun)),
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
        made = ", ".join(str(said[key]) for key in ("device", "version") if said.get(key))
        commit = f" at {said['commit'][:8]}" if said.get("commit") else ""
        config = said.get("config", said.get("configs"))
        cells = (
            f"<strong>{escape(name)}</strong><div>{escape(what)}</div>",
            f"<code>{escape(command)}</code>{'' if config is None else folded('configuration', config)}",
            escape(", ".join(map(str, seeds))),
            escape(", ".join(filter(None, (made + commit, time)))),
        )
        rows.append(("", cells))
    return table(("experiment", "the command that repeats it", "seeds", "made by"), rows)


def _missing(missing: list[str], begun: list[str]) -> str:
    """Cells that were not run, and those that failed or were interrupted on the way."""
    if not missing and not begun:
        return "<p>Nothing: every experiment of these families has results.</p>"
    parts = ""
    if begun:
        parts += (
            f"<p>Begun and not finished; the same command goes on with them: {escape(', '.join(begun))}.</p>"
        )
    if missing:
        rows = [
            ("", (escape(name), escape(about(name)), f"<code>e3rl reproduce {escape(name)}</code>"))
            for name in missing
        ]
        parts += table(("experiment", "what it is", "command"), rows)
    return parts
