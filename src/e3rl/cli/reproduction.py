"""`e3rl reproduce`: a cell, a figure of the paper, or all of it."""

import argparse
import gc
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from e3rl.cli.claims import claims
from e3rl.cli.errors import explained
from e3rl.cli.output import table
from e3rl.runs.summary import duration
from e3rl.types import UserError

if TYPE_CHECKING:
    from e3rl.experiments.sweep import Outcome, Task

SOME_FAILED = 1
SMOKE_FOLDER = Path("runs/smoke")
MAPS, MANY_MAPS = Path("/proc/self/maps"), 20_000
"""Every compiled program takes a few memory mappings, and a Linux process may have 65,530: beyond that it crashes."""


def reproduce(args: argparse.Namespace) -> int:
    from e3rl.experiments import confirm
    from e3rl.experiments.catalogue import EXPERIMENTS, results_folder
    from e3rl.experiments.figures import FIGURES
    from e3rl.experiments.sweep import Task
    from e3rl.reports.drawn import DRAWN

    if args.parts:
        return _put_together(args)
    if args.experiment is None or args.list:
        return _list_experiments(args.json)
    if args.experiment == "claims":
        return claims(args.out, args.json)
    smoke = args.scale == "smoke"
    if args.confirm and (args.seeds or smoke):
        raise UserError("--confirm names the seeds itself, at the paper's scale")
    root = args.out or (SMOKE_FOLDER if smoke else confirm.FOLDER if args.confirm else Path("results"))

    def task_of(cell: str, out: Path) -> Task:
        seeds = confirm.seeds_of(cell) if args.confirm else _seeds(args.seeds)
        return Task(cell, out, seeds, smoke, args.again)

    if args.experiment in FIGURES:
        cells = FIGURES[args.experiment].cells
        chosen = [cell for cell in cells if cell in confirm.CELLS] if args.confirm else cells
        if not chosen:
            raise UserError(f"{args.experiment} has pictures only, and nothing to confirm by other seeds")
        return _sweep([task_of(cell, results_folder(cell, root)) for cell in chosen], args, root)
    if args.experiment not in {*EXPERIMENTS, *DRAWN, "dreem"}:
        raise UserError(f"unknown experiment {args.experiment!r}; `e3rl reproduce` lists them")
    task = task_of(args.experiment, args.out or results_folder(args.experiment, root))
    if args.workers or args.on:
        return _sweep([task], args)
    rows = run_cell(task)
    if args.experiment == "dreem":
        figures = [row["figure"] for row in rows]
        print(json.dumps({"figures": figures}) if args.json else "\n".join(figures))
    elif args.json:
        print(json.dumps({"rows": rows}))
    return 0


def _put_together(args: argparse.Namespace) -> int:
    from e3rl.experiments.catalogue import results_folder
    from e3rl.experiments.lock import LOCK_EXPERIMENTS, put_together

    cell = args.experiment
    if cell not in LOCK_EXPERIMENTS:
        raise UserError(f"--parts puts seeds of lock experiments together, and {cell or 'a list'} is none")
    if args.scale == "smoke" or any((args.seeds, args.again, args.workers, args.on, args.confirm, args.list)):
        raise UserError("--parts runs nothing: only --out and --json go with it")
    out = args.out or results_folder(cell)
    rows = put_together(cell, out, args.parts)
    if args.json:
        print(json.dumps({"rows": rows}))
    seeds = sorted({row["seed"] for row in rows})
    say(f"{cell}: {len(seeds)} seeds put together in {out}: {', '.join(map(str, seeds))}")
    return 0


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _seeds(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(seed) for seed in text.split(",")) if text else ()
    except ValueError as error:
        raise UserError(f"--seeds takes whole numbers such as 5,6,7, got {text!r}") from error


def run_cell(task: "Task") -> list[dict[str, Any]]:
    """One cell, whatever kind it is; asked for again, its old results stay until the new ones are whole."""
    from e3rl.experiments.failed import forget_failure

    rows = _run_again(task) if task.again else _run(task, task.out)
    forget_failure(task.out, task.cell)
    return rows


def _run_again(task: "Task") -> list[dict[str, Any]]:
    fresh = task.out / "unfinished" / f"again-{task.cell.replace('/', '-')}"  # several may be under way
    rows = _run(task, fresh)
    for path in sorted(path for path in fresh.iterdir() if path.is_file()):
        os.replace(path, task.out / path.name)
    fresh.rmdir()
    with suppress(OSError):  # others are still under way there
        fresh.parent.rmdir()
    return rows


def _run(task: "Task", out: Path) -> list[dict[str, Any]]:
    import jax

    from e3rl.experiments.catalogue import EXPERIMENTS, IS_DONE
    from e3rl.reports.drawn import DRAWN
    from e3rl.runs.kept_programs import keep_compiled_programs

    if task.smoke and task.cell not in {**IS_DONE, **DRAWN}:
        raise UserError(f"{task.cell} has no smaller version: leave --scale out")
    keep_compiled_programs()
    if task.smoke:  # there is far more to compile than to compute
        jax.config.update("jax_disable_most_optimizations", True)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    more = {"smoke": True} if task.smoke else {}
    if task.cell == "dreem":
        return _dreem(out)
    if task.cell in DRAWN:
        return DRAWN[task.cell].run(task.cell, out, say, task.seeds, **more)
    return EXPERIMENTS[task.cell](task.cell, out, say, task.seeds, **more)


def _dreem(out: Path) -> list[dict[str, Any]]:
    from e3rl.experiments import dreem_results
    from e3rl.reports import dreem_figures

    dreem_results.run(out, say)
    return [{"figure": str(path)} for path in dreem_figures.draw(out)]


def _is_done(task: "Task") -> bool:
    from e3rl.experiments.catalogue import IS_DONE
    from e3rl.reports.drawn import DRAWN

    known = {**IS_DONE, **{name: drawn.is_done for name, drawn in DRAWN.items()}}
    return task.cell in known and known[task.cell](task.cell, task.out, task.seeds, task.smoke)


def _sweep(tasks: list["Task"], args: argparse.Namespace, root: Path | None = None) -> int:
    """Run what is not done yet, then say what failed. How long a whole figure took is written down below `root`."""
    from e3rl.experiments.sweep import failures, write_sweep

    left = [task for task in tasks if task.again or not _is_done(task)]
    say(f"{len(tasks)} cells, {len(tasks) - len(left)} of them done before")
    began = time.perf_counter()
    outcomes = _swept(left, args) if left else []
    failed = failures(outcomes)
    took = time.perf_counter() - began
    if outcomes:
        say(f"{args.experiment}: {len(outcomes)} cell{'s' * (len(outcomes) > 1)} in {duration(took)}")
    is_whole = len(left) == len(tasks) and not (failed or args.seeds)
    if root is not None and is_whole:  # another would take the place of what a whole one has said
        write_sweep(root, args.experiment, _command(args), outcomes, took)
    if args.json:
        print(json.dumps({"cells": len(tasks), "done_before": len(tasks) - len(left), "failed": failed}))
    for cell, error in failed.items():
        say(f"failed: {cell}: {error}")
    return SOME_FAILED if failed else 0


def _command(args: argparse.Namespace) -> str:
    """What was typed, as far as others can repeat it."""
    from e3rl.experiments.provenance import reproduce_command

    words = [reproduce_command(args.experiment, smoke=args.scale == "smoke")]
    words += [f"--{name}" for name in ("again", "confirm") if getattr(args, name)]
    words += [f"--{name} {value}" for name in ("workers", "on") if (value := getattr(args, name))]
    return " ".join(words)


def _swept(tasks: list["Task"], args: argparse.Namespace) -> list["Outcome"]:
    from e3rl.experiments.sweep import sweep_here, sweep_in_processes
    from e3rl.experiments.sweep_on_ray import sweep_on_ray

    if args.on == "ray":
        return sweep_on_ray(tasks, run_among_others, reason, say, args.address)
    if args.workers:
        return sweep_in_processes(tasks, args.workers, say)
    return sweep_here(tasks, run_among_others, reason, say)


def run_among_others(task: "Task") -> None:
    """A cell of a sweep. What was compiled is forgotten once it is much; until then the next cell may use it."""
    import jax

    run_cell(task)
    if not MAPS.exists() or MAPS.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()
        gc.collect()


def reason(error: Exception) -> str:
    """Why a cell failed, in a line."""
    return explained(error) or f"{type(error).__name__}: {error}".splitlines()[0]


def _list_experiments(as_json: bool) -> int:
    """Every figure and every id with what it is and how long it took."""
    from e3rl.experiments.catalogue import EXPERIMENTS, about
    from e3rl.experiments.durations import durations
    from e3rl.experiments.figures import FIGURES
    from e3rl.reports.drawn import DRAWN

    described = {name: about(name) for name in EXPERIMENTS}
    described |= {name: drawn.about for name, drawn in DRAWN.items()}
    described["dreem"] = (
        "DREEM: ranks and ellipsoids of misfit matrices, the lock as a product class, its figures"
    )
    took = durations()
    if as_json:
        details = [
            {"id": name, "description": text, "seconds": took[name].seconds, "device": took[name].device}
            if name in took
            else {"id": name, "description": text, "seconds": None, "device": None}
            for name, text in described.items()
        ]
        figures = {name: list(figure.cells) for name, figure in FIGURES.items()}
        print(json.dumps({"experiments": list(described), "details": details, "figures": figures}))
        return 0
    rows = [[name, "", figure.about] for name, figure in FIGURES.items()]
    for name, text in described.items():
        measured = (
            f"{duration(took[name].seconds)}, {took[name].device.replace('cpu', 'CPU')}"
            if name in took
            else "not timed"
        )
        rows.append([name, measured, text])
    table(["id", "took, all seeds", "what it is"], rows)
    print("run one with `e3rl reproduce ID`, a single seed of it with `--seeds 0`")
    return 0
