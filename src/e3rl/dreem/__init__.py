"""DREEM: Algorithm 1 with an explicit model class and exact planning (section 3 and appendix A)."""

from e3rl.dreem.algorithm import Dreem, Result, policy_return
from e3rl.dreem.doubling import learn_unknown_rank
from e3rl.dreem.eliminate import RealizabilityError
from e3rl.dreem.model_class import ModelClass
from e3rl.dreem.policies import optimal_policies, stationary_policies, time_dependent_policies

__all__ = [
    "Dreem",
    "ModelClass",
    "RealizabilityError",
    "Result",
    "learn_unknown_rank",
    "optimal_policies",
    "policy_return",
    "stationary_policies",
    "time_dependent_policies",
]
