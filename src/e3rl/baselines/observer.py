"""What a baseline sees of an observation."""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from e3rl.envs.encoding import Encoding
from e3rl.replay import bounded_entries
from e3rl.types import UserError


class Observer:
    """Encodes observations of `space` and scales them to [0, 1] where the space has bounds; entries without bounds stay
    as they are. With a `horizon`, a one-hot of the time step follows, all zeros once the episode is over."""

    shape: tuple[int, ...]

    def __init__(self, space: gymnasium.Space, horizon: int | None = None):
        self.encoding = Encoding(space)
        shape = self.encoding.shape
        if horizon is not None and len(shape) > 1:
            raise UserError(f"clock needs observations that are vectors, not images of shape {shape}")
        self.shape = shape if horizon is None else (shape[0] + horizon,)
        low, high = self.encoding.low, self.encoding.high
        bounded = bounded_entries(low, high) & (high > low)
        self._low = np.where(bounded, low, 0.0).astype(np.float32)
        self._span = np.where(bounded, high - self._low, 1.0).astype(np.float32)
        self._hands = None if horizon is None else np.eye(horizon + 1, horizon, dtype=np.float32)

    def __call__(self, obs: Any, time: Any) -> Any:
        """An observation of the space, at a step of its episode."""
        return self.scaled(self.encoding.encode(obs), time)

    def scaled(self, encoded: Any, time: Any) -> Any:
        """An observation that is encoded already; NumPy in, NumPy out."""
        scaled = (encoded - self._low) / self._span
        if self._hands is None:
            return scaled
        xp = jnp if isinstance(scaled, jax.Array) else np
        return xp.concatenate([scaled, xp.asarray(self._hands)[time]])


def horizon_of(limit: int | None, clock: bool) -> int | None:
    """The length of the observer's clock in an environment of that time limit, None where there is to be none."""
    if clock and limit is None:
        raise UserError("clock needs an environment with a time limit")
    return limit if clock else None
