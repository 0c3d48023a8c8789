"""CartPole-v1 of Gymnasium in JAX: not of the paper, but where the baselines are measured."""

from math import pi
from typing import NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Int, UInt8

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.drawing import draw_cart_pole
from e3rl.types import Action, Flag, Key, Reward, UserError

DT = 0.02
GRAVITY = 9.8
CART_MASS, POLE_MASS = 1.0, 0.1
TOTAL_MASS = CART_MASS + POLE_MASS
HALF_LENGTH = 0.5
FORCE = 10.0
MAX_POSITION, MAX_ANGLE = 2.4, 12 * 2 * pi / 360
START_RANGE = 0.05

# Twice the limits, so that the observation an episode fails on is in the space.
HIGH = np.array([2 * MAX_POSITION, np.inf, 2 * MAX_ANGLE, np.inf], np.float32)
LOW = -HIGH


class CartPoleState(NamedTuple):
    cart: Float[Array, " 4"]
    """Position, velocity, angle of the pole (0 is upright) and its angular velocity."""
    time: Int[Array, ""]
    """Steps taken."""


class CartPole(AbstractEnvironment):
    """A pole balanced on a cart; actions 0 and 1 push left and right. Reward 1 a step, until pole or cart go too far.

    Physics, start and rewards are Gymnasium's. State arithmetic follows JAX's default float, observations are
    float32 as Gymnasium's are.
    """

    time_limit: int = eqx.field(static=True)

    def __init__(self, time_limit: int = 500):
        if time_limit < 1:
            raise UserError(f"time_limit must be at least 1, got {time_limit}")
        self.time_limit = time_limit

    @property
    def observation_space(self) -> gymnasium.spaces.Box:
        return gymnasium.spaces.Box(LOW, HIGH, dtype=np.float32)

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(2)

    def reset(self, key: Key) -> tuple[CartPoleState, Float32[Array, " 4"]]:
        cart = jax.random.uniform(key, (4,), minval=-START_RANGE, maxval=START_RANGE)
        return CartPoleState(cart, jnp.int32(0)), cart.astype(jnp.float32)

    def step(
        self, key: Key, state: CartPoleState, action: Action
    ) -> tuple[CartPoleState, Float32[Array, " 4"], Reward, Flag, Flag]:
        position, velocity, angle, spin = state.cart
        cos, sin = jnp.cos(angle), jnp.sin(angle)
        force = jnp.where(action == 1, FORCE, -FORCE).astype(position.dtype)
        push = (force + POLE_MASS * HALF_LENGTH * spin**2 * sin) / TOTAL_MASS
        inertia = HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cos**2 / TOTAL_MASS)
        angular = (GRAVITY * sin - cos * push) / inertia
        linear = push - POLE_MASS * HALF_LENGTH * angular * cos / TOTAL_MASS
        cart = state.cart + DT * jnp.stack([velocity, linear, spin, angular])
        next_state = CartPoleState(cart, state.time + 1)
        terminated = (jnp.abs(cart[0]) > MAX_POSITION) | (jnp.abs(cart[2]) > MAX_ANGLE)
        truncated = next_state.time >= self.time_limit
        return next_state, cart.astype(jnp.float32), jnp.array(1.0), terminated, truncated

    def render(self, state: CartPoleState) -> UInt8[np.ndarray, "h w 3"]:
        return draw_cart_pole(float(state.cart[0]), float(state.cart[2]))
