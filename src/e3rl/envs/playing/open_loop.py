"""Episodes of policies that are action sequences (section 4.2): plan, carry the plan out, plan again."""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from e3rl.envs.base import AbstractEnvironment, Observation
from e3rl.envs.playing.rollout import as_observed
from e3rl.types import Keys, Trajectory

Plans: TypeAlias = tuple[Int[Array, "n L"], Int[Array, " n"]]
"""Action sequences of n episodes, and how many of their actions are meant."""
Planner: TypeAlias = Callable[[Keys, Observation, Int[Array, " n"], Bool[Array, " n"]], Plans]
"""(keys, observations, time steps, which episodes still run) -> plans, for n episodes at once."""


def rollout_plans(
    env: AbstractEnvironment,
    plan: Planner,
    keys: Keys,
    observe: Callable[[Observation], Observation] = as_observed,
) -> Trajectory:
    """One episode per key, all together: every one of them plans, carries its plan out to the end without looking,
    and then all plan again. Those with shorter plans wait for the others, which costs nothing."""
    key_reset, key_plan, key_env = jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(keys)
    states, obs = jax.vmap(env.reset)(key_reset)
    obs = jax.vmap(observe)(obs)
    episodes, horizon = keys.shape[0], env.time_limit
    lane = jnp.arange(episodes)

    def at(keys: Keys, time: Int[Array, " n"]) -> Keys:
        return jax.vmap(jax.random.fold_in)(keys, time)

    def step(carry: tuple) -> tuple:
        i, actions, lengths, states, obs, time, running, record = carry
        active = running & (i < lengths)
        action = actions[:, i]
        stepped = jax.vmap(env.step)(at(key_env, time), states, action)
        next_states, next_obs, reward, terminated, truncated = stepped
        next_obs = jax.vmap(observe)(next_obs)
        row = Trajectory(obs, action, reward, next_obs, terminated, truncated, active)
        slot = jnp.where(active, time, horizon)  # a slot past the end is dropped
        record = jax.tree.map(lambda rows, new: rows.at[lane, slot].set(new, mode="drop"), record, row)

        def advance(new: Array, old: Array) -> Array:
            return jnp.where(active.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        states, obs = jax.tree.map(advance, (next_states, next_obs), (states, obs))
        running &= ~(active & (terminated | truncated))
        return i + 1, actions, lengths, states, obs, time + active.astype(jnp.int32), running, record

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        i, _, lengths, _, _, _, running, _ = carry
        return jnp.any(running & (i < lengths))

    def plan_and_play(carry: tuple) -> tuple:
        states, obs, time, running, record = carry
        actions, lengths = plan(at(key_plan, time), obs, time, running)
        lengths = jnp.maximum(lengths, 1)  # an empty plan would never end
        start = (jnp.int32(0), actions, lengths, states, obs, time, running, record)
        return jax.lax.while_loop(unfinished, step, start)[3:]

    flags = jnp.zeros((episodes, horizon), bool)
    frames = jnp.zeros((episodes, horizon, *obs.shape[1:]), obs.dtype)
    blank = Trajectory(
        frames, flags.astype(jnp.int32), flags.astype(jnp.float32), frames, flags, flags, flags
    )
    start = (states, obs, jnp.zeros(episodes, jnp.int32), jnp.ones(episodes, bool), blank)
    record: Trajectory
    *_, record = jax.lax.while_loop(lambda carry: jnp.any(carry[3]), plan_and_play, start)
    return record
