"""A finite class of models that share start and rewards, checked once: the 𝓜 of Algorithm 1."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from e3rl.dreem.distributions import Models, per_step
from e3rl.envs.tabular import ROW_TOLERANCE, TabularMDP
from e3rl.types import UserError

MAX_BYTES = 2**30
"""Of a class's tables; planning needs about as much again."""


class ModelClass:
    """Tables [M, S, A, S], or [M, H, S, A, S] for dynamics that depend on time; R(s) in [0, 1] is known (section 2)."""

    def __init__(self, transitions: ArrayLike, rewards: ArrayLike, start: ArrayLike, horizon: int):
        tables = _numbers("models", transitions)
        self.rewards, self.start = _numbers("rewards", rewards), _numbers("start", start)
        if horizon < 1:
            raise UserError(f"horizon must be at least 1, got {horizon}")
        if tables.size == 0:
            raise UserError("the model class is empty: it needs at least one model")
        shape = tables.shape
        if len(shape) not in (4, 5) or shape[-1] != shape[-3]:
            raise UserError(f"models must have shape [M, S, A, S] or [M, H, S, A, S], got {list(shape)}")
        if len(shape) == 5 and shape[1] != horizon:
            raise UserError(f"models hold {shape[1]} time steps, the horizon is {horizon}")
        for name, vector in (("rewards", self.rewards), ("start", self.start)):
            if vector.shape != shape[-1:]:
                raise UserError(f"{name} must have shape [{shape[-1]}], got {list(vector.shape)}")
        if tables.nbytes > MAX_BYTES:
            fits = MAX_BYTES // tables[0].nbytes
            raise UserError(
                f"{len(tables)} models take {tables.nbytes / 2**30:.1f} GiB; "
                f"at most {fits} of this size fit in {MAX_BYTES / 2**30:.0f} GiB"
            )
        _check_rows("models", tables)
        _check_rows("start", self.start)
        outside = np.flatnonzero(~((self.rewards >= 0.0) & (self.rewards <= 1.0)))
        if len(outside):
            raise UserError(f"rewards[{outside[0]}] must lie in [0, 1], got {self.rewards[outside[0]]}")
        # The bounds of planning are exact for rows that sum to 1 up to rounding.
        self.transitions: Models = per_step(_renormalised(tables), horizon)
        self.start = _renormalised(self.start)

    @classmethod
    def of(cls, mdps: Sequence[TabularMDP]) -> "ModelClass":
        """The class of the given MDPs, which must agree on start, rewards and horizon."""
        if not mdps:
            raise UserError("the model class is empty: it needs at least one model")
        first = mdps[0]
        for k, mdp in enumerate(mdps):
            if mdp.transitions_per_step.shape != first.transitions_per_step.shape:
                raise UserError(f"models 0 and {k} differ in states, actions or horizon")
            if not (np.array_equal(mdp.rewards, first.rewards) and np.array_equal(mdp.start, first.start)):
                raise UserError(f"models 0 and {k} differ in rewards or start, which the agent knows")
        stationary = all(mdp.stationary for mdp in mdps)
        tables = [np.asarray(mdp.transitions if stationary else mdp.transitions_per_step) for mdp in mdps]
        return cls(np.stack(tables), np.asarray(first.rewards), np.asarray(first.start), first.horizon)

    def __len__(self) -> int:
        return len(self.transitions)

    @property
    def horizon(self) -> int:
        return self.transitions.shape[1]

    @property
    def num_states(self) -> int:
        return self.transitions.shape[2]

    @property
    def num_actions(self) -> int:
        return self.transitions.shape[3]

    def subset(self, kept: Int[np.ndarray, " m"]) -> Models:
        """The tables of some models, still a view over time where the dynamics are stationary."""
        if self.transitions.strides[1] == 0:
            return per_step(self.transitions[kept, 0], self.horizon)
        return self.transitions[kept]

    def environment(self, k: int) -> TabularMDP:
        """Model k as an environment, for instance as the truth of an experiment."""
        return TabularMDP(self.transitions[k], self.rewards, self.start, self.horizon)


def _numbers(name: str, table: ArrayLike) -> Float[np.ndarray, "..."]:
    try:
        return np.array(table, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} must be an array of numbers: {error}") from error


def _check_rows(name: str, table: Float[np.ndarray, "..."]) -> None:
    sums = table.sum(axis=-1)
    bad = ~np.all(table >= 0.0, axis=-1) | ~(np.abs(sums - 1.0) <= ROW_TOLERANCE)  # so that NaN counts as bad
    if not bad.any():
        return
    row = tuple(int(i) for i in np.argwhere(bad)[0])
    place = f"{name}[{', '.join(map(str, row))}]" if row else name
    lowest = table[row].min()
    if not lowest >= 0.0:
        raise UserError(f"{place} holds an entry that is not a probability: {lowest}")
    raise UserError(f"{place} sums to {sums[row]}, not to 1")


def _renormalised(rows: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """Rows that miss 1 by more than rounding are divided by their sum, the others stay as they are."""
    sums = rows.sum(axis=-1, keepdims=True)
    rounding = 4.0 * rows.shape[-1] * float(np.finfo(np.float64).eps)
    return np.where(np.abs(sums - 1.0) > rounding, rows / sums, rows)
