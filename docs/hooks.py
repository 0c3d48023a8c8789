"""What the pages show that is made elsewhere: pictures that commands wrote under results/, as figures/NAME.png, the
page about all results, and on settings.md the tables of all settings, read from the classes that have them."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from e3rl.experiments.agents import AGENTS
from e3rl.reports.settings_tables import (
    Row,
    agents_by_settings,
    departures,
    differences,
    parts_of,
    presets_of,
    rows,
    summary,
)
from e3rl.runs.renamed import Table
from e3rl.runs.settings import Settings

RESULTS = Path(__file__).parents[1] / "results"
FOLDERS = ("figures/figure1", "lock", "dreem", "bench")
NAMED = ("control", "maze", "baselines")
"""Folders whose pictures are called the same: they appear as figures/NAME-FOLDER.png."""
PAGE = "report.html"
"""Of `e3rl report results`."""
SHAPE = re.compile(r'<span class="n">(\w+)</span> <span class="o">\*</span> <span class="n">(\w+)</span>')
"""What mkdocstrings makes of a shape such as "n *obs", which it takes for a product."""
PAPER = {"e3rl": "paper-lock-h10", "e3rl-control": "paper-control", "e3rl-image": "paper-maze"}
"""Our presets and those of the paper for the same environments."""
MARK = "<!-- made by hooks.py: the tables of all settings -->"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for folder in FOLDERS:
        for path in sorted((RESULTS / folder).glob("*.png")):
            files.append(File.generated(config, f"figures/{path.name}", abs_src_path=str(path)))
    for folder in NAMED:
        for path in sorted((RESULTS / folder).glob("*.png")):
            shown = f"figures/{path.stem}-{folder}.png"
            files.append(File.generated(config, shown, abs_src_path=str(path)))
    files.append(File.generated(config, PAGE, abs_src_path=str(RESULTS / PAGE)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.file.src_uri != "settings.md":
        return markdown
    before, mark, after = markdown.partition(MARK)
    assert mark, "settings.md has lost its mark"
    return before + "\n".join(all_settings()) + after


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    if page.file.src_uri != "api.md":
        return html
    return SHAPE.sub(r"""<span class="s1">'\1 *\2'</span>""", html)


def all_settings() -> Iterator[str]:
    """A chapter for each class of settings: its fields, those of every part, presets, names of earlier versions."""
    for kind, names in agents_by_settings().items():
        yield f"## {' and '.join(f'`{name}`' for name in names)}\n"
        yield f"`{kind.__name__}`: what can be set whichever parts are chosen.\n"
        yield from table(rows(kind(), within_parts=False))
        for field, registry in parts_of(kind).items():
            for name, part in registry.items():
                yield f"### {field}={name}\n"
                yield f"`{part.__name__}`: {summary(part)}\n"
                yield from table(rows(part(), f"{field}.", within_parts=False))
        yield "### Presets\n"
        yield "By name (`--config`), each with what differs from the defaults above.\n"
        yield "| preset | differs in |\n|---|---|"
        for name, preset in presets_of(kind).items():
            differing = " ".join(f"{path}={value}" for path, value in differences(preset).items())
            yield f"| `{name}` | {f'`{differing}`' if differing else 'nothing'} |"
        yield ""
        yield from from_the_paper(presets_of(kind))
        if names_then := AGENTS[names[0]].renamed:
            yield "### Names of earlier versions\n"
            yield "`--set` still understands them, and says what they are called now. A part in brackets says"
            yield "where a name is meant: `exploit[dqn].value.batch` with `exploit=dqn`.\n"
            yield from renamed(names_then)


def from_the_paper(presets: Mapping[str, Settings]) -> Iterator[str]:
    """Every setting in which a preset of ours is not the paper's."""
    for ours, theirs in PAPER.items():
        if ours in presets:
            yield f"### Where `{ours}` departs from `{theirs}`\n"
            yield "A part that has no such setting has nothing there.\n"
            yield "| setting | ours | the paper's |\n|---|---|---|"
            for path, one, other in departures(presets[ours], presets[theirs]):
                yield f"| `{path}` | {one} | {other} |"
            yield ""


def table(settings: Iterator[Row]) -> Iterator[str]:
    lines = [
        f"| `{row.path}` | `{row.default}` | {', '.join(f'`{word}`' for word in row.options) or row.bounds} | "
        + row.meaning.replace("|", "\\|")
        + " |"
        for row in settings
    ]
    if not lines:
        yield "It has no settings.\n"
        return
    yield "| setting | default | may be | meaning |\n|---|---|---|---|"
    yield from lines
    yield ""


def renamed(names: Table) -> Iterator[str]:
    yield "| then | now |\n|---|---|"
    for old, now in names.items():
        yield f"| `{old}` | {', '.join(f'`{path}`' for path in now)} |"
    yield ""
