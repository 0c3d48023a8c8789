"""What every planner is: settings, and the plan that follows from them (Algorithm 1, lines 5 and 11)."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from e3rl.envs.playing.open_loop import Plans
from e3rl.models.base import Problem
from e3rl.models.ensemble import Ensemble
from e3rl.models.fit import ModelSet
from e3rl.replay import Replay, Scale
from e3rl.runs.settings import Settings
from e3rl.types import Key, Keys
from e3rl.values.imagined import Utility
from e3rl.values.update import QState

AT_ONCE = 32
"""Searches of a lane in one go on an accelerator: a graph holds every member's state in every node."""


class Policy(NamedTuple):
    """Who acts: the models, for planners that search; the value, for those that learn one; and the scale in which both
    see the world."""

    models: ModelSet
    value: QState | None
    scale: Scale


class Plan(NamedTuple):
    actions: Int[Array, " L"]
    """To be executed without looking; the first `length` count."""
    length: Int[Array, ""]
    value: Float[Array, ""]
    """What the plan is worth: v_explore where the utility is that of exploring."""
    memory: Any = None
    """What the planner wants to be reminded of when it plans on in the same episode."""


@dataclass(frozen=True)
class AbstractPlanner(Settings):
    """Plans for a utility of what the models predict: their disagreement to explore, predicted reward to exploit.

    A planner that learns a value has `fresh` and `prepare`; one that searches plans when it is asked to act.
    """

    open_loop: ClassVar[bool] = False
    """Whether plans are sequences to be carried out to their end, rather than one action at a time."""
    estimates: ClassVar[bool] = True
    """Whether v_explore is told between episodes; a search for that alone would cost too much."""
    from_models: ClassVar[bool] = True
    """Whether better models make better plans."""

    @property
    def plan_by_plan(self) -> bool:
        """Whether episodes are played by its plans, so that sequences are carried out and memories carried along,
        rather than by asking for an action at every step."""
        return self.open_loop

    @property
    def searches(self) -> bool:
        """Whether a plan takes much longer than calling for it: then only those that are wanted are made."""
        return self.open_loop

    @property
    def calibrated(self) -> bool:
        """Whether v_explore, or without one the unknown that episodes met (`planners/tried.py`), falls to zero where
        nothing is left to find, so that it can end exploration."""
        return False

    def patience(self, horizon: int) -> int:
        """Epochs in a row in which little must be left to find before exploration ends."""
        return 3

    def met_unknown(
        self, along: Float[Array, "n H"], utility: Utility, members: Ensemble, replay: Replay
    ) -> Float[Array, "n H"]:
        """How much of the disagreement `along` episodes was about what had not been tried before; infinite where that
        is not told."""
        return jnp.full_like(along, jnp.inf)

    def fresh(self, problem: Problem, key: Key) -> QState | None:
        """The value before any training; None where there is none."""
        return None

    def prepare(
        self,
        value: QState | None,
        models: ModelSet,
        replay: Replay,
        utility: Utility,
        problem: Problem,
        key: Key,
    ) -> QState | None:
        """The value brought up to date with the models and the experience."""
        return value

    def refine(
        self,
        value: QState | None,
        models: ModelSet,
        replay: Replay,
        utility: Utility,
        problem: Problem,
        key: Key,
        updates: int,
    ) -> QState | None:
        """Some more training after some more episodes (App. C.3)."""
        return value

    @abstractmethod
    def plan(
        self,
        policy: Policy,
        obs: Shaped[Array, "*obs"],
        time: Int[Array, ""],
        key: Key,
        utility: Utility,
        problem: Problem,
    ) -> Plan:
        """The plan from one observation at one time step."""

    def memory(self, problem: Problem) -> Any:
        """What is remembered at the beginning of an episode; None for planners that do not remember."""
        return None

    def plan_on(
        self,
        policy: Policy,
        obs: Shaped[Array, "*obs"],
        time: Int[Array, ""],
        key: Key,
        utility: Utility,
        problem: Problem,
        memory: Any,
    ) -> Plan:
        """`plan`, by one that remembers what it planned in this episode before."""
        return self.plan(policy, obs, time, key, utility, problem)

    def memories(self, problem: Problem, episodes: int) -> Any:
        """`memory` for several episodes."""
        return jax.tree.map(
            lambda leaf: jnp.broadcast_to(leaf, (episodes, *leaf.shape)), self.memory(problem)
        )

    def plan_many(
        self,
        policy: Policy,
        obs: Shaped[Array, "n *obs"],
        time: Int[Array, " n"],
        keys: Keys,
        running: Bool[Array, " n"],
        utility: Utility,
        problem: Problem,
        memory: Any = None,
    ) -> Plans:
        """The plans of several episodes; only those `running` matter."""

        def one(key: Key, obs: Shaped[Array, "*obs"], time: Int[Array, ""], memory: Any) -> Plans:
            found = self.plan_on(policy, obs, time, key, utility, problem, memory)
            return Plans(found.actions, found.length, found.memory)

        if not self.searches:
            return jax.vmap(one)(keys, obs, time, memory)
        shapes = jax.eval_shape(jax.vmap(one), keys, obs, time, memory)
        nothing = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        at_once = 1 if jax.default_backend() == "cpu" else AT_ONCE
        return for_those(running, one, (keys, obs, time, memory), nothing._replace(memory=memory), at_once)


def single(action: Int[Array, ""], value: Float[Array, ""]) -> Plan:
    """The plan of a planner that looks at every step."""
    return Plan(action[None], jnp.array(1, jnp.int32), value)


def for_those(
    wanted: Bool[Array, " n"], function: Callable[..., Any], inputs: tuple, otherwise: Any, at_once: int
) -> Any:
    """`function` of those rows of `inputs` that are `wanted`, `at_once` of them together; `otherwise` for the rest.
    What it costs grows with how many are wanted, over lanes with the most that any of them wants."""
    count = wanted.shape[0]
    at_once = min(at_once, count)
    first = jnp.argsort(~wanted)  # stable: the wanted rows, in their order
    first = jnp.pad(first, (0, -count % at_once), constant_values=count)

    def some(i: Int[Array, ""], found: Any) -> Any:
        rows = jax.lax.dynamic_slice_in_dim(first, i * at_once, at_once)
        some_inputs = jax.tree.map(lambda leaf: leaf[jnp.minimum(rows, count - 1)], inputs)
        if at_once == 1:  # a vmap over one would turn slices into gathers
            new = jax.tree.map(
                lambda leaf: leaf[None], function(*jax.tree.map(lambda leaf: leaf[0], some_inputs))
            )
        else:
            new = jax.vmap(function)(*some_inputs)
        return jax.tree.map(
            lambda all_rows, some_rows: all_rows.at[rows].set(some_rows, mode="drop"), found, new
        )

    needed = -(-jnp.sum(wanted) // at_once)
    found = jax.lax.fori_loop(0, needed, some, otherwise)
    return jax.tree.map(
        lambda new, old: jnp.where(wanted.reshape(-1, *[1] * (new.ndim - 1)), new, old), found, otherwise
    )
