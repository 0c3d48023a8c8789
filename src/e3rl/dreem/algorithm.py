"""DREEM: Algorithm 1 filled with exact planning over Π and elimination of models (section 3)."""

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from e3rl.dreem.eliminate import update_model_set
from e3rl.dreem.explore import Exploration, best_policy
from e3rl.dreem.model_class import ModelClass
from e3rl.dreem.policies import listed_policies, policy_values, require_optimal
from e3rl.dreem.sampling import check_trajectories, sample_counts
from e3rl.dreem.theory import Constants, check_fraction, constants
from e3rl.e3 import Epoch, Slots, explicit_explore_exploit, small_disagreement
from e3rl.envs.tabular import TabularMDP
from e3rl.types import UserError

Replay = tuple[Int[np.ndarray, "H S A S"], ...]


class Round(NamedTuple):
    """One pass through lines 5 to 8 of Algorithm 1."""

    policy: int
    v_explore: float
    models_before: int
    models_left: int
    misfits: Float[np.ndarray, "M H"]
    """W̃ of the models before the round, exact where φ is near (see `eliminate.misfits_around`)."""


@dataclass
class Result:
    policy: Int[np.ndarray, "H S"]
    """π_exploit."""
    policy_index: int
    value: float
    """v_exploit of it in the chosen model M̃."""
    v_explore: float
    """When exploration ended."""
    finished: bool
    """Whether v_explore ≤ ε/|A| was reached, rather than the limit of rounds."""
    models_left: Int[np.ndarray, " m"]
    trajectories: int
    """n·H a round."""
    env_steps: int
    rounds: list[Round] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "policy_index": self.policy_index,
            "policy": self.policy.tolist(),
            "value": self.value,
            "v_explore": self.v_explore,
            "finished": self.finished,
            "models_left": self.models_left.tolist(),
            "trajectories": self.trajectories,
            "env_steps": self.env_steps,
            "rounds": [
                {
                    "policy": r.policy,
                    "v_explore": r.v_explore,
                    "models_before": r.models_before,
                    "models_left": r.models_left,
                    "misfit_max": float(r.misfits.max()),
                }
                for r in self.rounds
            ],
        }


class Dreem:
    """DREEM for a class of models and a class of policies.

    With `rank` given (d of Theorem 1) it runs with the theorem's φ, T and n. Practical mode: `n`, `phi` or
    `max_rounds` replace the theorem's. Without any rank, d = |S| holds by Proposition 1.
    """

    def __init__(
        self,
        models: ModelClass,
        policies: ArrayLike,
        *,
        epsilon: float = 0.1,
        delta: float = 0.1,
        rank: int | None = None,
        beta: float | None = None,
        n: int | None = None,
        phi: float | None = None,
        max_rounds: int | None = None,
        check_policies: bool = True,
    ):
        check_fraction("epsilon", epsilon)
        check_fraction("delta", delta)
        self.models, self.policies = models, listed_policies(policies, models)
        self.epsilon, self.delta = epsilon, delta
        self.theory: Constants = constants(
            models.horizon,
            models.num_actions,
            models.num_states if rank is None else rank,
            epsilon,
            delta,
            len(models),
            len(self.policies),
            beta,
        )
        self.n = check_trajectories(self.theory.n if n is None else n)
        self.phi = self.theory.phi if phi is None else phi
        if not self.phi > 0.0:
            raise UserError(f"phi must be above 0, got {self.phi}")
        self.max_rounds = math.floor(self.theory.rounds) if max_rounds is None else max_rounds
        if check_policies:
            require_optimal(models, self.policies)

    def learn(self, env: TabularMDP, seed: int | np.random.Generator = 0) -> Result:
        """Algorithm 1 in `env`, whose transitions are used only to draw trajectories."""
        true_model = self._tables(env)
        rng = np.random.default_rng(seed)
        rounds: list[Round] = []
        # The set of models often stays the same for some rounds, and so does the argmax.
        planned: dict[int, Exploration] = {}

        def plan(kept: Int[np.ndarray, " m"], replay: Replay, before: Any, t: int) -> tuple[int, float]:
            if len(kept) not in planned:  # the sets are nested, so their size tells them apart
                planned[len(kept)] = best_policy(self.models.subset(kept), self.models.start, self.policies)
            found = planned[len(kept)]
            return found.policy, found.value

        def stop(t: int, v_explore: float) -> bool:
            return (
                small_disagreement(v_explore, self.epsilon, self.models.num_actions) or t >= self.max_rounds
            )

        def collect(policy: int, replay: Replay, t: int) -> tuple[Replay, None]:
            drawn = sample_counts(rng, true_model, self.models.start, self.policies[policy], self.n)
            return (drawn,), None  # Algorithm 2 uses the last policy's data only

        def update(
            kept: Int[np.ndarray, " m"], replay: Replay, t: int
        ) -> tuple[Int[np.ndarray, " k"], tuple[int, Float[np.ndarray, "m H"]]]:
            left, misfits = update_model_set(kept, self.models.subset(kept), replay[-1], self.phi)
            return left, (len(kept), misfits)

        def write_down(epoch: Epoch) -> None:
            before, misfits = epoch.fitted
            rounds.append(Round(epoch.policy, epoch.v_explore, before, len(epoch.models), misfits))

        def exploit(kept: Int[np.ndarray, " m"], replay: Replay, v_explore: float) -> Result:
            values = policy_values(self.models, kept[:1], self.policies)[0]  # any M̃ of those left will do
            best = int(values.argmax())
            horizon, played = self.models.horizon, len(rounds) * self.n
            return Result(
                policy=self.policies[best],
                policy_index=best,
                value=float(values[best]),
                v_explore=v_explore,
                finished=small_disagreement(v_explore, self.epsilon, self.models.num_actions),
                models_left=kept,
                trajectories=played * horizon,
                env_steps=played * horizon * (horizon + 1) // 2,
                rounds=rounds,
            )

        slots = Slots(plan, stop, collect, update, exploit)
        return explicit_explore_exploit(np.arange(len(self.models)), (), slots, after_epoch=write_down)

    def _tables(self, env: TabularMDP) -> Float[np.ndarray, "H S A S"]:
        tables = np.asarray(env.transitions_per_step)
        if tables.shape != self.models.transitions.shape[1:]:
            raise UserError(
                f"the environment's tables [H, S, A, S] are {list(tables.shape)}, "
                f"the models' {list(self.models.transitions.shape[1:])}"
            )
        if not np.allclose(env.start, self.models.start, rtol=0.0, atol=1e-12):
            raise UserError("the environment starts from another distribution than the models")
        return tables


def policy_return(env: TabularMDP, policy: Int[np.ndarray, "H S"]) -> float:
    """v_π in the true MDP, exact."""
    occupancy, total = np.asarray(env.start), 0.0
    for h in range(env.horizon):
        occupancy = occupancy @ env.transitions_per_step[h, np.arange(env.num_states), policy[h]]
        total += float(occupancy @ np.asarray(env.rewards))
    return total
