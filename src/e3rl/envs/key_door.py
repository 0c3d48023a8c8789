"""A room with a key, a locked door and a goal behind it: a new layout every episode, seen as an image of ids."""

from collections import deque
from typing import NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt8

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.drawing import draw_key_door
from e3rl.types import Action, Flag, Key, Reward, UserError

FLOOR, WALL, GOAL, KEY, LOCKED, OPEN = range(6)
"""Ids of what lies in a cell."""
TURN_LEFT, TURN_RIGHT, FORWARD, PICK_UP, UNLOCK = range(5)
AHEAD = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]], np.int32)
"""(row, column) of a step forward, heading 0 east, 1 south, 2 west, 3 north."""
MIN_SIZE = 5
TIME_COST = 0.9
"""Share of the reward that is lost when the goal is reached at the last moment."""


class KeyDoorState(NamedTuple):
    cells: Int[Array, "n n"]
    agent: Int[Array, " 2"]
    """Row and column."""
    heading: Int[Array, ""]
    carrying: Int[Array, ""]
    """1 with the key, 0 without."""
    time: Int[Array, ""]
    """Steps taken."""


class KeyDoor(AbstractEnvironment):
    """A wall with a locked door parts n × n cells; agent and key are on its left, the goal on its right.

    Actions: turn left, turn right, go forward, pick up the key ahead, unlock the door ahead with it. The goal ends the
    episode and pays 1, less up to 0.9 for the time taken; there is no other reward. Channels of the image: what lies in
    a cell (0 floor, 1 wall, 2 goal, 3 key, 4 locked door, 5 open door), the agent (0 none, else 1 + its heading), what
    it carries (1 the key).
    """

    size: int = eqx.field(static=True)
    time_limit: int = eqx.field(static=True)

    def __init__(self, size: int = 5, time_limit: int = 0):
        """`time_limit` 0 takes 10 n² steps."""
        if size < MIN_SIZE:
            raise UserError(f"size must be at least {MIN_SIZE}, border included, got {size}")
        if time_limit < 0:
            raise UserError(f"time_limit must not be negative, got {time_limit}")
        self.size = size
        self.time_limit = time_limit or 10 * size**2

    @property
    def observation_space(self) -> gymnasium.spaces.Box:
        return gymnasium.spaces.Box(0, 255, (self.size, self.size, 3), np.uint8)

    @property
    def action_space(self) -> gymnasium.spaces.Discrete:
        return gymnasium.spaces.Discrete(5)

    def _observe(self, state: KeyDoorState) -> UInt8[Array, "n n 3"]:
        row, column = state.agent
        image = jnp.zeros((self.size, self.size, 3), jnp.uint8)
        image = image.at[:, :, 0].set(state.cells.astype(jnp.uint8))
        image = image.at[row, column, 1].set((1 + state.heading).astype(jnp.uint8))
        return image.at[row, column, 2].set(state.carrying.astype(jnp.uint8))

    def reset(self, key: Key) -> tuple[KeyDoorState, UInt8[Array, "n n 3"]]:
        n = self.size
        key_wall, key_door, key_heading, key_places = jax.random.split(key, 4)
        split = jax.random.randint(key_wall, (), 2, n - 2)
        door = jax.random.randint(key_door, (), 1, n - 1)
        inside = jnp.zeros((n, n), bool).at[1:-1, 1:-1].set(True)
        column = jnp.broadcast_to(jnp.arange(n), (n, n))
        # The largest of independent draws is a uniform place, and the two largest a pair of places.
        place = jax.random.uniform(key_places, (n, n))
        left = jnp.where(inside & (column < split), place, -1.0).ravel()
        agent = jnp.argmax(left).astype(jnp.int32)
        lies = jnp.argmax(left.at[agent].set(-1.0)).astype(jnp.int32)
        goal = jnp.argmax(jnp.where(inside & (column > split), place, -1.0)).astype(jnp.int32)
        cells = jnp.where(inside & (column != split), FLOOR, WALL).astype(jnp.int32)
        cells = cells.at[door, split].set(LOCKED).ravel().at[lies].set(KEY).at[goal].set(GOAL).reshape(n, n)
        heading = jax.random.randint(key_heading, (), 0, len(AHEAD))
        none = jnp.int32(0)
        state = KeyDoorState(cells, jnp.stack(jnp.divmod(agent, n)), heading, none, none)
        return state, self._observe(state)

    def step(
        self, key: Key, state: KeyDoorState, action: Action
    ) -> tuple[KeyDoorState, UInt8[Array, "n n 3"], Reward, Flag, Flag]:
        turn = (action == TURN_RIGHT).astype(jnp.int32) - (action == TURN_LEFT).astype(jnp.int32)
        heading = (state.heading + turn) % len(AHEAD)
        ahead = state.agent + jnp.array(AHEAD)[state.heading]
        facing = state.cells[ahead[0], ahead[1]]
        enters = (action == FORWARD) & ((facing == FLOOR) | (facing == OPEN) | (facing == GOAL))
        takes = (action == PICK_UP) & (facing == KEY)
        unlocks = (action == UNLOCK) & (facing == LOCKED) & (state.carrying == 1)
        facing = jnp.where(takes, FLOOR, jnp.where(unlocks, OPEN, facing))
        next_state = KeyDoorState(
            state.cells.at[ahead[0], ahead[1]].set(facing),
            jnp.where(enters, ahead, state.agent),
            heading,
            jnp.where(takes, 1, state.carrying),
            state.time + 1,
        )
        terminated = enters & (facing == GOAL)
        late = next_state.time.astype(jnp.float32) / self.time_limit
        reward = jnp.where(terminated, 1.0 - TIME_COST * late, 0.0)
        return next_state, self._observe(next_state), reward, terminated, next_state.time >= self.time_limit

    def render(self, state: KeyDoorState) -> UInt8[np.ndarray, "h w 3"]:
        cells, agent = np.asarray(state.cells), np.asarray(state.agent)
        return draw_key_door(cells, agent, int(state.heading), bool(state.carrying))


def fewest_steps(state: KeyDoorState) -> int:
    """Length of the shortest way from `state` to the goal, found breadth first on the host."""
    cells = np.asarray(state.cells)
    place, heading = tuple(map(int, state.agent)), int(state.heading)
    start = (*place, heading, bool(state.carrying), bool((cells == OPEN).any()))
    steps, waiting = {start: 0}, deque([start])
    while waiting:
        now = waiting.popleft()
        row, column, heading, carrying, opened = now
        ahead = (row + int(AHEAD[heading, 0]), column + int(AHEAD[heading, 1]))
        facing = int(cells[ahead])
        if facing == GOAL:
            return steps[now] + 1
        free = facing in (FLOOR, OPEN) or (facing == KEY and carrying) or (facing == LOCKED and opened)
        near = [(row, column, (heading + turn) % len(AHEAD), carrying, opened) for turn in (1, -1)]
        near += [(*ahead, heading, carrying, opened)] if free else []
        near += [(row, column, heading, True, opened)] if facing == KEY else []
        near += [(row, column, heading, carrying, True)] if facing == LOCKED and carrying else []
        for state_after in near:
            if state_after not in steps:
                steps[state_after] = steps[now] + 1
                waiting.append(state_after)
    raise ValueError("the goal cannot be reached from here")
