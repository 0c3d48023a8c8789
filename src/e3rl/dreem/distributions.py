"""State distributions, disagreement and values of whole model and policy classes, exact in float64 (sections 2 and 3).

Axes: M models, P policies, H steps, S states, A actions. A model class is a stack `transitions[M, H, S, A, S]`, where
entry [m, h, s, a, s'] is the chance that action a, taken in s at time h = 0 … H−1, leads to s'; `per_step` makes one
from stationary tables [M, S, A, S] without copying. A policy class is a stack `policies[P, H, S]` of actions.
Occupancies are `occupancy[M, P, H+1, S]`: entry [m, p, h] is P_M^{π,h}, from the start distribution at h = 0 on.
Where the paper counts h = 1 … H (D, W, rewards), arrays hold step h at index h − 1.
"""

import numpy as np
from jaxtyping import Float, Int

from e3rl.planners.utility import total_variation

Models = Float[np.ndarray, "M H S A S"]
Policies = Int[np.ndarray, "P H S"]


def per_step(
    transitions: Float[np.ndarray, "M S A S"] | Float[np.ndarray, "M H S A S"], horizon: int
) -> Float[np.ndarray, "M {horizon} S A S"]:
    """Tables for every step, a read-only view where the dynamics are stationary."""
    if transitions.ndim == 5:
        return transitions
    models, states, actions, _ = transitions.shape
    return np.broadcast_to(transitions[:, None], (models, horizon, states, actions, states))


def state_distributions(
    transitions: Models, start: Float[np.ndarray, " S"], policies: Policies
) -> Float[np.ndarray, "M P H+1 S"]:
    """P_M^{π,h} for h = 0 … H: the occupancies of every model under every policy."""
    models, horizon, states = transitions.shape[:3]
    occupancy = np.empty((models, len(policies), horizon + 1, states))
    occupancy[:, :, 0] = start
    for h in range(horizon):
        occupancy[:, :, h + 1] = advance(transitions[:, h], occupancy[:, :, h], policies[:, h])
    return occupancy


def advance(
    transitions: Float[np.ndarray, "M S A S"],
    occupancy: Float[np.ndarray, "M P S"],
    actions: Int[np.ndarray, "P S"],
) -> Float[np.ndarray, "M P S"]:
    """One step: Σ_s occupancy(s) P_M(s' | s, π(s)), a matrix product per action."""
    reached = (occupancy * (actions == 0)) @ transitions[:, :, 0]
    for a in range(1, transitions.shape[2]):
        reached += (occupancy * (actions == a)) @ transitions[:, :, a]
    return reached


def disagreement(
    first: Float[np.ndarray, "H S A S"],
    second: Float[np.ndarray, "H S A S"],
    first_occupancy: Float[np.ndarray, "P H+1 S"],
    second_occupancy: Float[np.ndarray, "P H+1 S"],
) -> Float[np.ndarray, "P H"]:
    """D(π, M, M', h) of one pair for h = 1 … H, the last action uniform (section 3's definition).

    D = 1/|A| Σ_{s,a,s'} |P_M^{π,h−1}(s) P_M(s'|s,a) − P_M'^{π,h−1}(s) P_M'(s'|s,a)|. The policy acts up to
    time h − 2 only, so its last step never matters.
    """
    horizon, states, actions, _ = first.shape
    total = np.zeros((len(first_occupancy), horizon))
    for h in range(horizon):
        for s in range(states):  # one state at a time keeps the temporaries at [P, A·S]
            mine = first_occupancy[:, h, s, None] * first[h, s].reshape(1, -1)
            theirs = second_occupancy[:, h, s, None] * second[h, s].reshape(1, -1)
            total[:, h] += total_variation(mine, theirs)
    return total / actions


def pairwise_disagreement(
    transitions: Models, occupancy: Float[np.ndarray, "M P H+1 S"]
) -> Float[np.ndarray, "M M P H"]:
    """D(π, M, M', h) of every pair and policy; for small classes, `explore.best_policy` for the others."""
    models, horizon = transitions.shape[:2]
    table = np.zeros((models, models, occupancy.shape[1], horizon))
    for i in range(models):
        for j in range(i):
            table[i, j] = table[j, i] = disagreement(
                transitions[i], transitions[j], occupancy[i], occupancy[j]
            )
    return table


def v_explore(
    transitions: Models, start: Float[np.ndarray, " S"], policies: Policies
) -> Float[np.ndarray, " P"]:
    """max_{M,M'} Σ_h D(π, M, M', h) of every policy (section 2), by going over all pairs; 0 for one model."""
    occupancy = state_distributions(transitions, start, policies)
    best = np.zeros(len(policies))
    for i in range(len(transitions)):
        for j in range(i):
            pair = disagreement(transitions[i], transitions[j], occupancy[i], occupancy[j])
            np.maximum(best, pair.sum(axis=1), out=best)
    return best


def v_exploit(
    occupancy: Float[np.ndarray, "M P H_plus_1 S"], rewards: Float[np.ndarray, " S"]
) -> Float[np.ndarray, "M P"]:
    """Σ_{h=1..H} Σ_s P_M^{π,h}(s) R(s), the value of every policy in every model (section 2)."""
    return occupancy[:, :, 1:].sum(axis=2) @ rewards
