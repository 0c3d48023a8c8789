"""The baselines' curves of Figure 2: what each collects, episode by episode, and what it has learned at the end.

Every seed is a run of its own; those already in the table are not repeated. A curve is kept as the mean return of a
hundred stretches of episodes.
"""

import csv
import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from e3rl.baselines.presets import LOCK_EPISODES
from e3rl.experiments.agents import AGENTS
from e3rl.experiments.curves import POINTS, stretches
from e3rl.experiments.names import LOCK, algorithm_name, settings_name, task_name
from e3rl.experiments.provenance import reproduce_command
from e3rl.experiments.smoke import LEVELS, SIZE, STEPS, TRAINED, smaller
from e3rl.experiments.tables import (
    forget_runs,
    note_machine,
    refuse_seeds,
    table_path,
    unfinished_runs,
    write_table,
)
from e3rl.runs.folder import read_json, read_metrics
from e3rl.runs.settings import as_dict, changed
from e3rl.runs.train import train
from e3rl.types import UserError

KINDS: dict[str, Callable[[str], Any]] = {
    "experiment": str,
    "seed": int,
    "episode": int,
    "env_steps": int,
    "return_mean": float,
}
COLUMNS = tuple(KINDS)
WINDOW = 100
"""Episodes whose mean return says that training got somewhere."""


class Marks(NamedTuple):
    """Returns that tell how far training has come."""

    found: float | None
    """An episode above this has found what there is to find: the lock's large reward, the goal of a control task."""
    bar: float | None
    """Where the mean of `WINDOW` episodes should get; half of the optimum where nothing is said."""


MAZE = "e3rl/Maze-v0"
MARKS = {
    LOCK: Marks(2.0, None),
    "e3rl/MountainCar-v0": Marks(-200.0, -150.0),
    "e3rl/Acrobot-v1": Marks(-500.0, -100.0),
    "e3rl/CartPole-v1": Marks(None, 475.0),
}


MAZE_BARS = {5: -4.0, 10: -14.0, 20: -20.0}
"""About halfway from uniform play to the best, by the returns in results/maze."""


@dataclass(frozen=True)
class BaselineExperiment:
    algo: str
    env: str
    options: tuple[tuple[str, Any], ...]
    config: str
    steps: int
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    changes: tuple[tuple[str, Any], ...] = ()
    """Settings that differ from the named config, by path."""

    @property
    def about(self) -> str:
        """What it is, in a line."""
        task, how = task_name(self.env, dict(self.options)), settings_name(self.config)
        changes = " ".join(f"{path}={value}" for path, value in self.changes)
        return f"{algorithm_name(self.algo)}, {task}, {self.steps:,} steps, {how}{changes and f' with {changes}'}"

    @property
    def marks(self) -> Marks:
        if self.env == MAZE:  # an episode that runs out of time costs 20 or more
            return Marks(-19.9, MAZE_BARS[dict(self.options)["size"]])
        return MARKS[self.env]


def _lock(
    algo: str, horizon: int, antishaped: bool, episodes: int, whose: str = "paper"
) -> BaselineExperiment:
    """By the paper's settings or, of the DQN, somebody else's."""
    options = (("horizon", horizon), ("antishaped", antishaped))
    config = f"paper-lock-{algo}"
    if algo == "dqn":
        config = f"{whose}-lock-{'antishaped-' if antishaped else ''}dqn-h{horizon}"
    return BaselineExperiment(algo, LOCK, options, config, episodes * horizon)


def _released(horizon: int) -> BaselineExperiment:
    """The paper's DQN with Figure 4's budget on the released code's lock: five noise bits, and two actions that pay."""
    found = _lock("dqn", horizon, False, LOCK_EPISODES)
    return dataclasses.replace(found, options=(*found.options, ("noise_bits", 5), ("rewarded_actions", 2)))


def _paper_dqn(
    horizon: int, antishaped: bool, fraction: float | None = None, **changes: Any
) -> BaselineExperiment:
    """As many episodes as others get, with the ε of the whole training, of which the table's fraction is one."""
    own = (0.01 if antishaped else 0.001) if fraction is None else fraction
    chosen = {"exploration_fraction": own * LOCK_EPISODES / EPISODES["dqn"], **changes}
    return dataclasses.replace(
        _lock("dqn", horizon, antishaped, EPISODES["dqn"]), changes=tuple(chosen.items())
    )


EPISODES = {"dqn": 5_000, "ppo": 20_000, "ppo-rnd": 20_000}
"""Of training on the lock; policy gradients are given more, being cheap."""
LONG_EPISODES = {"dqn": LOCK_EPISODES, "ppo": 100_000, "ppo-rnd": 100_000}
"""The same for Figure 4."""
LOCKS = [(horizon, reward) for horizon in (5, 10, 15, 20) for reward in ("standard", "antishaped")]

BASELINE_EXPERIMENTS: dict[str, BaselineExperiment] = {
    **{
        f"baselines-lock/h{horizon}-{reward}-{algo}": _lock(
            algo, horizon, reward == "antishaped", episodes, "optimistic"
        )
        for horizon, reward in LOCKS
        for algo, episodes in EPISODES.items()
    },
    **{
        f"baselines-paper/h{horizon}-{reward}-dqn": _paper_dqn(horizon, reward == "antishaped")
        for horizon, reward in LOCKS
    },
    **{
        f"baselines-long/h{horizon}-{reward}-{algo}": _lock(algo, horizon, reward == "antishaped", episodes)
        for horizon, reward in LOCKS
        for algo, episodes in LONG_EPISODES.items()
    },
    **{
        f"baselines-maze/{size}-dqn": BaselineExperiment(
            "dqn", MAZE, (("size", size),), "paper-maze-dqn", 500_000, (0, 1, 2)
        )
        for size in MAZE_BARS
    },
    **{f"baselines-released/h{horizon}-standard-dqn": _released(horizon) for horizon in (5, 10, 15, 20)},
    **{f"baselines-fraction/h5-{own:g}": _paper_dqn(5, False, own) for own in (0.01, 0.1)},
    "baselines-replay/h5-uniform": _paper_dqn(5, False, alpha=0.0),
    "baselines-optimism/h10-without": _lock("dqn", 10, False, EPISODES["dqn"]),
    "baselines-mountaincar/dqn": BaselineExperiment(
        "dqn", "e3rl/MountainCar-v0", (), "paper-control-dqn", 400_000
    ),
    "baselines-mountaincar/dqn-long": BaselineExperiment(  # with the ε of 400,000 steps
        "dqn",
        "e3rl/MountainCar-v0",
        (),
        "paper-control-dqn",
        2_500_000,
        changes=(("exploration_fraction", 0.016),),
    ),
    "baselines-mountaincar/dqn-weight-noise": BaselineExperiment(
        "dqn", "e3rl/MountainCar-v0", (), "paper-control-dqn", 400_000, changes=(("weight_noise", True),)
    ),
    "baselines-mountaincar/ppo-rnd": BaselineExperiment(
        "ppo-rnd", "e3rl/MountainCar-v0", (), "paper-control-ppo-rnd", 2_000_000
    ),
    "baselines-mountaincar/ppo-rnd-long": BaselineExperiment(
        "ppo-rnd", "e3rl/MountainCar-v0", (), "paper-control-ppo-rnd", 4_000_000
    ),
    "baselines-mountaincar/ppo-rnd-faster": BaselineExperiment(
        "ppo-rnd",
        "e3rl/MountainCar-v0",
        (),
        "paper-control-ppo-rnd",
        1_600_000,
        changes=(("learning_rate", 3e-4),),
    ),
    "baselines-acrobot/ppo-rnd": BaselineExperiment(
        "ppo-rnd", "e3rl/Acrobot-v1", (), "paper-control-ppo-rnd", 500_000
    ),
    "baselines-acrobot/ppo-rnd-long": BaselineExperiment(
        "ppo-rnd", "e3rl/Acrobot-v1", (), "paper-control-ppo-rnd", 4_000_000
    ),
    "baselines-acrobot/dqn": BaselineExperiment("dqn", "e3rl/Acrobot-v1", (), "paper-control-dqn", 25_000),
    "baselines-acrobot/dqn-long": BaselineExperiment(
        "dqn", "e3rl/Acrobot-v1", (), "paper-control-dqn", 200_000
    ),
    "baselines-acrobot/dqn-long-weight-noise": BaselineExperiment(
        "dqn", "e3rl/Acrobot-v1", (), "paper-control-dqn", 200_000, changes=(("weight_noise", True),)
    ),
    "baselines-acrobot/e3rl-dqn": BaselineExperiment("dqn", "e3rl/Acrobot-v1", (), "e3rl-dqn", 25_000),
    "baselines-cartpole/dqn": BaselineExperiment("dqn", "e3rl/CartPole-v1", (), "e3rl-dqn", 100_000),
    "baselines-cartpole/ppo": BaselineExperiment("ppo", "e3rl/CartPole-v1", (), "e3rl-ppo", 200_000),
}


def experiment_of(name: str, smoke: bool = False) -> BaselineExperiment:
    found = BASELINE_EXPERIMENTS[name]
    if not smoke:
        return found
    options: dict[str, Any] = {"time_limit": STEPS}
    if found.env == LOCK:
        options = {**dict(found.options), "horizon": LEVELS}
    elif found.env == MAZE:
        options |= {"size": SIZE}
    return dataclasses.replace(found, options=tuple(options.items()), steps=TRAINED, seeds=found.seeds[:1])


def config_of(experiment: BaselineExperiment, smoke: bool = False) -> Any:
    changes = {**dict(experiment.changes), "total_steps": experiment.steps}
    config = changed(AGENTS[experiment.algo].presets[experiment.config], changes)
    return smaller(config) if smoke else config


def is_done(name: str, out: Path, seeds: Sequence[int] = (), smoke: bool = False) -> bool:
    """Whether the results of these seeds lie there, made with today's settings."""
    experiment = experiment_of(name, smoke)
    about = _about(name, experiment, smoke)
    _, finals = _found(table_path(out, name), about, experiment.marks, lambda line: None)
    return {str(seed) for seed in seeds or experiment.seeds} <= finals.keys()


def run(
    name: str, out: Path, say: Callable[[str], None], seeds: Sequence[int] = (), smoke: bool = False
) -> list[dict[str, Any]]:
    """Run the seeds that `out`/NAME.csv and .json do not hold yet, one that was interrupted from where it was; returns
    all rows."""
    experiment = experiment_of(name, smoke)
    seeds = tuple(seeds) or experiment.seeds
    refuse_seeds(seeds)
    path = table_path(out, name)
    agent, config = AGENTS[experiment.algo], config_of(experiment, smoke)
    about = _about(name, experiment, smoke)
    rows, finals = _found(path, about, experiment.marks, say)
    if not {str(seed) for seed in seeds} <= finals.keys():
        about |= note_machine(out, name, read_json(path.with_suffix(".json")) if finals else None)
    for seed in seeds:
        if str(seed) in finals:
            continue
        folder, options = unfinished_runs(out, name) / f"seed{seed}", dict(experiment.options)
        _, [summary] = train(agent, experiment.env, options, config, [seed], folder, resume=True)
        table = [row for row in read_metrics(folder) if row["phase"] == "train"]
        rows += _curve(name, seed, table)
        finals[str(seed)] = final = _final(table, summary, experiment.marks)
        write_table(
            path, COLUMNS, rows, {"final": finals, **about, **_command(name, experiment, finals, smoke)}
        )
        shutil.rmtree(folder)
        say(f"{name}, seed {seed}: return {final['return_mean']:.2f} after {final['episodes']} episodes")
    forget_runs(out, name)
    return rows


def _about(name: str, experiment: BaselineExperiment, smoke: bool) -> dict[str, Any]:
    return {
        "experiment": name,
        "settings": dataclasses.asdict(experiment),
        "config": as_dict(config_of(experiment, smoke)),
    }


def _command(
    name: str, experiment: BaselineExperiment, finals: dict[str, Any], smoke: bool
) -> dict[str, str]:
    """What repeats the seeds that are there."""
    seeds = tuple(sorted(map(int, finals)))
    return {"command": reproduce_command(name, () if seeds == experiment.seeds else seeds, smoke)}


def _curve(name: str, seed: int, table: list[dict[str, str]]) -> list[dict[str, Any]]:
    return [
        {
            "experiment": name,
            "seed": seed,
            "episode": episode,
            "env_steps": int(table[episode - 1]["env_steps"]),
            "return_mean": mean,
        }
        for episode, mean in stretches([float(row["return"]) for row in table])
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
    path: Path, about: dict[str, Any], marks: Marks, say: Callable[[str], None]
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows and finals of the seeds that were written whole, none where they were run with other settings.

    Finals of older versions may lack what is asked for today. A kill may leave a table without its JSON, or with rows
    that the JSON does not know of or misses.
    """
    if not (path.exists() and path.with_suffix(".json").exists()):
        return [], {}
    stored = read_json(path.with_suffix(".json"))
    asked = {"episodes", "bar", "over_bar"}
    if marks.found is not None:
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
    """What a seed's result depends on; which other seeds there are is no part of it, and the whole config says what a
    preset's name and changes to it do."""
    apart = {"seeds": None, "changes": None}
    if isinstance(about.get("config"), dict):
        about = {**about, "settings": {**about["settings"], "config": None}}
    return {**about.get("settings", {}), **apart}, _current(about.get("config"))


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
