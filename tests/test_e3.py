"""Algorithm 1 with slots that record their calls."""

import pytest

from e3rl.e3 import Epoch, Slots, explicit_explore_exploit, small_disagreement


def recording(stop, v_explore=lambda t: 1.0 / (t + 1)):
    """Slots whose models, replay and policies are strings that say where they came from."""
    calls = []

    def plan(models, replay, policy, t):
        calls.append(("plan", models, replay, policy, t))
        return f"π{t}", v_explore(t)

    def stopped(t, value):
        calls.append(("stop", t, value))
        return stop(t, value)

    def collect(policy, replay, t):
        calls.append(("collect", policy, replay, t))
        return f"R{t + 1}", f"collected {t}"

    def update(models, replay, t):
        calls.append(("update", models, replay, t))
        return f"M{t + 1}", f"fitted {t}"

    def exploit(models, replay, value):
        calls.append(("exploit", models, replay, value))
        return "π_exploit"

    return Slots(plan, stopped, collect, update, exploit), calls


def before(t):
    """The policy of the epoch before."""
    return f"π{t - 1}" if t > 0 else None


def epoch(t):
    """Lines 5 to 8 of one epoch that goes on, as (name, arguments)."""
    return [
        ("plan", f"M{t}", f"R{t}", before(t), t),
        ("stop", t, 1.0 / (t + 1)),
        ("collect", f"π{t}", f"R{t}", t),
        ("update", f"M{t}", f"R{t + 1}", t),  # on the replay that this epoch has enlarged
    ]


def test_slots_are_called_in_the_order_of_the_pseudocode():
    slots, calls = recording(lambda t, v: t == 2)
    assert explicit_explore_exploit("M0", "R0", slots) == "π_exploit"
    last = [("plan", "M2", "R2", "π1", 2), ("stop", 2, 1 / 3), ("exploit", "M2", "R2", 1 / 3)]
    assert calls == epoch(0) + epoch(1) + last


def test_stops_once_the_models_disagree_little():
    """v_explore = 1/(t+1) ≤ ε/|A| = 0.8/4 for the first time at t = 4."""
    slots, calls = recording(lambda t, v: small_disagreement(v, 0.8, 4))
    explicit_explore_exploit("M0", "R0", slots)
    assert [call[1] for call in calls if call[0] == "stop"] == [0, 1, 2, 3, 4]
    assert calls[-1] == ("exploit", "M4", "R4", 1 / 5)


@pytest.mark.parametrize(("v_explore", "over"), [(0.25, True), (0.2500001, False), (0.0, True)])
def test_small_disagreement_includes_its_bound(v_explore, over):
    assert small_disagreement(v_explore, 1.0, 4) is over


def test_a_stop_at_once_leaves_everything_as_it_was():
    slots, calls = recording(lambda t, v: True)
    assert explicit_explore_exploit("M0", "R0", slots) == "π_exploit"
    assert [call[0] for call in calls] == ["plan", "stop", "exploit"]


def test_resumes_from_an_epoch_with_what_it_left():
    whole, all_calls = recording(lambda t, v: t == 4)
    explicit_explore_exploit("M0", "R0", whole)
    rest, calls = recording(lambda t, v: t == 4)
    explicit_explore_exploit("M2", "R2", rest, policy="π1", start=2)
    assert calls == all_calls[2 * 4 :]


def test_after_epoch_sees_each_finished_epoch_and_not_the_stopped_one():
    slots, calls = recording(lambda t, v: t == 3)
    explicit_explore_exploit("M1", "R1", slots, start=1, after_epoch=calls.append)
    seen = [call for call in calls if isinstance(call, Epoch)]
    assert seen == [
        Epoch(1, "π1", 1 / 2, "collected 1", "fitted 1", models="M2", replay="R2"),
        Epoch(2, "π2", 1 / 3, "collected 2", "fitted 2", models="M3", replay="R3"),
    ]
    assert calls.index(seen[0]) == 4  # before the next epoch's plan
