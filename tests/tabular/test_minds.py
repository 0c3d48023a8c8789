"""What is planned on a table, in worlds small enough to know what is right."""

import itertools

import numpy as np
import pytest

from e3rl.tabular import minds
from e3rl.tabular.minds import (
    Doubt,
    judge_policy,
    likeness,
    plan_of_member,
    plan_to_exploit,
    plan_to_explore,
    smoothed,
    unknown_share,
)
from e3rl.tabular.posterior import END, NOTHING, Table

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
    "plan",
    [lambda t: plan_to_exploit(t, smoothed(t), STEPS), lambda t: plan_of_member(t, smoothed(t), 1, STEPS, 3)],
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
    planned = plan_to_exploit(table, smoothed(table), STEPS)
    assert planned.policy[0, here] == 0
    assert planned.policy[STEPS - 1, here] == 1  # with the last step there is nothing left to lose
    assert float(planned.value[here]) == pytest.approx(-0.1 * (STEPS - 1) + 0.5, abs=1e-5)


def test_of_two_equal_rewards_the_earlier_is_taken():
    """One action waits, another is paid and ends it: in every place, and at any time."""
    table = new_table()
    for place in range(RING):
        visit(table, place, 0, (place + 1) % RING, times=3)
        visit(table, place, 1, END, reward=1.0, times=3)
    planned = plan_to_exploit(table, smoothed(table), STEPS)
    assert (np.asarray(planned.policy)[:, :RING] == 1).all()


def test_where_repetitions_hold_no_surprises_counts_are_left_alone():
    table = ring(2, pays=(4, 1))
    outcomes = smoothed(table)
    np.testing.assert_array_equal(outcomes.successor, table.successor[:RING])
    np.testing.assert_array_equal(outcomes.weight, table.count[:RING])
    np.testing.assert_allclose(outcomes.reward.sum(axis=-1), table.mean_reward())
    assert outcomes.dice is None


def test_actions_borrow_the_outcomes_of_their_neighbours(monkeypatch):
    """Two tries of action 2 led to the place itself; what others do there says that it may lead elsewhere."""
    monkeypatch.setattr(minds, "infer_dice", lambda count, prior: None)
    table = slippery()
    outcomes = smoothed(table)
    assert outcomes.successor[0, 0].tolist()[:2] == [0, 1]
    tried, alike = table.tried, outcomes.weight[0, 0].sum() - 6
    assert alike == pytest.approx(outcomes.weight[1, 2].sum() - 2)
    assert (tried[0, 0], tried[1, 2]) == (6, 2)
    # In place 0 the three actions stayed in 3 of 6, 3 of 6 and 2 of 2 steps. Each borrows from the others, which count
    # by their tries, and a little from the thought that anything may happen.
    often, seldom, doubt = 6 / (6 + alike), 2 / (2 + alike), minds.DOUBT
    stays = np.array([(0.5 * often + seldom + doubt / 2) / (often + seldom + doubt)] * 2 + [0.5])
    np.testing.assert_allclose(outcomes.weight[0, :3, 0], np.array([3, 3, 2]) + alike * stays)
    chance, reward = outcomes.mean()
    np.testing.assert_allclose(chance[:, :3].sum(axis=-1), 1.0)
    assert chance[0, 2, 0] == pytest.approx((2 + alike * 0.5) / (2 + alike))
    # Action 0 is paid where it leads to place 1, action 1 to place 0; action 2 would be paid as they are in the mean.
    np.testing.assert_allclose(reward[0, :3, :2], [[0.0, 1.0], [1.0, 0.0], [0.0, 0.5]])
    monkeypatch.setattr(minds, "LARGEST_SMOOTHED", 1)
    np.testing.assert_array_equal(smoothed(table).weight, table.count[:2])


@pytest.mark.parametrize(
    ("agree", "low", "high"),
    [("sure", 0.0, 0.05), ("slippery", 1.5, 4.0), ("same", 20.0, 50.0)],
)
def test_how_alike_actions_are(agree, low, high):
    """Sure actions that differ tell nothing about each other, those that all do the same tell everything; a slippery
    one that leads to either neighbour half of the time has α = (1 − 1/2) / (1/2 − 1/4)."""
    rng, count = np.random.default_rng(0), np.zeros((40, 2, 4))
    for s, a, _ in itertools.product(range(40), range(2), range(20)):
        count[s, a, {"sure": a, "slippery": a + rng.integers(2), "same": rng.integers(4)}[agree]] += 1
    assert low <= likeness(count) <= high


def plain_by_outcome(successor, count):
    """{outcome: count by action} of every state."""
    found = []
    for s, row in enumerate(successor):
        found.append({})
        for a, k in itertools.product(range(row.shape[0]), range(row.shape[1])):
            if row[a, k] != NOTHING:
                found[s].setdefault(row[a, k], [0.0] * row.shape[0])[a] += count[s, a, k]
    return found


def test_outcomes_of_a_state_against_a_list_of_them():
    rng = np.random.default_rng(3)
    successor = np.full((9, 3, 4), NOTHING, np.int32)
    for s, a in itertools.product(range(9), range(3)):
        seen = rng.choice([END, END - 1, *range(9)], rng.integers(5), replace=False)
        successor[s, a, : len(seen)] = seen
    count = np.where(successor == NOTHING, 0.0, rng.integers(1, 9, successor.shape))
    together, (sums,) = minds._by_outcome(successor, (count,))
    for s, wanted in enumerate(plain_by_outcome(successor, count)):
        got = {int(o): sums[s, :, j].tolist() for j, o in enumerate(together[s]) if o != NOTHING}
        assert got == wanted
        assert (together[s, len(wanted) :] == NOTHING).all()  # what was not seen comes last


def thrown_dice(noise=0, states=30, tries=40):
    """A ring of places where every action leads to each of three neighbours in a row with chance 1/3."""
    rng, table = np.random.default_rng(1), new_table()
    for place in range(states):
        table.find(at(place))
    for place, action in itertools.product(range(states), range(3)):
        for _ in range(tries if place else 6):
            to = (place + action + rng.integers(3)) % states
            visit(table, place, action, to, reward=float(to == 2))
    return table


def test_dice_that_are_thrown_everywhere_tell_about_places_seldom_seen():
    """In place 0 every action was tried six times only."""
    table = thrown_dice()
    outcomes = smoothed(table)
    chance, reward = outcomes.mean()
    for action in range(3):
        own = table.count[0, action].max() / 6
        reached = {int(o): p for o, p in zip(outcomes.successor[0, action], chance[0, action], strict=True)}
        assert all(abs(reached[action + j] - 1 / 3) < 0.1 for j in range(3))
        assert max(reached.values()) < max(own, 0.45)
    member, _ = outcomes.sample(np.random.default_rng(0))
    np.testing.assert_allclose(member[:, :3].sum(axis=-1), 1.0)
    assert np.abs(member[1:, :3] - chance[1:, :3]).mean() < 0.03
    assert reward[0, 2, outcomes.successor[0, 2].tolist().index(2)] == 1.0


def test_a_known_world_leaves_no_regret():
    """Every third step pays, whoever is asked."""
    table = ring(2, pays=(3, 0))
    judged = judge_policy(table, smoothed(table), np.array([0, 1]), STEPS, 0)
    assert judged.regret == 0.0
    assert judged.worth == pytest.approx((11 + 11) / 2, rel=1e-4)  # one step to place 3, then it stays there
    assert judged.paid == pytest.approx(11.0, rel=1e-4)


def test_where_nothing_is_left_to_chance_one_member_speaks_for_all(monkeypatch):
    asked, whole = [], minds.member_model
    monkeypatch.setattr(minds, "member_model", lambda *args: asked.append(args[2]) or whole(*args))
    for table, members in ((ring(2, pays=(3, 0)), 1), (slippery(), 5)):
        asked.clear()
        judge_policy(table, smoothed(table), np.array([0]), STEPS, 0)
        assert len(asked) == members


def test_members_that_see_it_differently_leave_regret():
    """Four actions that paid two times in four: which is the best depends on whom one asks."""
    table = new_table()
    for action in range(ACTIONS):
        for reward in (0.0, 1.0, 0.0, 1.0):
            visit(table, 0, action, END, reward)
    judged = judge_policy(table, smoothed(table), np.array([0]), STEPS, 0)
    assert judged.regret > 0.05
    assert 0 <= judged.challenger < table.members
    challenger = plan_of_member(table, smoothed(table), judged.challenger, STEPS, 0)
    assert challenger.policy[0, 0] != plan_to_exploit(table, smoothed(table), STEPS).policy[0, 0]
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
