"""What one accelerator does with whole runs and with one action: many seeds as one program, tree search of one seed.

A GPU is asked for; elsewhere there are no rows. Runs are timed from their beginning to the evaluation of every seed:
with everything that is compiled on the way, and again with the programs that this has left on disk.
"""

import dataclasses
import functools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.experimental.compilation_cache import compilation_cache
from timing import seconds

from e3rl.envs.lock import CombinationLock
from e3rl.envs.spec import spec_of
from e3rl.experiments import stopping
from e3rl.experiments.stopping import StoppingExperiment
from e3rl.models.base import Problem
from e3rl.models.ensemble import make_ensemble
from e3rl.neural import compiled_agent
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.presets import PRESETS
from e3rl.planners import mcts
from e3rl.runs.kept_programs import keep_compiled_programs
from e3rl.runs.lanes import over_lanes
from e3rl.runs.settings import changed

CONFIG: dict[str, Any] = {
    "unit": "seconds for an action of every seed, or for whole runs of all seeds with compilation",
    "settings": "paper-lock-h20 for tree search, e3rl for whole runs",
    "plan": {"horizon": 20, "batches": [0, 1, 4], "seeds": [1, 10]},
    "runs": {
        "lock-h20-30h": {"horizon": 20, "ratio": 30, "seeds": 20, "ends": False},
        "lock-h5": {"horizon": 5, "ratio": 30, "seeds": 128, "ends": True},
    },
    "repeats": 3,
    "first_seed": 200,
}
"""Every seed of a run has both rewards, so that there are twice as many agents."""
QUICK = {"plan": {"horizon": 5, "batches": [1], "seeds": [1]}, "runs": {}}


def rows() -> list[dict]:
    if jax.default_backend() == "cpu":
        print("e3rl: accelerator needs a GPU and is left out", file=sys.stderr)
        return []
    CONFIG["device"] = jax.devices()[0].device_kind
    found = list(actions(**CONFIG["plan"]))
    for name, given in CONFIG["runs"].items():
        with tempfile.TemporaryDirectory() as kept:
            for how in ("", "/warm"):
                forget_programs(kept)
                found.append(whole(f"{name}{how}", **given))
            jax.config.update("jax_compilation_cache_dir", None)
    return found


def forget_programs(kept: str) -> None:
    """From now on this process is like one that has compiled nothing but what is `kept` on disk."""
    jax.config.update("jax_compilation_cache_dir", kept)
    compilation_cache.reset_cache()
    keep_compiled_programs()
    compiled_agent.forget()
    jax.clear_caches()


def actions(horizon: int, batches: list[int], seeds: list[int]) -> Iterator[dict]:
    """An action at the first step of an episode, where rollouts are longest, by members that know nothing."""
    config = PRESETS["paper-lock-h20"]
    problem = Problem(spec_of(CombinationLock(horizon, antishaped=True)), config.clock)
    make, key = config.model.make(problem), jax.random.key(CONFIG["first_seed"])
    for count in seeds:
        keys = jax.random.split(key, count)
        members = eqx.filter_vmap(lambda key: make_ensemble(make, config.fit.members, key))(keys)
        obs = jnp.zeros((count, problem.entries))
        for batch in batches:
            settings = dataclasses.replace(config.planner, batch=batch)

            def act(members: Any, obs: jax.Array, key: jax.Array, settings: Any = settings) -> jax.Array:
                start = jnp.array(0, jnp.int32)
                explore, shape = config.utility.explore, (problem.horizon, problem.actions)
                return mcts.search(members, None, obs, start, key, explore, settings, *shape).action

            run = functools.partial(over_lanes(act), members, obs, keys)
            took = seconds({"ours": functools.partial(waited, run)}, CONFIG["repeats"])["ours"]
            way = f"batch-{batch}" if batch else "one-by-one"
            yield row(f"plan-h{horizon}/{way}/x{count}", took["median"], per_seed_s=took["median"] / count)


def waited(run: Callable[[], Any]) -> None:
    jax.block_until_ready(run())


def whole(name: str, horizon: int, ratio: int, seeds: int, ends: bool) -> dict:
    """All runs as lanes of one program."""
    experiment = StoppingExperiment(horizon, ratio=ratio)
    config: NeuralE3Config = changed(
        stopping.config_of(experiment), {} if ends else {"explore.epsilon_share": 0.0}
    )
    first = CONFIG["first_seed"]
    cases = [(reward, seed) for seed in range(first, first + seeds) for reward in experiment.rewards]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        found = stopping.run_cases(name, experiment, config, cases, Path(folder), lambda line: None)
        took = time.perf_counter() - began
    solved, episodes = (sum(one[what] for one in found) for what in ("solved", "episodes"))
    return row(f"{name}/x{len(cases)}", took, solved=solved, episodes=episodes, per_seed_s=took / len(cases))


def row(name: str, took: float, **more: Any) -> dict:
    nothing = {"yardstick": None, "yardstick_s": None, "ratio": None}
    return {"name": f"accelerator/{name}", "ours_s": took, **nothing, **more}
