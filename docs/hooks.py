"""Lets the pages show as figures/NAME.png the pictures that commands wrote under results/."""

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

RESULTS = Path(__file__).parents[1] / "results"
FOLDERS = ("figures/figure1", "lock", "dreem")
NAMED = ("control", "maze", "baselines")
"""Folders whose pictures are called the same: they appear as figures/NAME-FOLDER.png."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for folder in FOLDERS:
        for path in sorted((RESULTS / folder).glob("*.png")):
            files.append(File.generated(config, f"figures/{path.name}", abs_src_path=str(path)))
    for folder in NAMED:
        for path in sorted((RESULTS / folder).glob("*.png")):
            shown = f"figures/{path.stem}-{folder}.png"
            files.append(File.generated(config, shown, abs_src_path=str(path)))
    return files
