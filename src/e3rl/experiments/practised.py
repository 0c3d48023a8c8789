"""MountainCar and Acrobot with the rounds of App. C.3: after its first updates the exploit DQN plays greedy episodes
and is trained on in turn, and on the first drop it goes back to its best weights.

How many rounds there are depends on what a seed sees, so every seed is a run of its own; those already in the table are
not repeated. Everything else is as in `deterministic`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from e3rl.experiments import deterministic
from e3rl.experiments.deterministic import DeterministicExperiment, control, judge, kept, small, write
from e3rl.experiments.smoke import BUDGET
from e3rl.experiments.tables import (
    Row,
    about_cell,
    forget_runs,
    note_machine,
    refuse_seeds,
    table_path,
    unfinished_runs,
)
from e3rl.neural.agent import NeuralE3
from e3rl.neural.config import NeuralE3Config
from e3rl.runs.folder import read_metrics
from e3rl.runs.settings import changed
from e3rl.runs.train import train

ROUNDS = 9
"""At most, of 20 episodes each: as many as keep a seed under the 300 episodes of section 5.3."""

PRACTISED_EXPERIMENTS: dict[str, DeterministicExperiment] = {
    f"{task}/paper-rounds": control(env, "paper-control", (100,), {"rounds.count": ROUNDS})
    for task, env in (("mountaincar", "e3rl/MountainCar-v0"), ("acrobot", "e3rl/Acrobot-v1"))
}


def experiment_of(name: str, smoke: bool = False) -> DeterministicExperiment:
    found = PRACTISED_EXPERIMENTS[name]
    return small(found) if smoke else found


def config_of(experiment: DeterministicExperiment, smoke: bool = False) -> NeuralE3Config:
    config = deterministic.config_of(experiment, smoke)
    return changed(config, {"rounds.count": BUDGET}) if smoke else config


def is_done(name: str, out: Path, seeds: Sequence[int] = (), smoke: bool = False) -> bool:
    """Whether the results of these seeds lie there, made with today's settings."""
    experiment = experiment_of(name, smoke)
    _, _, judged = _measured(table_path(out, name), experiment, config_of(experiment, smoke))
    return set(seeds or experiment.seeds) <= judged.keys()


def run(
    name: str, out: Path, say: Callable[[str], None], seeds: Sequence[int] = (), smoke: bool = False
) -> list[Row]:
    """Run the seeds that `out`/NAME.csv and .json do not hold yet, one that was interrupted from where it was; returns
    all rows."""
    experiment = experiment_of(name, smoke)
    seeds = tuple(seeds) or experiment.seeds
    refuse_seeds(seeds)
    config, path = config_of(experiment, smoke), table_path(out, name)
    about, rows, judged = _measured(path, experiment, config)
    left = [seed for seed in dict.fromkeys(seeds) if seed not in judged]
    if not left:
        say(f"{name}: done before, {path}")
    machines = note_machine(out, name, about if judged else None) if left else {}
    for seed in left:
        folder, options = unfinished_runs(out, name) / f"seed{seed}", dict(experiment.options)
        _, [summary] = train(NeuralE3, experiment.env, options, config, [seed], folder, resume=True)
        new = _rows(name, summary, max(experiment.budgets) + config.rounds.total, read_metrics(folder))
        judged[seed] = _verdict(new, summary)
        rows = sorted([*rows, *new], key=lambda row: row["seed"])
        there = sorted(judged)
        asked = [] if there == sorted(experiment.seeds) else there
        told = about_cell(name, experiment, config, there, asked, smoke) | machines
        told["seconds"] = round(sum(verdict["seconds"] for verdict in judged.values()), 1)
        write(out, rows, [judged[seed] for seed in there], told)
        say(f"{name}, {judged[seed]['seconds']:.0f} s: {_phrase(judged[seed])}")
    forget_runs(out, name)
    return rows


def _measured(
    path: Path, experiment: DeterministicExperiment, config: NeuralE3Config
) -> tuple[dict[str, Any], list[Row], dict[int, dict[str, Any]]]:
    """What lies there and was made with these settings: what is said about it, rows, and verdicts by seed. A kill may
    leave rows that the JSON does not know of."""
    about, rows = kept(path, experiment, config)
    counts = Counter(row["seed"] for row in rows)
    judged = {
        verdict["seed"]: verdict
        for verdict in about.get("exploit", [])
        if counts[verdict["seed"]] == verdict["explored"] + verdict["practised"] + config.evaluation_episodes
    }
    return about, [row for row in rows if row["seed"] in judged], judged


def _rows(
    name: str, summary: Mapping[str, Any], budget: int, table: Sequence[Mapping[str, str]]
) -> list[Row]:
    """A row per episode of one seed. A run records its rounds as it does the greedy episodes that count, which come
    after them. Every step but the one to the goal costs 1."""
    explored, practised = summary["explore_episodes"], summary["practice_episodes"]
    counts = {"explore": explored, "practice": practised, "exploit": len(table) - explored - practised}
    places = [(phase, episode) for phase, count in counts.items() for episode in range(1, count + 1)]
    return [
        {
            "experiment": name,
            "seed": summary["seed"],
            "phase": phase,
            "budget": budget,
            "episode": episode,
            "return": round(float(row["return"]), 6),
            "length": int(row["length"]),
            "reached": float(row["return"]) > -int(row["length"]),
            "optimal_return": "",
        }
        for (phase, episode), row in zip(places, table, strict=True)
    ]


def _verdict(rows: Sequence[Row], summary: Mapping[str, Any]) -> dict[str, Any]:
    """On one seed: the budget is what it might have taken at most; beside it stands what it took."""
    return {
        **judge([row for row in rows if row["phase"] == "exploit"]),
        "explored": summary["explore_episodes"],
        "practised": summary["practice_episodes"],
        "seconds": round(summary["wall_seconds"], 1),
    }


def _phrase(verdict: Mapping[str, Any]) -> str:
    return (
        f"seed {verdict['seed']} after {verdict['explored']} episodes and {verdict['practised']} of practice: return "
        f"{verdict['return_mean']:.2f}, goal reached in {verdict['reached']:.0%}"
    )
