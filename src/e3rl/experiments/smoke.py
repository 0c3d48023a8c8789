"""`--scale smoke`: every cell as it is, with next to nothing to learn and no time to learn it in. Not for its numbers:
it shows that all of it runs, in the time that it takes to compile."""

from typing import Any, TypeVar

from e3rl.runs.settings import Settings, changed, settings_of

Given = TypeVar("Given", bound=Settings)

LEVELS, SIZE, STEPS = 3, 5, 12
"""Of a lock, of a maze, and of an episode elsewhere."""
SETTINGS: dict[str, Any] = {
    "evaluation_episodes": 3,
    # Neural-E³
    "explore.per_epoch": 1, "explore.uniform_transitions": 3, "model.hidden": 8, "model.maps": 4, "fit.members": 2,
    "fit.updates": 2, "fit.batch": 4, "fit.unroll": 2, "fit.finishing": 2, "rounds.episodes": 2,
    "rounds.updates": 2, "planner.nodes": 20,
    "planner.playouts": 6, "planner.particles": 3, "planner.value.updates": 2, "planner.value.batch": 4,
    "planner.value.hidden": 8, "exploit.nodes": 20, "exploit.snapshots": 1, "exploit.wait": 0,
    "exploit.value.updates": 4, "exploit.value.batch": 4, "exploit.value.hidden": 8,
    # the baselines
    "copies": 2, "steps": 4, "hidden": 8, "maps": 2, "batch": 4, "capacity": 64, "learning_starts": 12, "epochs": 2,
    "bonus.embedding": 4, "exploration_fraction": 0.5,
}  # fmt: skip
BUDGET = 2
"""Episodes of exploring."""
TRAINED = 96
"""Steps of training a baseline."""


def smaller(config: Given) -> Given:
    """The same parts, each as small as it gets."""
    there = set(settings_of(config))
    return changed(config, {path: value for path, value in SETTINGS.items() if path in there})
