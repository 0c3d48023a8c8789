"""Four rooms (Sutton, Precup and Singh, 1999): a goal in the room opposite, found through doors; seen in five ways."""

from functools import cached_property
from typing import NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt8

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.drawing import draw_maze
from e3rl.envs.induction import best_values
from e3rl.envs.maze import MOVES
from e3rl.types import Action, Flag, Key, Reward, UserError

GOAL_REWARD = 1.0
FEWEST = 7
OBSERVATIONS = ("category", "bits", "floats", "coordinates", "image")


class RoomsState(NamedTuple):
    agent: Int[Array, " 2"]
    """Row and column."""
    time: Int[Array, ""]
    """Steps taken."""


def four_rooms(size: int) -> Bool[np.ndarray, "n n"]:
    """Walls of four rooms with a door between neighbours; at size 13 they are those of the paper."""
    walls = np.zeros((size, size), bool)
    walls[[0, -1]] = walls[:, [0, -1]] = True
    middle = size // 2
    walls[:, middle] = True
    walls[middle, :middle] = walls[middle + 1, middle:] = True  # the right wall lies one lower
    before, after = (middle + 1) // 2 - 1, middle + 2 + (size - middle - 3) // 2
    walls[before + 1, middle] = walls[after, middle] = False
    walls[middle, before] = walls[middle + 1, after - 1] = False
    return walls


class FourRooms(AbstractEnvironment):
    """A grid of `size` × `size` cells, border included; the agent starts in the first corner, the goal is in the last.

    Actions 0 up, 1 right, 2 down, 3 left; a move into a wall does nothing. With chance `slip` a uniformly random move
    takes the place of the chosen one. Reaching the goal pays 1 and ends the episode, nothing else pays. What is seen is
    set by `observation`: the cell's number (`category`), a one-hot of it (`bits`, `floats`), row and column scaled to
    [0, 1] (`coordinates`), or an `image` in bytes with the channels walls, agent, goal.
    """

    size: int = eqx.field(static=True)
    slip: float = eqx.field(static=True)
    observation: str = eqx.field(static=True)
    time_limit: int = eqx.field(static=True)

    def __init__(
        self, size: int = 13, slip: float = 0.0, observation: str = "category", time_limit: int = 100
    ):
        if size < FEWEST:
            raise UserError(f"size must be at least {FEWEST}, border included, got {size}")
        if not 0.0 <= slip <= 1.0:
            raise UserError(f"slip must be between 0 and 1, got {slip}")
        if observation not in OBSERVATIONS:
            raise UserError(f"observation must be one of {', '.join(OBSERVATIONS)}, got {observation!r}")
        if time_limit < 1:
            raise UserError(f"time_limit must be at least 1, got {time_limit}")
        self.size, self.slip, self.observation, self.time_limit = size, slip, observation, time_limit

    @property
    def walls(self) -> Bool[np.ndarray, "n n"]:
        return four_rooms(self.size)

    @property
    def goal(self) -> tuple[int, int]:
        return self.size - 2, self.size - 2

    @property
    def observation_space(self) -> gymnasium.Space:
        cells = self.size**2
        return {
            "category": gymnasium.spaces.Discrete(cells),
            "bits": gymnasium.spaces.MultiBinary(cells),
            "floats": gymnasium.spaces.Box(0.0, 1.0, (cells,), np.float32),
            "coordinates": gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32),
            "image": gymnasium.spaces.Box(0, 255, (self.size, self.size, 3), np.uint8),
        }[self.observation]

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(len(MOVES))

    def _observe(self, agent: Int[Array, " 2"]) -> Shaped[Array, "..."]:
        cell = agent[0] * self.size + agent[1]
        match self.observation:
            case "category":
                return cell
            case "bits":
                return jax.nn.one_hot(cell, self.size**2, dtype=jnp.int8)
            case "floats":
                return jax.nn.one_hot(cell, self.size**2, dtype=jnp.float32)
            case "coordinates":
                return agent.astype(jnp.float32) / (self.size - 1)
        image = jnp.zeros((self.size, self.size, 3), jnp.uint8)
        image = image.at[:, :, 0].set(jnp.where(jnp.asarray(self.walls), 255, 0).astype(jnp.uint8))
        return image.at[agent[0], agent[1], 1].set(255).at[self.goal[0], self.goal[1], 2].set(255)

    def reset(self, key: Key) -> tuple[RoomsState, Shaped[Array, "..."]]:
        state = RoomsState(jnp.array([1, 1], jnp.int32), jnp.int32(0))
        return state, self._observe(state.agent)

    def step(
        self, key: Key, state: RoomsState, action: Action
    ) -> tuple[RoomsState, Shaped[Array, "..."], Reward, Flag, Flag]:
        if self.slip > 0.0:
            key_slip, key_move = jax.random.split(key)
            stray = jax.random.randint(key_move, (), 0, len(MOVES), action.dtype)
            action = jnp.where(jax.random.bernoulli(key_slip, self.slip), stray, action)
        ahead = state.agent + jnp.array(MOVES)[action]
        agent = jnp.where(jnp.asarray(self.walls)[ahead[0], ahead[1]], state.agent, ahead)
        terminated = jnp.all(agent == jnp.array(self.goal, jnp.int32))
        after = RoomsState(agent, state.time + 1)
        truncated = (after.time >= self.time_limit) & ~terminated
        return after, self._observe(agent), jnp.where(terminated, GOAL_REWARD, 0.0), terminated, truncated

    def transition_table(self) -> tuple[Float[np.ndarray, "S 4 S"], Float[np.ndarray, "S 4"]]:
        """P[s, a, s'] over the numbers of the cells and the expected reward R[s, a]; the goal stays where it is."""
        walls, cells = self.walls, self.size**2
        chance, goal = np.zeros((cells, len(MOVES), cells)), self.goal[0] * self.size + self.goal[1]
        for row, column in np.argwhere(~walls).tolist():
            s = row * self.size + column
            for move, (down, right) in enumerate(MOVES.tolist()):
                blocked = walls[row + down, column + right]
                reached = s if blocked or s == goal else (row + down) * self.size + column + right
                chance[s, :, reached] += self.slip / len(MOVES)
                chance[s, move, reached] += 1.0 - self.slip
        gain = GOAL_REWARD * chance[:, :, goal]
        gain[goal] = 0.0
        return chance, gain

    @cached_property
    def optimal_return(self) -> float:
        return float(best_values(*self.transition_table(), self.time_limit)[self.size + 1])

    def render(self, state: RoomsState) -> UInt8[np.ndarray, "h w 3"]:
        return draw_maze(self.walls, np.asarray(state.agent), np.array(self.goal))
