"""What algorithms and environments are called in titles and lists, instead of by their ids."""

from collections.abc import Mapping, Sequence
from typing import Any

ALGORITHMS = {
    "neural-e3": "Neural-E³",
    "tabular-e3": "Tabular E³",
    "ue2": "UE²",
    "dqn": "DQN",
    "ppo": "PPO",
    "ppo-rnd": "PPO+RND",
}
LOCK = "e3rl/CombinationLock-v0"
TASKS = {
    LOCK: "combination lock",
    "e3rl/Maze-v0": "maze",
    "e3rl/MountainCar-v0": "MountainCar",
    "e3rl/Acrobot-v1": "Acrobot",
    "e3rl/CartPole-v1": "CartPole",
}


def algorithm_name(algo: str | None) -> str:
    return ALGORITHMS.get(str(algo), str(algo))


def task_name(env: str | None, options: Mapping[str, Any] | None = None) -> str:
    """Such as "combination lock, 15 levels, antishaped rewards"; an environment of somebody else's by its id."""
    if not env:
        return "an environment without an id"
    words = [_option(env, key, value) for key, value in (options or {}).items() if key != "seed"]
    ours = env.removeprefix("e3rl/").partition("-v")[0] if env.startswith("e3rl/") else env
    return ", ".join([TASKS.get(env, ours), *filter(None, words)])


def _option(env: str, key: str, value: Any) -> str:
    if env == LOCK and key == "antishaped" and isinstance(value, bool):
        return "antishaped rewards" if value else "standard rewards"
    if env == LOCK and key == "horizon":
        return f"{value} levels"
    if env == "e3rl/Maze-v0" and key == "size":
        return f"{value} × {value}"
    return f"{key}={value}"


def settings_name(config: str) -> str:
    """What a preset's name says about where its settings come from."""
    if config.startswith("paper"):
        return "the paper's settings"
    if config.startswith(("steadied", "optimistic")):
        return f"the paper's settings, {config.partition('-')[0]}"
    return "settings for long locks" if config == "e3rl-long" else "e3rl's settings"


def spread(numbers: Sequence[int]) -> str:
    """Such as "5 to 25"."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
