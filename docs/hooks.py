"""Lets the pages show as figures/NAME.png what `make figures` wrote under results/."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

FIGURES = Path(__file__).parents[1] / "results" / "figures" / "figure1"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for path in sorted(FIGURES.glob("*.png")):
        files.append(File.generated(config, f"figures/{path.name}", abs_src_path=str(path)))
    return files
