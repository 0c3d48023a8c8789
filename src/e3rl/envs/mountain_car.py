"""MountainCar-v0 of Gymnasium in JAX (section 5.3)."""

from typing import NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int, UInt8

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.drawing import draw_mountain_car
from e3rl.types import Action, Flag, Key, Reward, UserError

MIN_POSITION, MAX_POSITION, GOAL_POSITION = -1.2, 0.6, 0.5
MAX_SPEED = 0.07
FORCE, GRAVITY = 0.001, 0.0025
START_LOW, START_HIGH = -0.6, -0.4

LOW = np.array([MIN_POSITION, -MAX_SPEED], np.float32)
HIGH = np.array([MAX_POSITION, MAX_SPEED], np.float32)


class MountainCarState(NamedTuple):
    position: Float[Array, ""]
    velocity: Float[Array, ""]
    time: Int[Array, ""]
    """Steps taken."""


class MountainCar(AbstractEnvironment):
    """An underpowered car in a valley; actions 0, 1, 2 push left, not at all, right.

    The physics and the start are Gymnasium's. Reward −1 a step and 0 on the step that reaches the goal, as in
    the paper's code; Gymnasium pays −1 on that step too. State arithmetic follows JAX's default float,
    observations are float32 as Gymnasium's are; `scale_observation` maps them to [0, 1] by the space's bounds.
    With chance `push_failure` the engine does nothing for a step, whatever the action.
    """

    time_limit: int = eqx.field(static=True)
    scale_observation: bool = eqx.field(static=True)
    push_failure: float = eqx.field(static=True)

    def __init__(self, time_limit: int = 200, scale_observation: bool = False, push_failure: float = 0.0):
        if time_limit < 1:
            raise UserError(f"time_limit must be at least 1, got {time_limit}")
        self.time_limit = time_limit
        if not 0.0 <= push_failure <= 1.0:
            raise UserError(f"push_failure must be between 0 and 1, got {push_failure}")
        self.scale_observation = scale_observation
        self.push_failure = push_failure

    @property
    def observation_space(self) -> gymnasium.spaces.Box:
        if self.scale_observation:
            return gymnasium.spaces.Box(0.0, 1.0, LOW.shape, np.float32)
        return gymnasium.spaces.Box(LOW, HIGH, dtype=np.float32)

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(3)

    def _observe(self, state: MountainCarState) -> Float32[Array, " 2"]:
        obs = jnp.stack([state.position, state.velocity]).astype(jnp.float32)
        # Clipped because the division may round to just above 1.
        return jnp.clip((obs - LOW) / (HIGH - LOW), 0.0, 1.0) if self.scale_observation else obs

    def reset(self, key: Key) -> tuple[MountainCarState, Float32[Array, " 2"]]:
        position = jax.random.uniform(key, minval=START_LOW, maxval=START_HIGH)
        state = MountainCarState(position, jnp.zeros_like(position), jnp.int32(0))
        return state, self._observe(state)

    def step(
        self, key: Key, state: MountainCarState, action: Action
    ) -> tuple[MountainCarState, Float32[Array, " 2"], Reward, Flag, Flag]:
        push = (action - 1).astype(state.velocity.dtype)
        if self.push_failure > 0.0:
            push = jnp.where(jax.random.bernoulli(key, self.push_failure), 0.0, push)
        velocity = state.velocity + push * FORCE - jnp.cos(3.0 * state.position) * GRAVITY
        velocity = jnp.clip(velocity, -MAX_SPEED, MAX_SPEED)
        position = jnp.clip(state.position + velocity, MIN_POSITION, MAX_POSITION)
        # The left end is a wall, hit inelastically.
        velocity = jnp.where((position == MIN_POSITION) & (velocity < 0.0), 0.0, velocity)
        next_state = MountainCarState(position, velocity, state.time + 1)
        terminated = (position >= GOAL_POSITION) & (velocity >= 0.0)
        reward = jnp.where(terminated, 0.0, -1.0)
        truncated = next_state.time >= self.time_limit
        return next_state, self._observe(next_state), reward, terminated, truncated

    def render(self, state: MountainCarState) -> UInt8[np.ndarray, "h w 3"]:
        return draw_mountain_car(float(state.position))
