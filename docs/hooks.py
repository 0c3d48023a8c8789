"""What the pages show that is made elsewhere: pictures that commands wrote under results/, as figures/NAME.png, and on
settings.md the tables of all settings, read from the classes that have them."""

import dataclasses
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from e3rl.experiments.agents import AGENTS
from e3rl.runs.renamed import Table
from e3rl.runs.settings import Settings

RESULTS = Path(__file__).parents[1] / "results"
FOLDERS = ("figures/figure1", "lock", "dreem")
NAMED = ("control", "maze", "baselines")
"""Folders whose pictures are called the same: they appear as figures/NAME-FOLDER.png."""
SHAPE = re.compile(r'<span class="n">(\w+)</span> <span class="o">\*</span> <span class="n">(\w+)</span>')
"""What mkdocstrings makes of a shape such as "n *obs", which it takes for a product."""
MARK = "<!-- made by hooks.py: the tables of all settings -->"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for folder in FOLDERS:
        for path in sorted((RESULTS / folder).glob("*.png")):
            files.append(File.generated(config, f"figures/{path.name}", abs_src_path=str(path)))
    for folder in NAMED:
        for path in sorted((RESULTS / folder).glob("*.png")):
            shown = f"figures/{path.stem}-{folder}.png"
            files.append(File.generated(config, shown, abs_src_path=str(path)))
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
        agents = [AGENTS[name] for name in names]
        yield f"## {' and '.join(f'`{name}`' for name in names)}\n"
        yield f"`{kind.__name__}`: what can be set whichever parts are chosen.\n"
        yield from table(kind(), "")
        for field in parts_of(kind):
            for name, part in field.metadata["registry"].items():
                yield f"### {field.name}={name}\n"
                yield f"`{part.__name__}`: {summary(part)}\n"
                yield from table(part(), f"{field.name}.")
        yield "### Presets\n"
        yield "By name (`--config`), each with what differs from the defaults above.\n"
        yield "| preset | differs in |\n|---|---|"
        for name, preset in {
            name: preset for agent in agents for name, preset in agent.presets.items()
        }.items():
            differing = " ".join(f"{path}={shown(value)}" for path, value in differences(preset).items())
            yield f"| `{name}` | {f'`{differing}`' if differing else 'nothing'} |"
        yield ""
        if agents[0].renamed:
            yield "### Names of earlier versions\n"
            yield "`--set` still understands them, and says what they are called now. A part in brackets says"
            yield "where a name is meant: `exploit[dqn].value.batch` with `exploit=dqn`.\n"
            yield from renamed(agents[0].renamed)


def agents_by_settings() -> dict[type[Settings], list[str]]:
    found: dict[type[Settings], list[str]] = {}
    for name, agent in AGENTS.items():
        found.setdefault(agent.settings, []).append(name)
    return found


def parts_of(kind: type[Settings]) -> list[dataclasses.Field]:
    return [field for field in dataclasses.fields(kind) if "registry" in field.metadata]


def table(settings: Settings, prefix: str) -> Iterator[str]:
    lines = list(rows(settings, prefix))
    if not lines:
        yield "It has no settings.\n"
        return
    yield "| setting | default | may be | meaning |\n|---|---|---|---|"
    yield from lines
    yield ""


def rows(settings: Settings, prefix: str) -> Iterator[str]:
    """A row for each setting, those of groups by their whole path; a part has its own table elsewhere."""
    hints = get_type_hints(type(settings))
    for field in dataclasses.fields(settings):
        path, value, about = f"{prefix}{field.name}", getattr(settings, field.name), field.metadata
        meaning = about["meaning"].replace("|", "\\|")
        if "registry" in about:
            names = ", ".join(f"`{name}`" for name in about["registry"])
            yield f"| `{path}` | `{about['registry'].name_of(type(value))}` | {names} | {meaning} |"
        elif isinstance(value, Settings):
            yield from rows(value, f"{path}.")
        else:
            yield f"| `{path}` | `{shown(value)}` | {allowed(value, hints[field.name], about)} | {meaning} |"


def allowed(value: Any, hint: Any, about: Mapping[str, Any]) -> str:
    if get_origin(hint) is Literal:
        return ", ".join(f"`{option}`" for option in get_args(hint))
    if isinstance(value, bool):
        return "`true`, `false`"
    low = f"≥ {about['at_least']}" if about["above"] is None else f"> {about['above']}"
    high = "" if about["at_most"] == math.inf else f", ≤ {about['at_most']}"
    return f"{'a whole number' if isinstance(value, int) else 'a number'} {low}{high}"


def shown(value: Any) -> str:
    """A value as `--set` takes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def summary(part: type) -> str:
    return " ".join((part.__doc__ or "").split("\n\n")[0].split())


def differences(settings: Settings) -> dict[str, Any]:
    """What has to be set to come from the defaults to `settings`, by path."""
    return dict(_differences(settings, type(settings)(), ""))


def _differences(settings: Any, usual: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    for field in dataclasses.fields(settings):
        path, value, default = (
            f"{prefix}{field.name}",
            getattr(settings, field.name),
            getattr(usual, field.name),
        )
        if isinstance(value, Settings):
            if type(value) is not type(default):
                yield path, field.metadata["registry"].name_of(type(value))
                default = type(value)()
            yield from _differences(value, default, f"{path}.")
        elif value != default:
            yield path, value


def renamed(names: Table) -> Iterator[str]:
    yield "| then | now |\n|---|---|"
    for old, now in names.items():
        yield f"| `{old}` | {', '.join(f'`{path}`' for path in now)} |"
    yield ""
