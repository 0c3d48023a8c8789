"""Episodes of policies that are action sequences (section 4.2): plan, carry the plan out, plan again."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped

from e3rl.envs.base import AbstractEnvironment, Observation, State
from e3rl.envs.playing.rollout import as_observed
from e3rl.types import Keys, Trajectory


class Plans(NamedTuple):
    """What n episodes are going to do."""

    actions: Int[Array, "n L"]
    lengths: Int[Array, " n"]
    """How many of the actions are meant."""
    memory: Any = None
    """Of what the planner is to be reminded when it plans on."""


Planner: TypeAlias = Callable[..., Any]
"""(keys, observations, time steps, which episodes still run) -> `Plans` for n episodes at once. One that remembers what
it planned before also takes that: its last `Plans.memory`."""


class Playing(NamedTuple):
    """n episodes under way."""

    states: State
    obs: Shaped[Array, "n *obs"]
    time: Int[Array, " n"]
    running: Bool[Array, " n"]
    memory: Any = None


def begin(env: AbstractEnvironment, keys: Keys, observe: Callable[[Observation], Observation]) -> Playing:
    """One episode per key, before its first step."""
    states, obs = jax.vmap(env.reset)(_apart(keys)[0])
    episodes = keys.shape[0]
    return Playing(states, jax.vmap(observe)(obs), jnp.zeros(episodes, jnp.int32), jnp.ones(episodes, bool))


def rollout_plans(
    env: AbstractEnvironment,
    plan: Planner,
    keys: Keys,
    observe: Callable[[Observation], Observation] = as_observed,
    memory: Any = None,
) -> Trajectory:
    """One episode per key, all together: every one of them plans, carries its plan out, and then all plan again. Those
    with shorter plans wait for the others, which costs nothing."""
    playing = begin(env, keys, observe)._replace(memory=memory)
    return go_on(env, plan, keys, playing, env.time_limit, observe)[1]


def go_on(
    env: AbstractEnvironment,
    plan: Planner,
    keys: Keys,
    playing: Playing,
    steps: int,
    observe: Callable[[Observation], Observation] = as_observed,
) -> tuple[Playing, Trajectory]:
    """At most `steps` further steps of every episode, in rows from the first on. The keys are those it began with."""
    _, key_plan, key_env = _apart(keys)
    episodes = keys.shape[0]
    lane, first = jnp.arange(episodes), playing.time

    def at(keys: Keys, time: Int[Array, " n"]) -> Keys:
        return jax.vmap(jax.random.fold_in)(keys, time)

    def step(carry: tuple) -> tuple:
        i, plans, (states, obs, time, running, memory), record = carry
        active = running & (i < plans.lengths)
        action = plans.actions[:, i]
        stepped = jax.vmap(env.step)(at(key_env, time), states, action)
        next_states, next_obs, reward, terminated, truncated = stepped
        next_obs = jax.vmap(observe)(next_obs)
        row = Trajectory(obs, action, reward, next_obs, terminated, truncated, active)
        slot = jnp.where(active, time - first, steps)  # a slot past the end is dropped
        record = jax.tree.map(lambda rows, new: rows.at[lane, slot].set(new, mode="drop"), record, row)

        def advance(new: Array, old: Array) -> Array:
            return jnp.where(active.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        states, obs = jax.tree.map(advance, (next_states, next_obs), (states, obs))
        running &= ~(active & (terminated | truncated))
        now = Playing(states, obs, time + active.astype(jnp.int32), running, memory)
        return i + 1, plans, now, record

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        i, plans, playing, _ = carry
        return jnp.any(playing.running & (i < plans.lengths))

    def plan_and_play(carry: tuple) -> tuple:
        playing, record = carry
        left = first + steps - playing.time
        now = (at(key_plan, playing.time), playing.obs, playing.time, awake(playing))
        plans = Plans(*(plan(*now) if playing.memory is None else plan(*now, playing.memory)))
        playing = playing._replace(memory=plans.memory)
        # An empty plan would never end.
        lengths = jnp.minimum(jnp.maximum(plans.lengths, 1), left)
        start = (jnp.int32(0), Plans(plans.actions, lengths), playing, record)
        return jax.lax.while_loop(unfinished, step, start)[2:]

    def awake(playing: Playing) -> Bool[Array, " n"]:
        return playing.running & (playing.time < first + steps)

    flags = jnp.zeros((episodes, steps), bool)
    frames = jnp.zeros((episodes, steps, *playing.obs.shape[1:]), playing.obs.dtype)
    blank = Trajectory(
        frames, flags.astype(jnp.int32), flags.astype(jnp.float32), frames, flags, flags, flags
    )
    played: tuple[Playing, Trajectory] = jax.lax.while_loop(
        lambda carry: jnp.any(awake(carry[0])), plan_and_play, (playing, blank)
    )
    return played


def _apart(keys: Keys) -> Any:
    """Every episode's keys for its beginning, its plans and its steps."""
    return jax.vmap(lambda key: jax.random.split(key, 3), out_axes=1)(keys)
