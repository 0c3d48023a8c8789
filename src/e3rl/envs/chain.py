"""The chain of Osband et al. (2016): a crumb behind the start, the feast at the far end, nothing in between."""

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
FEAST = 1.0
START = 1
EXTRA_STEPS = 9
FEWEST = 3


class ChainState(NamedTuple):
    place: Int[Array, ""]
    """0 … n−1."""
    time: Int[Array, ""]
    """Steps taken."""


class Chain(AbstractEnvironment):
    """`n` places in a row, of which the second is the start; action 0 leads one to the left, action 1 one to the right.

    Every step that ends at the left end pays `decoy`, every step that ends at the right end pays 1. With chance `slip`
    a step goes the other way. An episode is cut after `horizon` steps, n + 9 where it is 0, as in the paper.
    """

    n: int = eqx.field(static=True)
    decoy: float = eqx.field(static=True)
    slip: float = eqx.field(static=True)
    time_limit: int = eqx.field(static=True)

    def __init__(self, n: int = 20, decoy: float = 0.001, slip: float = 0.0, horizon: int = 0):
        if n < FEWEST:
            raise UserError(f"n must be at least {FEWEST}, got {n}")
        if not 0.0 <= slip <= 1.0:
            raise UserError(f"slip must be between 0 and 1, got {slip}")
        if horizon < 0:
            raise UserError(f"horizon must not be negative, got {horizon}")
        self.n, self.decoy, self.slip = n, decoy, slip
        self.time_limit = horizon or n + EXTRA_STEPS

    @property
    def observation_space(self) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(self.n)

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(2)

    def reset(self, key: Key) -> tuple[ChainState, Int[Array, ""]]:
        state = ChainState(jnp.int32(START), jnp.int32(0))
        return state, state.place

    def step(
        self, key: Key, state: ChainState, action: Action
    ) -> tuple[ChainState, Int[Array, ""], Reward, Flag, Flag]:
        right = action == RIGHT
        if self.slip > 0.0:
            right ^= jax.random.bernoulli(key, self.slip)
        place = jnp.clip(state.place + jnp.where(right, 1, -1), 0, self.n - 1).astype(jnp.int32)
        reward = jnp.where(place == self.n - 1, FEAST, jnp.where(place == 0, self.decoy, 0.0))
        after = ChainState(place, state.time + 1)
        return after, place, reward, jnp.array(False), after.time >= self.time_limit

    def transition_table(self) -> tuple[Float[np.ndarray, "n 2 n"], Float[np.ndarray, "n 2"]]:
        """P[s, a, s'] and the expected reward R[s, a]."""
        n = self.n
        chance, paid = np.zeros((n, 2, n)), np.zeros(n)
        for s in range(n):
            for action, step in ((LEFT, -1), (RIGHT, 1)):
                chance[s, action, min(max(s + step, 0), n - 1)] += 1.0 - self.slip
                chance[s, action, min(max(s - step, 0), n - 1)] += self.slip
        paid[0], paid[-1] = self.decoy, FEAST
        return chance, chance @ paid

    @cached_property
    def optimal_return(self) -> float:
        return float(best_values(*self.transition_table(), self.time_limit)[START])

    def render(self, state: ChainState) -> UInt8[np.ndarray, "h w 3"]:
        worth = np.zeros(self.n)
        worth[0], worth[-1] = 0.2, 1.0
        return draw_strip(worth, int(state.place))
