"""`e3rl reproduce` and `e3rl report`."""

import argparse
import json
import sys
from pathlib import Path

from e3rl.runs.summary import verdict
from e3rl.types import UserError


def reproduce(args: argparse.Namespace) -> int:
    from e3rl.experiments.catalogue import EXPERIMENTS, results_folder

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if args.experiment is None:
        names = [*EXPERIMENTS, "dreem"]
        print(json.dumps({"experiments": names}) if args.json else "\n".join(names))
        return 0
    if args.experiment == "dreem":
        from e3rl.experiments import dreem_results
        from e3rl.reports import dreem_figures

        out = args.out or Path("results/dreem")
        dreem_results.run(out, say)
        figures = [str(path) for path in dreem_figures.draw(out)]
        print(json.dumps({"figures": figures}) if args.json else "\n".join(figures))
        return 0
    try:
        seeds = [int(seed) for seed in args.seeds.split(",")] if args.seeds else []
    except ValueError as error:
        raise UserError(f"--seeds takes whole numbers such as 5,6,7, got {args.seeds!r}") from error
    if args.experiment not in EXPERIMENTS:
        raise UserError(f"unknown experiment {args.experiment!r}; `e3rl reproduce` lists them")
    out = args.out or results_folder(args.experiment)
    rows = EXPERIMENTS[args.experiment](args.experiment, out, say, seeds)
    if args.json:
        print(json.dumps({"rows": rows}))
    return 0


def report(args: argparse.Namespace) -> int:
    from e3rl.experiments.agents import AGENTS
    from e3rl.reports.folder import report_of
    from e3rl.reports.learning import draw_runs
    from e3rl.reports.run_pictures import draw_extra
    from e3rl.runs.folder import RunFolder, seed_folders

    folder = args.run_folder
    found = report_of(folder)
    if found is not None:
        text, figures = found.table(folder), list(map(str, found.draw(folder)))
        pictures = [f"picture: {path}" for path in figures]
        print(json.dumps({"table": text, "figures": figures}) if args.json else "\n".join([text, *pictures]))
        return 0
    paths = [folder] if (folder / "config.json").exists() else seed_folders(folder)
    if not paths:
        raise UserError(f"{folder} holds no run")
    picture = draw_runs(paths, folder / "learning.png")
    more = draw_extra(folder)
    summaries = [summary for path in paths if (summary := RunFolder(path).summary())]
    if args.json:
        print(json.dumps({"runs": summaries, "figure": str(picture), "figures": list(map(str, more))}))
        return 0
    for summary in summaries:
        agent = AGENTS.get(summary.get("algo", ""))
        print(verdict(summary, agent is None or agent.explores_first))
    for drawn in (picture, *more):
        print(f"picture: {drawn}")
    return 0
