"""R, the replay buffer of Algorithm 1: every transition seen so far, in fixed arrays."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from e3rl.types import Key, Trajectory


class Transitions(NamedTuple):
    """Steps of episodes, one a row. `time` is the step within its episode, an input of finite-horizon models."""

    obs: Shaped[Array, "N *obs"]
    action: Int[Array, " N"]
    time: Int[Array, " N"]
    reward: Float[Array, " N"]
    next_obs: Shaped[Array, "N *obs"]
    terminated: Bool[Array, " N"]


class Replay(NamedTuple):
    """The buffer: rows [0, size) are filled, rows [recent, size) came with the last epoch."""

    rows: Transitions
    size: Int[Array, ""]
    recent: Int[Array, ""]

    @staticmethod
    def empty(capacity: int, obs: Shaped[Array, "*obs"]) -> "Replay":
        """Room for `capacity` transitions whose observations look like `obs`."""
        frames = jnp.zeros((capacity, *obs.shape), obs.dtype)
        count = jnp.zeros(capacity, jnp.int32)
        flag = jnp.zeros(capacity, bool)
        rows = Transitions(frames, count, count, jnp.zeros(capacity), frames, flag)
        return Replay(rows, jnp.array(0, jnp.int32), jnp.array(0, jnp.int32))

    def append(self, episodes: Trajectory) -> "Replay":
        """Add one epoch's episodes [n, H], dropping the padding after their ends."""
        n, horizon = episodes.valid.shape
        time = jnp.broadcast_to(jnp.arange(horizon, dtype=jnp.int32), (n, horizon))
        new = Transitions(
            episodes.obs, episodes.action, time, episodes.reward, episodes.next_obs, episodes.terminated
        )
        valid = episodes.valid.reshape(-1)
        capacity = self.rows.action.shape[0]
        position = self.size + jnp.cumsum(valid, dtype=jnp.int32) - 1
        slot = jnp.where(valid, position, capacity)  # a slot past the end is dropped

        def put(old: Array, rows: Array) -> Array:
            return old.at[slot].set(rows.reshape(-1, *old.shape[1:]).astype(old.dtype), mode="drop")

        size = jnp.minimum(self.size + jnp.sum(valid, dtype=jnp.int32), capacity)
        return Replay(jax.tree.map(put, self.rows, new), size, self.size)

    def sample(self, key: Key, batch: int, recent_share: float = 0.0) -> Transitions:
        """`batch` rows, uniformly; or with probability `recent_share` from the last epoch and otherwise from the
        epochs before it (App. B.1), by rows rather than whole trajectories."""
        key_row, key_recent = jax.random.split(key)
        index = jax.random.randint(key_row, (batch,), 0, self.size)
        if recent_share > 0.0:
            key_early, key_late, key_choice = jax.random.split(key_recent, 3)
            end_of_early = jnp.where(self.recent > 0, self.recent, self.size)
            early = jax.random.randint(key_early, (batch,), 0, end_of_early)
            late = jax.random.randint(key_late, (batch,), self.recent, self.size)
            index = jnp.where(jax.random.bernoulli(key_choice, recent_share, (batch,)), late, early)
        return jax.tree.map(lambda leaf: leaf[index], self.rows)
