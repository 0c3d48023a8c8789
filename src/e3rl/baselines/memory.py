"""What a program of a baseline takes, from shapes alone."""

import equinox as eqx
import jax
import jax.numpy as jnp

from e3rl.baselines.base import BaselineConfig, Rollout
from e3rl.baselines.loop_jax import begin, iterate
from e3rl.baselines.observer import Observer, horizon_of
from e3rl.envs.opening import Opened
from e3rl.memory import largest_step, size_of
from e3rl.types import blank_key

STATES = 3
"""Times that the state is held: the one that is trained, a copy that can be saved, and the bytes of a checkpoint."""
COPY = 2**16
"""Bytes of a small environment in Python."""


def memory_of(opened: Opened, config: BaselineConfig, lanes: int, computing: bool) -> dict[str, float]:
    """Bytes by what takes them; seeds compute side by side."""
    algorithm, env = config.baseline(), opened.functional
    key = blank_key()
    played = 16 * config.evaluation_episodes * opened.spec.horizon
    if env is not None:
        carry = jax.eval_shape(lambda key: begin(algorithm, env, key, config.clock), key)
        needs = {"state": STATES * size_of(carry), "episodes": played}
        if computing:
            needs["computing"] = largest_step(
                lambda key, carry: iterate(algorithm, env, key, config.clock, carry), key, carry
            )
        return {name: float(lanes * size) for name, size in needs.items()}
    observer = Observer(opened.spec.encoding.space, horizon_of(opened.spec.horizon, config.clock))
    n, steps, shape = algorithm.copies, algorithm.steps, observer.shape
    state = eqx.filter_eval_shape(algorithm.init, key, shape, opened.spec.actions)
    obs = jax.ShapeDtypeStruct((steps, n, *shape), jnp.float32)
    number, flag = jax.ShapeDtypeStruct((steps, n), jnp.float32), jax.ShapeDtypeStruct((steps, n), bool)
    _, extra = jax.eval_shape(algorithm.act, state, key, jax.ShapeDtypeStruct((n, *shape), jnp.float32))
    extra = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((steps, *leaf.shape), leaf.dtype), extra)
    whole = jax.ShapeDtypeStruct((steps, n), jnp.int32)
    rollout = Rollout._make((obs, whole, number, obs, flag, flag, extra))
    step = largest_step(algorithm.learn, state, key, rollout) if computing else 0
    return {
        "state": float(STATES * size_of(state)),
        "computing": float(2 * size_of(rollout) + step),
        "environments": float(n * (COPY + 4 * size_of(obs) // (steps * n))),
    }
