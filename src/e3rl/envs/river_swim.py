"""RiverSwim (Strehl and Littman, 2008): a little for drifting downstream, much at the far end of a swim upstream."""

from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt8

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.drawing import draw_strip
from e3rl.envs.induction import best_values
from e3rl.types import Action, Flag, Key, Reward, UserError

LEFT, RIGHT = 0, 1
LEFT_REWARD, RIGHT_REWARD = 0.005, 1.0
BACK, AHEAD = 0.05, 0.35
"""Swimming upstream: the chances to be carried back and to get ahead; otherwise one stays."""
AHEAD_AT_FIRST, BACK_AT_LAST = 0.6, 0.4
"""The same at the two ends of the river."""
STEPS_PER_STATE = 20
FEWEST = 3


class RiverState(NamedTuple):
    place: Int[Array, ""]
    """0 … n−1, upstream."""
    time: Int[Array, ""]
    """Steps taken."""


class RiverSwim(AbstractEnvironment):
    """`n` places along a river. Action 0 drifts one place down, always; action 1 swims up against the current.

    Drifting at the first place pays 0.005, swimming at the last one pays 1. The chances are those of Osband, Russo and
    Van Roy (2013); an episode starts at the first place and is cut after `horizon` steps, 20 for every place where it
    is 0.
    """

    n: int = eqx.field(static=True)
    time_limit: int = eqx.field(static=True)

    def __init__(self, n: int = 6, horizon: int = 0):
        if n < FEWEST:
            raise UserError(f"n must be at least {FEWEST}, got {n}")
        if horizon < 0:
            raise UserError(f"horizon must not be negative, got {horizon}")
        self.n = n
        self.time_limit = horizon or STEPS_PER_STATE * n

    @property
    def observation_space(self) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(self.n)

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(2)

    def reset(self, key: Key) -> tuple[RiverState, Int[Array, ""]]:
        state = RiverState(jnp.int32(0), jnp.int32(0))
        return state, state.place

    def step(
        self, key: Key, state: RiverState, action: Action
    ) -> tuple[RiverState, Int[Array, ""], Reward, Flag, Flag]:
        place, time = state
        first, last = place == 0, place == self.n - 1
        swims = action == RIGHT
        ahead = jnp.where(last, 0.0, jnp.where(first, AHEAD_AT_FIRST, AHEAD))
        back = jnp.where(first, 0.0, jnp.where(last, BACK_AT_LAST, BACK))
        luck = jax.random.uniform(key)
        swum = jnp.where(luck < ahead, 1, jnp.where(luck >= 1.0 - back, -1, 0))
        moved = jnp.clip(place + jnp.where(swims, swum, -1), 0, self.n - 1).astype(jnp.int32)
        reward = jnp.where(swims, jnp.where(last, RIGHT_REWARD, 0.0), jnp.where(first, LEFT_REWARD, 0.0))
        after = RiverState(moved, time + 1)
        return after, moved, reward, jnp.array(False), after.time >= self.time_limit

    def transition_table(self) -> tuple[Float[np.ndarray, "n 2 n"], Float[np.ndarray, "n 2"]]:
        """P[s, a, s'] and the reward R[s, a]."""
        n = self.n
        chance, gain = np.zeros((n, 2, n)), np.zeros((n, 2))
        for s in range(n):
            chance[s, LEFT, max(s - 1, 0)] = 1.0
            ahead = 0.0 if s == n - 1 else AHEAD_AT_FIRST if s == 0 else AHEAD
            back = 0.0 if s == 0 else BACK_AT_LAST if s == n - 1 else BACK
            chance[s, RIGHT, min(s + 1, n - 1)] += ahead
            chance[s, RIGHT, max(s - 1, 0)] += back
            chance[s, RIGHT, s] += 1.0 - ahead - back
        gain[0, LEFT], gain[-1, RIGHT] = LEFT_REWARD, RIGHT_REWARD
        return chance, gain

    @cached_property
    def optimal_return(self) -> float:
        return float(best_values(*self.transition_table(), self.time_limit)[0])

    def render(self, state: RiverState) -> UInt8[np.ndarray, "h w 3"]:
        worth = np.zeros(self.n)
        worth[0], worth[-1] = 0.2, 1.0
        return draw_strip(worth, int(state.place))
