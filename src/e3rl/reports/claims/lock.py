"""Section 5.1 and appendix C.1: combination locks."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from scipy import stats

from e3rl.envs.lock import DEAD, CombinationLock
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
    PAPERS: "lock-paper", FIVE: "lock-paper-5bits", RELEASED: "lock-released", OURS: "lock", DEFAULTS: "stopping",
}  # fmt: skip
"""Experiments of Neural-E³, by whose settings they have."""
BASELINES = {"dqn": "DQN", "ppo": "PPO", "ppo-rnd": "PPO+RND"}
Measure = Callable[[Evidence], Sequence[Finding]]


def _neural(settings: str, horizon: int) -> tuple[str, int | None]:
    """Experiment and budget, the latter in episodes per level."""
    if settings == FIVE and horizon == 5:  # there the two are the same
        settings = PAPERS
    return f"{FAMILIES[settings]}/h{horizon}", None if settings == DEFAULTS else PAPER_RATIO[horizon]


def _baseline(horizon: int, reward: str, algo: str) -> str:
    return f"baselines-lock/h{horizon}-{reward}-{algo}"


def _longer(horizon: int, reward: str, algo: str) -> tuple[str, str]:
    """The paper's settings with Figure 4's budget, or else a smaller one. The DQN of `baselines-lock` is not the
    paper's: its values start at the size of the reward."""
    shorter = (
        f"baselines-paper/h{horizon}-{reward}-dqn" if algo == "dqn" else _baseline(horizon, reward, algo)
    )
    return f"baselines-long/h{horizon}-{reward}-{algo}", shorter


def _dqn(settings: str, horizon: int) -> tuple[str, ...]:
    if settings == PAPERS:
        return _longer(horizon, "standard", "dqn")
    return (_baseline(horizon, "standard", "dqn"),)


def _gets_there(evidence: Evidence, horizon: int, *experiments: str) -> Finding:
    """Most seeds do. Failing within the smaller of two budgets says nothing about the larger one."""
    waited = evidence.to_bar(*experiments)
    if waited is None:
        return missing(f"H={horizon}")
    enough = waited.share.is_most or (False if evidence.find(experiments[0]) else None)
    tail = ", Figure 4's budget not run" if enough is None else ""
    return Finding(f"H={horizon}: {waited}{tail}", enough)


def optimal_on_most_seeds(
    evidence: Evidence, settings: str, reward: str, horizons: Sequence[int]
) -> list[Finding]:
    found = []
    for horizon in horizons:
        experiment, ratio = _neural(settings, horizon)
        share = evidence.solved(experiment, reward, ratio)
        found.append(
            missing(f"H={horizon}") if share is None else Finding(f"H={horizon}: {share}", share.is_most)
        )
    return found


def dqn_gets_there(evidence: Evidence, settings: str) -> list[Finding]:
    return [_gets_there(evidence, horizon, *_dqn(settings, horizon)) for horizon in HORIZONS]


def dqn_needs_more(evidence: Evidence, settings: str) -> list[Finding]:
    told, more = [], []
    for horizon in HORIZONS:
        dqn = evidence.to_bar(*_dqn(settings, horizon))
        neural = evidence.episodes_to_solve(_neural(settings, horizon)[0], "standard")
        if dqn is None or neural is None:
            told.append(f"H={horizon}: not run")
            continue
        told.append(f"H={horizon}: {_episodes(dqn)} against {_episodes(neural)}")
        if not math.isinf(min(dqn.median.value, neural.median.value)):
            more.append(dqn.median.value > neural.median.value)
    complete = more and not any(text.endswith("not run") for text in told)
    return [Finding("; ".join(told), 2 * sum(more) > len(more) if complete else None)]


def _episodes(waited: object) -> str:
    """The end of a waiting time's text: "median 594"."""
    return str(waited).rpartition(", ")[2]


def ppo_never_collects(evidence: Evidence) -> list[Finding]:
    found = []
    for horizon in LONG:
        finals = evidence.finals(_baseline(horizon, "standard", "ppo"))
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
    return [_gets_there(evidence, horizon, *_longer(horizon, reward, "ppo-rnd")) for horizon in LONG]


def others_stay_in_the_local_optimum(evidence: Evidence) -> list[Finding]:
    found = []
    for horizon in LONG:
        for algo, name in BASELINES.items():
            finals = evidence.finals(_baseline(horizon, "antishaped", algo))
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
        result = evidence.find(_neural(settings, horizon)[0])
        by_seed = {} if result is None else result.about.get("explore_return_mean", {}).get("antishaped", {})
        if result is None or not by_seed:
            found.append(missing(f"H={horizon}, returns while exploring"))
            continue
        own = np.array(list(by_seed.values()), float)
        episodes = max(result.about["settings"]["ratios"]) * horizon
        for algo, name in BASELINES.items():
            theirs = evidence.training_return(_baseline(horizon, "antishaped", algo), episodes)
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
        dqn = evidence.to_bar(*_dqn(settings, horizon))
        rnd = evidence.to_bar(*_longer(horizon, "standard", "ppo-rnd"))
        if dqn is None or rnd is None:
            found.append(missing(f"H={horizon}"))
            continue
        ours, theirs = dqn.median.value, rnd.median.value
        neither = math.isinf(ours) and math.isinf(theirs)
        text = f"H={horizon}: DQN {_episodes(dqn)}, PPO+RND {_episodes(rnd)}"
        found.append(Finding(text, None if neither else 2 * ours < theirs))
    return found


def chance_of_uniform_play(horizon: int, rewarded_actions: int = 1) -> float:
    """That an episode of random actions meets the large reward, by the lock's own tables."""
    lock = CombinationLock(horizon, rewarded_actions=rewarded_actions)
    alive = np.mean(np.asarray(lock.successor)[:-1] != DEAD, axis=(1, 2))
    return float(np.prod(alive) * np.mean(np.asarray(lock.pays)))


def uniform_chance(evidence: Evidence) -> list[Finding]:
    text, code = chance_of_uniform_play(20), chance_of_uniform_play(20, rewarded_actions=2)
    told = f"{text:.1e} with one paid action (the text), {code:.1e} with two (the code), exactly"
    return [Finding(told, abs(math.log10(text) + 6) < 0.5)]


def greedy_explores_better(evidence: Evidence) -> list[Finding]:
    met, watched, expected = 0, 0, 0.0
    for horizon in (10, *LONG):
        waited = evidence.first_found(_baseline(horizon, "standard", "dqn"))
        if waited is None:
            return [missing(f"H={horizon}")]
        episodes = sum(waited.happened) + sum(waited.gave_up)
        met, watched = met + len(waited.happened), watched + episodes
        expected += episodes * chance_of_uniform_play(horizon)
    surprise = float(stats.poisson.sf(met - 1, expected)) if met else 1.0
    told = f"H=10 to 20: {met} seeds met the reward in {watched:,} episodes before, uniform play would {expected:.1f}"
    return [Finding(f"{told} (P = {surprise:.2f})", surprise < 0.05)]


def optimism_matters(evidence: Evidence) -> list[Finding]:
    hopeful = evidence.to_bar(_baseline(10, "standard", "dqn"))
    plain = evidence.to_bar("baselines-optimism/h10-without")
    if hopeful is None or plain is None:
        return [missing("H=10")]
    table = [[w.share.hits, w.share.total - w.share.hits] for w in (hopeful, plain)]
    chance = float(stats.fisher_exact(table, "greater").pvalue)
    text = f"H=10: {hopeful.share} with optimistic values, {plain.share} without (Fisher's P = {chance:.2f})"
    return [Finding(text, chance < 0.05)]


def greedy_at_once(evidence: Evidence) -> list[Finding]:
    """The table's three fractions of 50,000 episodes, where the DQN gets anywhere."""
    cells = {
        "0.001": "baselines-paper/h5-standard-dqn",
        "0.01": "baselines-fraction/h5-0.01",
        "0.1": "baselines-fraction/h5-0.1",
    }
    waited = {fraction: evidence.to_bar(cell) for fraction, cell in cells.items()}
    known = {fraction: waiting for fraction, waiting in waited.items() if waiting is not None}
    if len(known) < len(cells):
        return [missing("H=5")]
    text = ", ".join(f"{fraction}: {waiting}" for fraction, waiting in known.items())
    smallest, *larger = (waiting.share.hits for waiting in known.values())
    return [Finding(f"H=5, {text}", all(smallest >= hits for hits in larger))]


def priorities_matter(evidence: Evidence) -> list[Finding]:
    with_them, without = (
        evidence.to_bar(cell) for cell in ("baselines-paper/h5-standard-dqn", "baselines-replay/h5-uniform")
    )
    if with_them is None or without is None:
        return [missing("H=5")]
    text = f"H=5: {with_them} with priorities, {without} without"
    return [Finding(text, without.share.hits < with_them.share.hits), *_another_implementation(evidence)]


def _another_implementation(evidence: Evidence) -> list[Finding]:
    result = evidence.find("peers/summary")
    rows = [] if result is None else result.about["rows"]
    return [
        Finding(
            f"H=5, Stable-Baselines3's: greedy return {one['sb3_return_mean']:.1f}",
            one["sb3_return_mean"] < one["e3rl_return_mean"] / 2,
        )
        for one in rows
        if (one["env"], one["algo"]) == ("lock-h5", "dqn")
    ]


def dqn_exploits_better_than_search(evidence: Evidence) -> list[Finding]:
    dqn, search = (
        evidence.solved(f"planning/value-exploit-{name}", "antishaped", 16) for name in ("dqn", "mcts")
    )
    if dqn is None or search is None:
        return [missing("H=8, antishaped")]
    return [Finding(f"H=8, antishaped: DQN {dqn}, tree search {search}", dqn.hits > search.hits)]


def one_tolerance_serves_all(evidence: Evidence) -> list[Finding]:
    ended, done, count, shares = 0, 0, 0, set()
    for horizon in HORIZONS:
        result, rows = evidence.find(f"stopping/h{horizon}"), evidence.rows(f"stopping/h{horizon}")
        if result is None or rows is None:
            return [missing(f"H={horizon}")]
        shares.add(f"{result.about['config']['explore']['epsilon_share']:.0%}")
        ended += sum(row["by_itself"] == "True" for row in rows)
        done += sum(row["by_itself"] == row["solved"] == "True" for row in rows)
        count += len(rows)
    text = (
        f"{' or '.join(sorted(shares))} of the range of returns ended exploration on {ended} of {count} seeds"
    )
    return [Finding(f"{text}, solved on {done}, at all four horizons", done < count)]


def _for_all(
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
        for whose, measure in _for_all(
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
        for whose, measure in _for_all((PAPERS, OPTIMISTIC), dqn_gets_there).items()
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
        for whose, measure in _for_all((PAPERS, OURS, DEFAULTS), dqn_needs_more).items()
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
        for whose, measure in _for_all(
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
        for whose, measure in _for_all((PAPERS, OURS), less_while_exploring).items()
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
        for whose, measure in _for_all((PAPERS, OPTIMISTIC), dqn_faster_than_rnd).items()
    ),
    Claim(
        "lock/greedy-at-once", "C.1", "The DQN does best with the smallest exploration fraction, 0.001.",
        "no larger fraction solves more seeds", greedy_at_once,
        note="At five levels, the only ones at which this DQN gets anywhere."
    ),
    Claim(
        "lock/greedy-explores-better", "C.1", "Acting greedily explores the lock better than acting at random.",
        "more seeds of the DQN meet the reward than chance explains (P < 0.05)", greedy_explores_better,
    ),
    Claim(
        "lock/uniform-chance", "C.1", "Uniform play reaches the reward of H = 20 with a chance of about 1e-6.",
        "within a factor of three", uniform_chance,
    ),
    Claim(
        "lock/optimism", "C.1", "The DQN may owe its success to networks that start with optimistic values.",
        "more seeds get there with optimistic values (Fisher's exact test, P < 0.05)", optimism_matters,
    ),
    Claim(
        "lock/no-priorities", "C.1",
        "Without prioritised replay, or in another implementation, the DQN does very poorly.",
        "fewer seeds get there without priorities, and another implementation has less than half of the return",
        priorities_matter, note="At five levels; the paper does not say at which."
    ),
    Claim(
        "lock/dqn-exploits-better", "C.1", "An offline DQN exploits better than tree search, above all with antishaped "
        "rewards.", "it solves more seeds", dqn_exploits_better_than_search,
    ),
    Claim(
        "lock/epochs-simpler", "C",
        "A number of exploration epochs is simpler to set than ε, which depends on the task.",
        "one ε does not end exploration well at every horizon", one_tolerance_serves_all,
        note="Our ε is a share of the range of returns seen; the paper's is in units of disagreement.",
    ),
]  # fmt: skip
