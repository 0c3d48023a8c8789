"""Section 5.1 and appendix C.1: combination locks."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from e3rl.reports.claims.claim import Claim, Finding, missing
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.lock_budgets import PAPER_RATIO
from e3rl.reports.statistics.comparisons import probability_of_improvement
from e3rl.reports.statistics.intervals import Share, spread

HORIZONS = (5, 10, 15, 20)
LONG = (15, 20)
"""What the paper's "longer horizons" are taken to be."""
PAPERS, OURS, DEFAULTS = "the paper's", "e3rl's, the paper's budget", "e3rl's, ends by itself"
OPTIMISTIC = "the paper's, with values that start high"
"""Of the DQN."""
FIVE = "the paper's, with five noise bits"
"""As many as the released commands leave; ours are as many as there are levels."""
RELEASED = "the paper's, five noise bits and two actions paid"
"""The released code's lock; in the text one action pays."""
FAMILIES = {
    PAPERS: "lock-paper", FIVE: "lock-paper-5bits", RELEASED: "lock-released", OURS: "lock",
    DEFAULTS: "stopping-protocol",
}  # fmt: skip
"""Experiments of Neural-E³, by whose settings they have."""
BASELINES = {"dqn": "DQN", "ppo": "PPO", "ppo-rnd": "PPO+RND"}
Measure = Callable[[Evidence], Sequence[Finding]]


def neural_cell(settings: str, horizon: int) -> tuple[str, int | None]:
    """Experiment and budget, the latter in episodes per level."""
    if settings == FIVE and horizon == 5:  # there the two are the same
        settings = PAPERS
    return f"{FAMILIES[settings]}/h{horizon}", None if settings == DEFAULTS else PAPER_RATIO[horizon]


def baseline_cell(horizon: int, reward: str, algo: str) -> str:
    return f"baselines-lock/h{horizon}-{reward}-{algo}"


def longer_cells(horizon: int, reward: str, algo: str) -> tuple[str, str]:
    """The paper's settings with Figure 4's budget, or else a smaller one. The DQN of `baselines-lock` is not the
    paper's: its values start at the size of the reward."""
    shorter = (
        f"baselines-paper/h{horizon}-{reward}-dqn" if algo == "dqn" else baseline_cell(horizon, reward, algo)
    )
    return f"baselines-long/h{horizon}-{reward}-{algo}", shorter


def dqn_cells(settings: str, horizon: int) -> tuple[str, ...]:
    if settings == PAPERS:
        return longer_cells(horizon, "standard", "dqn")
    if settings == RELEASED:
        return (f"baselines-released/h{horizon}-standard-dqn",)
    return (baseline_cell(horizon, "standard", "dqn"),)


def _gets_there(evidence: Evidence, horizon: int, *experiments: str) -> Finding:
    """Most seeds do. Failing within the smaller of two budgets says nothing about the larger one."""
    waited = evidence.to_bar(*experiments)
    if waited is None:
        return missing(f"H={horizon}")
    enough = waited.share.is_most or (False if evidence.find(experiments[0]) else None)
    tail = ", Figure 4's budget not run" if enough is None else ""
    return Finding(f"H={horizon}: {waited}{tail}", enough, run=enough is not None)


def optimal_on_most_seeds(
    evidence: Evidence, settings: str, reward: str, horizons: Sequence[int]
) -> list[Finding]:
    found = []
    for horizon in horizons:
        experiment, ratio = neural_cell(settings, horizon)
        share = evidence.solved(experiment, reward, ratio)
        found.append(
            missing(f"H={horizon}") if share is None else Finding(f"H={horizon}: {share}", share.is_most)
        )
    return found


def dqn_gets_there(evidence: Evidence, settings: str) -> list[Finding]:
    return [_gets_there(evidence, horizon, *dqn_cells(settings, horizon)) for horizon in HORIZONS]


def dqn_needs_more(evidence: Evidence, settings: str) -> list[Finding]:
    told, more = [], []
    for horizon in HORIZONS:
        dqn = evidence.to_bar(*dqn_cells(settings, horizon))
        neural = evidence.episodes_to_solve(neural_cell(settings, horizon)[0], "standard")
        if dqn is None or neural is None:
            told.append(f"H={horizon}: not run")
            continue
        told.append(f"H={horizon}: {_episodes(dqn)} against {_episodes(neural)}")
        if not math.isinf(min(dqn.median.value, neural.median.value)):
            more.append(dqn.median.value > neural.median.value)
    run = not any(text.endswith("not run") for text in told)
    return [Finding("; ".join(told), 2 * sum(more) > len(more) if run and more else None, run)]


def _episodes(waited: object) -> str:
    """The end of a waiting time's text: "median 594"."""
    return str(waited).rpartition(", ")[2]


def ppo_never_collects(evidence: Evidence) -> list[Finding]:
    found = []
    for horizon in LONG:
        finals = evidence.finals(*longer_cells(horizon, "standard", "ppo"))
        if finals is None:
            found.append(missing(f"H={horizon}"))
            continue
        times, episodes = (sum(one[key] for one in finals) for key in ("episodes_that_found", "episodes"))
        met, learned = (sum(one[key] is not None for one in finals) for key in ("first_found", "over_bar"))
        text = f"H={horizon}: met by {Share(met, len(finals))} seeds, in {times} of {episodes:,} episodes"
        text += f", learned by {learned}"
        found.append(Finding(text, times == 0))
    return found


def rnd_succeeds(evidence: Evidence, reward: str) -> list[Finding]:
    return [_gets_there(evidence, horizon, *longer_cells(horizon, reward, "ppo-rnd")) for horizon in LONG]


def others_stay_in_the_local_optimum(evidence: Evidence) -> list[Finding]:
    found = []
    for horizon in LONG:
        for algo, name in BASELINES.items():
            finals = evidence.finals(baseline_cell(horizon, "antishaped", algo))
            if finals is None:
                found.append(missing(f"H={horizon}, {name}"))
                continue
            returns = [one["return_mean"] for one in finals]
            text = f"H={horizon}, {name}: {spread(returns)} of {finals[0]['optimal_return']:.2f}"
            found.append(Finding(text, max(returns) < finals[0]["bar"]))
    return found


def less_while_exploring(evidence: Evidence, settings: str) -> list[Finding]:
    found = []
    for horizon in LONG:
        result = evidence.find(neural_cell(settings, horizon)[0])
        by_seed = {} if result is None else result.about.get("explore_return_mean", {}).get("antishaped", {})
        if result is None or not by_seed:
            found.append(missing(f"H={horizon}, returns while exploring"))
            continue
        own = np.array(list(by_seed.values()), float)
        episodes = max(result.about["settings"]["ratios"]) * horizon
        for algo, name in BASELINES.items():
            theirs = evidence.training_return(baseline_cell(horizon, "antishaped", algo), episodes)
            if theirs is None:
                found.append(missing(f"H={horizon}, {name}"))
                continue
            chance = probability_of_improvement([own], [theirs])
            text = f"H={horizon}: {np.median(own):.3f} against {name}'s {np.median(theirs):.3f}, P(more) {chance:.2f}"
            found.append(Finding(text, chance < 0.5))
    return found


def dqn_faster_than_rnd(evidence: Evidence, settings: str) -> list[Finding]:
    found = []
    for horizon in LONG:
        dqn = evidence.to_bar(*dqn_cells(settings, horizon))
        rnd = evidence.to_bar(*longer_cells(horizon, "standard", "ppo-rnd"))
        if dqn is None or rnd is None:
            found.append(missing(f"H={horizon}"))
            continue
        ours, theirs = dqn.median.value, rnd.median.value
        neither = math.isinf(ours) and math.isinf(theirs)
        text = f"H={horizon}: DQN {_episodes(dqn)}, PPO+RND {_episodes(rnd)}"
        found.append(Finding(text, None if neither else 2 * ours < theirs))
    return found


def for_all(
    settings: Sequence[str], measure: Callable[..., Sequence[Finding]], **given: object
) -> dict[str, Measure]:
    return {whose: partial(measure, settings=whose, **given) for whose in settings}


CLAIMS = [
    *(
        Claim(
            "lock/optimal", "5.1", "With standard rewards Neural-E³ reaches the optimal reward on most seeds at every "
            "horizon.", "more than half of the seeds have 95% of the optimum, at each horizon", measure, whose,
            "The paper's text has one paid action and does not say how many noise bits; ours are as many as there are "
            "levels. The released commands leave five, and the released code pays two actions.",
        )
        for whose, measure in for_all(
            (PAPERS, FIVE, RELEASED, OURS, DEFAULTS),
            optimal_on_most_seeds,
            reward="standard",
            horizons=HORIZONS,
        ).items()
    ),
    *(
        Claim(
            "lock/dqn-performs-well", "5.1, C.1", "The DQN does well on standard rewards, at longer horizons too.",
            "more than half of the seeds get a mean of 100 episodes above half of the optimum, at each horizon",
            measure, whose,
            "The paper found its DQN to depend on details of the implementation, and suspects values that happen to "
            "start optimistic.",
        )
        for whose, measure in for_all((PAPERS, RELEASED, OPTIMISTIC), dqn_gets_there).items()
    ),
    *(
        Claim(
            "lock/dqn-needs-more", "5.1", "The DQN often needs more samples than Neural-E³.",
            "the DQN's median of episodes is larger at most of the horizons at which one of them gets there",
            measure, whose,
            "The DQN's episodes are those until a mean of 100 is above half of the optimum, Neural-E³'s the smallest "
            "measured budget after which it has 95%. Beside e3rl's settings stands the DQN whose values start high, "
            "which is the better one.",
        )
        for whose, measure in for_all((PAPERS, OURS, DEFAULTS), dqn_needs_more).items()
    ),
    Claim(
        "lock/ppo-never-collects", "5.1", "At longer horizons PPO never collects the reward.",
        "no episode of any seed has the large reward", ppo_never_collects,
    ),
    Claim(
        "lock/rnd-late", "5.1", "At longer horizons PPO+RND succeeds in the end, after many episodes.",
        "more than half of the seeds get a mean of 100 above half of the optimum",
        partial(rnd_succeeds, reward="standard"),
    ),
    *(
        Claim(
            "lock/antishaped-optimal", "5.1",
            "With antishaped rewards and longer horizons Neural-E³ reaches the global "
            "optimum.", "more than half of the seeds have 95% of the optimum, at each horizon", measure, whose,
        )
        for whose, measure in for_all(
            (PAPERS, OURS, DEFAULTS), optimal_on_most_seeds, reward="antishaped", horizons=LONG
        ).items()
    ),
    Claim(
        "lock/antishaped-others", "5.1", "There none of the other methods gets past the local optimum.",
        "no seed's greedy return exceeds half of the optimum", others_stay_in_the_local_optimum,
    ),
    *(
        Claim(
            "lock/less-while-exploring", "5.1", "There Neural-E³ collects less than the others while it explores.",
            "a seed of Neural-E³ collects less, more often than not, over as many episodes", measure, whose,
        )
        for whose, measure in for_all((PAPERS, OURS), less_while_exploring).items()
    ),
    Claim(
        "lock/rnd-antishaped", "Figure 4",
        "Given enough episodes PPO+RND does reasonably, with antishaped rewards too.",
        "more than half of the seeds get a mean of 100 above half of the optimum",
        partial(rnd_succeeds, reward="antishaped"),
    ),
    *(
        Claim(
            "lock/dqn-faster-than-rnd", "C.1", "At longer horizons the DQN needs far fewer samples than PPO+RND.",
            "less than half as many, in the median", measure, whose,
        )
        for whose, measure in for_all((PAPERS, OPTIMISTIC), dqn_faster_than_rnd).items()
    ),
]  # fmt: skip
