"""What a program of Neural-E³ takes, from shapes alone."""

import equinox as eqx
import jax
import jax.numpy as jnp

from e3rl.envs.opening import Opened
from e3rl.memory import largest_step, size_of
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.slots import OneSeed
from e3rl.planners.base import Policy
from e3rl.types import blank_key

STATES = 3
"""Times that the state is held: before an epoch, after it, and as the bytes of a checkpoint."""
COPY = 2**16
"""Bytes of a small environment in Python."""


def _planning(one: OneSeed, exploring: int, exploiting: int) -> list[int]:
    """Bytes of the largest thing that planning makes, for so many episodes side by side."""
    key = blank_key()
    models, value, replay = eqx.filter_eval_shape(one.fresh, key)
    policy = Policy(models, value, replay.scale)
    greedy = eqx.filter_eval_shape(one.untrained, models, replay.scale, key)

    def now(n: int) -> tuple:
        obs = jax.ShapeDtypeStruct((n, *one.encoding.shape), one.storage)
        keys = jax.eval_shape(lambda key: jax.random.split(key, n), key)
        return keys, obs, jax.ShapeDtypeStruct((n,), jnp.int32), jax.ShapeDtypeStruct((n,), bool)

    if jax.default_backend() == "cpu" and jax.eval_shape(lambda: one.exploit_memory(1)) is not None:
        exploiting = 1  # there they take turns
    exploring_memory = jax.eval_shape(lambda: one.explore_memory(exploring))
    exploiting_memory = jax.eval_shape(lambda: one.exploit_memory(exploiting))
    return [
        size_of((exploring_memory, exploiting_memory)),
        largest_step(
            lambda policy, *now: one.explore_plans(policy, False, *now),
            policy,
            *now(exploring),
            exploring_memory,
        ),
        largest_step(one.exploit_plans, greedy, *now(exploiting), exploiting_memory),
    ]


def memory_of(opened: Opened, config: NeuralE3Config, lanes: int, computing: bool) -> dict[str, float]:
    """Bytes by what takes them. On a CPU seeds take turns, elsewhere they compute side by side."""
    one = OneSeed(opened.spec, config)
    key, epoch = blank_key(), jax.ShapeDtypeStruct((), jnp.int32)
    models, value, replay = eqx.filter_eval_shape(one.fresh, key)
    entries, horizon, n = one.problem.entries, opened.spec.horizon, config.explore.per_epoch
    played = max(n, config.evaluation_episodes, config.rounds.episodes if config.rounds.count else 0)
    # Observations before and after every step, at the precision of Python's environments.
    episodes = played * horizon * (2 * entries * 4 + 16)
    steps = [0]
    if computing:
        steps = [
            largest_step(one.update_models, models, replay, key, epoch),
            largest_step(one.plan, models, value, replay, key, epoch),
            largest_step(one.exploit, models, replay, key),
            *_planning(one, n, n if opened.functional is None else config.evaluation_episodes),
        ]
    # In the rounds also those that are tried, and the best.
    held = STATES + 2 * (config.rounds.count > 0)
    needs = {
        "models": held * lanes * size_of(models),
        "values": STATES * lanes * size_of(value),
        "experience": STATES * lanes * size_of(replay),
        "episodes": lanes * episodes,
        "computing": max(steps) * (1 if jax.default_backend() == "cpu" else lanes),
        "environments": 0 if opened.functional is not None else n * COPY,
    }
    return {name: float(size) for name, size in needs.items()}
