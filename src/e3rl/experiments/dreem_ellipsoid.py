"""A run of DREEM whose misfit matrices have rank 2, to show Lemma 3's ellipsoids on."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from e3rl.dreem.algorithm import Dreem, Result
from e3rl.dreem.distributions import Policies
from e3rl.dreem.ellipsoid import SHRINKAGE
from e3rl.dreem.iteration_complexity import ReplayedRound, replay
from e3rl.dreem.model_class import ModelClass
from e3rl.dreem.policies import optimal_policies, stationary_policies
from e3rl.dreem.rank import Factorisation, misfit_matrices

ROOM = 3
"""States of each of the two rooms."""
HORIZON, MODELS = 2, 400
EPSILON, N, PHI = 0.3, 20_000, 0.05


@dataclass(frozen=True)
class EllipsoidRun:
    result: Result
    rounds: list[ReplayedRound]
    factors: list[Factorisation]
    phi: float
    n: int
    rounds_bound: float
    """T of Lemma 3 with this φ and the largest β of the embeddings."""

    def summary(self) -> dict[str, Any]:
        return {
            "phi": self.phi,
            "n": self.n,
            "rank": [each.rank for each in self.factors],
            "beta": [each.beta for each in self.factors],
            "finished": self.result.finished,
            "models_left": len(self.result.models_left),
            "rounds_bound": self.rounds_bound,
            "rounds": self.rows(),
        }

    def rows(self) -> list[dict[str, Any]]:
        """A row per round, as it is printed."""
        return [
            {
                "round": t + 1,
                "step": row.step,
                "largest_misfit": round(row.largest_misfit, 4),
                "premise": row.volumes.applies,
                "models_before": int(row.left.sum()),
                "models_after": int(row.kept.sum()),
                "volume_ratio": round(row.volumes.ratio, 6),
                "sliced_ratio": round(row.volumes.sliced_ratio, 6),
                "body_ratio": round(row.body_ratio, 6),
                "bound": SHRINKAGE,
            }
            for t, row in enumerate(self.rounds)
        ]


def two_rooms(seed: int = 0) -> tuple[ModelClass, Policies]:
    """Two rooms of three states: the action chooses the room, chance the place in it, so Γ has rank 2.

    The first model is the truth. The others are wrong in either room by an amount of their own, over two orders of
    magnitude: what they get wrong in the rooms are the two coordinates that policies can tell apart.
    """
    rng = np.random.default_rng(seed)
    states = 2 * ROOM
    room = np.arange(states) // ROOM
    places = rng.dirichlet(np.ones(ROOM), size=2)
    emit = np.zeros((2, states))
    emit[0, :ROOM], emit[1, ROOM:] = places
    latent = np.tile([[0.9, 0.1], [0.1, 0.9]], (states, 1, 1))  # [S, A, room]
    truth = latent @ emit
    wrong = rng.dirichlet(np.full(states, 0.3), size=(MODELS, states, 2))
    share = 10.0 ** rng.uniform(-2.0, 0.0, (MODELS, 2))
    share[0] = 0.0
    weight = share[:, room][:, :, None, None]
    weight[:, 0] = 0.0  # the start is known, so that nothing is learnt without choosing a room
    rewards = np.zeros(states)
    rewards[-1] = 1.0
    start = np.eye(states)[0]
    models = ModelClass((1 - weight) * truth + weight * wrong, rewards, start, HORIZON)
    best, _ = optimal_policies(models.transitions, models.rewards)
    return models, np.unique(np.concatenate([stationary_policies(states, 2, HORIZON), best]), axis=0)


@cache
def run(seed: int = 0, theorem: bool = False) -> EllipsoidRun:
    """DREEM with a practical φ, large enough to be seen, or with the theorem's; then Lemma 3 replayed on the policies
    that were explored."""
    models, policies = two_rooms(seed)
    n, phi = (None, None) if theorem else (N, PHI)
    dreem = Dreem(models, policies, epsilon=EPSILON, rank=2, n=n, phi=phi)
    result = dreem.learn(models.environment(0), seed)
    matrices = misfit_matrices(models.transitions, models.transitions[0], models.start, policies)
    rounds, factors = replay(matrices, [row.policy for row in result.rounds], dreem.phi)
    beta, d = max(each.beta for each in factors), max(each.rank for each in factors)
    bound = HORIZON * d * np.log(beta / (2 * dreem.phi)) / np.log(1 / SHRINKAGE)
    return EllipsoidRun(result, rounds, factors, dreem.phi, dreem.n, float(bound))
