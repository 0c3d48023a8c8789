"""How a result came to be, said alike in every part of the page: seeds, command, configuration, commit, machine."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from e3rl.experiments.durations import device_of
from e3rl.experiments.provenance import provenance_of
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.page.document import folded, shown_commit
from e3rl.runs.summary import duration

About = Mapping[str, Any]


def seeds_of(about: About) -> list[int]:
    """Those that were run, which the settings do not always name."""
    if "final" in about:
        return sorted(map(int, about["final"]))
    settings = about.get("settings", {})
    return list(settings.get("seeds", [settings["seed"]] if "seed" in settings else []))


def spans(seeds: Sequence[int]) -> str:
    """Such as "0 to 4, 7": what follows one another is told by its ends."""
    parts: list[list[int]] = []
    for seed in sorted(seeds):
        if parts and seed == parts[-1][-1] + 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(str(own[0]) if len(own) == 1 else f"{own[0]} to {own[-1]}" for own in parts)


def repeated_by(about: About, command: str | None = None) -> str:
    """The command, and on demand the configuration."""
    found = provenance_of(about)
    config = "" if found["config"] is None else folded("configuration", found["config"])
    return f"<code>{escape(command or found['command'])}</code>{config}"


def made_by(about: About) -> str:
    """Such as "cpu, Linux x86_64, 2 CPUs, 0.1.0 at 12ab34cd", as far as it was written down."""
    found = provenance_of(about)
    device = "" if "machines" in about else device_of(dict(about))
    machine = found["machine"] if isinstance(found["machine"], str) else ""
    made = ", ".join(dict.fromkeys(filter(None, (device, machine, about.get("version")))))
    return f"{made} at {shown_commit(found['commit'])}" if found["commit"] else made


def took(evidence: Evidence, figure: str) -> str:
    """How long all cells of a figure took, where they were run by one command; of confirmatory seeds too."""
    apart = evidence.confirmed()
    told = [_took(evidence, figure, "")]
    told += [] if apart is None else [_took(apart, figure, "Confirmatory seeds: ")]
    return "".join(told)


def _took(evidence: Evidence, figure: str, whose: str) -> str:
    result = evidence.find(f"sweeps/{figure}")
    if result is None:
        return ""
    about = result.about
    count = len(about["cells"])
    which = f"all {count} cells" if count > 1 else "its cell"
    words = f"{whose}{which} took {duration(about['seconds'])} on {made_by(about)}"
    return (
        f'<p class="soft">{escape(words[0].upper() + words[1:])}: <code>{escape(about["command"])}</code></p>'
    )
