"""One line for seeds that are trained apart."""

import math

from e3rl.runs.merged_progress import MergedProgress
from e3rl.runs.progress import LiveLine, Progress


def at(phase, episode, episodes=10, mean_return=1.0, disagreement=0.5, **more):
    return Progress(phase, episode, episodes, mean_return, disagreement, 3.0, **more)


def test_exploration_is_counted_over_all_seeds():
    merged = MergedProgress(3)
    first = merged.take(0, at("compiling", 0, what="the models"))
    assert (first.phase, first.episode, first.episodes, first.what) == ("compiling", 0, 30, "the models")
    assert merged.take(1, at("compiling", 0, what="the models")) is None
    told = merged.take(0, at("explore", 2, at_most=True, epsilon_hat=0.5))
    assert (told.phase, told.episode, told.episodes, told.apart, told.done) == ("explore", 2, 30, 3, 0)
    told = merged.take(1, at("explore", 4, mean_return=2.0, disagreement=math.nan, epsilon_hat=0.25))
    assert (told.episode, told.mean_return, told.disagreement) == (6, 1.5, 0.5)
    assert (told.at_most, told.epsilon_hat) == (True, 0.5)
    assert merged.take(1, at("explore", 4, mean_return=2.0, disagreement=math.nan, epsilon_hat=0.25)) is None


def test_who_is_further_is_waited_for_and_counts_what_it_needed():
    merged = MergedProgress(2)
    merged.take(0, at("explore", 4))
    told = merged.take(1, at("explore", 6, mean_return=5.0))
    assert (told.episode, told.episodes) == (10, 20)
    told = merged.take(1, at("training to exploit", 6, 8, what="round 1/2"))
    assert (told.phase, told.episode, told.episodes, told.mean_return) == ("explore", 10, 16, 1.0)
    told = merged.take(0, at("practising", 5, 8, what="round 1/2"))
    assert (told.phase, told.what, told.episode, told.episodes) == ("practising", "round 1/2", 11, 16)
    told = merged.take(1, at("exploit", 108, 108))
    assert (told.phase, told.episode, told.episodes) == ("practising", 113, 116)
    merged.end(1)
    told = merged.take(0, at("exploit", 108, 108, mean_return=3.0))
    assert (told.phase, told.episode, told.episodes, told.mean_return, told.done) == (
        "exploit",
        216,
        216,
        3.0,
        1,
    )


def test_a_later_seed_compiles_nothing_and_is_told_of_when_it_explores():
    merged = MergedProgress(2)
    merged.take(0, at("compiling", 0))
    merged.take(0, at("explore", 7))
    merged.take(0, at("exploit", 17, 17))
    merged.end(0)
    assert merged.take(1, at("compiling", 0)) is None
    told = merged.take(1, at("explore", 1))
    assert (told.phase, told.episode, told.episodes, told.done) == ("explore", 8, 17, 1)


def test_the_line_says_how_many_seeds_are_done(capsys):
    with LiveLine() as line:
        line(at("explore", 20, 20, apart=2))
        line(at("training to exploit", 20, 20, apart=2, done=1))
    assert capsys.readouterr().err.splitlines() == [
        "explore: episode 20/20, return 1.00, disagreement 0.50, 0 of 2 seeds done",
        "training to exploit: episode 20/20, no more episodes needed; compiled if new, up to a minute, "
        "1 of 2 seeds done",
    ]
