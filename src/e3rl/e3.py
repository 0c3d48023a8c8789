"""Algorithm 1: explicit explore-exploit. DREEM and Neural-E³ are two fillings of the same five slots."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Slots(NamedTuple):
    """What Algorithm 1 leaves open. `t` is the epoch; models, policy and replay are whatever the filling makes them."""

    plan: Callable[[Any, Any, int], tuple[Any, Any]]
    """(models, replay, t) -> (exploration policy, its v_explore): the argmax of line 5."""
    stop: Callable[[int, Any], bool]
    """(t, v_explore) -> is exploration over?"""
    collect: Callable[[Any, Any, int], Any]
    """(policy, replay, t) -> replay with n more trajectories."""
    update_model_set: Callable[[Any, Any, int], Any]
    """(models, replay, t) -> the models that agree with the experience."""
    exploit: Callable[[Any, Any], Any]
    """(models, replay) -> the policy that is returned."""


def explicit_explore_exploit(
    models: Any,
    replay: Any,
    slots: Slots,
    start: int = 0,
    after_epoch: Callable[[int, Any, Any], None] = lambda t, models, replay: None,
) -> Any:
    """Run Algorithm 1 from epoch `start`; `after_epoch` sees each epoch's end (progress, checkpoints)."""
    t = start
    while True:
        policy, v_explore = slots.plan(models, replay, t)  # line 5
        if slots.stop(t, v_explore):  # line 6
            break
        replay = slots.collect(policy, replay, t)  # line 7
        models = slots.update_model_set(models, replay, t)  # line 8
        after_epoch(t, models, replay)
        t += 1
    return slots.exploit(models, replay)  # lines 10 to 12


def small_disagreement(v_explore: float, epsilon: float, actions: int) -> bool:
    """Line 6's test: v_explore ≤ ε / |A|."""
    return v_explore <= epsilon / actions
