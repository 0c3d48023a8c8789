"""R, the replay buffer of Algorithm 1: every transition seen so far, in fixed arrays."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped

from e3rl.types import Key, Trajectory

NO_BOUND = 1e9
"""From here on a bound is none: spaces are often declared with the largest number there is."""


def bounded_entries(
    low: Float[np.ndarray, "*obs"], high: Float[np.ndarray, "*obs"]
) -> Bool[np.ndarray, "*obs"]:
    return np.maximum(np.abs(low), np.abs(high)) < NO_BOUND


class Transitions(NamedTuple):
    """Steps of episodes, one a row. `time` is the step within its episode, an input of finite-horizon models."""

    obs: Shaped[Array, "..."]
    action: Int[Array, "*N"]
    time: Int[Array, "*N"]
    reward: Float[Array, "*N"]
    next_obs: Shaped[Array, "..."]
    terminated: Bool[Array, "*N"]


class Scale(NamedTuple):
    """What 0 and 1 mean for every entry of an observation: models and values see (obs − low) / (high − low)."""

    low: Float[Array, "*obs"]
    high: Float[Array, "*obs"]

    def __call__(self, obs: Shaped[Array, "..."]) -> Float[Array, "..."]:
        span = jnp.where(self.high > self.low, self.high - self.low, 1.0)
        return (obs.astype(jnp.float32) - self.low) / span


class Blurred(NamedTuple):
    """Entries of observations that are dice (`models/dice.py`), as they are shown to those who foretell them."""

    unforeseen: Bool[Array, "A D"]
    """Told by nothing that was but the action: replaced by their mean after it."""
    mean: Float[Array, "A D"]

    def after(self, next_obs: Float[Array, "B D"], action: Int[Array, " B"]) -> Float[Array, "B D"]:
        """Observations that are to be foretold."""
        return jnp.where(self.unforeseen[action], self.mean[action], next_obs)


class Replay(NamedTuple):
    """The buffer: rows [0, size) are filled, rows [recent, size) came with the last epoch. Rows are kept as they were
    observed; what is drawn comes scaled to [0, 1], by the bounds of the space or, where it has none, of the data."""

    rows: Transitions
    size: Int[Array, ""]
    recent: Int[Array, ""]
    scale: Scale
    bounded: Bool[Array, "*obs"]
    """Entries whose scale is given; the others' follow the data."""
    endings: Int[Array, " N"]
    """The rows on which an episode terminated, in order; the first `ended` count."""
    ended: Int[Array, ""]
    reward_unit: Float[Array, ""]
    """Rewards are drawn divided by this: the largest one seen, or 1 where they are taken as they are."""
    in_units: Bool[Array, ""]
    blurred: Blurred | None = None
    """How rows are shown to those who learn from them, where that is not as they were."""

    @staticmethod
    def empty(
        capacity: int,
        obs: Shaped[Array, "*obs"],
        low: Float[np.ndarray, "*obs"] | None = None,
        high: Float[np.ndarray, "*obs"] | None = None,
        reward_units: bool = False,
    ) -> "Replay":
        """Room for `capacity` transitions whose observations look like `obs` and lie within `low` and `high`, infinite
        (or enormous) where there is no bound. Without bounds, observations are taken to be in [0, 1]. With
        `reward_units` rewards are scaled too."""
        frames = jnp.zeros((capacity, *obs.shape), obs.dtype)
        count = jnp.zeros(capacity, jnp.int32)
        flag = jnp.zeros(capacity, bool)
        rows = Transitions(frames, count, count, jnp.zeros(capacity), frames, flag)
        low = np.zeros(obs.shape, np.float32) if low is None else low
        high = np.ones(obs.shape, np.float32) if high is None else high
        bounded = bounded_entries(low, high)
        scale = Scale(
            jnp.asarray(np.where(bounded, low, 0.0), jnp.float32),
            jnp.asarray(np.where(bounded, high, 1.0), jnp.float32),
        )
        none = jnp.array(0, jnp.int32)
        one, in_units = jnp.array(1.0, jnp.float32), jnp.array(reward_units)
        return Replay(rows, none, none, scale, jnp.asarray(bounded), count, none, one, in_units)

    @property
    def capacity(self) -> int:
        return self.rows.action.shape[0]

    def append(
        self,
        episodes: Trajectory,
        first: Int[Array, " n"] | None = None,
        same_epoch: Bool[Array, ""] | None = None,
    ) -> "Replay":
        """Add one epoch's episodes [n, H], dropping the padding after their ends. Parts of episodes say at which time
        step they begin (`first`) and whether others of the same epoch were added before them."""
        n, horizon = episodes.valid.shape
        time = jnp.broadcast_to(jnp.arange(horizon, dtype=jnp.int32), (n, horizon))
        time = time if first is None else time + first[:, None]
        new = Transitions(
            episodes.obs, episodes.action, time, episodes.reward, episodes.next_obs, episodes.terminated
        )
        valid = episodes.valid.reshape(-1)
        capacity = self.capacity
        position = self.size + jnp.cumsum(valid, dtype=jnp.int32) - 1
        slot = jnp.where(valid, position, capacity)  # a slot past the end is dropped

        def put(old: Array, rows: Array) -> Array:
            return old.at[slot].set(rows.reshape(-1, *old.shape[1:]).astype(old.dtype), mode="drop")

        size = jnp.minimum(self.size + jnp.sum(valid, dtype=jnp.int32), capacity)
        rows = jax.tree.map(put, self.rows, new)
        end = valid & episodes.terminated.reshape(-1) & (slot < capacity)
        place = jnp.where(end, self.ended + jnp.cumsum(end, dtype=jnp.int32) - 1, capacity)
        endings = self.endings.at[place].set(slot, mode="drop")
        ended = self.ended + jnp.sum(end, dtype=jnp.int32)
        recent = self.size if same_epoch is None else jnp.where(same_epoch, self.recent, self.size)
        largest = jnp.max(jnp.where(jnp.arange(capacity) < size, jnp.abs(rows.reward), 0.0))
        unit = jnp.where(self.in_units & (largest > 0.0), largest, 1.0)
        return Replay(
            rows,
            size,
            recent,
            self._rescaled(episodes, slot < capacity),
            self.bounded,
            endings,
            ended,
            unit,
            self.in_units,
            self.blurred,
        )

    def _rescaled(self, episodes: Trajectory, kept: Bool[Array, " nH"]) -> Scale:
        """The data's own range for entries without bounds, of which the rows before are within the old one."""
        both = [
            frames.reshape(-1, *frames.shape[2:]).astype(jnp.float32)
            for frames in (episodes.obs, episodes.next_obs)
        ]
        kept = kept.reshape(-1, *[1] * (both[0].ndim - 1))
        low = jnp.min(jnp.stack([jnp.min(jnp.where(kept, x, jnp.inf), axis=0) for x in both]), axis=0)
        high = jnp.max(jnp.stack([jnp.max(jnp.where(kept, x, -jnp.inf), axis=0) for x in both]), axis=0)
        old = self.scale
        begun = self.size > 0
        low = jnp.where(begun, jnp.minimum(old.low, low), low)
        high = jnp.where(begun, jnp.maximum(old.high, high), high)
        follow = ~self.bounded & (begun | jnp.any(kept))
        return Scale(jnp.where(follow, low, old.low), jnp.where(follow, high, old.high))

    def sample(
        self, key: Key, batch: int, recent_share: float = 0.0, ending_share: float = 0.0
    ) -> Transitions:
        """`batch` rows, uniformly; or with probability `recent_share` from the last epoch and otherwise from the
        epochs before it (App. B.1), by rows rather than whole trajectories; or with probability `ending_share` one on
        which an episode terminated. Entries that are dice come blurred."""
        return self.shown(self.draw(key, batch, 1, recent_share, ending_share))

    def shown(self, index: Int[Array, " B"]) -> Transitions:
        """The rows at `index`, blurred."""
        rows = self.take(index)
        if self.blurred is None:
            return rows
        return rows._replace(next_obs=self.blurred.after(rows.next_obs, rows.action))

    def evenly(self, count: int) -> Transitions:
        """`count` rows, evenly from the first to the last."""
        return self.take(jnp.arange(count) * jnp.maximum(self.size - 1, 0) // (count - 1))

    def newest(self, count: int) -> tuple[Transitions, Bool[Array, " {count}"]]:
        """The rows of the last epoch, and which of `count` there are."""
        index = self.recent + jnp.arange(count, dtype=jnp.int32)
        return self.take(jnp.minimum(index, self.size - 1)), index < self.size

    def segments(self, first: Int[Array, " B"], length: int) -> tuple[Transitions, Bool[Array, "B {length}"]]:
        """Segments of `length` consecutive rows that begin at `first`, and which of their steps belong to the episode
        of the first: a segment that reaches its episode's end goes on with rows that do not count."""
        step = jnp.arange(length, dtype=jnp.int32)
        index = first[:, None] + step
        rows = self.take(jnp.minimum(index, self.size - 1))
        return rows, (index < self.size) & (rows.time == rows.time[:, :1] + step)

    def starts(self, count: int) -> Shaped[Array, "{count} ..."]:
        """The first observations of the first `count` episodes, over again where there were fewer."""
        first = (self.rows.time == 0) & (jnp.arange(self.rows.time.shape[0]) < self.size)
        found = jnp.nonzero(first, size=count, fill_value=0)[0]
        episodes = jnp.maximum(jnp.minimum(jnp.sum(first), count), 1)
        return self.take(found[jnp.arange(count) % episodes]).obs

    def take(self, index: Int[Array, "*B"]) -> Transitions:
        """The rows at `index`, observations and rewards scaled."""
        rows = jax.tree.map(lambda leaf: leaf[index], self.rows)
        return rows._replace(
            obs=self.scale(rows.obs),
            next_obs=self.scale(rows.next_obs),
            reward=rows.reward / self.reward_unit,
        )

    def draw(
        self, key: Key, batch: int, length: int = 1, recent_share: float = 0.0, ending_share: float = 0.0
    ) -> Int[Array, " {batch}"]:
        """The indices of `batch` first rows of segments."""
        key_row, key_recent = jax.random.split(key)
        index = jax.random.randint(key_row, (batch,), 0, self.size)
        if recent_share > 0.0:
            key_early, key_late, key_choice = jax.random.split(key_recent, 3)
            end_of_early = jnp.where(self.recent > 0, self.recent, self.size)
            early = jax.random.randint(key_early, (batch,), 0, end_of_early)
            late = jax.random.randint(key_late, (batch,), self.recent, self.size)
            index = jnp.where(jax.random.bernoulli(key_choice, recent_share, (batch,)), late, early)
        if ending_share > 0.0:
            key_which, key_offset, key_choice = jax.random.split(jax.random.fold_in(key, 1), 3)
            ending = self.endings[jax.random.randint(key_which, (batch,), 0, self.ended)]
            # The ending falls on any step of the segment, which does not begin before its episode.
            offset = jax.random.randint(key_offset, (batch,), 0, length)
            ending -= jnp.minimum(offset, self.rows.time[ending])
            chosen = jax.random.bernoulli(key_choice, ending_share, (batch,)) & (self.ended > 0)
            index = jnp.where(chosen, ending, index)
        return index
