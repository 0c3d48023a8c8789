"""What every functional environment is: two pure functions and its spaces."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Shaped, UInt8

from e3rl.types import Action, Flag, Key, Reward, Trajectory

State: TypeAlias = Any
Observation: TypeAlias = Shaped[Array, "..."]
Step: TypeAlias = tuple[State, Observation, Reward, Flag, Flag]
Policy: TypeAlias = Callable[[Key, Observation, Array], Action]
"""(key, observation, time step) -> action."""


class AbstractEnvironment(eqx.Module):
    """A pytree of an environment's constants with pure `reset` and `step`.

    Because it is a pytree, a batch of different environments is one object: `eqx.filter_vmap(make)(keys)`.
    `step` never resets by itself: past the end of an episode its result is unspecified.
    """

    time_limit: eqx.AbstractVar[int]
    """Number of steps after which an episode has ended for certain."""

    @abstractmethod
    def reset(self, key: Key) -> tuple[State, Observation]:
        """Start an episode."""

    @abstractmethod
    def step(self, key: Key, state: State, action: Action) -> Step:
        """One step: (state, observation, reward, terminated, truncated)."""

    @property
    @abstractmethod
    def observation_space(self) -> gymnasium.Space: ...

    @property
    @abstractmethod
    def action_space(self) -> gymnasium.spaces.Discrete: ...

    @abstractmethod
    def render(self, state: State) -> UInt8[np.ndarray, "h w 3"]:
        """The state as an RGB picture (on the host, not jittable)."""

    @property
    def num_actions(self) -> int:
        return int(self.action_space.n)


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
