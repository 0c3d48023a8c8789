"""Planning for the sparse reward with the true dynamics, which section 5.3 calls impractical: do the paper's searches
reach the goal of MountainCar or Acrobot when nothing has to be learned, and how long does a plan take?"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from e3rl.envs.acrobot import Acrobot, AcrobotState
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.mountain_car import MountainCar, MountainCarState
from e3rl.envs.playing.open_loop import Plans, rollout_plans
from e3rl.envs.playing.rollout import episode_return
from e3rl.envs.spec import spec_of
from e3rl.experiments.tables import refuse_seeds, table_path, write_table
from e3rl.models.base import AbstractDynamics, Prediction, Problem
from e3rl.models.fit import ModelSet
from e3rl.planners.base import AbstractPlanner, Policy
from e3rl.planners.graph_search import GraphSearch
from e3rl.planners.mcts import TreeSearch
from e3rl.planners.utility import Squared
from e3rl.replay import Scale, Transitions
from e3rl.runs.settings import as_dict
from e3rl.types import Key, UserError

COLUMNS = (
    "experiment",
    "planner",
    "seed",
    "episodes",
    "reached",
    "return_mean",
    "seconds_per_plan",
    "seconds",
)
TIMED = 3
"""Plans from the start of an episode, of which the quickest is told."""


def joints(obs: Float[Array, " 6"], time: Int[Array, ""]) -> AcrobotState:
    return AcrobotState(
        jnp.stack([jnp.arctan2(obs[1], obs[0]), jnp.arctan2(obs[3], obs[2]), obs[4], obs[5]]), time
    )


def car(obs: Float[Array, " 2"], time: Int[Array, ""]) -> MountainCarState:
    return MountainCarState(obs[0], obs[1], time)


STATE_OF: Mapping[type[AbstractEnvironment], Callable[..., Any]] = {Acrobot: joints, MountainCar: car}
"""The state that an observation at a time step tells."""


class TrueDynamics(AbstractDynamics):
    """The environment itself in the place of a member: certain, and never wrong."""

    env: AbstractEnvironment
    scale: Scale
    noise_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, env: AbstractEnvironment, scale: Scale):
        self.env, self.scale, self.noise_shape = env, scale, (0,)

    def __call__(self, obs: Shaped[Array, " D"], action: Int[Array, ""], time: Int[Array, ""]) -> Prediction:
        low, high = self.scale.low, self.scale.high
        state = STATE_OF[type(self.env)](low + obs * (high - low), time)
        _, after, reward, terminated, _ = self.env.step(jax.random.key(0), state, action)
        return Prediction(self.scale(after), reward, terminated.astype(jnp.float32))

    def draw(self, prediction: Prediction, uniform: Float[Array, " 0"]) -> Float[Array, " D"]:
        return prediction.obs

    def loss(self, obs: Float[Array, " D"], row: Transitions, key: Key) -> tuple:
        raise TypeError("there is nothing to learn")

    def prior_deviation(self) -> "TrueDynamics":
        raise TypeError("there is nothing to learn")


SEARCHES: dict[str, AbstractPlanner] = {
    "graph": GraphSearch(nodes=2_000),
    "graph-root": GraphSearch(nodes=2_000, frontier="root"),
    "graph-8000": GraphSearch(nodes=8_000),
    "tree": TreeSearch(playouts=200, leaf="rollout", choice="best"),
}
"""Sizes of the paper's tables (App. C.3, C.1) and a larger one; the distance to the root is the released code's."""


@dataclass(frozen=True)
class PerfectModelExperiment:
    env: AbstractEnvironment
    episodes: int = 10
    seeds: tuple[int, ...] = (300,)
    searches: tuple[str, ...] = tuple(SEARCHES)

    @property
    def about(self) -> str:
        """What it is, in a line."""
        return f"{type(self.env).__name__}: planning for its reward with the true dynamics"


PERFECT_MODEL_EXPERIMENTS = {
    "perfect-model/mountaincar": PerfectModelExperiment(MountainCar()),
    "perfect-model/acrobot": PerfectModelExperiment(Acrobot()),
}


def run(name: str, out: Path, say: Callable[[str], None], seeds: Sequence[int] = ()) -> list[dict[str, Any]]:
    """Run one experiment, write `out`/NAME.csv and .json after every search, return its rows."""
    if name not in PERFECT_MODEL_EXPERIMENTS:
        raise UserError(f"unknown experiment {name!r}; known: {', '.join(PERFECT_MODEL_EXPERIMENTS)}")
    experiment = PERFECT_MODEL_EXPERIMENTS[name]
    seeds = tuple(seeds) or experiment.seeds
    refuse_seeds(seeds)
    about = {
        "experiment": name,
        "settings": {**dataclasses.asdict(experiment), "env": type(experiment.env).__name__, "seeds": list(seeds)},
        "configs": {search: as_dict(SEARCHES[search]) for search in experiment.searches},
    }  # fmt: skip
    rows: list[dict[str, Any]] = []
    for search in experiment.searches:
        for seed in seeds:
            began = time.perf_counter()
            reached, mean, plan = measured(experiment.env, SEARCHES[search], experiment.episodes, seed)
            took = round(time.perf_counter() - began, 1)
            entry = (name, search, seed, experiment.episodes, reached, round(mean, 4), round(plan, 5), took)
            rows.append(dict(zip(COLUMNS, entry, strict=True)))
            write_table(table_path(out, name), COLUMNS, rows, about)
            say(
                f"{name}, {search}: goal in {reached} of {experiment.episodes} episodes, {1000 * plan:.0f} ms a plan"
            )
    return rows


def measured(
    env: AbstractEnvironment, planner: AbstractPlanner, episodes: int, seed: int
) -> tuple[int, float, float]:
    """Episodes that ended at the goal, their mean return, and the seconds of a plan."""
    spec = spec_of(env)
    problem, scale = (
        Problem(spec, clock=True),
        Scale(*map(jnp.asarray, (spec.encoding.low, spec.encoding.high))),
    )
    members = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], TrueDynamics(env, scale))
    policy, utility = Policy(ModelSet(members, members, None), None, scale), Squared(caution=0.0).exploit

    def plan(keys: Any, obs: Array, now: Array, running: Array, memory: Any = None) -> Plans:
        return planner.plan_many(policy, obs, now, keys, running, utility, problem, memory)

    def play(keys: Any) -> Any:
        return rollout_plans(env, plan, keys, memory=planner.memories(problem, episodes))

    played = jax.jit(play)(jax.random.split(jax.random.key(seed), episodes))
    reached = jnp.any(played.valid & played.terminated, axis=1)
    start = played.obs[0, 0]

    @jax.jit
    def single(key: Key) -> Any:
        return planner.plan(policy, start, jnp.array(0, jnp.int32), key, utility, problem)

    took = []
    for key in jax.random.split(jax.random.key(seed), TIMED + 1):
        began = time.perf_counter()
        jax.block_until_ready(single(key))
        took.append(time.perf_counter() - began)
    returns = np.asarray(jax.vmap(episode_return)(played))
    return int(jnp.sum(reached)), float(returns.mean()), min(took[1:])
