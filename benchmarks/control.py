"""The kernels of Neural-E³ on MountainCar at the paper's sizes (App. C.3), beside plain eager PyTorch.

The yardstick starts from the same weights and transitions. For graph search `yardstick_s` is Algorithm
DeterministicPlanner line by line with the members batched; `all_actions_s` has the actions of a node batched too, and
`members_in_a_list_s` calls the members one after the other, the usual way to write an ensemble.
"""

import dataclasses
import functools
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from timing import seconds, sgemm_rate

from e3rl.envs.mountain_car import MountainCar
from e3rl.envs.playing.rollout import rollout, uniform_policy
from e3rl.envs.spec import spec_of
from e3rl.models import base
from e3rl.models.ensemble import Ensemble, make_ensemble
from e3rl.models.fit import Fit, ModelSet, make_model_set, unrolled_loss, update_model_set
from e3rl.models.layers import SLOPE
from e3rl.models.mlp import Mlp
from e3rl.planners import graph_search as planner
from e3rl.planners.base import Plan
from e3rl.planners.graph_search import GraphSearch
from e3rl.planners.utility import Squared
from e3rl.replay import Replay
from e3rl.values.double_dqn import DqnFit, double_q_targets, fit_dqn
from e3rl.values.update import QState

try:
    import eager_torch_control as eager
    import torch
except ModuleNotFoundError:
    torch = None
    print(
        "e3rl: torch is not installed, so the rows have no yardstick: pip install -e '.[bench]'",
        file=sys.stderr,
    )

CONFIG = {
    "unit": "seconds per search, model update, 1000 DQN updates; median of the repeats",
    "kernels": ["graph_search", "model_update", "dqn_update"],
    "members": 8,
    "width": 64,
    "nodes": 2_000,
    "unroll": 20,
    "sequences": 8,
    "timed_updates": 20,
    "dqn_updates": 1_000,
    "dqn_batch": 64,
    "episodes": 20,
    "warm_up_updates": 300,
    "repeats": 7,
    "growth": [500, 1_000, 2_000, 4_000, 8_000],
    "growth_repeats": 5,
    "lanes": 10,
    "seed": 0,
}
QUICK = {
    "kernels": ["graph_search", "dqn_update"],
    "dqn_updates": 300,
    "repeats": 3,
    "growth": [],
    "lanes": 0,
}
EAGER = "eager PyTorch"
INDEX_VISITS = 4
"""Nodes that a k-d tree touches for one nearest neighbour and one insertion, in multiples of log2 N."""


class Problem:
    """MountainCar, uniformly random play, and an ensemble that has learned enough from it to stay in bounds."""

    def __init__(self, key: jax.Array):
        self.env = env = MountainCar()
        self.actions = env.num_actions
        self.seen = base.Problem(spec_of(env), clock=False)
        """What models and values know of it."""
        self.fit = Fit(
            members=CONFIG["members"], updates=CONFIG["timed_updates"], batch=CONFIG["sequences"], learning_rate=1e-3,
            gradient_clip=10.0, prior_weight=0.0, unroll=CONFIG["unroll"],
        )  # fmt: skip
        self.dqn = DqnFit(
            updates=CONFIG["dqn_updates"], batch=CONFIG["dqn_batch"], discount=0.99, learning_rate=3e-4,
            gradient_clip=1.0, target_period=5_000, hidden=CONFIG["width"], heads=False,
        )  # fmt: skip
        self.models, self.value, self.replay = eqx.filter_jit(self._make)(key)
        self.start = self.replay.scale(self.replay.rows.obs[0])

    def _make(self, key: jax.Array) -> tuple[ModelSet, QState, Replay]:
        key_models, key_value, key_play, key_fit = jax.random.split(key, 4)
        space = self.env.observation_space
        keys = jax.random.split(key_play, CONFIG["episodes"])
        episodes = jax.vmap(lambda key: rollout(self.env, uniform_policy(self.actions), key))(keys)
        capacity = CONFIG["episodes"] * self.env.time_limit
        replay = Replay.empty(capacity, episodes.obs[0, 0], space.low, space.high).append(episodes)
        make = Mlp(hidden=CONFIG["width"]).make(self.seen)
        members = make_ensemble(make, CONFIG["members"], key_models)
        warm_up = dataclasses.replace(self.fit, updates=CONFIG["warm_up_updates"])
        models, _ = update_model_set(make_model_set(members, warm_up), replay, key_fit, warm_up)
        return models, self.dqn.fresh(self.seen, key_value), replay


@eqx.filter_jit
def search(members: Ensemble, obs: jax.Array, nodes: int, actions: int) -> Plan:
    now, key, settings = jnp.array(0, jnp.int32), jax.random.key(0), GraphSearch(nodes=nodes)
    utility = Squared(reward_scale=0.0).explore
    graph = planner.search(members, obs, now, utility, settings, actions, nodes)
    return planner.path_to(graph, planner.best_node(graph, key, settings.top_share), nodes)


def blocked(function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    return lambda: jax.block_until_ready(function(*args))


def row(name: str, times: dict[str, dict[str, float]], per: int = 1, **more: Any) -> dict[str, Any]:
    """`per`: how often one measured run does what the row is about."""
    own, theirs = times["ours"], times.get("eager")
    return {
        "name": f"control/{name}",
        "ours_s": own["median"] / per,
        "yardstick": EAGER if theirs else None,
        "yardstick_s": theirs["median"] / per if theirs else None,
        "ratio": theirs["median"] / own["median"] if theirs else None,
        "ours_best_s": own["best"] / per,
        "yardstick_best_s": theirs["best"] / per if theirs else None,
    } | more


def also(times: dict[str, dict[str, float]], per: int = 1, **names: str) -> dict[str, float]:
    """Further competitors: their seconds and how many times ours that is."""
    found = {}
    for name, label in names.items():
        if name in times:
            found[f"{label}_s"] = times[name]["median"] / per
            found[f"{label}_ratio"] = times[name]["median"] / times["ours"]["median"]
    return found


def searches(problem: Problem, nodes: int) -> dict[str, Callable[[], tuple[list[int], float]]]:
    """The yardstick's three ways to search."""
    if torch is None:
        return {}
    obs = torch.tensor(np.array(problem.start))
    batched = eager.members(problem.models.members, SLOPE)
    listed = eager.MembersInAList(batched)
    return {
        "eager": functools.partial(eager.Search(batched, nodes, problem.actions).plan, obs),
        "all": functools.partial(eager.Search(batched, nodes, problem.actions, all_actions=True).plan, obs),
        "list": functools.partial(eager.Search(listed, nodes, problem.actions).plan, obs),
    }


def graph_search(problem: Problem) -> dict:
    members, width, nodes = problem.models.members, CONFIG["width"], CONFIG["nodes"]
    small = search(members, problem.start, 200, problem.actions)
    for name, theirs in searches(problem, 200).items():
        actions, value = theirs()
        assert actions == small.actions[: int(small.length)].tolist(), f"{name} finds another plan"
        assert math.isclose(value, float(small.value), rel_tol=1e-3), f"{name} finds another value"
    others = searches(problem, nodes)
    runs = {"ours": blocked(search, members, problem.start, nodes, problem.actions)} | others
    times = seconds(runs, CONFIG["repeats"])
    found = search(members, problem.start, nodes, problem.actions)
    more: dict[str, Any] = also(times, all="all_actions", list="members_in_a_list")
    if others:
        actions, value = others["eager"]()
        more["same_plan"] = actions == found.actions[: int(found.length)].tolist()
        more["plans_worth"] = [float(found.value), value]  # rounding may choose between near equals
    entries = problem.start.shape[0]
    products = entries * width + problem.actions * width * (width + entries + 2)
    flops = 2 * CONFIG["members"] * GraphSearch(nodes=nodes).expansions(problem.actions) * products
    return row("graph_search", times, **more, bound_s=flops / sgemm_rate())


def lanes(problem: Problem) -> Iterator[dict]:
    """Planning for several episodes in one program: `lax.map`, which takes them in turns, or `vmap`."""
    members, count = problem.models.members, CONFIG["lanes"]
    obs = problem.replay.scale(problem.replay.rows.obs[:: problem.env.time_limit][:count])
    one = functools.partial(search, members, nodes=CONFIG["nodes"], actions=problem.actions)
    ways = {"map": lambda obs: jax.lax.map(one, obs), "vmap": jax.vmap(one)}
    runs = {how: blocked(eqx.filter_jit(way), obs) for how, way in ways.items()}
    for how, taken in seconds(runs, CONFIG["growth_repeats"]).items():
        name = f"graph_search_{how}_x{count}"
        yield row(name, {"ours": taken}, per_episode_s=taken["median"] / count)


def loop_step(actions: int) -> float:
    """Seconds of one step down a tree for every action at once: read a node, compare, go on to a child."""
    nodes, steps = 4_096, 20_000
    point = jnp.linspace(0.1, 0.9, actions)
    tree = jax.random.uniform(jax.random.key(0), (nodes,))

    @jax.jit
    def descend(tree: jax.Array) -> jax.Array:
        def step(_: jax.Array, carry: tuple) -> tuple:
            at, best = carry
            here = tree[at]
            return (2 * at + 1 + (point > here)) % nodes, jnp.minimum(best, (point - here) ** 2)

        return jax.lax.fori_loop(0, steps, step, (jnp.zeros(actions, jnp.int32), jnp.ones(actions)))[1]

    return seconds({"step": blocked(descend, tree)}, 5)["step"]["best"] / steps


def growth(problem: Problem) -> Iterator[dict]:
    """Search time by N_max. An expansion costs a fixed part and a pass over the graph, a + b·N. An index would replace
    b·N by INDEX_VISITS · log2 N dependent steps at the very least: from which N on that is less, and from which N on it
    would halve the time."""
    sizes = CONFIG["growth"]
    members = problem.models.members
    runs = {str(n): blocked(search, members, problem.start, n, problem.actions) for n in sizes}
    times = seconds(runs, CONFIG["growth_repeats"])
    each = [times[str(n)]["best"] / GraphSearch(nodes=n).expansions(problem.actions) for n in sizes]
    slope, fixed = (float(x) for x in np.polyfit(sizes, each, 1, w=1 / np.array(each)))
    step = loop_step(problem.actions)

    def index(n: int) -> float:
        return INDEX_VISITS * math.log2(n) * step

    powers = [2**k for k in range(4, 30)]
    pays = next((n for n in powers if slope * n > index(n)), None)
    halves = next((n for n in powers if fixed + slope * n > 2 * (fixed + index(n))), None)
    for n, taken in zip(sizes, each, strict=True):
        yield row(
            f"graph_search_{n}", {"ours": times[str(n)]}, expansion_s=taken, fixed_s=fixed,
            scan_s_per_node=slope, tree_step_s=step, index_pays_from=pays, index_halves_from=halves,
        )  # fmt: skip


def model_update(problem: Problem) -> dict:
    """One update of every member on `sequences` segments of `unroll` steps."""
    settings, key = problem.fit, jax.random.key(CONFIG["seed"])
    runs = {"ours": blocked(eqx.filter_jit(update_model_set), problem.models, problem.replay, key, settings)}
    if torch is not None:
        theirs = eager.replay(problem.replay.take(jnp.arange(problem.replay.size)))
        assert_same_loss(problem, theirs)
        for name, kind in (("eager", lambda members: members), ("list", eager.MembersInAList)):
            members = kind(eager.members(problem.models.members, SLOPE))
            adam = torch.optim.Adam(members.parameters(), settings.learning_rate)
            runs[name] = functools.partial(
                eager.fit_models, members, adam, theirs, settings.updates, settings.batch, settings.unroll,
                settings.gradient_clip,
            )  # fmt: skip
    times = seconds(runs, CONFIG["repeats"])
    return row(
        "model_update", times, settings.updates, **also(times, settings.updates, list="members_in_a_list")
    )


def assert_same_loss(problem: Problem, replay: Any) -> None:
    length = CONFIG["unroll"]
    first = problem.replay.draw(jax.random.key(1), CONFIG["sequences"], length)
    rows, valid = problem.replay.segments(first, length)
    each = eqx.filter_vmap(lambda m: unrolled_loss(m, rows, valid, jax.random.key(0)))
    ours = eqx.filter_jit(each)(problem.models.members)
    same = eager.replay(jax.tree.map(lambda leaf: jnp.stack([leaf] * CONFIG["members"]), rows)).columns
    members = eager.members(problem.models.members, SLOPE)
    theirs = eager.unrolled_loss(members, same, torch.tensor(np.stack([valid] * CONFIG["members"])))
    np.testing.assert_allclose(theirs.detach().numpy(), ours, rtol=1e-3)


def dqn_update(problem: Problem) -> dict:
    settings, key = problem.dqn, jax.random.key(CONFIG["seed"])
    fit = eqx.filter_jit(fit_dqn)
    runs = {"ours": blocked(fit, problem.value, problem.replay, key, settings, settings.updates)}
    if torch is not None:
        rows = problem.replay.take(jnp.arange(problem.replay.size))
        theirs = eager.replay(rows)
        online, target = (eager.q_network(problem.value.online) for _ in range(2))
        goal = double_q_targets(problem.value, rows, settings.discount)
        taken = jax.vmap(problem.value.online)(rows.obs, rows.time)[jnp.arange(len(goal)), rows.action]
        error = jnp.abs(taken - goal)
        huber = jnp.mean(jnp.where(error < 1.0, 0.5 * error**2, error - 0.5))
        loss = eager.dqn_loss(online, target, theirs.columns, settings.discount)
        np.testing.assert_allclose(loss.item(), huber, rtol=1e-4)
        adam = torch.optim.Adam(online.parameters(), settings.learning_rate)
        runs["eager"] = functools.partial(
            eager.fit_dqn, online, target, adam, theirs, settings.updates, settings.batch,
            settings.discount, settings.gradient_clip, settings.target_period,
        )  # fmt: skip
    times = seconds(runs, CONFIG["repeats"])
    return row("dqn_update", times, updates=settings.updates)


KERNELS = {"graph_search": graph_search, "model_update": model_update, "dqn_update": dqn_update}


def rows() -> list[dict]:
    if torch is not None:
        torch.set_num_threads(1)
    problem = Problem(jax.random.key(CONFIG["seed"]))
    table = [KERNELS[name](problem) for name in CONFIG["kernels"]]
    table += growth(problem) if CONFIG["growth"] else ()
    return [*table, *(lanes(problem) if CONFIG["lanes"] else ())]
