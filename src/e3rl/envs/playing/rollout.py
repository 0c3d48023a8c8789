"""Whole episodes of functional environments, for policies that look at every step."""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array

from e3rl.envs.base import AbstractEnvironment, Observation
from e3rl.types import Action, Key, Reward, Trajectory

Policy: TypeAlias = Callable[[Key, Observation, Array], Action]
"""(key, observation, time step) -> action."""


def uniform_policy(num_actions: int) -> Policy:
    return lambda key, obs, t: jax.random.randint(key, (), 0, num_actions)


def as_observed(obs: Observation) -> Observation:
    return obs


def rollout(
    env: AbstractEnvironment,
    policy: Policy,
    key: Key,
    observe: Callable[[Observation], Observation] = as_observed,
) -> Trajectory:
    """One whole episode as a single scan of `time_limit` steps; steps after its end are masked out.

    `observe` is applied to every observation before anyone sees it.
    """
    key_reset, key_steps = jax.random.split(key)
    state, obs = env.reset(key_reset)

    def step(carry: tuple, inputs: tuple) -> tuple:
        state, obs, running = carry
        t, key = inputs
        key_act, key_env = jax.random.split(key)
        action = policy(key_act, obs, t)
        next_state, next_obs, reward, terminated, truncated = env.step(key_env, state, action)
        next_obs = observe(next_obs)
        row = Trajectory(obs, action, reward, next_obs, terminated, truncated, running)
        return (next_state, next_obs, running & ~(terminated | truncated)), row

    steps = jnp.arange(env.time_limit), jax.random.split(key_steps, env.time_limit)
    trajectory: Trajectory = jax.lax.scan(step, (state, observe(obs), jnp.array(True)), steps)[1]
    return trajectory


def episode_return(trajectory: Trajectory) -> Reward:
    return jnp.sum(jnp.where(trajectory.valid, trajectory.reward, 0.0))
