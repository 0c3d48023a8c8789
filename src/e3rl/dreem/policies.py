"""Policy classes as stacks [P, H, S] of actions: all of a kind, or a list; and whether one is rich enough."""

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from e3rl.dreem.distributions import Models, Policies, state_distributions, v_exploit
from e3rl.dreem.model_class import ModelClass
from e3rl.types import UserError

MAX_BYTES = 2**30
OPTIMAL_TOLERANCE = 1e-9
CHUNK = 2**22
"""Occupancy entries held at once."""


def stationary_policies(num_states: int, num_actions: int, horizon: int) -> Policies:
    """All |A|^|S| deterministic policies that ignore the time."""
    every = _all_maps(num_states, num_actions, f"{num_actions}^{num_states} stationary policies", horizon)
    return np.repeat(every[:, None], horizon, axis=1)


def time_dependent_policies(num_states: int, num_actions: int, horizon: int) -> Policies:
    """All |A|^(|S| H) deterministic policies."""
    cells = num_states * horizon
    every = _all_maps(cells, num_actions, f"{num_actions}^{cells} time-dependent policies", 1)
    return every.reshape(-1, horizon, num_states)


def listed_policies(policies: ArrayLike, models: ModelClass) -> Policies:
    """A given list [P, H, S], or [P, S] of stationary ones, checked against the model class."""
    given = np.asarray(policies)
    if given.size == 0:
        raise UserError("the policy class is empty: it needs at least one policy")
    if given.dtype.kind not in "iu":
        raise UserError(f"policies must hold action numbers, got {given.dtype}")
    wanted = (models.horizon, models.num_states)
    if given.shape[1:] == wanted[1:]:
        given = np.repeat(given[:, None], models.horizon, axis=1)
    if given.shape[1:] != wanted:
        raise UserError(f"policies must have shape [P, {wanted[0]}, {wanted[1]}], got {list(given.shape)}")
    if given.min() < 0 or given.max() >= models.num_actions:
        raise UserError(
            f"policies must hold actions from 0 to {models.num_actions - 1}, "
            f"got {given.min()} to {given.max()}"
        )
    return given.astype(np.min_scalar_type(-models.num_actions))


def optimal_policies(
    transitions: Models, rewards: Float[np.ndarray, " S"]
) -> tuple[Int[np.ndarray, "M H S"], Float[np.ndarray, "M S"]]:
    """An optimal policy of every model and its value from every start state, by backward induction."""
    models, horizon, states = transitions.shape[:3]
    policies = np.empty((models, horizon, states), np.min_scalar_type(-transitions.shape[3]))
    values = np.zeros((models, states))
    for h in reversed(range(horizon)):
        q = np.einsum("msat,mt->msa", transitions[:, h], rewards + values)
        policies[:, h], values = q.argmax(axis=2), q.max(axis=2)
    return policies, values


def policy_values(
    models: ModelClass, kept: Int[np.ndarray, " m"], policies: Policies
) -> Float[np.ndarray, "m P"]:
    """v_exploit(π, M) of every policy in some models, in bounded memory."""
    values = np.empty((len(kept), len(policies)))
    step = max(1, CHUNK // (len(policies) * (models.horizon + 1) * models.num_states))
    for low in range(0, len(kept), step):
        some = models.subset(kept[low : low + step])
        values[low : low + step] = v_exploit(
            state_distributions(some, models.start, policies), models.rewards
        )
    return values


def require_optimal(models: ModelClass, policies: Policies) -> None:
    """Assumption 1 on Π: it holds an optimal policy for every model."""
    _, optimal = optimal_policies(models.transitions, models.rewards)
    best = policy_values(models, np.arange(len(models)), policies).max(axis=1)
    short = optimal @ models.start - best
    worst = int(short.argmax())
    if short[worst] > OPTIMAL_TOLERANCE:
        raise UserError(
            f"the policy class lacks optimal policies for {np.sum(short > OPTIMAL_TOLERANCE)} of {len(models)} "
            f"models (model {worst}: its best is {short[worst]:.3g} below the optimum); "
            f"add `optimal_policies` to it"
        )


def _all_maps(cells: int, num_actions: int, what: str, copies: int) -> Int[np.ndarray, "P cells"]:
    dtype = np.min_scalar_type(-num_actions)
    count = num_actions**cells
    size = cells * copies * dtype.itemsize
    if count * size > MAX_BYTES:
        raise UserError(
            f"{what} take {count * size / 2**30:.3g} GiB; at most {MAX_BYTES // size} of this size fit in "
            f"{MAX_BYTES / 2**30:.0f} GiB: take fewer states or steps, or list the policies"
        )
    places = num_actions ** np.arange(cells - 1, -1, -1, dtype=np.int64)
    return (np.arange(count)[:, None] // places % num_actions).astype(dtype)
