"""Line 6 of Neural-E³: what may still be missed, in units of return, and when it is little enough for long enough."""

import numpy as np
import pytest

from e3rl.neural.config import NeuralE3Config
from e3rl.neural.stopping import Stopping
from e3rl.planners.value import LEAST_PATIENCE, PATIENCE
from e3rl.runs.settings import changed


def stopping(lanes=1, horizon=5, **changes):
    config = changed(NeuralE3Config(), {name.replace("__", "."): value for name, value in changes.items()})
    return Stopping(config, horizon, lanes)


def test_what_may_be_missed_is_the_unknown_times_the_range_of_returns():
    rule = stopping()
    rule.saw(np.array([[1.0, -1.0]]))
    rule.saw(np.array([[5.0, 0.0]]))
    rule.look(np.array([0.25]))
    assert rule.epsilon_hat == pytest.approx(0.25 * 6.0)


def test_while_every_return_is_the_same_nobody_knows_and_nothing_ends():
    rule = stopping()
    rule.saw(np.array([[0.0, 0.0]]))
    for _ in range(50):
        rule.look(np.array([0.0]))
    assert np.isinf(rule.epsilon_hat).all()
    assert not rule.over.any()
    assert "every return was the same" in rule.why(0, 50)


@pytest.mark.parametrize("horizon", [5, 30])
def test_little_must_be_left_for_a_while(horizon):
    rule = stopping(horizon=horizon, explore__epsilon_share=0.1)
    rule.saw(np.array([[0.0, 2.0]]))
    patience = max(LEAST_PATIENCE, PATIENCE * horizon)
    for _ in range(patience - 1):
        rule.look(np.array([0.1]))
    rule.look(np.array([0.11]))  # begins again
    for _ in range(patience - 1):
        rule.look(np.array([0.1]))
        assert not rule.over.any()
    rule.look(np.array([0.1]))
    assert rule.over.all()
    assert rule.why(0, 40) == "by itself: an estimated 0.2 of return may still be missed"


def test_epsilon_is_in_units_of_return_and_goes_before_the_share():
    rule = stopping(explore__epsilon=0.05)
    rule.saw(np.array([[0.0, 2.0]]))
    for _ in range(20):
        rule.look(np.array([0.03]))  # 0.06 of return, less than a fifth of the range
    assert not rule.over.any()
    assert "the most that it was given: an estimated 0.06 of return" in rule.why(0, 20)
    for _ in range(20):
        rule.look(np.array([0.025]))
    assert rule.over.all()


def test_a_lane_that_is_over_stays_as_it_is():
    rule = stopping(lanes=2)
    rule.saw(np.array([[0.0, 1.0], [0.0, 1.0]]))
    for _ in range(rule.patience):
        rule.look(np.array([0.01, 1.0]))
    np.testing.assert_array_equal(rule.over, [True, False])
    rule.saw(np.array([[9.0, 9.0], [2.0, 2.0]]))
    rule.look(np.array([7.0, 0.5]))
    np.testing.assert_allclose(rule.epsilon_hat, [0.01, 1.0])
    np.testing.assert_array_equal(rule.over, [True, False])


def test_without_a_calibrated_estimate_the_number_of_episodes_ends_it():
    rule = stopping(planner__tried=0.0)
    rule.saw(np.array([[0.0, 1.0]]))
    for _ in range(50):
        rule.look(np.array([0.0]))
    assert not rule.by_itself
    assert not rule.over.any()


def test_where_planning_does_not_tell_it_is_what_episodes_met():
    searching = {"planner": "graph", "planner.tried": 0.9, "fit.dice": False}
    config = changed(changed(NeuralE3Config(), {"planner": "graph"}), searching)
    rule = Stopping(config, 200, 1)
    assert rule.by_itself
    unknown = np.array([np.inf])
    rule.look(unknown)
    rule.saw(np.array([[-200.0, -100.0]]), np.array([[0.5, 0.1]]))
    rule.look(unknown)
    assert rule.epsilon_hat == pytest.approx(30.0)
    for _ in range(rule.patience):
        assert not rule.over.any()
        rule.saw(np.array([[-150.0, -150.0]]), np.array([[0.1, 0.2]]))
        resumed = Stopping(config, 200, 1)
        resumed.restore(rule.abouts())
        rule.look(unknown)
        resumed.look(unknown)
        np.testing.assert_array_equal(resumed.epsilon_hat, rule.epsilon_hat)
        np.testing.assert_array_equal(resumed.quiet, rule.quiet)
    assert rule.over.all()


@pytest.mark.parametrize("family", ["mdn", "vae"])
def test_families_whose_disagreement_tells_little_leave_it_to_the_number_of_episodes(family):
    graph = changed(NeuralE3Config(), {"planner": "graph", "model": family})
    assert not Stopping(changed(graph, {"planner.tried": 0.9}), 200, 1).by_itself


def test_what_a_checkpoint_says_restores_it():
    rule = stopping(lanes=2)
    rule.saw(np.array([[0.0, 1.0], [0.0, 3.0]]))
    for _ in range(4):
        rule.look(np.array([0.01, 1.0]))
    other = stopping(lanes=2)
    other.restore(rule.abouts())
    for _ in range(rule.patience - 4):
        rule.look(np.array([0.01, 0.02]))
        other.look(np.array([0.01, 0.02]))
    np.testing.assert_array_equal(other.over, [True, False])
    np.testing.assert_array_equal(other.quiet, rule.quiet)
    np.testing.assert_array_equal(other.epsilon_hat, rule.epsilon_hat)
    fresh = stopping()
    fresh.restore([{"epoch": 3}])  # from before there was a rule
    assert fresh.quiet[0] == 0
