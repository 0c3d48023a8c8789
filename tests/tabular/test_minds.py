"""What is planned on a table, in worlds small enough to know what is right."""

import numpy as np
import pytest

from e3rl.tabular import minds
from e3rl.tabular.minds import (
    Doubt,
    chances,
    judge_policy,
    plan_of_member,
    plan_to_exploit,
    plan_to_explore,
    smoothed,
    unknown_share,
)
from e3rl.tabular.posterior import END, Table

ACTIONS, STEPS = 4, 12
RING = 13
"""52 pairs: after two visits to each, repetitions are known to hold no surprises."""


def at(place):
    return np.array([place], np.float32)


def new_table():
    return Table(ACTIONS, 5, 0, 1000)


def visit(table, place, action, to, reward=0.0, times=1):
    for _ in range(times):
        end = to is END
        table.observe(table.find(at(place)), action, reward, at(0 if end else to), end)


def ring(rounds=2, pays=None, leave_out=()):
    """Places in a ring: action a leads a places on, and pays 1 where `pays` = (place, action)."""
    table = new_table()
    for place in range(RING):
        table.find(at(place))
    for _ in range(rounds):
        for place in range(RING):
            for action in range(ACTIONS):
                if (place, action) not in leave_out:
                    visit(table, place, action, (place + action) % RING, float((place, action) == pays))
    return table


def slippery(tries=6):
    """Two places; actions 0 and 1 lead to either with even chances, action 2 was tried twice, action 3 never."""
    table = new_table()
    for place in (0, 1):
        table.find(at(place))
    for place in (0, 1):
        for i in range(tries):
            visit(table, place, 0, i % 2, reward=float(i % 2))
            visit(table, place, 1, (i + 1) % 2, reward=float(i % 2))
        visit(table, place, 2, place, times=2)
    return table


def test_explorers_go_to_what_was_never_tried():
    """All that is not known is one action two steps from the start."""
    table = ring(3, leave_out={(6, 1)})
    planned = plan_to_explore(table, STEPS, STEPS)
    row, way = 0, []
    for t in range(3):
        way.append(int(planned.policy[t, row]))
        row += way[-1]
    assert way == [3, 3, 1]


def test_explorers_go_where_little_was_tried():
    """Everywhere in the ring everything was tried often, and one action once."""
    table = ring(6, leave_out={(3, 2)})
    visit(table, 3, 2, 5)
    planned = plan_to_explore(table, STEPS, STEPS)
    assert planned.policy[0, 3] == 2
    assert planned.policy[0, 0] == 3


@pytest.mark.parametrize(
    ("leave_out", "share", "untried"),
    [({(0, 2)}, 1.0, 1.0), ({(6, 1)}, 1.0, 1.0), (set(), 0.0, 0.0)],
    ids=["at the start", "within reach", "nothing"],
)
def test_the_share_of_episodes_with_something_new(leave_out, share, untried):
    table = ring(2, leave_out=leave_out)
    assert unknown_share(table, [0], STEPS) == pytest.approx(share, abs=1e-6)
    assert unknown_share(table, [0], STEPS, untried_only=True) == pytest.approx(untried, abs=1e-6)


def test_the_share_is_a_mean_over_where_episodes_begin():
    """From one of two islands nothing new can be reached."""
    table = ring(2)
    for action in range(ACTIONS - 1):
        visit(table, 20, action, 20)
    island = table.find(at(20))
    assert unknown_share(table, [0], STEPS) == 0.0
    assert unknown_share(table, [0, island, island, 0], STEPS) == pytest.approx(0.5)


def test_what_cannot_be_reached_in_time_counts_for_nothing():
    table = ring(2, leave_out={(6, 1)})
    assert unknown_share(table, [0], 2) == 0.0
    assert unknown_share(table, [0], 3) == pytest.approx(1.0)


def test_noise_may_still_hold_something_new_but_nothing_untried():
    table = slippery()
    for place in (0, 1):
        visit(table, place, 3, place, times=2)
    every, only = (unknown_share(table, [0], STEPS, untried) for untried in (False, True))
    assert 0.0 < only < every < 1.0


@pytest.mark.parametrize(
    "plan", [lambda t: plan_to_exploit(t, STEPS), lambda t: plan_of_member(t, 1, STEPS, 3)]
)
def test_exploiters_never_take_what_was_not_tried(plan):
    """Half of the actions were tried, all of which cost something."""
    table, rng = new_table(), np.random.default_rng(2)
    for place in range(6):
        table.find(at(place))
    for place in range(6):
        for action in rng.permutation(ACTIONS)[:2]:
            visit(table, place, int(action), int(rng.integers(6)), reward=-1.0, times=3)
    policy = np.asarray(plan(table).policy)[:, :6]
    assert policy.shape == (STEPS, 6)
    tried = np.asarray(table.tried)
    assert (tried[np.arange(6), policy] > 0).all()


def test_exploiters_avoid_places_where_nothing_was_tried():
    """Action 1 pays a little and leads where nobody has done anything; steps may cost 1, as action 2 shows."""
    table = ring(2)
    visit(table, 20, 0, 20, reward=-0.1)
    visit(table, 20, 1, 21, reward=0.5)
    visit(table, 20, 2, END, reward=-1.0)
    here = table.find(at(20))
    planned = plan_to_exploit(table, STEPS)
    assert planned.policy[0, here] == 0
    assert planned.policy[STEPS - 1, here] == 1  # with the last step there is nothing left to lose
    assert float(planned.value[here]) == pytest.approx(-0.1 * (STEPS - 1) + 0.5, abs=1e-5)


def test_the_first_steps_of_a_policy_are_those_of_the_whole():
    table = ring(2, pays=(4, 1))
    whole, first = plan_to_exploit(table, STEPS), plan_to_exploit(table, STEPS, 1)
    np.testing.assert_array_equal(first.policy, whole.policy[:1])
    np.testing.assert_array_equal(first.value, whole.value)


def test_where_repetitions_hold_no_surprises_counts_are_left_alone():
    table = ring(2)
    outcomes, weights = smoothed(table)
    np.testing.assert_array_equal(outcomes, table.successor[:RING])
    np.testing.assert_array_equal(weights, table.count[:RING])


def test_what_is_missing_is_spread_over_the_outcomes_of_the_neighbours(monkeypatch):
    """Two tries of action 2 led to the place itself; what others do there says that it may lead elsewhere."""
    table = slippery()
    outcomes, weights = smoothed(table)
    assert outcomes.shape == weights.shape == (2, ACTIONS, ACTIONS * table.count.shape[-1])
    share = chances(weights)
    tried, missing = table.tried[:, :3], table.unknown()[:, :3]
    np.testing.assert_allclose(share[:, :3].sum(axis=-1), 1.0)
    np.testing.assert_allclose(weights[:, :3].sum(axis=-1), tried / (1.0 - missing))
    assert not weights[:, 3].any()
    # In place 0, 8 of 14 steps led to place 0 and 6 to place 1.
    stays = share[0, :3] @ (outcomes[0, 0] == 0)
    np.testing.assert_allclose(stays, (1.0 - missing[0]) * [0.5, 0.5, 1.0] + missing[0] * 8 / 14)
    monkeypatch.setattr(minds, "LARGEST_SMOOTHED", 1)
    np.testing.assert_array_equal(smoothed(table)[1], table.count[:2])


def test_a_known_world_leaves_no_regret():
    """Every third step pays, whoever is asked."""
    table = ring(2, pays=(3, 0))
    judged = judge_policy(table, np.array([0, 1]), STEPS, 0)
    assert judged.regret == 0.0
    assert judged.worth == pytest.approx((11 + 11) / 2)  # one step to place 3, then it stays there
    assert judged.paid == pytest.approx(11.0)


def test_members_that_see_it_differently_leave_regret():
    """Four actions that paid two times in four: which is the best depends on whom one asks."""
    table = new_table()
    for action in range(ACTIONS):
        for reward in (0.0, 1.0, 0.0, 1.0):
            visit(table, 0, action, END, reward)
    judged = judge_policy(table, np.array([0]), STEPS, 0)
    assert judged.regret > 0.05
    assert 0 <= judged.challenger < table.members
    challenger = plan_of_member(table, judged.challenger, STEPS, 0)
    assert challenger.policy[0, 0] != plan_to_exploit(table, STEPS).policy[0, 0]
    assert judged.paid < 1.0


@pytest.mark.parametrize(
    ("doubt", "settled"),
    [
        (Doubt(0.04, 0.04, 0.04, stale=False), True),
        (Doubt(0.06, 0.04, 0.04, stale=False), False),
        (Doubt(0.06, 0.04, 0.04, stale=True), True),
        (Doubt(0.04, 0.06, 0.04, stale=True), False),
    ],
)
def test_when_exploration_is_over(doubt, settled):
    assert doubt.settled(0.05) is settled
    assert "of the value in doubt" in str(doubt)
