"""`e3rl report`."""

import argparse
import json
import sys
from pathlib import Path

from e3rl.cli.training import import_from_here
from e3rl.runs.summary import verdict
from e3rl.types import UserError


def report(args: argparse.Namespace) -> int:
    from e3rl.reports.claims.evidence import Evidence
    from e3rl.reports.folder import report_of
    from e3rl.reports.page import document, of_results

    folder = args.run_folder
    found = report_of(folder)
    is_run = bool(runs_in(folder)) or not folder.is_dir()
    if found is None and (is_run or not Evidence.under(folder).named):
        return _report_runs(args)
    if args.watch:
        raise UserError(f"{folder} holds results and no run: there is nothing to watch")
    if found is None:  # folders of results
        page = str(document.write_page(folder, of_results.page(folder)))
        print(json.dumps({"page": page}) if args.json else f"page: {page}")
        return 0
    text, figures = found.table(folder), list(map(str, found.draw(folder)))
    page = str(document.write_page(folder, of_results.page(folder)))
    shown = [*(f"picture: {path}" for path in figures), f"page: {page}"]
    said = {"table": text, "figures": figures, "page": page}
    print(json.dumps(said) if args.json else "\n".join([text, *shown]))
    return 0


def runs_in(folder: Path) -> list[Path]:
    """The run in a folder, or those of several seeds."""
    from e3rl.runs.seed_folders import seed_folders

    return [folder] if (folder / "config.json").exists() else seed_folders(folder)


def _report_runs(args: argparse.Namespace) -> int:
    from e3rl.experiments.agents import AGENTS
    from e3rl.reports.learning import draw_runs
    from e3rl.reports.page import document, of_run
    from e3rl.reports.run_pictures import draw_extra
    from e3rl.runs.folder import RunFolder, read_metrics

    folder = args.run_folder
    import_from_here()
    paths = runs_in(folder)
    if not paths:
        below = sorted(folder.glob("*/config.json"))
        hint = f", but folders of runs: show one, such as {below[0].parent}" if below else ""
        raise UserError(f"{folder} holds no run{hint}")
    if args.watch:
        of_run.follow(folder, paths, lambda line: print(line, file=sys.stderr, flush=True))
    summaries = [summary for path in paths if (summary := RunFolder(path).summary())]
    unfinished = [path for path in paths if not (path / "summary.json").exists()]
    begun = [path for path in paths if path not in unfinished or (path / "metrics.csv").exists()]
    pictures = [draw_runs(begun, folder / "learning.png"), *draw_extra(folder)] if begun else []
    page = str(document.write_page(folder, of_run.page(folder, paths, pictures))) if begun else None
    if args.json:
        first, more = (str(pictures[0]), list(map(str, pictures[1:]))) if pictures else (None, [])
        report = {"runs": summaries, "figure": first, "figures": more, "page": page}
        print(json.dumps({**report, "unfinished": list(map(str, unfinished))}))
        return 0
    for path in unfinished:
        episodes = len(read_metrics(path)) if path in begun else 0
        print(f"{path}: not finished, {episodes} episodes so far; the same command with --resume goes on")
    for summary in summaries:
        agent = AGENTS.get(summary.get("algo", ""))
        print(verdict(summary, agent is None or agent.explores_first))
    for drawn in pictures:
        print(f"picture: {drawn}")
    if page is not None:
        print(f"page: {page}")
    return 0
