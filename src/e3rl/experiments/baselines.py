"""The baselines' curves of Figure 2: what each collects, episode by episode, and what it has learned at the end.

Every seed is a run of its own; those already in the table are not repeated. A curve is kept as the mean return of a
hundred stretches of episodes.
"""

import csv
import dataclasses
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from e3rl.experiments.agents import AGENTS
from e3rl.experiments.names import algorithm_name, settings_name, task_name
from e3rl.experiments.tables import refuse_seeds, table_path, write_table
from e3rl.runs.folder import read_json, read_metrics
from e3rl.runs.settings import as_dict, changed
from e3rl.runs.train import train
from e3rl.types import UserError

POINTS = 100
KINDS = {"experiment": str, "seed": int, "episode": int, "env_steps": int, "return_mean": float}
COLUMNS = tuple(KINDS)
WINDOW = 100
"""Episodes whose mean return says that training got somewhere."""


class Marks(NamedTuple):
    """Returns that tell how far training has come."""

    found: float | None
    """An episode above this has found what there is to find: the lock's large reward, the goal of a control task."""
    bar: float | None
    """Where the mean of `WINDOW` episodes should get; half of the optimum where nothing is said."""


MARKS = {
    "e3rl/CombinationLock-v0": Marks(2.0, None),
    "e3rl/MountainCar-v0": Marks(-200.0, -150.0),
    "e3rl/Acrobot-v1": Marks(-500.0, -100.0),
    "e3rl/CartPole-v1": Marks(None, 475.0),
}


@dataclass(frozen=True)
class BaselineExperiment:
    algo: str
    env: str
    options: tuple[tuple[str, Any], ...]
    config: str
    steps: int
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    @property
    def about(self) -> str:
        """What it is, in a line."""
        task, how = task_name(self.env, dict(self.options)), settings_name(self.config)
        return f"{algorithm_name(self.algo)}, {task}, {self.steps:,} steps, {how}"


def _lock(algo: str, horizon: int, antishaped: bool, episodes: int) -> BaselineExperiment:
    options = (("horizon", horizon), ("antishaped", antishaped))
    config = f"paper-lock-{algo}"
    if algo == "dqn":
        config = f"paper-lock-{'antishaped-' if antishaped else ''}dqn-h{horizon}"
    return BaselineExperiment(algo, "e3rl/CombinationLock-v0", options, config, episodes * horizon)


EPISODES = {"dqn": 5_000, "ppo": 20_000, "ppo-rnd": 20_000}
"""Of training on the lock; policy gradients are given more, being cheap."""

BASELINE_EXPERIMENTS: dict[str, BaselineExperiment] = {
    **{
        f"baselines-lock/h{horizon}-{reward}-{algo}": _lock(algo, horizon, reward == "antishaped", episodes)
        for horizon in (5, 10, 15, 20)
        for reward in ("standard", "antishaped")
        for algo, episodes in EPISODES.items()
    },
    "baselines-optimism/h10-without": dataclasses.replace(
        _lock("dqn", 10, False, EPISODES["dqn"]), config="paper-lock-dqn-h10-plain"
    ),
    "baselines-mountaincar/dqn": BaselineExperiment(
        "dqn", "e3rl/MountainCar-v0", (), "paper-control-dqn", 400_000
    ),
    "baselines-mountaincar/ppo-rnd": BaselineExperiment(
        "ppo-rnd", "e3rl/MountainCar-v0", (), "paper-control-ppo-rnd", 2_000_000
    ),
    "baselines-acrobot/dqn": BaselineExperiment("dqn", "e3rl/Acrobot-v1", (), "paper-control-dqn", 25_000),
    "baselines-acrobot/e3rl-dqn": BaselineExperiment("dqn", "e3rl/Acrobot-v1", (), "e3rl-dqn", 25_000),
    "baselines-cartpole/dqn": BaselineExperiment("dqn", "e3rl/CartPole-v1", (), "e3rl-dqn", 100_000),
    "baselines-cartpole/ppo": BaselineExperiment("ppo", "e3rl/CartPole-v1", (), "e3rl-ppo", 200_000),
}


def run(name: str, out: Path, say: Callable[[str], None], seeds: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Run the seeds that `out`/NAME.csv and .json do not hold yet; returns all rows."""
    experiment = BASELINE_EXPERIMENTS[name]
    seeds = tuple(seeds) or experiment.seeds
    refuse_seeds(seeds)
    path = table_path(out, name)
    agent = AGENTS[experiment.algo]
    config = changed(agent.presets[experiment.config], {"total_steps": experiment.steps})
    about = {
        "experiment": name,
        "settings": dataclasses.asdict(experiment),
        "config": as_dict(config),
    }
    rows, finals = _found(path, about, say)
    for seed in seeds:
        if str(seed) in finals:
            continue
        with tempfile.TemporaryDirectory() as folder:
            options = dict(experiment.options)
            _, [summary] = train(agent, experiment.env, options, config, [seed], Path(folder))
            table = [row for row in read_metrics(Path(folder)) if row["phase"] == "train"]
        rows += _curve(name, seed, table)
        finals[str(seed)] = final = _final(table, summary, MARKS[experiment.env])
        write_table(path, COLUMNS, rows, {"final": finals, **about})
        say(f"{name}, seed {seed}: return {final['return_mean']:.2f} after {final['episodes']} episodes")
    return rows


def _curve(name: str, seed: int, table: list[dict[str, str]]) -> list[dict[str, Any]]:
    if not table:
        return []
    parts = np.array_split(np.arange(len(table)), min(POINTS, len(table)))
    return [
        {
            "experiment": name,
            "seed": seed,
            "episode": int(part[-1]) + 1,
            "env_steps": int(table[part[-1]]["env_steps"]),
            "return_mean": round(float(np.mean([float(table[i]["return"]) for i in part])), 5),
        }
        for part in parts
    ]


def _final(table: list[dict[str, str]], summary: dict[str, Any], marks: Marks) -> dict[str, Any]:
    """Greedy episodes at the end, and when training first got and kept getting somewhere."""
    returns = np.array([float(row["return"]) for row in table])
    optimum = summary["optimal_return"]
    final = {
        "episodes": len(returns),
        "return_mean": summary["exploit_return_mean"],
        "return_ci": summary["exploit_return_ci"],
        "optimal_return": optimum,
        "seconds": summary["wall_seconds"],
    }
    if marks.found is not None:
        lucky = np.flatnonzero(returns > marks.found)
        final["episodes_that_found"] = len(lucky)
        final["first_found"] = int(lucky[0]) + 1 if len(lucky) else None
    bar = optimum / 2 if marks.bar is None else marks.bar
    over = np.flatnonzero(_window_means(returns) > bar)
    return final | {"bar": bar, "over_bar": int(over[0]) + WINDOW if len(over) else None}


def _window_means(returns: Float[np.ndarray, " n"]) -> Float[np.ndarray, " m"]:
    """Of every `WINDOW` episodes in a row; there are none in a shorter training."""
    if len(returns) < WINDOW:
        return np.zeros(0)
    return np.convolve(returns, np.ones(WINDOW) / WINDOW, mode="valid")


def _found(
    path: Path, about: dict[str, Any], say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and finals of the seeds that were written whole, none where they were run with other settings.

    Finals of older versions may lack what is asked for today. A kill may leave a table without its JSON, or with rows
    that the JSON does not know of or misses.
    """
    if not (path.exists() and path.with_suffix(".json").exists()):
        return [], {}
    stored = read_json(path.with_suffix(".json"))
    asked = {"episodes", "bar", "over_bar"}
    if MARKS[about["settings"]["env"]].found is not None:
        asked.add("first_found")
    try:
        if _made_with(stored) != _made_with(json.loads(json.dumps(about))):
            say(f"{about['experiment']}: {path} holds results of other settings, starting over")
            return [], {}
        with path.open(newline="") as file:
            rows = [{key: kind(row[key]) for key, kind in KINDS.items()} for row in csv.DictReader(file)]
        counts = Counter(str(row["seed"]) for row in rows)
        finals = {
            seed: final
            for seed, final in stored["final"].items()
            if asked <= final.keys() and counts[seed] == min(POINTS, final["episodes"])
        }
    except (AttributeError, KeyError, TypeError, ValueError, csv.Error) as error:
        raise UserError(f"{path} and its JSON are damaged: {type(error).__name__}: {error}") from error
    return [row for row in rows if str(row["seed"]) in finals], finals


def _made_with(about: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """What a seed's result depends on; which other seeds there are is no part of it."""
    return {**about.get("settings", {}), "seeds": None}, _current(about.get("config"))


RND = {
    "coefficient": "intrinsic_coefficient",
    "discount": "intrinsic_discount",
    "embedding": "embedding",
    "predictor_share": "predictor_share",
    "obs_clip": "obs_clip",
}


def _current(config: Any) -> Any:
    """Settings of a time when RND's stood among PPO's, when PPO's inputs were not spread, and when the DQN acted by its
    last weights, as today's."""
    if not isinstance(config, dict):
        return config
    if "rnd" in config:
        rest = {key: value for key, value in config.items() if key != "rnd" and key not in RND.values()}
        own = {"name": "rnd", **{now: config.get(then) for now, then in RND.items()}}
        return {"input_gain": 1.0, **rest, "bonus": own if config["rnd"] else {"name": "none"}}
    return {"average_share": 0.0, **config} if "learning_starts" in config else config
