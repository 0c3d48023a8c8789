"""Acrobot-v1 of Gymnasium in JAX (section 5.3)."""

from math import pi
from typing import NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int, UInt8

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.drawing import draw_acrobot
from e3rl.types import Action, Flag, Key, Reward, UserError

DT = 0.2
LENGTH_1 = 1.0
MASS_1 = MASS_2 = 1.0
CENTRE_1 = CENTRE_2 = 0.5  # centre of mass along its link
INERTIA_1 = INERTIA_2 = 1.0
GRAVITY = 9.8
MAX_SPEEDS = (4 * pi, 9 * pi)
START_RANGE = 0.1
TARGET_HEIGHT = 1.0

HIGH = np.array([1.0, 1.0, 1.0, 1.0, *MAX_SPEEDS], np.float32)
LOW = -HIGH


class AcrobotState(NamedTuple):
    joints: Float[Array, " 4"]
    """θ1 (0 hangs down), θ2 relative to the first link, and their angular velocities."""
    time: Int[Array, ""]
    """Steps taken."""


def derivative(joints: Float[Array, " 4"], torque: Float[Array, ""]) -> Float[Array, " 4"]:
    """Time derivative of the joints: Sutton and Barto's equations, the "book" variant of Gymnasium."""
    theta_1, theta_2, speed_1, speed_2 = joints
    lever = MASS_2 * LENGTH_1 * CENTRE_2
    cos_2, sin_2 = jnp.cos(theta_2), jnp.sin(theta_2)
    inertia_1 = MASS_1 * CENTRE_1**2 + INERTIA_1
    inertia_2 = MASS_2 * CENTRE_2**2 + INERTIA_2
    d_1 = inertia_1 + inertia_2 + MASS_2 * LENGTH_1**2 + 2.0 * lever * cos_2
    d_2 = inertia_2 + lever * cos_2
    # Gymnasium writes cos(x − π/2) for these sines, which rounds x once more.
    phi_2 = MASS_2 * CENTRE_2 * GRAVITY * jnp.sin(theta_1 + theta_2)
    phi_1 = (
        -lever * sin_2 * speed_2 * (speed_2 + 2.0 * speed_1)
        + (MASS_1 * CENTRE_1 + MASS_2 * LENGTH_1) * GRAVITY * jnp.sin(theta_1)
        + phi_2
    )
    drive = torque + d_2 / d_1 * phi_1 - lever * speed_1**2 * sin_2 - phi_2
    accel_2 = drive / (inertia_2 - d_2**2 / d_1)
    accel_1 = -(d_2 * accel_2 + phi_1) / d_1
    return jnp.stack([speed_1, speed_2, accel_1, accel_2])


def runge_kutta(joints: Float[Array, " 4"], torque: Float[Array, ""]) -> Float[Array, " 4"]:
    """The joints DT later, by one classical fourth-order step at constant torque."""
    k_1 = derivative(joints, torque)
    k_2 = derivative(joints + DT / 2 * k_1, torque)
    k_3 = derivative(joints + DT / 2 * k_2, torque)
    k_4 = derivative(joints + DT * k_3, torque)
    return joints + DT / 6 * (k_1 + 2.0 * k_2 + 2.0 * k_3 + k_4)


def wrap(angle: Float[Array, "..."]) -> Float[Array, "..."]:
    """The angle less whole turns, in [−π, π]; both ends stay as they are, as Gymnasium's loops leave them."""
    turns = jnp.maximum(jnp.ceil((jnp.abs(angle) - pi) / (2 * pi)), 0.0)
    return angle - jnp.sign(angle) * turns * (2 * pi)


class Acrobot(AbstractEnvironment):
    """Two links hanging from a pivot, driven at the joint between them; actions 0, 1, 2 are torques −1, 0, 1.

    The physics, the start and the rewards are Gymnasium's: −1 a step and 0 on the step that lifts the tip more
    than one link's length above the pivot. The paper's code stops at 200 steps: `time_limit=200`. State
    arithmetic follows JAX's default float, observations are float32 as Gymnasium's are; `scale_observation` maps
    them to [0, 1] by the space's bounds.
    """

    time_limit: int = eqx.field(static=True)
    scale_observation: bool = eqx.field(static=True)

    def __init__(self, time_limit: int = 500, scale_observation: bool = False):
        if time_limit < 1:
            raise UserError(f"time_limit must be at least 1, got {time_limit}")
        self.time_limit = time_limit
        self.scale_observation = scale_observation

    @property
    def observation_space(self) -> gymnasium.spaces.Box:
        if self.scale_observation:
            return gymnasium.spaces.Box(0.0, 1.0, LOW.shape, np.float32)
        return gymnasium.spaces.Box(LOW, HIGH, dtype=np.float32)

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(3)

    def _observe(self, state: AcrobotState) -> Float32[Array, " 6"]:
        angles, speeds = state.joints[:2], state.joints[2:]
        (cos_1, cos_2), (sin_1, sin_2) = jnp.cos(angles), jnp.sin(angles)
        obs = jnp.stack([cos_1, sin_1, cos_2, sin_2, *speeds]).astype(jnp.float32)
        # Clipped because the division may round to just above 1.
        return jnp.clip((obs - LOW) / (HIGH - LOW), 0.0, 1.0) if self.scale_observation else obs

    def reset(self, key: Key) -> tuple[AcrobotState, Float32[Array, " 6"]]:
        joints = jax.random.uniform(key, (4,), minval=-START_RANGE, maxval=START_RANGE)
        state = AcrobotState(joints, jnp.int32(0))
        return state, self._observe(state)

    def step(
        self, key: Key, state: AcrobotState, action: Action
    ) -> tuple[AcrobotState, Float32[Array, " 6"], Reward, Flag, Flag]:
        joints = runge_kutta(state.joints, (action - 1).astype(state.joints.dtype))
        limits = jnp.array(MAX_SPEEDS, joints.dtype)
        joints = jnp.concatenate([wrap(joints[:2]), jnp.clip(joints[2:], -limits, limits)])
        next_state = AcrobotState(joints, state.time + 1)
        tip = -jnp.cos(joints[0]) - jnp.cos(joints[0] + joints[1])
        terminated = tip > TARGET_HEIGHT
        reward = jnp.where(terminated, 0.0, -1.0)
        truncated = next_state.time >= self.time_limit
        return next_state, self._observe(next_state), reward, terminated, truncated

    def render(self, state: AcrobotState) -> UInt8[np.ndarray, "h w 3"]:
        return draw_acrobot(float(state.joints[0]), float(state.joints[1]))
