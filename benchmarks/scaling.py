"""How cost grows: time and memory of the kernels against one size at a time, beside what the machine could do.

On a CPU one core is used, on a GPU the whole device, with sizes chosen for each. The peaks, a large matrix product and
a copy through memory, are measured in the same run. Memory is what the compiled program takes: arguments, results and
everything in between. `e3rl.reports.scaling` makes the table with the exponents, and the figure.
"""

import dataclasses
import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import neural
from neural import PAPER, Problem, blocked, layer_flops, update_flops
from timing import seconds

from e3rl.models.fit import update_model_set
from e3rl.neural.presets import PRESETS
from e3rl.planners import mcts
from e3rl.tabular.planning import Model, backward_induction

CONFIG = {
    "unit": "seconds per planning call, 100 model updates, epoch of all seeds, plan of 100 steps over a table; median",
    "settings": "paper-lock-h10 with 50 playouts; the epoch is that of the preset e3rl, 50 updates of its value",
    "horizon": 10,
    "playouts": 50,
    "value_updates": 50,
    "epoch_horizon": 5,
    "table_steps": 100,
    "actions": 4,
    "outcomes": 2,
    "repeats": 3,
    "seed": 0,
    "sizes": {
        "cpu": {
            "H": [5, 10, 20, 50, 100],
            "bits": [13, 33, 103, 303],
            "E": [2, 4, 8, 16],
            "K": [25, 100, 400, 1600],
            "playouts": [25, 50, 100, 200, 400],
            "buffer": [1_000, 10_000, 100_000, 1_000_000],
            "seeds": [1, 2, 4],
            "states": [1_024, 16_384, 131_072, 1_048_576],
            "H of an epoch": [5, 20, 100],
        },
        "gpu": {
            "H": [5, 10, 20, 50, 100],
            "bits": [13, 33, 103, 303, 1003],
            "E": [2, 4, 8, 16, 64],
            "K": [25, 100, 400, 1600, 6400],
            "playouts": [25, 50, 100, 200, 400],
            "buffer": [1_000, 10_000, 100_000, 1_000_000, 10_000_000],
            "seeds": [1, 4, 16, 64, 256],
            "states": [1_024, 16_384, 131_072, 1_048_576, 8_388_608],
            "H of an epoch": [5, 10, 20, 50, 100],
        },
    },
    "peak_sizes": {"cpu": {"product": 1_024, "copy": 2**25}, "gpu": {"product": 8_192, "copy": 2**28}},
}
QUICK = {
    "sizes": {
        where: {axis: [least] for axis, (least, *_) in sizes.items() if axis in ("H", "states")}
        for where, sizes in CONFIG["sizes"].items()
    }
}
"""The smallest of some sizes: that it works."""
FLOAT = 4
"""Bytes."""


class Peaks(NamedTuple):
    """What the device can do, by the same compiler."""

    flops: float
    bytes: float

    @classmethod
    def measured(cls, product: int, copy: int) -> "Peaks":
        matrix, vector = jnp.ones((product, product)), jnp.ones(copy)
        runs = {"product": jax.jit(lambda x: x @ x), "copy": jax.jit(lambda x: x + 1.0)}
        given = {"product": matrix, "copy": vector}
        took = seconds({name: blocked(run, given[name]) for name, run in runs.items()}, 5)
        return cls(2 * product**3 / took["product"]["best"], 2 * FLOAT * copy / took["copy"]["best"])


class Work(NamedTuple):
    """A program with what it is given, and what it cannot do without: the operations of its matrix products, and bytes
    that have to come from memory or go there, however good the caches are."""

    function: Callable[..., Any]
    given: tuple
    flops: float | None
    bytes: float | None


def backend() -> str:
    return "cpu" if jax.default_backend() == "cpu" else "gpu"


def bytes_of(tree: Any) -> int:
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def planning(
    *, horizon: int = 0, bits: int = 0, members: int = 0, particles: int = 0, playouts: int = 0
) -> Work:
    """One planning call of the paper's settings, rollouts at its leaves, fresh noise."""
    horizon, playouts = horizon or CONFIG["horizon"], playouts or CONFIG["playouts"]
    changes = {"playouts": playouts} | ({"particles": particles} if particles else {})
    settings = dataclasses.replace(PAPER.planner, **changes)
    problem = _filled(horizon, bits)
    ensemble, seen = problem.models.members, problem.seen
    if members:  # the same members over again: what they predict does not change the time
        index = jnp.arange(members) % PAPER.fit.members
        ensemble = jax.tree.map(operator.itemgetter(index), ensemble)
    count, width = jax.tree.leaves(ensemble)[0].shape[0], PAPER.model.hidden
    utility, key = PAPER.utility.explore, jax.random.key(CONFIG["seed"])
    start = problem.start.astype(jnp.float32), jnp.array(0, jnp.int32)

    def function(ensemble: Any, obs: jax.Array, time: jax.Array, key: jax.Array) -> mcts.Found:
        return mcts.search(ensemble, None, obs, time, key, utility, settings, seen.horizon, seen.actions)

    columns = count * settings.particles
    flops = _model_steps(horizon, playouts) * columns * layer_flops(seen.entries, width, seen.entries + 2)
    # Every node is read and written once; its particles are bits, a byte each.
    return Work(function, (ensemble, *start, key), flops, 2 * playouts * columns * seen.entries)


@functools.cache
def _filled(horizon: int, bits: int = 0, transitions: int = 1_000) -> Problem:
    noise = bits - 3 if bits else None
    return Problem(PAPER, horizon, noise, transitions).filled(jax.random.key(CONFIG["seed"]))


@functools.cache
def _model_steps(horizon: int, playouts: int) -> int:
    """Steps that all particles of all members take in a planning call, counted: rollouts are shorter from deeper
    leaves. With few particles, which do not change their number by much."""
    problem, calls = _filled(horizon), []

    def counted(predicted: Any) -> jax.Array:
        jax.debug.callback(lambda: calls.append(1))
        return PAPER.utility.explore(predicted)

    settings = dataclasses.replace(PAPER.planner, particles=10, playouts=playouts)
    given = problem.start.astype(jnp.float32), jnp.array(0, jnp.int32), jax.random.key(CONFIG["seed"])
    search = eqx.filter_jit(
        lambda members, obs, time, key: mcts.search(
            members, None, obs, time, key, counted, settings, horizon, problem.seen.actions
        )
    )
    jax.block_until_ready(search(problem.models.members, *given))
    jax.effects_barrier()
    return len(calls)


def fitting(*, bits: int = 0, members: int = 0, transitions: int = 1_000) -> Work:
    """100 model updates of the paper's settings."""
    problem = _filled(CONFIG["horizon"], bits, transitions)
    models, settings = problem.models, problem.config.fit
    if members:
        index = jnp.arange(members) % settings.members
        models = jax.tree.map(lambda leaf: leaf[index] if leaf.ndim else leaf, models)
        settings = dataclasses.replace(settings, members=members)
    entries, rows = problem.seen.entries, settings.updates * settings.batch * settings.members
    flops = rows * update_flops(entries, problem.config.model.hidden, entries + 2)

    def function(models: Any, replay: Any, key: jax.Array) -> Any:
        return update_model_set(models, replay, key, settings, problem.terms)

    given = models, problem.replay, jax.random.key(CONFIG["seed"])
    row = bytes_of(problem.replay.rows) / problem.replay.capacity
    return Work(function, given, flops, rows * row)


def epoch(*, horizon: int = 0, seeds: int = 1, transitions: int = 1_000) -> Work:
    """An epoch of the default settings: fit a value in imagination, play an episode, fit the models."""
    default = PRESETS["e3rl"]
    fit = dataclasses.replace(default.planner.value, updates=CONFIG["value_updates"])
    config = dataclasses.replace(default, planner=dataclasses.replace(default.planner, value=fit))
    key = jax.random.key(CONFIG["seed"])
    problem = Problem(config, horizon or CONFIG["epoch_horizon"], transitions=transitions).filled(key)
    one = functools.partial(neural.epoch, problem)
    start = jax.tree.map(
        functools.partial(neural.repeat, seeds), (problem.models, problem.value, problem.replay)
    )
    # As agents do it: in turns on a CPU, side by side elsewhere.
    function = neural.mapped(one) if backend() == "cpu" else jax.vmap(one)
    return Work(function, (*start, jax.random.split(key, seeds)), None, None)


def table(*, states: int) -> Work:
    """Backward induction over a finite problem, as tabular E³ plans."""
    actions, outcomes, steps = CONFIG["actions"], CONFIG["outcomes"], CONFIG["table_steps"]
    keys = jax.random.split(jax.random.key(CONFIG["seed"]), 2)
    shape = (states, actions)
    model = Model(
        jax.random.randint(keys[0], (*shape, outcomes), 0, states, jnp.int32),
        jnp.full((*shape, outcomes), 1.0 / outcomes),
        jax.random.uniform(keys[1], shape),
        jnp.zeros(shape),
    )
    numbers = jnp.array(steps, jnp.int32), jnp.array(1.0), jnp.array(0.0)

    def function(*given: Any) -> Any:
        return backward_induction(*given, keep=1)

    return Work(function, (model, *numbers), None, steps * (bytes_of(model) + 2 * FLOAT * states))


AXES: dict[str, tuple[str, Callable[[int], Work]]] = {
    "plan/H": ("H", lambda n: planning(horizon=n)),
    "plan/bits": ("bits", lambda n: planning(bits=n)),
    "plan/E": ("E", lambda n: planning(members=n)),
    "plan/K": ("K", lambda n: planning(particles=n)),
    "plan/playouts": ("playouts", lambda n: planning(playouts=n)),
    "fit/bits": ("bits", lambda n: fitting(bits=n)),
    "fit/E": ("E", lambda n: fitting(members=n)),
    "fit/buffer": ("buffer", lambda n: fitting(transitions=n)),
    "epoch/H": ("H of an epoch", lambda n: epoch(horizon=n)),
    "epoch/seeds": ("seeds", lambda n: epoch(seeds=n)),
    "table/states": ("states", lambda n: table(states=n)),
}


def measured(work: Work, peaks: Peaks) -> dict[str, Any]:
    """Compiled once, for its memory and for its time."""
    compiled = eqx.filter_jit(work.function).lower(*work.given).compile()
    took = seconds({"ours": blocked(compiled, *work.given)}, CONFIG["repeats"])["ours"]
    taken = compiled.compiled.memory_analysis()
    parts = (taken.argument_size_in_bytes, taken.output_size_in_bytes, taken.temp_size_in_bytes)
    shares = {
        "flops_share": work.flops and work.flops / peaks.flops / took["median"],
        "bytes_share": work.bytes and work.bytes / peaks.bytes / took["median"],
    }
    return {"ours_s": took["median"], "ours_best_s": took["best"], "memory_bytes": sum(parts), **shares}


def rows() -> list[dict]:
    where = backend()
    peaks = Peaks.measured(**CONFIG["peak_sizes"][where])
    CONFIG["device"] = jax.devices()[0].device_kind
    CONFIG["peaks"] = {"gflops": peaks.flops / 1e9, "copy_gb_s": peaks.bytes / 1e9}
    return list(_rows(CONFIG["sizes"][where], peaks))


def _rows(sizes: dict[str, list[int]], peaks: Peaks) -> Iterator[dict]:
    for name, (axis, work) in AXES.items():
        for size in sizes.get(axis, ()):
            found = measured(work(size), peaks)
            none = {"yardstick": None, "yardstick_s": None, "ratio": None}
            yield {"name": f"scaling/{name}={size}", **none, "kernel": name, "size": size, **found}
