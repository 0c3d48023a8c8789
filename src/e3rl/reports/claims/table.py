"""All claims: judged, as a table, as a page of the documentation."""

from collections import Counter
from pathlib import Path

from e3rl.reports.claims import control, dqn, lock, mazes, theory
from e3rl.reports.claims.claim import Claim, Judged, Verdict, judge
from e3rl.reports.claims.evidence import Evidence
from e3rl.runs.checkpoint import write_file
from e3rl.types import UserError

CLAIMS: list[Claim] = [*theory.CLAIMS, *lock.CLAIMS, *dqn.CLAIMS, *mazes.CLAIMS, *control.CLAIMS]
CHAPTERS = {
    "Section 3 and appendix A: theory": theory.CLAIMS,
    "Section 5.1 and appendix C.1: combination locks": [*lock.CLAIMS, *dqn.CLAIMS],
    "Section 5.2 and appendix C.2: mazes": mazes.CLAIMS,
    "Section 5.3 and appendix C.3: MountainCar and Acrobot": control.CLAIMS,
}
MADE = "<!-- made by `e3rl reproduce claims --out docs` -->"
INTRODUCTION = """\
# What the paper says, and what was measured

Every sentence of section 5 and appendix C that states a result, and every proposition and lemma of section 3, with
what the data under `results/` say about it. A verdict is computed and never typed: *holds* means that the data show
it, *differs* that they do not, *not tested* that there are none, or too few. `e3rl reproduce claims` makes this table
again, `--json` with the rules and the experiments behind it; [how numbers are summed up](statistics.md) explains the
intervals, which are 95% ones. The paper's sentences are given in our words. Seeds are the paper's, 0 to 4 (mazes 0 to
2); where all parts of an entry were run with confirmatory seeds, those decide, and the entry says so. What asks for the
largest of several budgets takes a smaller one where that has confirmatory seeds alone.
"""


def judged(results: Path) -> list[Judged]:
    """By the paper's seeds, and by confirmatory ones where they have been run: those decide."""
    evidence = Evidence.under(results)
    first = [judge(claim, evidence) for claim in CLAIMS]
    confirmed = evidence.confirmed()
    if confirmed is None:
        return first
    return [_decided(one, judge(one.claim, confirmed)) for one in first]


def _decided(first: Judged, confirmed: Judged) -> Judged:
    if not (confirmed.cells and confirmed.whole):
        return first
    before = f"the paper's seeds: {first.measured} ({first.verdict.value})"
    return confirmed._replace(measured=f"confirmatory seeds: {confirmed.measured}. Beside them {before}")


def counted(claims: list[Judged]) -> str:
    """Such as "20 hold, 9 differ, 12 are not tested"."""
    count = Counter(one.verdict for one in claims)
    return f"{count[Verdict.HOLDS]} hold, {count[Verdict.DIFFERS]} differ, {count[Verdict.NOT_TESTED]} are not tested"


def plain(claims: list[Judged]) -> str:
    """For people at a terminal: a paragraph each."""
    lines = []
    for one in claims:
        whose = f" ({one.claim.settings})" if one.claim.settings else ""
        lines += [
            f"{one.verdict.upper():<11} {one.claim.place}: {one.claim.says}{whose}",
            f"{'':<11} {one.measured}",
        ]
    return "\n".join([*lines, "", f"{len(claims)} claims: {counted(claims)}"])


def page(claims: list[Judged]) -> str:
    """docs/claims.md."""
    by_claim = {id(one.claim): one for one in claims}
    parts = [MADE, INTRODUCTION, f"Of {len(claims)} entries {counted(claims)}.\n"]
    for title, own in CHAPTERS.items():
        parts.append(f"## {title}\n\n| place | the paper says | we measured | verdict |\n|---|---|---|---|")
        parts += [_row(by_claim[id(claim)]) for claim in own]
        parts.append("")
        notes = list(dict.fromkeys(f"- *{claim.says}* {claim.note}" for claim in own if claim.note))
        parts += [*notes, ""] if notes else []
    return "\n".join(parts)


def _row(one: Judged) -> str:
    claim = one.claim
    whose = f" *Settings: {claim.settings}.*" if claim.settings else ""
    cells = (claim.place, f"{claim.says}{whose}", one.measured, f"**{one.verdict.value}**")
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def write_page(folder: Path, claims: list[Judged]) -> Path:
    """Write `folder`/claims.md, unless a file of that name is somebody's own."""
    path = folder / "claims.md"
    if path.exists() and not path.read_text(errors="replace").startswith(MADE):
        raise UserError(f"{path} was not made by this command; it is left alone")
    folder.mkdir(parents=True, exist_ok=True)
    write_file(path, page(claims).encode())
    return path
