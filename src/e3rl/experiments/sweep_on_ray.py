"""Cells on a Ray cluster, a running one or one that is started here: lost workers are replaced, and results come home
whether or not the machines share a file system."""

import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from e3rl.experiments.sweep import RETRIES, Outcome, Say, Tally, Task
from e3rl.runs.checkpoint import write_file
from e3rl.types import UserError

Files = dict[str, bytes]
Run = Callable[[Task], None]
Explain = Callable[[Exception], str]


def sweep_on_ray(
    tasks: Sequence[Task], run: Run, explain: Explain, say: Say, address: str | None = None
) -> list[Outcome]:
    """A worker for every cell, as many at once as the cluster has processors, or accelerators where it has any."""
    ray = _ray()
    started_here = not ray.is_initialized()
    if started_here:
        # A cluster of this machine alone needs no address that others could reach.
        alone: dict[str, Any] = {"_node_ip_address": "127.0.0.1", "include_dashboard": False}
        try:
            ray.init(address or "local", **({} if address else alone))
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(f"no Ray cluster at {address}: {error}") from error
    try:
        accelerators = 1 if ray.cluster_resources().get("GPU", 0) else 0
        # A process for every cell: compiled programs would pile up in one that is used again.
        remote = ray.remote(
            max_retries=RETRIES, max_calls=1, num_cpus=1, num_gpus=accelerators, scheduling_strategy="SPREAD"
        )(work)
        return _gather(ray, remote, tasks, run, explain, say)
    finally:
        if started_here:
            ray.shutdown()


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UserError("--on ray needs Ray: pip install 'e3rl[ray]'") from error
    return ray


def _gather(
    ray: Any, remote: Any, tasks: Sequence[Task], run: Run, explain: Explain, say: Say
) -> list[Outcome]:
    token, tally = f".sweep-{uuid.uuid4().hex}", Tally(tasks, say)
    marks = {task.out / token for task in tasks}
    try:
        for mark in marks:
            write_file_in_new_folder(mark)
        waiting = {
            remote.remote(replace(task, out=task.out.resolve()), token, run, explain): task for task in tasks
        }
        while waiting:
            [ready], _ = ray.wait(list(waiting), num_returns=1)
            task = waiting.pop(ready)
            try:
                files, seconds, error = ray.get(ready)
            except ray.exceptions.RayError as lost:
                files, seconds, error = {}, 0.0, f"its worker was lost: {type(lost).__name__}"
            for name, data in files.items():
                write_file(task.out / name, data)
            tally.take(task, seconds, error)
    finally:
        for mark in marks:
            mark.unlink(missing_ok=True)
    return tally.outcomes


def write_file_in_new_folder(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, b"")


def work(task: Task, token: str, run: Run, explain: Explain) -> tuple[Files, float, str | None]:
    """On a worker: the files that have to be sent home, the seconds, and what went wrong. Where the folder of results
    is the driver's own, which its mark shows, a cell goes on from what a lost worker has left there."""
    started, error = time.perf_counter(), None
    with tempfile.TemporaryDirectory() as own:
        shared = (task.out / token).is_file()
        out = task.out if shared else Path(own)
        try:
            run(replace(task, out=out))
        except Exception as failure:
            error = explain(failure)
        found = [] if shared else [path for path in sorted(out.rglob("*")) if path.is_file()]
        whole = [path for path in found if "unfinished" not in path.relative_to(out).parts]
        files = {str(path.relative_to(out)): path.read_bytes() for path in whole}
    return files, time.perf_counter() - started, error
