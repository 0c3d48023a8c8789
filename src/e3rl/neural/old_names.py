"""Settings of versions that had one flat table: what they are called now, and whole configurations of that time."""

from collections.abc import Mapping
from typing import Any

from e3rl.neural.config import NeuralE3Config
from e3rl.neural.presets import PRESETS
from e3rl.runs.renamed import Table, meant
from e3rl.runs.settings import changed, from_dict, settings_of

_VALUES = ("planner[value].value", "planner[mcts].value", "exploit[value].value", "exploit[mcts].value")


def _at(paths: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(f"{path}.{name}" for path in paths)


OLD_NAMES: Table = {
    "explore_ratio": ("explore.ratio",),
    "explore_episodes": ("explore.episodes",),
    "episodes_per_epoch": ("explore.per_epoch",),
    "epsilon": ("explore.epsilon",),
    "uniform_transitions": ("explore.uniform_transitions",),
    "family": ("model",),
    "ensemble_size": ("fit.members",),
    "hidden": ("model.hidden", "planner.value.hidden", "exploit.value.hidden"),
    "conditioning": ("model.conditioning",),
    "mean_over_bits": ("model.mean_over_bits",),
    "prior_weight": ("fit.prior_weight",),
    "reward_head": ("model.reward_head",),
    "snap": ("exploit.snap",),
    "model_updates": ("fit.updates",),
    "model_batch": ("fit.batch",),
    "unroll": ("fit.unroll",),
    "model_learning_rate": ("fit.learning_rate",),
    "gradient_clip": ("fit.gradient_clip", "planner.value.gradient_clip", "exploit.value.gradient_clip"),
    "recent_share": ("fit.recent_share",),
    "ending_share": ("fit.ending_share",),
    "distance": ("utility",),
    "reward_scale": ("utility.reward_scale",),
    "caution": ("utility.caution",),
    "value_updates": ("planner.value.updates",),
    "value_batch": _at(_VALUES, "batch"),
    "value_learning_rate": _at(_VALUES, "learning_rate"),
    "value_target_rate": _at(_VALUES, "target_rate"),
    "value_discount": _at(_VALUES, "discount"),
    "value_heads": _at(_VALUES, "heads"),
    "nodes": ("planner.nodes", "exploit.nodes"),
    "frontier": ("planner.frontier", "exploit.frontier"),
    "exit_utility": ("planner.exit_utility", "exploit.exit_utility"),
    "top_share": ("planner.top_share",),
    "playouts": ("planner.playouts", "exploit.playouts"),
    "particles": ("planner.particles", "exploit.particles"),
    "ucb": ("planner.ucb", "exploit.ucb"),
    "leaf": ("planner.leaf",),
    "choice": ("planner.choice", "exploit.choice"),
    "common_noise": ("planner.common_noise", "exploit.common_noise"),
    "from_samples": ("planner.from_samples", "exploit.from_samples"),
    "exploit_updates": ("exploit[value].value.updates", "exploit[dqn].value.updates"),
    "exploit_decay": ("exploit[value].value.decay", "exploit[dqn].value.decay"),
    "snapshots": ("exploit.snapshots",),
    "huber": ("exploit[value].value.huber", "exploit[dqn].value.huber"),
    "exploit_rounds": ("rounds.count",),
    "round_episodes": ("rounds.episodes",),
    "round_updates": ("rounds.updates",),
    "dqn_batch": ("exploit[dqn].value.batch",),
    "dqn_learning_rate": ("exploit[dqn].value.learning_rate",),
    "dqn_discount": ("exploit[dqn].value.discount",),
    "dqn_target_period": ("exploit[dqn].value.target_period",),
    "dqn_ending_share": ("exploit[dqn].value.ending_share",),
    "dqn_clipped": ("exploit[dqn].value.clipped",),
    "dqn_heads": ("exploit[dqn].value.heads",),
}


def stored_config(stored: Mapping[str, Any]) -> NeuralE3Config:
    """The settings of a recorded result, today's or of the time of one flat table."""
    if "explore" in stored:
        return from_dict(NeuralE3Config, stored)
    first = {"family": "bernoulli", "distance": "marginal", "planner": "value", "exploit": "value"}
    stored = {**first, **stored}  # what was added later began as something that changed nothing
    parts = {OLD_NAMES.get(name, (name,))[0]: stored[name] for name in first}
    config = changed(PRESETS["e3rl-budgets"], parts)  # whose parts have the defaults of then
    there = set(settings_of(config))
    changes: dict[str, Any] = {}
    for old, value in stored.items():
        for entry in OLD_NAMES.get(old, (old,)):
            path = meant(config, entry)
            if path in there and path not in parts and path is not None:
                changes[path] = value
    # Neither was looked at then: caution only counted for values, and a searched exploitation rolled out at random.
    if stored["exploit"] != "value":
        changes["utility.caution"] = 0.0
    if stored["exploit"] == "mcts" and stored.get("leaf") == "value":
        changes["exploit.leaf"] = "rollout"
    return changed(config, changes)
