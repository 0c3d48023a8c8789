"""The maze of section 5.2 and appendix C.2: a new one every episode, seen as an image."""

from typing import NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int, UInt8

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.drawing import draw_maze
from e3rl.types import Action, Flag, Key, Reward, UserError

MOVES = np.array([[-1, 0], [0, 1], [1, 0], [0, -1]], np.int32)
"""(row, column) of the actions 0 up, 1 right, 2 down, 3 left."""
GOAL_REWARD, WALL_REWARD, MOVE_REWARD = 2.0, -0.5, -0.2
MIN_SIZE = 5

BORDER, OPENED = 2, 8  # on top of a cell's count of open neighbours, so that it never again reads exactly 1


class MazeState(NamedTuple):
    walls: Bool[Array, "n n"]
    agent: Int[Array, " 2"]
    goal: Int[Array, " 2"]
    """Row and column."""
    time: Int[Array, ""]
    """Steps taken."""


def carve(start: Int[Array, ""], preference: Float[Array, "n n 4"]) -> Bool[Array, "n n"]:
    """Walls of a perfect maze, by depth-first search from the cell with flat index `start`.

    Every interior cell may become a corridor, whatever the parity of n: the search opens a wall cell only when
    exactly one of its four neighbours is open, hence each opening adds one cell and one edge and the open cells
    stay a tree. As in the Collect domain that the paper takes its mazes from, the search goes straight on after
    a turn, which makes for longer corridors.

    `preference[cell]` ranks the directions out of a cell. A direction once barred stays barred, so independent
    uniform ranks drawn beforehand choose among the free directions exactly as a new draw at every visit would.
    """
    n = preference.shape[0]
    offsets = jnp.array(MOVES @ np.array([n, 1], np.int32))
    opening = jnp.append(offsets, jnp.int32(0)), jnp.array([1, 1, 1, 1, OPENED], jnp.int8)
    rank = preference.reshape(n * n, 4)
    directions = jnp.arange(4, dtype=jnp.int32)
    counts = jnp.full((n, n), BORDER, jnp.int8).at[1:-1, 1:-1].set(0).ravel()
    counts = counts.at[start + opening[0]].add(opening[1])
    # At most this many cells open: of the 2k(k−1) edges between k² cells a tree of T has T−1, and each of the
    # k²−T walls accounts for at most 4 of the others.
    k = n - 2
    capacity = (2 * k * k + 2 * k - 1) // 3

    def visit(_: Array, carry: tuple) -> tuple:
        counts, cells, headings, depth = carry
        cell, heading = cells[depth], headings[depth]
        turned = (depth >= 2) & (heading != headings[depth - 1])
        free = (counts[cell + offsets] == 1) & (~turned | (directions == heading))
        choice = jnp.argmax(jnp.where(free, rank[cell], -1.0)).astype(jnp.int32)
        grows = free[choice]
        reached = cell + offsets[choice]
        # A step back writes nothing: its index lies outside the array and the write is dropped.
        target = jnp.where(grows, reached + opening[0], n * n)
        counts = counts.at[target].add(opening[1], mode="drop")
        top = jnp.where(grows, depth + 1, capacity)
        cells = cells.at[top].set(reached, mode="drop")
        headings = headings.at[top].set(choice, mode="drop")
        return counts, cells, headings, jnp.where(grows, depth + 1, jnp.maximum(depth - 1, 0))

    cells = jnp.zeros(capacity, jnp.int32).at[0].set(start)
    carry = counts, cells, jnp.zeros(capacity, jnp.int32), jnp.int32(0)
    # Each cell but the first is entered once and left once. Under vmap a while_loop would copy the whole carry
    # at every visit to freeze the mazes that are done; here such visits write nothing.
    counts, *_ = jax.lax.fori_loop(0, 2 * (capacity - 1), visit, carry)
    return (counts < OPENED).reshape(n, n)


def distances_to(walls: Bool[Array, "n n"], cell: Int[Array, " 2"]) -> Int[Array, "n n"]:
    """Length of the shortest path from every open cell to `cell`, n² where there is none; by relaxation."""
    n = walls.shape[0]
    unreachable = jnp.int32(n * n)

    def relax(carry: tuple) -> tuple:
        distance, _ = carry
        # Rolling past an edge is harmless because the border is wall.
        near = [jnp.roll(distance, shift, axis) for shift in (1, -1) for axis in (0, 1)]
        closer = jnp.minimum(distance, jnp.stack(near).min(axis=0) + 1)
        closer = jnp.where(walls, unreachable, closer)
        return closer, jnp.any(closer != distance)

    distance = jnp.full((n, n), unreachable).at[cell[0], cell[1]].set(0)
    return jax.lax.while_loop(lambda carry: carry[1], relax, (distance, jnp.array(True)))[0]


class Maze(AbstractEnvironment):
    """A perfect maze of n × n cells including its border; agent and goal start on two different open cells.

    Moving into a wall costs 0.5 and leaves the agent where it is, any other move costs 0.2, reaching the goal
    pays 2 and ends the episode. The image's channels are walls, agent and goal. With chance `slip` a uniformly random
    move takes the place of the chosen one; `optimal_return` is that of the maze without slips.
    """

    size: int = eqx.field(static=True)
    time_limit: int = eqx.field(static=True)
    slip: float = eqx.field(static=True)

    def __init__(self, size: int = 10, time_limit: int = 100, slip: float = 0.0):
        if size < MIN_SIZE:
            raise UserError(f"size must be at least {MIN_SIZE}, border included, got {size}")
        if time_limit < 1:
            raise UserError(f"time_limit must be at least 1, got {time_limit}")
        if not 0.0 <= slip <= 1.0:
            raise UserError(f"slip must be between 0 and 1, got {slip}")
        self.size = size
        self.time_limit = time_limit
        self.slip = slip

    @property
    def observation_space(self) -> gymnasium.spaces.Box:
        return gymnasium.spaces.Box(0.0, 1.0, (self.size, self.size, 3), np.float32)

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(len(MOVES))

    def _observe(self, state: MazeState) -> Float32[Array, "n n 3"]:
        image = jnp.zeros((self.size, self.size, 3), jnp.float32)
        image = image.at[:, :, 0].set(state.walls.astype(jnp.float32))
        image = image.at[state.agent[0], state.agent[1], 1].set(1.0)
        return image.at[state.goal[0], state.goal[1], 2].set(1.0)

    def reset(self, key: Key) -> tuple[MazeState, Float32[Array, "n n 3"]]:
        n = self.size
        # All draws in one call, because the random generator dominates the time this takes to compile.
        preference, start, place = jnp.split(jax.random.uniform(key, (n, n, 6)), (4, 5), axis=-1)
        interior = jnp.zeros((n, n), bool).at[1:-1, 1:-1].set(True)
        walls = carve(jnp.argmax(jnp.where(interior, start[..., 0], -1.0)).astype(jnp.int32), preference)
        # The two largest of independent draws are a uniform ordered pair of distinct open cells.
        place = jnp.where(walls, -1.0, place[..., 0]).ravel()
        agent = jnp.argmax(place).astype(jnp.int32)
        goal = jnp.argmax(place.at[agent].set(-1.0)).astype(jnp.int32)
        agent, goal = (jnp.stack(jnp.divmod(cell, n)) for cell in (agent, goal))
        state = MazeState(walls, agent, goal, jnp.int32(0))
        return state, self._observe(state)

    def step(
        self, key: Key, state: MazeState, action: Action
    ) -> tuple[MazeState, Float32[Array, "n n 3"], Reward, Flag, Flag]:
        if self.slip > 0.0:
            key_slip, key_move = jax.random.split(key)
            stray = jax.random.randint(key_move, (), 0, len(MOVES), action.dtype)
            action = jnp.where(jax.random.bernoulli(key_slip, self.slip), stray, action)
        ahead = state.agent + jnp.array(MOVES)[action]
        blocked = state.walls[ahead[0], ahead[1]]
        agent = jnp.where(blocked, state.agent, ahead)
        terminated = jnp.all(agent == state.goal)
        reward = jnp.where(terminated, GOAL_REWARD, jnp.where(blocked, WALL_REWARD, MOVE_REWARD))
        next_state = MazeState(state.walls, agent, state.goal, state.time + 1)
        truncated = next_state.time >= self.time_limit
        return next_state, self._observe(next_state), reward, terminated, truncated

    def state_of(self, obs: Float[Array, "n n 3"]) -> MazeState:
        """The state at the start of an episode that begins with `obs`."""
        walls, agent, goal = jnp.moveaxis(obs, -1, 0)
        agent, goal = (
            jnp.stack(jnp.divmod(jnp.argmax(place).astype(jnp.int32), self.size)) for place in (agent, goal)
        )
        return MazeState(walls > 0.5, agent, goal, jnp.int32(0))

    def shortest_path(self, state: MazeState) -> Int[Array, ""]:
        """Number of moves from the agent to the goal."""
        return distances_to(state.walls, state.goal)[state.agent[0], state.agent[1]]

    def optimal_return(self, state: MazeState) -> Reward:
        """The best return from here on: 2 − 0.2 (d − 1) with d moves to go, −0.2 a step if time runs out first."""
        moves = self.shortest_path(state)
        left = self.time_limit - state.time
        costly = jnp.where(moves <= left, moves - 1, left).astype(float)
        return jnp.where(moves <= left, GOAL_REWARD, 0.0) + MOVE_REWARD * costly

    def render(self, state: MazeState) -> UInt8[np.ndarray, "h w 3"]:
        return draw_maze(np.asarray(state.walls), np.asarray(state.agent), np.asarray(state.goal))
