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
import numpy as np

from e3rl.envs.opening import open_environment
from e3rl.experiments.agents import AGENTS, suited_agent
from e3rl.experiments.tables import refuse_seeds, table_path, write_table
from e3rl.runs.settings import as_dict
from e3rl.runs.statistics import mean_interval
from e3rl.types import UserError

SEEDS = (0, 1, 2, 3, 4)
BASELINES = ("dqn", "ppo-rnd")
COLUMNS = (
    "experiment", "algo", "seed", "explore_episodes", "steps", "return_mean", "return_low", "return_high", "positive",
    "seconds",
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


def pendulum_of_five_torques() -> gymnasium.Env:
    return gymnasium.wrappers.DiscretizeAction(gymnasium.make("Pendulum-v1"), 5)


def _key_door(size: int, optimum: float, episodes: int) -> Task:
    return Task("e3rl/KeyDoor-v0", (("size", size),), optimum, 0.95, episodes, share=True)


def _four_rooms(observation: str) -> Task:
    return Task("e3rl/FourRooms-v0", (("observation", observation),))


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
    about |= {"experiment": name, "env": task.id, "options": dict(task.options), "chosen": chosen, "why": why}
    about |= {"optimum": task.optimum if optimum is None else optimum, "target": task.target}
    about |= {"episodes": task.episodes, "share": task.share}
    for seed in seeds:
        for algo in (chosen, *BASELINES):
            if (algo, seed) in done:
                continue
            steps = next(
                (int(row["steps"]) for row in rows if (row["algo"], int(row["seed"])) == (chosen, seed)), 0
            )
            row, config = _one(task, algo, seed, steps)
            rows.append({"experiment": name, "algo": algo, "seed": seed, **row})
            about.setdefault("configs", {})[algo] = config
            write_table(path, COLUMNS, rows, about)
            say(
                f"{name}, {algo}, seed {seed}: {row['return_mean']:.4g} after {row['explore_episodes'] or '–'} "
                f"exploration episodes, {row['steps']} steps, {row['seconds']:.0f} s"
            )
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
            return {"configs": about["configs"]}, list(csv.DictReader(file))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(f"{path} or its .json is damaged: remove both to start over") from error


def _one(task: Task, algo: str, seed: int, steps: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """One agent on one seed, with as many steps where `steps` says so."""
    agent, options = AGENTS[algo], dict(task.options)
    with closing(open_environment(_made(task), options)) as opened:
        # A policy that has learned nothing plays to the time limit, so fewer episodes judge the baselines.
        less = {"total_steps": steps, "evaluation_episodes": 20}
        config = agent.configured(opened, None, less if algo in BASELINES else None)
    env = open_environment(_made(task), options).made
    with tempfile.TemporaryDirectory() as folder, closing(agent(env, config, seed=seed)) as learner:
        summary = learner.learn(out=Path(folder) / "run")
        with (Path(folder) / "run" / "metrics.csv").open(newline="") as file:
            played = list(csv.DictReader(file))
    explored = [int(row["length"]) for row in played if row["phase"] == "explore"]
    returns = np.array([float(row["return"]) for row in played if row["phase"] == "exploit"])
    mean, low, high = mean_interval(returns)
    trained = [int(row["length"]) for row in played if row["phase"] != "exploit"]
    row = {
        "explore_episodes": len(explored) if agent.explores_first else "",
        "steps": steps or sum(trained),
        "return_mean": round(mean, 6),
        "return_low": round(low, 6),
        "return_high": round(high, 6),
        "positive": float(np.mean(returns > 0)),
        "seconds": summary["wall_seconds"],
    }
    return row, as_dict(config)
