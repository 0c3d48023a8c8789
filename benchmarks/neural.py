"""Neural-E³'s kernels at the paper's sizes: planning, model updates, DQN updates, beside plain eager PyTorch.

The yardstick starts from the same weights and transitions and follows the same settings. Both sides draw their own
random numbers inside the measured time. Further rows have no yardstick: how planning grows with H, K, E and the number
of playouts, and what an epoch costs for several seeds, mapped one after the other or vmapped.
"""

import dataclasses
import functools
import math
import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from timing import seconds, sgemm_rate

from e3rl.envs.lock import CombinationLock
from e3rl.envs.playing.rollout import rollout, uniform_policy
from e3rl.envs.spec import spec_of
from e3rl.models import base
from e3rl.models.ensemble import Ensemble, make_ensemble
from e3rl.models.fit import ModelSet, make_model_set, update_model_set
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.presets import PRESETS
from e3rl.planners import mcts, tree
from e3rl.planners.base import Policy
from e3rl.planners.mcts import TreeSearch
from e3rl.planners.utility import AbstractUtility
from e3rl.planners.value import ValuePlanner
from e3rl.replay import Replay
from e3rl.values.double_dqn import fit_dqn
from e3rl.values.network import QNetwork
from e3rl.values.update import QState

try:
    import eager_torch
    import torch
except ModuleNotFoundError:
    torch = None

CONFIG = {
    "unit": "seconds per planning call, 100 model updates, 1000 DQN updates, epoch of all seeds; median of the repeats",
    "settings": "paper-lock-h10",
    "horizon": 10,
    "leaves": ["zero", "value", "rollout"],
    "noises": ["fresh", "common"],
    "transitions": 1_000,
    "dqn_updates": 1_000,
    "repeats": 5,
    "growth": {"H": [5, 20], "K": [25, 400], "E": [2, 10], "playouts": [50, 400]},
    "growth_repeats": 3,
    "batches": [0, 1, 4, 16],
    "seeds": [1, 2, 4],
    "seeds_playouts": 20,
    "seed": 0,
}
QUICK = {
    "leaves": ["value"],
    "noises": ["common"],
    "dqn_updates": 0,
    "repeats": 3,
    "growth": {},
    "batches": [],
    "seeds": [],
}
PAPER = PRESETS[CONFIG["settings"]]
EAGER = "eager PyTorch"
SETTING = {"K": "particles", "playouts": "playouts"}


class Problem:
    """An antishaped lock, fresh networks and a replay buffer of uniformly random play."""

    def __init__(
        self,
        config: NeuralE3Config,
        horizon: int,
        noise_bits: int | None = None,
        transitions: int | None = None,
    ):
        self.config = config
        self.transitions = CONFIG["transitions"] if transitions is None else transitions
        self.env = CombinationLock(horizon, antishaped=True, noise_bits=noise_bits)
        self.seen = base.Problem(spec_of(self.env), config.clock)
        """What models and values know of it."""
        # The value that is planned with, or that exploits.
        planner = config.planner
        self.fit_of_value = planner.value if isinstance(planner, ValuePlanner) else config.exploit.value

    def filled(self, key: jax.Array) -> Self:
        self.models, self.value, self.replay, self.start = eqx.filter_jit(self.make)(key)
        return self

    def make(self, key: jax.Array) -> tuple[ModelSet, QState, Replay, jax.Array]:
        config, env = self.config, self.env
        key_models, key_value, key_play = jax.random.split(key, 3)
        members = make_ensemble(config.model.make(self.seen), config.fit.members, key_models)
        value = self.fit_of_value.fresh(self.seen, key_value)
        keys = jax.random.split(key_play, self.transitions // env.horizon)
        episodes = jax.vmap(lambda key: rollout(env, uniform_policy(env.num_actions), key))(keys)
        replay = Replay.empty(2 * self.transitions, episodes.obs[0, 0]).append(episodes)
        return make_model_set(members, config.fit), value, replay, episodes.obs[0, 0]

    @property
    def terms(self) -> int:
        return self.config.model.loss_terms(self.seen.entries)


@eqx.filter_jit
def plan(
    members: Ensemble,
    value: QNetwork,
    obs: jax.Array,
    key: jax.Array,
    settings: TreeSearch,
    utility: AbstractUtility,
    problem: base.Problem,
) -> Any:
    start, scaled = jnp.array(0, jnp.int32), obs.astype(jnp.float32)
    return mcts.search(
        members, value, scaled, start, key, utility.explore, settings, problem.horizon, problem.actions
    )


def layer_flops(inputs: int, width: int, outputs: int) -> int:
    """Of one row through two hidden layers."""
    return 2 * (inputs * width + width * width + width * outputs)


def update_flops(inputs: int, width: int, outputs: int) -> int:
    """Forward, gradient of the weights, gradient of all activations but the input."""
    return 2 * layer_flops(inputs, width, outputs) + layer_flops(0, width, outputs)


def blocked(function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    return lambda: jax.block_until_ready(function(*args))


def row(name: str, times: dict[str, dict[str, float]], **more: Any) -> dict[str, Any]:
    own, theirs = times["ours"], times.get("eager")
    return {
        "name": f"neural/{name}",
        "ours_s": own["median"],
        "yardstick": EAGER if theirs else None,
        "yardstick_s": theirs["median"] if theirs else None,
        "ratio": theirs["median"] / own["median"] if theirs else None,
        "ours_best_s": own["best"],
        "yardstick_best_s": theirs["best"] if theirs else None,
    } | more


def against_bound(flops: float, own: dict[str, float], sgemm: float) -> dict[str, float]:
    """The time that the matrix products alone would take at the machine's sgemm rate, and how near we are to it."""
    return {"bound_s": flops / sgemm, "sgemm_fraction": flops / sgemm / own["median"]}


def planning(problem: Problem, sgemm: float) -> Iterator[dict]:
    config, seen, key = problem.config, problem.seen, jax.random.key(CONFIG["seed"])
    members, value, width = problem.models.members, problem.value.online, config.model.hidden
    for leaf in CONFIG["leaves"]:
        for noise in CONFIG["noises"]:
            settings = dataclasses.replace(config.planner, leaf=leaf, common_noise=noise == "common")
            runs = {"ours": blocked(plan, members, value, problem.start, key, settings, config.utility, seen)}
            search = None
            if torch is not None:
                models, q = eager_torch.dynamics(members), eager_torch.q_network(value)
                shape = seen.horizon, seen.actions, config.utility.reward_scale
                search = eager_torch.Search(models, q, settings, *shape)
                obs = torch.tensor(np.asarray(problem.start, np.float32))
                runs["eager"] = functools.partial(search.plan, obs, 0)
                looped = eager_torch.Search(eager_torch.LoopedDynamics(models), q, settings, *shape)
                runs["looped"] = functools.partial(looped.plan, obs, 0)
            times = seconds(runs, CONFIG["repeats"])
            steps = settings.playouts if leaf != "rollout" else search and search.model_steps / search.calls
            more: dict[str, Any] = {"model_steps": steps}
            if steps:
                particles, bits = config.fit.members * settings.particles, seen.entries
                flops = steps * particles * layer_flops(bits, width, bits + 2)
                if leaf == "value":
                    flops += steps * particles * layer_flops(bits, problem.fit_of_value.hidden, seen.actions)
                more |= against_bound(flops, times["ours"], sgemm)
            if "looped" in times:
                more["members_in_a_loop_s"] = times["looped"]["median"]
            yield row(f"plan/{leaf}/{noise}", times, **more)


def products(layers: tuple[int, int, int], batch: int, members: int, updates: int) -> Callable[[], Any]:
    """The matrix products of model updates with nothing between them: what no program can do without."""
    inputs, width, outputs = layers
    shapes = (inputs, width), (width, width), (width, outputs)
    weights = [jnp.full((members, *shape), 0.01) for shape in shapes]
    rows = jnp.full((members, batch, inputs), 0.1)

    def turned(matrices: jax.Array) -> jax.Array:
        return jnp.swapaxes(matrices, 1, 2)

    def update(weights: list[jax.Array], _: None) -> tuple[list[jax.Array], None]:
        seen = [rows]
        for weight in weights:
            seen.append(seen[-1] @ weight)
        error, changed = seen.pop(), []
        for weight in reversed(weights):
            changed.insert(0, weight - 1e-6 * (turned(seen[-1]) @ error))
            if len(seen) > 1:
                error = error @ turned(weight)
            seen.pop()
        return changed, None

    run = jax.jit(lambda weights: jax.lax.scan(update, weights, length=updates)[0])
    return blocked(run, weights)


def model_updates(problem: Problem, sgemm: float, name: str = "") -> dict:
    """As the paper makes them or, with a name and without a yardstick, by other settings."""
    settings, key, bits = problem.config.fit, jax.random.key(CONFIG["seed"]), problem.seen.entries
    ours = eqx.filter_jit(update_model_set)
    runs = {"ours": blocked(ours, problem.models, problem.replay, key, settings, problem.terms)}
    if torch is not None and not name:
        replay = eager_torch.replay(problem.replay)
        for way, fused in (("eager", None), ("fused", True)):
            models = eager_torch.dynamics(problem.models.members)
            adam = torch.optim.Adam(models.parameters(), settings.learning_rate, fused=fused)
            runs[way] = functools.partial(
                eager_torch.fit_models, models, adam, replay, settings.updates, settings.batch,
                settings.gradient_clip,
            )  # fmt: skip
    layers = bits, problem.config.model.hidden, bits + 2
    runs["products"] = products(layers, settings.batch, settings.members, settings.updates)
    times = seconds(runs, CONFIG["repeats"])
    flops = settings.updates * settings.batch * settings.members * update_flops(*layers)
    more = against_bound(flops, times["ours"], sgemm) | {"bare_products_s": times["products"]["median"]}
    if "fused" in times:
        more["fused_adam_s"] = times["fused"]["median"]
    return row(f"fit/{name or f'{settings.updates}-updates'}", times, **more)


def dqn_updates(problem: Problem, sgemm: float) -> dict:
    settings, updates, key = problem.fit_of_value, CONFIG["dqn_updates"], jax.random.key(CONFIG["seed"])
    ours = eqx.filter_jit(fit_dqn)
    runs = {"ours": blocked(ours, problem.value, problem.replay, key, settings, updates)}
    if torch is not None:
        replay = eager_torch.replay(problem.replay)
        for name, fused in (("eager", None), ("fused", True)):
            online, target = (eager_torch.q_network(problem.value.online) for _ in range(2))
            adam = torch.optim.Adam(online.parameters(), settings.learning_rate, fused=fused)
            runs[name] = functools.partial(
                eager_torch.fit_dqn, online, target, adam, replay, updates, settings.batch,
                settings.discount, settings.gradient_clip, settings.target_period,
            )  # fmt: skip
    times = seconds(runs, CONFIG["repeats"])
    shape = (problem.seen.entries, settings.hidden, problem.seen.actions)
    flops = updates * settings.batch * (update_flops(*shape) + 2 * layer_flops(*shape))
    more = against_bound(flops, times["ours"], sgemm)
    if "fused" in times:
        more["fused_adam_s"] = times["fused"]["median"]
    return row(f"dqn/{updates}-updates", times, **more)


def growth(paper: Problem, base: float) -> Iterator[dict]:
    """One planning call of the paper's settings with one number changed; `base` is the unchanged call's time."""
    key = jax.random.key(CONFIG["seed"])

    for letter, sizes in CONFIG["growth"].items():
        for size in sizes:
            problem = Problem(PAPER, size).filled(key) if letter == "H" else paper
            members = problem.models.members
            if letter == "E":  # the same members over again: what they predict does not change the time
                index = jnp.arange(size) % PAPER.fit.members
                members = jax.tree.map(operator.itemgetter(index), members)
            changes = {SETTING[letter]: size} if letter in SETTING else {}
            settings = dataclasses.replace(PAPER.planner, **changes)
            value, start, seen = problem.value.online, problem.start, problem.seen
            run = blocked(plan, members, value, start, key, settings, PAPER.utility, seen)
            times = seconds({"ours": run}, CONFIG["growth_repeats"])
            yield row(f"growth/{letter}={size}", times, over_paper=times["ours"]["median"] / base)


def batches(problem: Problem) -> Iterator[dict]:
    """One planning call whose tree grows by several nodes at a time, and how many calls of the models follow one
    another until it has grown; rollouts add up to H to each of them."""
    config, seen, key = problem.config, problem.seen, jax.random.key(CONFIG["seed"])
    members, value = problem.models.members, problem.value.online
    for leaf in ("value", "rollout"):
        runs, calls = {}, {}
        for batch in CONFIG["batches"]:
            settings = dataclasses.replace(config.planner, leaf=leaf, batch=batch)
            runs[batch] = blocked(plan, members, value, problem.start, key, settings, config.utility, seen)
            rounds = tree.rounds_of(settings.playouts, batch, seen.actions) if batch else settings.playouts
            calls[batch] = rounds + (batch > 0)
        times = seconds(runs, CONFIG["growth_repeats"])
        for batch, taken in times.items():
            more = {
                "calls_in_turn": calls[batch],
                "over_one_by_one": taken["median"] / times[0]["median"] if 0 in times else None,
            }
            yield row(f"batch/{leaf}/{batch}", {"ours": taken}, **more)


def epoch(
    problem: Problem, models: ModelSet, value: QState, replay: Replay, key: jax.Array
) -> tuple[ModelSet, QState, Replay]:
    """One exploration epoch of one seed: plan, one episode, model updates."""
    planner, utility, seen = problem.config.planner, problem.config.utility.explore, problem.seen
    key_value, key_play, key_fit = jax.random.split(key, 3)
    planned = planner.prepare(value, models, replay, utility, seen, key_value)
    policy = Policy(models, planned, replay.scale)

    def act(key: jax.Array, obs: jax.Array, time: jax.Array) -> jax.Array:
        return planner.plan(policy, obs, time, key, utility, seen).actions[0]

    episode = rollout(problem.env, act, key_play)
    replay = replay.append(jax.tree.map(lambda leaf: leaf[None], episode))
    models, _ = update_model_set(models, replay, key_fit, problem.config.fit, problem.terms)
    return models, value if planned is None else planned, replay


def seeds() -> Iterator[dict]:
    """An epoch for several seeds in one program: `lax.map`, which takes them in turns, or `vmap`."""
    planner = dataclasses.replace(PAPER.planner, playouts=CONFIG["seeds_playouts"])
    short = dataclasses.replace(PAPER, planner=planner)
    for planner, config in (("value", PRESETS["e3rl"]), ("mcts", short)) if CONFIG["seeds"] else ():
        problem = Problem(config, CONFIG["horizon"]).filled(jax.random.key(CONFIG["seed"]))
        one = functools.partial(epoch, problem)
        ways = {"map": mapped(one), "vmap": jax.vmap(one)}
        for count in CONFIG["seeds"]:
            # Same start, different keys: enough to time them.
            start = (problem.models, problem.value, problem.replay)
            lanes = jax.tree.map(functools.partial(repeat, count), start)
            keys = jax.random.split(jax.random.key(CONFIG["seed"]), count)
            runs = {how: blocked(eqx.filter_jit(way), *lanes, keys) for how, way in ways.items()}
            if count == 1:
                runs.pop("vmap")  # nothing to choose
            for how, taken in seconds(runs, CONFIG["growth_repeats"]).items():
                name = f"seeds/{planner}/{how}/x{count}"
                yield row(name, {"ours": taken}, per_seed_s=taken["median"] / count)


def repeat(count: int, leaf: jax.Array) -> jax.Array:
    return jnp.repeat(leaf[None], count, axis=0)


def mapped(one: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *lanes: jax.lax.map(lambda lane: one(*lane), lanes)


def rows() -> list[dict]:
    if torch is not None:
        torch.set_num_threads(1)
    else:
        missing = "torch is not installed, so the rows have no yardstick: pip install -e '.[bench]'"
        print(f"e3rl: {missing}", file=sys.stderr)
    sgemm = sgemm_rate()
    CONFIG["sgemm_gflops"] = sgemm / 1e9
    problem = Problem(PAPER, CONFIG["horizon"]).filled(jax.random.key(CONFIG["seed"]))
    own = Problem(PRESETS["e3rl"], CONFIG["horizon"]).filled(jax.random.key(CONFIG["seed"]))
    fits = [model_updates(problem, sgemm), model_updates(own, sgemm, "e3rl")]
    table = [*planning(problem, sgemm), *fits]
    table += [dqn_updates(problem, sgemm)] if CONFIG["dqn_updates"] else []
    times = {row["name"]: row["ours_s"] for row in table}
    return [
        *table,
        *growth(problem, times.get("neural/plan/rollout/fresh", math.nan)),
        *batches(problem),
        *seeds(),
    ]
