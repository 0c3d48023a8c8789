"""Verdicts are computed: made-up results turn them, missing ones leave them open, the documentation shows today's."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from e3rl import cli
from e3rl.experiments.catalogue import EXPERIMENTS, family_of
from e3rl.neural.presets import PRESETS
from e3rl.reports.claims import control, dqn, lock, mazes, theory
from e3rl.reports.claims.claim import Claim, Finding, Verdict, judge, more_of, verdict
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.claims.table import CHAPTERS, CLAIMS, MADE, judged, page, write_page
from e3rl.reports.statistics.intervals import Share
from e3rl.reports.statistics.waiting import Waiting
from e3rl.runs.settings import as_dict
from e3rl.types import UserError

ROOT = Path(__file__).parents[2]
EXACT = {"lock/uniform-chance", "theory/lemma-1", "theory/lemma-2"}
"""Computed by the command itself, without any results."""


def save(folder, name, rows=(), **about):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name.replace('/', '-')}.json"
    path.write_text(json.dumps({"experiment": name, **about}))
    if rows:
        with path.with_suffix(".csv").open("w", newline="") as file:
            table = csv.DictWriter(file, rows[0], lineterminator="\n")
            table.writeheader()
            table.writerows(rows)


def save_locks(folder, solved, reward="standard", **about):
    """The paper's settings at the paper's budgets, so many of five seeds solved."""
    for horizon, ratio in lock.PAPER_RATIO.items():
        rows = [
            {
                "reward": reward,
                "seed": seed,
                "ratio": ratio,
                "episodes": ratio * horizon,
                "solved": seed < solved,
                "paid_episodes": int(seed < solved),
            }
            for seed in range(5)
        ]
        save(folder, f"lock-paper/h{horizon}", rows, settings={"ratios": [ratio]}, **about)


def final(found, bar=None, episodes=20_000, mean=0.0):
    return {
        "episodes": episodes, "return_mean": mean, "optimal_return": 5.0, "bar": 2.5, "over_bar": bar,
        "episodes_that_found": 0 if found is None else 1, "first_found": found,
    }  # fmt: skip


def save_finals(folder, name, *finals):
    rows = [
        {"experiment": name, "seed": s, "episode": e, "return_mean": 1.0} for s in (0, 1) for e in (500, 1000)
    ]
    save(folder, name, rows, final={str(seed): one for seed, one in enumerate(finals)})


def verdict_of(folder, measure, **given):
    asked = Evidence.under(folder)
    return verdict(measure(asked, **given))


def test_one_part_that_differs_is_enough_and_what_is_missing_cannot_hold():
    yes, no, unknown = Finding("", True), Finding("", False), Finding("", None)
    assert verdict([yes, yes]) is Verdict.HOLDS
    assert verdict([yes, unknown]) is Verdict.NOT_TESTED
    assert verdict([unknown, no]) is Verdict.DIFFERS
    assert verdict([]) is Verdict.NOT_TESTED


def test_without_results_nothing_is_tested(tmp_path):
    for one in judged(tmp_path):
        expected = Verdict.HOLDS if one.claim.name in EXACT else Verdict.NOT_TESTED
        assert (one.claim.name, one.verdict) == (one.claim.name, expected)


def test_every_claim_is_told_once_and_says_what_it_asks_for():
    assert sum(map(len, CHAPTERS.values())) == len(CLAIMS)
    assert len({(claim.name, claim.settings) for claim in CLAIMS}) == len(CLAIMS)
    assert all(claim.place and claim.says.endswith(".") and claim.holds_if for claim in CLAIMS)
    places = {claim.place for claim in CLAIMS}
    assert {
        "Proposition 1",
        "Proposition 2",
        "Proposition 3",
        "Lemma 1",
        "Lemma 2",
        "Lemma 3",
        "Theorem 1",
    } <= places


def test_every_experiment_that_is_asked_for_can_be_run(tmp_path):
    """Those of families that `e3rl reproduce` has."""
    families = {family_of(name) for name in EXPERIMENTS}
    asked = {cell for one in judged(tmp_path) for cell in one.cells if family_of(cell) in families}
    assert asked <= EXPERIMENTS.keys()
    assert len(asked) > 50


FRACTIONS = "baselines-paper/h5-standard-dqn", "baselines-fraction/h5-0.01", "baselines-fraction/h5-0.1"


def test_the_smallest_fraction(tmp_path):
    early, late = [final(9, 600 + i) for i in range(5)], [final(9, 900 + i) for i in range(4)]
    for cell, finals in zip(FRACTIONS, (early, [*late, final(9)], late), strict=True):
        save_finals(tmp_path, cell, *finals)
    assert verdict_of(tmp_path, dqn.greedy_at_once) == "holds"
    save_finals(tmp_path, FRACTIONS[1], *early)
    assert verdict_of(tmp_path, dqn.greedy_at_once) == "not tested"
    save_finals(tmp_path, FRACTIONS[0], *late)
    assert verdict_of(tmp_path, dqn.greedy_at_once) == "differs"
    (tmp_path / "baselines-fraction-h5-0.1.json").unlink()
    assert verdict_of(tmp_path, dqn.greedy_at_once) == "not tested"


def test_priorities_and_other_implementations(tmp_path):
    save_finals(tmp_path, FRACTIONS[0], *[final(9, 600)] * 5)
    assert verdict_of(tmp_path, dqn.priorities_matter) == "not tested"
    save_finals(tmp_path, "baselines-replay/h5-uniform", final(9, 600), *[final(9)] * 4)
    assert verdict_of(tmp_path, dqn.priorities_matter) == "holds"
    save_finals(tmp_path, "baselines-replay/h5-uniform", *[final(9, 600)] * 3, *[final(9)] * 2)
    assert verdict_of(tmp_path, dqn.priorities_matter) == "not tested"
    assert verdict_of(tmp_path, dqn.another_implementation) == "not tested"
    (tmp_path / "peers").mkdir()
    for theirs, expected in ((5.0, "differs"), (2.0, "holds")):
        row = {"env": "lock-h5", "algo": "dqn", "e3rl_return_mean": 5.0, "sb3_return_mean": theirs}
        (tmp_path / "peers" / "summary.json").write_text(json.dumps({"rows": [row]}))
        assert verdict_of(tmp_path, dqn.another_implementation) == expected


@pytest.mark.parametrize(
    ("ours", "theirs", "less"),
    [
        ((5.0, 9), (7.0, 9), True), ((7.0, 9), (5.0, 9), False), ((math.inf, 9), (7.0, 9), False),
        ((math.inf, 5), (7.0, 9), None), ((5.0, 9), (math.inf, 9), True), ((5.0, 9), (math.inf, 4), None),
        ((math.inf, 9), (math.inf, 9), None),
    ],
)  # fmt: skip
def test_medians_that_were_not_met_lie_beyond_what_was_waited(ours, theirs, less):
    assert control._is_less(ours, theirs) is less


def test_where_the_median_of_waiting_lies():
    """By the chances of heads and tails: five seeds all lie on one side of it once in 16; of twenty at most five do
    once in 24."""
    assert control._median_within(Waiting((3, 1, 2, 5, 4), ())) == (1.0, 5.0)
    assert control._median_within(Waiting(tuple(range(1, 21)), ())) == (6.0, 15.0)
    assert control._median_within(Waiting((7,) * 5, (2_000,) * 15)) == (2_000.0, math.inf)


def test_ensembles_explore_where_the_goal_is_met_more_often_than_by_chance(tmp_path):
    """Uniform play goes on to reach it as often as it did, give or take one."""
    config = as_dict(PRESETS["e3rl-control"])  # five episodes an epoch, of which the first is uniform

    def explored(*reached):
        """So many of ten episodes, by seed, after one of five uniform ones."""
        return [
            {"seed": seed, "phase": "explore", "episode": episode + 1, "reached": there}
            for seed, later in enumerate(reached)
            for episode, there in enumerate([True, *[False] * 4, *(i < later for i in range(10))])
        ]

    def lock(*first_paid):
        return [{"reward": "standard", "first_paid": at, "seed": seed} for seed, at in enumerate(first_paid)]

    def judge_them(maze, paid):
        for name in ("maze/10-e3rl", "mountaincar/e3rl"):
            save(tmp_path, name, explored(*maze), config=config)
        save(tmp_path, "stopping-protocol/h20", lock(*paid), config=config)
        return verdict_of(tmp_path, control.small_ensembles_explore, settings=control.E3RLS)

    assert judge_them((8, 9, 7), (4, 9, "")) == "holds"
    assert judge_them((3, 2, 3), (4, 9, "")) == "not tested"
    assert judge_them((1, 2, 2), (4, 9, "")) == "differs"
    assert judge_them((8, 9, 7), (4, "", "")) == "differs"


@pytest.mark.parametrize(
    ("ours", "theirs", "more"),
    [((5, 5), (0, 5), True), ((3, 5), (1, 5), None), ((1, 5), (1, 5), False), ((0, 5), (4, 5), False)],
)
def test_a_lead_that_chance_may_explain_is_left_open(ours, theirs, more):
    assert more_of(Share(*ours), Share(*theirs))[0] is more


@pytest.mark.parametrize(("solved", "expected"), [(5, "holds"), (3, "holds"), (2, "differs"), (0, "differs")])
def test_most_seeds(tmp_path, solved, expected):
    save_locks(tmp_path, solved)
    given = {"settings": lock.PAPERS, "reward": "standard", "horizons": lock.HORIZONS}
    assert verdict_of(tmp_path, lock.optimal_on_most_seeds, **given) == expected
    (tmp_path / "lock-paper-h20.json").unlink()
    left = verdict_of(tmp_path, lock.optimal_on_most_seeds, **given)
    assert left == ("not tested" if expected == "holds" else "differs")


def test_a_reward_met_once_is_a_reward_collected(tmp_path):
    for horizon in lock.LONG:
        save_finals(tmp_path, f"baselines-lock/h{horizon}-standard-ppo", final(None), final(None))
    assert verdict_of(tmp_path, lock.ppo_never_collects) == "holds"
    save_finals(tmp_path, "baselines-lock/h15-standard-ppo", final(None), final(15_659))
    assert verdict_of(tmp_path, lock.ppo_never_collects) == "differs"


def test_failing_within_a_small_budget_leaves_the_large_one_open(tmp_path):
    for horizon in lock.LONG:
        save_finals(tmp_path, f"baselines-lock/h{horizon}-standard-ppo-rnd", final(9), final(9))
    assert verdict_of(tmp_path, lock.rnd_succeeds, reward="standard") == "not tested"
    for horizon in lock.LONG:
        save_finals(
            tmp_path, f"baselines-long/h{horizon}-standard-ppo-rnd", final(9, 40_000), final(9, 30_000)
        )
    assert verdict_of(tmp_path, lock.rnd_succeeds, reward="standard") == "holds"
    save_finals(tmp_path, "baselines-long/h20-standard-ppo-rnd", final(9), final(9, 30_000))
    assert verdict_of(tmp_path, lock.rnd_succeeds, reward="standard") == "differs"


def test_how_many_times_the_episodes(tmp_path):
    save_locks(tmp_path, 5)
    for horizon in lock.HORIZONS:
        save_finals(tmp_path, f"baselines-long/h{horizon}-standard-dqn", final(9, 900 * horizon), final(9))
    assert verdict_of(tmp_path, lock.dqn_needs_more, settings=lock.PAPERS) == "holds"
    for horizon in lock.HORIZONS:
        save_finals(tmp_path, f"baselines-long/h{horizon}-standard-dqn", final(9, 9), final(9, 9))
    assert verdict_of(tmp_path, lock.dqn_needs_more, settings=lock.PAPERS) == "differs"


def test_where_neither_gets_there_nobody_needs_more(tmp_path):
    save_locks(tmp_path, 0)
    for horizon in lock.HORIZONS:
        save_finals(tmp_path, f"baselines-long/h{horizon}-standard-dqn", final(9), final(9))
    assert verdict_of(tmp_path, lock.dqn_needs_more, settings=lock.PAPERS) == "not tested"
    save_finals(tmp_path, "baselines-long/h10-standard-dqn", final(9, 100), final(9, 100))
    assert verdict_of(tmp_path, lock.dqn_needs_more, settings=lock.PAPERS) == "differs"


@pytest.mark.parametrize(("explored", "expected"), [(0.5, "holds"), (1.5, "differs")])
def test_less_reward_while_exploring(tmp_path, explored, expected):
    """The baselines' curves are at 1."""
    save_locks(tmp_path, 5, "antishaped", explore_return_mean={"antishaped": {"0": explored, "1": explored}})
    for horizon in lock.LONG:
        for algo in lock.BASELINES:
            save_finals(tmp_path, f"baselines-lock/h{horizon}-antishaped-{algo}", final(None), final(None))
    assert verdict_of(tmp_path, lock.less_while_exploring, settings=lock.PAPERS) == expected
    save_locks(tmp_path, 5, "antishaped")
    assert verdict_of(tmp_path, lock.less_while_exploring, settings=lock.PAPERS) == "not tested"


def test_uniform_play_by_hand():
    """A half at every level but the last, where one action of four pays, or two."""
    assert dqn.chance_of_uniform_play(10) == 1 / 2048
    assert dqn.chance_of_uniform_play(3, rewarded_actions=2) == 1 / 8


def test_a_mean_over_the_first_episodes_of_a_curve(tmp_path):
    rows = [{"seed": 0, "episode": e, "return_mean": m} for e, m in ((10, 1.0), (20, 3.0), (40, 9.0))]
    save(tmp_path, "baselines-own/thing", rows)
    found = Evidence.under(tmp_path).training_return("baselines-own/thing", 30)
    np.testing.assert_allclose(found, [(10 * 1.0 + 10 * 3.0 + 10 * 9.0) / 30])


def save_maze(folder, size, variant, greedy, exploring):
    rows = [
        {"seed": seed, "phase": "explore", "episode": e, "return": -90.0 if e <= 10 else exploring}
        for seed in (0, 1)
        for e in range(1, 21)
    ]
    exploit = [{"seed": seed, "budget": 20, "return_mean": greedy + seed, "reached": 1.0} for seed in (0, 1)]
    save(folder, f"maze/{size}-{variant}", rows, exploit=exploit)


@pytest.mark.parametrize(("lead", "more"), [(1.0, 5.0), (0.0, -5.0)])
def test_mazes(tmp_path, lead, more):
    for size in mazes.SIZES:
        save_maze(tmp_path, size, "paper", lead * (size > 5), -20.0 + more)
        save_maze(tmp_path, size, "paper-ue2", 0.0, -20.0)
    given = {"settings": mazes.PAPERS}
    assert verdict_of(tmp_path, mazes.similar_when_small, **given) == "holds"
    assert verdict_of(tmp_path, mazes.ahead_as_size_grows, **given) == ("holds" if lead else "differs")
    assert verdict_of(tmp_path, mazes.more_while_exploring, **given) == ("holds" if more > 0 else "differs")


@pytest.mark.parametrize(("at_reward", "expected"), [(5.0, "holds"), (0.2, "differs")])
def test_predictions_that_agree_until_the_reward(tmp_path, at_reward, expected):
    steps = [{"reward": -0.2, "disagreement": 0.1}] * 9 + [{"reward": 2.0, "disagreement": at_reward}]
    save(tmp_path / "figure5", "predictions", steps=steps)
    assert verdict_of(tmp_path, mazes.agree_until_the_reward) == expected
    save(tmp_path / "figure5", "predictions", steps=steps[:9])
    assert verdict_of(tmp_path, mazes.agree_until_the_reward) == "not tested"


@pytest.mark.parametrize(
    ("car", "acrobot", "expected", "words"),
    [
        ((1330, -100.0), (529, -90.0), "holds", "mountaincar 13 to 27, acrobot 5 to 11"),
        ((1000, -100.0), (600, -90.0), "not tested", "mountaincar 10 to 20, acrobot 6 to 12"),
        ((None, -100.0), (600, -90.0), "holds", "mountaincar > 20, acrobot 6 to 12"),
        ((None, -100.0), (529, -300.0), "holds", "mountaincar > 20, acrobot < 6"),
        ((None, -200.0), (600, -90.0), "not tested", "mountaincar unknown, as most of neither get there"),
        ((300, -200.0), (600, -90.0), "differs", "mountaincar < 3, acrobot 6 to 12"),
        ((300, -100.0), (None, -90.0), "differs", "mountaincar 3 to 6, acrobot > 20"),
    ],
)
def test_gains_of_which_only_bounds_are_known(tmp_path, car, acrobot, expected, words):
    for task, (episodes, greedy) in {"mountaincar": car, "acrobot": acrobot}.items():
        save_finals(tmp_path, f"baselines-{task}/dqn", *[final(episodes, bar=episodes, episodes=2_000)] * 3)
        tried = ((50, -300.0), (100, greedy))
        exploit = [{"seed": s, "budget": b, "return_mean": mean} for s in range(3) for b, mean in tried]
        save(tmp_path, f"{task}/paper", exploit=exploit)
    [finding] = control.gain_is_smaller(Evidence.under(tmp_path), settings=control.ALONE)
    assert words in finding.text
    assert verdict_of(tmp_path, control.gain_is_smaller, settings=control.ALONE) == expected


@pytest.mark.parametrize(
    ("few", "trained", "expected", "words"),
    [
        ({}, 2_000, "not tested", "mountaincar > 100, acrobot 26 to 529"),
        ({}, 12_500, "holds", "mountaincar > 625, acrobot 26 to 529"),
        ({10: False, 15: True}, 2_000, "holds", "mountaincar > 133, acrobot 35 to 49"),
        ({10: True, 15: True}, 2_000, "not tested", "mountaincar > 200, acrobot 52 to 529"),
    ],
)
def test_what_tells_the_gain_more_closely(tmp_path, few, trained, expected, words):
    """Neural-E³ after fewer episodes than 20, which are enough here, and a DQN that fails for longer."""
    for task, bar in (("mountaincar", None), ("acrobot", 529)):
        save_finals(tmp_path, f"baselines-{task}/dqn-long", *[final(1, bar=bar, episodes=trained)] * 3)
        for name, tried in (("e3rl", {20: True}), ("e3rl-few", few)):
            exploit = [
                {"seed": s, "budget": b, "return_mean": -90.0 if enough else -500.0}
                for s in range(3)
                for b, enough in tried.items()
            ]
            if exploit:
                save(tmp_path, f"{task}/{name}", exploit=exploit)
    [finding] = control.gain_is_smaller(Evidence.under(tmp_path), settings=control.E3RLS)
    assert words in finding.text
    assert verdict_of(tmp_path, control.gain_is_smaller, settings=control.E3RLS) == expected


@pytest.mark.parametrize(
    ("noisy", "expected", "words"),
    [
        (0, "holds", "with noise 0 of 5"),
        (
            1,
            "holds",
            "without 1 of 5 [1%, 72%], median > 2,000 episodes, greedy return -200.0 (-200.0 to -110.0)",
        ),
        (2, "not tested", "(Fisher's P = 0.50)"),
        (5, "differs", "(Fisher's P = 0.02)"),
    ],
)
def test_noise_that_helps(tmp_path, noisy, expected, words):
    assert verdict_of(tmp_path, control.noise_does_not_help, task="mountaincar") == "not tested"
    for name, solved in (("dqn", 1), ("dqn-weight-noise", noisy)):
        assert verdict_of(tmp_path, control.noise_does_not_help, task="mountaincar") == "not tested"
        there, not_there = final(9, 500, 2_000, -110.0), final(None, None, 2_000, -200.0)
        finals = [there] * solved + [not_there] * (5 - solved)
        save_finals(tmp_path, f"baselines-mountaincar/{name}", *finals)
    [finding] = control.noise_does_not_help(Evidence.under(tmp_path), "mountaincar")
    assert words in finding.text
    assert verdict_of(tmp_path, control.noise_does_not_help, task="mountaincar") == expected


def exploring(seed, goals, phase="explore"):
    return [
        {"phase": phase, "seed": seed, "episode": i + 1, "reached": reached}
        for i, reached in enumerate(goals)
    ]


def test_when_exploring_first_met_the_goal(tmp_path):
    rows = [*exploring(0, [False, True, True]), *exploring(1, [False] * 3), *exploring(1, [True], "exploit")]
    save(tmp_path, "acrobot/paper", rows)
    found = Evidence.under(tmp_path).first_goal("acrobot/paper")
    assert found.happened == (2,)
    assert found.gave_up == (3,)
    given = {"settings": control.ALONE, "task": "acrobot"}
    assert verdict_of(tmp_path, control.explores_quickly, **given) == "differs"
    save(tmp_path, "acrobot/paper", exploring(0, [False, True, True]))
    assert verdict_of(tmp_path, control.explores_quickly, **given) == "holds"


@pytest.mark.parametrize(("ours", "expected"), [(-100.0, "holds"), (-114.0, "holds"), (-116.0, "differs")])
def test_success_like_that_of_dqns_at_their_best(tmp_path, ours, expected):
    """Of two one got there, whose best stretch the table has."""
    save_finals(tmp_path, "baselines-mountaincar/dqn-long", final(9, 500, mean=-200.0), final(9, mean=-200.0))
    path = tmp_path / "baselines-mountaincar-dqn-long.csv"
    path.write_text("seed,episode,return_mean\n0,500,-105.0\n0,1000,-200.0\n1,500,-90.0\n")
    save(tmp_path, "mountaincar/paper", exploit=[{"seed": 0, "budget": 100, "return_mean": ours}])
    assert verdict_of(tmp_path, control.similar_to_the_dqn, settings=control.ALONE) == expected


def test_budgets_that_are_too_large_do_not_count(tmp_path):
    exploit = [
        {"seed": s, "budget": b, "return_mean": r} for s in (0, 1) for b, r in ((200, -120.0), (300, -100.0))
    ]
    save(tmp_path, "mountaincar/paper", exploit=exploit)
    given = {"settings": control.ALONE, "task": "mountaincar"}
    assert verdict_of(tmp_path, control.neural_solves, **given, within=299) == "holds"
    [finding] = control.neural_solves(Evidence.under(tmp_path), **given, within=299)
    assert "-120.0 (-120.0 to -120.0)" in finding.text
    assert verdict_of(tmp_path, control.neural_solves, **given, within=100) == "not tested"


@pytest.mark.parametrize(
    ("finds", "early", "late"),
    [
        ([None, None], "holds", "not tested"),
        ([12_000, 15_000], "holds", "holds"),
        ([900, None], "differs", "differs"),
    ],
)
def test_rnd_after_ten_thousand_episodes(tmp_path, finds, early, late):
    budget = 10_000 if finds == [None, None] else 20_000
    save_finals(tmp_path, "baselines-mountaincar/ppo-rnd-long", *(final(at, episodes=budget) for at in finds))
    assert verdict_of(tmp_path, control.rnd_collects_nothing_early) == early
    assert verdict_of(tmp_path, control.rnd_collects_late) == late


def test_ranks_and_failures(tmp_path):
    folder = tmp_path / "dreem"
    folder.mkdir()
    row = {"family": "tabular", "states": 4, "bound": 4, "ranks": [1, 5]}
    (folder / "rank.json").write_text(json.dumps({"rows": [row]}))  # without the name of an experiment
    assert verdict_of(tmp_path, theory.rank_at_most, family="tabular") == "differs"
    for failures, expected in ((0, "holds"), (20, "differs")):
        rows = [{"family": "random", "delta": 0.1, "runs": 200, "failures": failures}]
        (folder / "certify.json").write_text(json.dumps({"rows": rows}))
        assert verdict_of(tmp_path, theory.few_failures, experiments=["dreem/certify"]) == expected


def test_what_was_asked_for_is_told(tmp_path):
    one = judge(Claim("x", "5", "It is so.", "it is", mazes.dqn_fails), Evidence.under(tmp_path))
    assert one.cells == ("baselines-maze/10-dqn", "baselines-maze/20-dqn")
    assert one.as_dict()["verdict"] == "not tested"


def test_runs_under_way_and_second_copies_are_left_alone(tmp_path):
    save(tmp_path / "lock", "lock/h5", mark=1)
    save(tmp_path / "lock" / "again", "lock/h5", mark=2)
    save(tmp_path / "lock" / "unfinished", "lock/h10")
    evidence = Evidence.under(tmp_path)
    assert [result.about for result in evidence.named.values()] == [{"experiment": "lock/h5", "mark": 1}]


def test_confirmatory_seeds_decide_where_they_were_run(tmp_path):
    """The paper's seeds hold, the others do not; a claim that was not tested on them stays as it is."""
    config = as_dict(PRESETS["paper-lock-h20"])
    save_locks(tmp_path / "lock", 5, config=config)
    save_locks(tmp_path / "confirm" / "lock", 1, config=config)
    save_finals(tmp_path / "confirm" / "baselines", "baselines-maze/5-dqn", final(9, 900, mean=1.7))
    found = {(one.claim.name, one.claim.settings): one for one in judged(tmp_path)}
    one = found["lock/optimal", lock.PAPERS]
    assert one.verdict is Verdict.DIFFERS
    assert one.measured.startswith("confirmatory seeds: H=5: 1 of 5")
    assert one.measured.endswith("H=20: 5 of 5 [48%, 100%] (holds)")
    assert found["maze/dqn-small", ""].verdict is Verdict.HOLDS
    assert found["lock/antishaped-others", ""].verdict is Verdict.NOT_TESTED
    assert Evidence.under(tmp_path).find("baselines-maze/5-dqn") is None


def test_confirmatory_seeds_that_cannot_tell_leave_it_open(tmp_path):
    """Few seeds of the paper's say that it holds, many others that chance may explain it. Where not all that a claim
    asks for was run, they say nothing."""
    hopeful, plain = "baselines-lock/h10-standard-dqn", "baselines-optimism/h10-without"
    there, nowhere = final(9, 900), final(None)
    save_finals(tmp_path / "baselines", hopeful, *[there] * 5)
    save_finals(tmp_path / "baselines", plain, *[nowhere] * 5)
    save_finals(tmp_path / "confirm" / "baselines", hopeful, *[there] * 8, *[nowhere] * 12)

    def optimism():
        return next(one for one in judged(tmp_path) if one.claim.name == "lock/optimism")

    assert optimism().verdict is Verdict.HOLDS
    save_finals(tmp_path / "confirm" / "baselines", plain, *[there] * 3, *[nowhere] * 17)
    assert optimism().verdict is Verdict.NOT_TESTED
    assert optimism().measured.startswith("confirmatory seeds: H=10: 8 of 20")


def test_the_page_of_the_documentation_is_made_from_the_data():
    """`e3rl reproduce claims --out docs` makes it again."""
    assert (ROOT / "docs" / "claims.md").read_text() == page(judged(ROOT / "results"))


def test_somebodys_own_file_is_left_alone(tmp_path):
    claims = judged(tmp_path)
    assert write_page(tmp_path / "docs", claims).read_text().startswith(MADE)
    write_page(tmp_path / "docs", claims)
    (tmp_path / "claims.md").write_text("my claims")
    with pytest.raises(UserError, match="left alone"):
        write_page(tmp_path, claims)


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["reproduce", "claims"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    (tmp_path / "results").mkdir()
    assert cli.main(["reproduce", "claims", "--json", "--out", "docs"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert len(said["claims"]) == len(CLAIMS)
    assert {one["verdict"] for one in said["claims"]} == {"holds", "not tested"}
    assert said["page"] == "docs/claims.md"
    assert cli.main(["reproduce", "claims"]) == 0
    assert "NOT TESTED  5.1: " in capsys.readouterr().out
