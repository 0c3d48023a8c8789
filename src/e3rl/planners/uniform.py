"""Nobody plans: uniformly random actions, the exploration of UE² (section 5.2)."""

from dataclasses import dataclass
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Shaped

from e3rl.models.base import Problem
from e3rl.planners.base import AbstractPlanner, Plan, Policy, single
from e3rl.types import Key
from e3rl.values.imagined import Utility


@dataclass(frozen=True)
class Uniform(AbstractPlanner):
    """Every action with the same chance."""

    estimates: ClassVar[bool] = False

    def plan(
        self,
        policy: Policy,
        obs: Shaped[Array, "*obs"],
        time: Int[Array, ""],
        key: Key,
        utility: Utility,
        problem: Problem,
    ) -> Plan:
        return single(jax.random.randint(key, (), 0, problem.actions), jnp.array(jnp.inf))
