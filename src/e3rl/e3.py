"""Algorithm 1: explicit explore-exploit. DREEM and Neural-E³ are two fillings of the same five slots."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Slots(NamedTuple):
    """What Algorithm 1 leaves open. `t` is the epoch; models, policy and replay are whatever the filling makes them."""

    plan: Callable[[Any, Any, Any, int], tuple[Any, Any]]
    """(models, replay, the epoch before's policy, t) -> (exploration policy, its v_explore): the argmax of line 5."""
    stop: Callable[[int, Any], bool]
    """(t, v_explore) -> is exploration over?"""
    collect: Callable[[Any, Any, int], tuple[Any, Any]]
    """(policy, replay, t) -> (replay with n more trajectories, what is to be told about them)."""
    update_model_set: Callable[[Any, Any, int], tuple[Any, Any]]
    """(models, replay, t) -> (the models that agree with the experience, what is to be told about them)."""
    exploit: Callable[[Any, Any, Any], Any]
    """(models, replay, v_explore when exploration ended) -> what is returned."""


class Epoch(NamedTuple):
    """One pass through lines 5 to 8, and where it left the algorithm."""

    t: int
    policy: Any
    v_explore: Any
    collected: Any
    """What `collect` told."""
    fitted: Any
    """What `update_model_set` told."""
    models: Any
    replay: Any


def explicit_explore_exploit(
    models: Any,
    replay: Any,
    slots: Slots,
    policy: Any = None,
    start: int = 0,
    after_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Any:
    """Run Algorithm 1, from epoch `start` with the policy of the epoch before it; `after_epoch` sees each epoch's end
    (records, checkpoints, experiments)."""
    t = start
    while True:
        policy, v_explore = slots.plan(models, replay, policy, t)  # line 5
        if slots.stop(t, v_explore):  # line 6
            break
        replay, collected = slots.collect(policy, replay, t)  # line 7
        models, fitted = slots.update_model_set(models, replay, t)  # line 8
        after_epoch(Epoch(t, policy, v_explore, collected, fitted, models, replay))
        t += 1
    return slots.exploit(models, replay, v_explore)  # lines 10 to 12


def small_disagreement(v_explore: float, epsilon: float, actions: int) -> bool:
    """Line 6's test: v_explore ≤ ε / |A|."""
    return v_explore <= epsilon / actions
