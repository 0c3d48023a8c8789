"""`e3rl report`."""

import argparse
import json

from e3rl.cli.training import import_from_here
from e3rl.runs.summary import verdict
from e3rl.types import UserError


def report(args: argparse.Namespace) -> int:
    from e3rl.experiments.agents import AGENTS
    from e3rl.reports.folder import report_of
    from e3rl.reports.learning import draw_runs
    from e3rl.reports.run_pictures import draw_extra
    from e3rl.runs.folder import RunFolder, read_metrics, seed_folders

    folder = args.run_folder
    found = report_of(folder)
    if found is not None:
        text, figures = found.table(folder), list(map(str, found.draw(folder)))
        shown = [f"picture: {path}" for path in figures]
        print(json.dumps({"table": text, "figures": figures}) if args.json else "\n".join([text, *shown]))
        return 0
    import_from_here()
    paths = [folder] if (folder / "config.json").exists() else seed_folders(folder)
    if not paths:
        raise UserError(f"{folder} holds no run")
    summaries = [summary for path in paths if (summary := RunFolder(path).summary())]
    unfinished = [path for path in paths if not (path / "summary.json").exists()]
    begun = [path for path in paths if path not in unfinished or (path / "metrics.csv").exists()]
    pictures = [draw_runs(begun, folder / "learning.png"), *draw_extra(folder)] if begun else []
    if args.json:
        first, more = (str(pictures[0]), list(map(str, pictures[1:]))) if pictures else (None, [])
        report = {"runs": summaries, "figure": first, "figures": more}
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
    return 0
