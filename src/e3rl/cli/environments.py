"""`e3rl envs`."""

import argparse
import inspect
import json
from collections.abc import Callable
from typing import Any

from e3rl.cli.output import table


def envs(args: argparse.Namespace) -> int:
    from e3rl.envs.registration import ENVIRONMENTS

    rows = [_describe(env_id, make) for env_id, make in ENVIRONMENTS.items()]
    report: dict[str, Any] = {"envs": rows}
    if args.draw is not None:
        from e3rl.reports.figure1 import draw_panels

        report["drawn"] = [str(path) for path in draw_panels(args.draw)]
    if args.json:
        print(json.dumps(report))
        return 0
    columns = ["id", "observations", "num_actions", "time_limit", "options"]
    table(
        ["id", "observations", "actions", "steps", "options"],
        [[_cell(row[name]) for name in columns] for row in rows],
    )
    for path in report.get("drawn", []):
        print(f"wrote {path}")
    return 0


def _describe(env_id: str, make: Callable[..., Any]) -> dict[str, Any]:
    """One environment with its default options, as plain JSON values."""
    env = make()
    space = env.observation_space
    parameters = inspect.signature(make).parameters.values()
    return {
        "id": env_id,
        "summary": (inspect.getdoc(make) or "").partition("\n")[0],
        "observations": f"{type(space).__name__} {'×'.join(map(str, space.shape)) or space.n}",
        "observation_space": str(space),
        "action_space": str(env.action_space),
        "num_actions": env.num_actions,
        "time_limit": env.time_limit,
        "options": {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty},
    }


def _cell(value: Any) -> str:
    return ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
