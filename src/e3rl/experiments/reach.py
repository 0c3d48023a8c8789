"""What users bring: public and own environments, each by the agent that suits it and at default settings, beside DQN
and PPO+RND after as many steps."""

import csv
import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import jax
import numpy as np

from e3rl.envs.opening import open_environment
from e3rl.experiments.agents import AGENTS, suited_agent
from e3rl.experiments.tables import refuse_seeds, table_path, write_table
from e3rl.runs.folder import read_json
from e3rl.runs.statistics import mean_interval
from e3rl.runs.train import train
from e3rl.types import UserError

SEEDS = (0, 1, 2, 3, 4)
BASELINES = ("dqn", "ppo-rnd")
COLUMNS = (
    "experiment", "algo", "seed", "explore_episodes", "steps", "return_mean", "return_low", "return_high", "positive",
    "seconds", "together",
)  # fmt: skip


@dataclass(frozen=True)
class Task:
    """An environment, what the best policy gets, and what is asked for after how many exploration episodes."""

    env: str | Callable[[], Any]
    options: tuple[tuple[str, Any], ...] = ()
    optimum: float | None = None
    """Where the environment does not say so itself."""
    target: float | None = None
    episodes: int | None = None
    """Exploration episodes at most; None where the fewest are looked for."""
    share: bool = False
    """The target is a share of episodes with a reward, not a return."""

    @property
    def id(self) -> str:
        return self.env if isinstance(self.env, str) else self.env.__name__

    @property
    def about(self) -> str:
        options = "".join(f" {name}={value}" for name, value in self.options)
        return f"{self.id}{options} at default settings, beside DQN and PPO+RND"


def pendulum_of_five_torques() -> gymnasium.Env:
    return gymnasium.wrappers.DiscretizeAction(gymnasium.make("Pendulum-v1"), 5)


def _key_door(size: int, optimum: float, episodes: int) -> Task:
    return Task("e3rl/KeyDoor-v0", (("size", size),), optimum, 0.95, episodes, share=True)


TASKS: dict[str, Task] = {
    "frozen-lake": Task("FrozenLake-v1", (), 0.744, 0.70, 100),
    "frozen-lake-8x8": Task("FrozenLake-v1", (("map_name", "8x8"),), 0.641, 0.58, 300),
    "frozen-lake-8x8-sure": Task(
        "FrozenLake-v1", (("map_name", "8x8"), ("is_slippery", False)), 1.0, 1.0, 20
    ),
    "taxi": Task("Taxi-v4", (), 7.93, 7.5, 60),
    "cliff-walking": Task("CliffWalking-v1", (), -13.0, -13.0, 5),
    "blackjack": Task("Blackjack-v1"),
    "river-swim-6": Task("e3rl/RiverSwim-v0", (("n", 6),)),
    "river-swim-20": Task("e3rl/RiverSwim-v0", (("n", 20),)),
    "chain": Task("e3rl/Chain-v0"),
    "four-rooms": Task("e3rl/FourRooms-v0"),
    "key-door-5": _key_door(5, 0.967, 100),
    "key-door-6": _key_door(6, 0.972, 200),
    "key-door-8": _key_door(8, 0.979, 400),
    "pendulum": Task(pendulum_of_five_torques, (), None, -200.0, 30),
    "cart-pole": Task("CartPole-v1", (), 500.0, 475.0, 50),
    "mountain-car": Task("MountainCar-v0", (), -98.0, -110.0, 50),
    "acrobot": Task("Acrobot-v1", (), -65.0, -90.0, 50),
}
"""Optima of Gymnasium's environments are those of exact planning where there is a table, about the best known
elsewhere; that of the key and the door is the mean over layouts of the shortest way."""

ALL = "reach"
REACH_EXPERIMENTS: dict[str, Task | None] = {
    ALL: None,
    **{f"reach/{name}": task for name, task in TASKS.items()},
}


def run(name: str, out: Path, say: Callable[[str], None], seeds: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Run one task, or with `reach` all of them; what is done already is kept. Writes `out`/NAME.csv and .json after
    every run, and returns the rows."""
    if name == ALL:
        return [row for task in TASKS for row in run(f"reach/{task}", out, say, seeds)]
    seeds = tuple(seeds) or SEEDS
    refuse_seeds(seeds)
    task, path = TASKS[name.removeprefix("reach/")], table_path(out, name)
    about, rows = _begun(path)
    done = {(row["algo"], int(row["seed"])) for row in rows}
    with closing(open_environment(_made(task), dict(task.options))) as opened:
        chosen, why = suited_agent(opened)
        optimum = opened.spec.optimal_return
        agent = AGENTS[chosen]
        # Seeds that do not share a program are written one by one.
        shared = opened.functional is not None and agent.share_a_program(agent.configured(opened))
    if all((algo, seed) in done for algo in (chosen, *BASELINES) for seed in seeds):
        say(f"{name}: done before, {path}")
        return rows
    about |= {"experiment": name, "env": task.id, "options": dict(task.options), "chosen": chosen, "why": why}
    about |= {"optimum": task.optimum if optimum is None else optimum, "target": task.target}
    about |= {"episodes": task.episodes, "share": task.share}
    for algo in (chosen, *BASELINES):
        missing = [seed for seed in seeds if (algo, seed) not in done]
        at_once = [missing] if shared and algo == chosen and missing else [[seed] for seed in missing]
        for some in at_once:
            steps = {int(row["seed"]): int(row["steps"]) for row in rows if row["algo"] == chosen}
            new, config = _trained(task, algo, some, steps.get(some[0], 0), out)
            rows += [{"experiment": name, "algo": algo, **row} for row in new]
            about.setdefault("configs", {})[algo] = config
            write_table(path, COLUMNS, rows, about)
            jax.clear_caches()  # a process may only hold so many compiled programs
            for row in new:
                got = f"{row['return_mean']:.4g} after {row['steps']} steps, {row['seconds']:.0f} s"
                say(f"{name}, {algo}, seed {row['seed']}: {got}")
    return rows


def _made(task: Task) -> Any:
    return task.env if isinstance(task.env, str) else task.env()


def _begun(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What an earlier run of the experiment left."""
    if not path.exists():
        return {}, []
    try:
        about = json.loads(path.with_suffix(".json").read_text())
        with path.open(newline="") as file:
            rows = [{**row, "seed": int(row["seed"])} for row in csv.DictReader(file) if row["algo"]]
        return {"configs": about["configs"]}, rows
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} or its .json is damaged: remove both to start over") from error


def _trained(
    task: Task, algo: str, seeds: Sequence[int], steps: int, out: Path
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of one agent on some seeds, in one program where that is possible, with as many steps where `steps` says
    so; and its settings."""
    agent, options = AGENTS[algo], dict(task.options)
    # A policy that has learned nothing plays to the time limit, so fewer episodes judge the baselines.
    changes = {"total_steps": steps, "evaluation_episodes": 20} if algo in BASELINES else {}
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        paths = [Path(folder) / f"seed{seed}" for seed in seeds]
        if isinstance(task.env, str):
            heir = AGENTS[agent.hands_over_to] if agent.hands_over_to else None
            whole = paths[0] if len(seeds) == 1 else Path(folder)
            train(agent, task.env, options, None, seeds, whole, changes=changes, heir=heir)
        else:
            for seed, path in zip(seeds, paths, strict=True):
                with closing(open_environment(task.env())) as opened:
                    config = agent.configured(opened, None, changes)
                with closing(agent(task.env(), config, seed=seed)) as learner:
                    learner.learn(out=path, progress=False)
        return [_row(seed, path, steps) for seed, path in zip(seeds, paths, strict=True)], read_json(
            paths[0] / "config.json"
        )["config"]


def _row(seed: int, path: Path, steps: int) -> dict[str, Any]:
    """What a run folder says."""
    summary = read_json(path / "summary.json")
    with (path / "metrics.csv").open(newline="") as file:
        played = list(csv.DictReader(file))
    # Episodes of practice are as real as those of exploration.
    learned = [int(row["length"]) for row in played if row["phase"] != "exploit"]
    returns = np.array([float(row["return"]) for row in played if row["phase"] == "exploit"])
    mean, low, high = mean_interval(returns)
    return {
        "seed": seed,
        "explore_episodes": summary["explore_episodes"] + summary.get("practice_episodes", 0),
        "steps": steps or sum(learned),
        "return_mean": round(mean, 6),
        "return_low": round(low, 6),
        "return_high": round(high, 6),
        "positive": float(np.mean(returns > 0)),
        "seconds": summary["wall_seconds"],
        "together": summary["seeds_in_program"],
    }
