"""Section 5.3 and appendix C.3: MountainCar and Acrobot; and how large ensembles must be (section 4.4)."""

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
from scipy import stats

from e3rl.experiments.baselines import MARKS
from e3rl.neural.old_names import stored_config
from e3rl.reports.claims.claim import Claim, Finding, missing, more_of
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.claims.lock import PAPERS
from e3rl.reports.claims.mazes import E3RLS
from e3rl.reports.statistics.intervals import LEVEL, Share, spread
from e3rl.reports.statistics.waiting import Waiting
from e3rl.types import UserError

ALONE, ROUNDS = "the paper's, without its rounds", "the paper's, with its rounds"
STEADIED = "the paper's, with a steadied DQN"
VARIANTS = {ALONE: "paper", ROUNDS: "paper-rounds", STEADIED: "steadied", E3RLS: "e3rl"}
BARS: Mapping[str, float] = {
    task: MARKS[env].bar or math.nan
    for task, env in (("mountaincar", "e3rl/MountainCar-v0"), ("acrobot", "e3rl/Acrobot-v1"))
}
DQN_EPISODES, NEURAL_EPISODES, RND_EPISODES = 1_200, 300, 10_000
"""As the paper has them."""
A_FEW_STEPS = 10
"""Of episodes that take over a hundred."""


def dqn_solves(evidence: Evidence) -> list[Finding]:
    waited = evidence.to_bar("baselines-mountaincar/dqn-long", "baselines-mountaincar/dqn")
    if waited is None:
        return [missing("DQN")]
    most = 2 * DQN_EPISODES
    about = DQN_EPISODES / 2 <= waited.median.value <= most
    # Who gave up before may have got there in time.
    enough = about or not math.isinf(waited.median.value) or min(waited.gave_up) >= most
    return [
        Finding(f"DQN: {waited} episodes", waited.share.is_most and about if enough else None, run=enough)
    ]


def neural_solves(evidence: Evidence, settings: str, task: str, within: int | None) -> list[Finding]:
    returns = evidence.greedy(f"{task}/{VARIANTS[settings]}", within)
    if returns is None:
        return [missing("Neural-E³")]
    share = Share(int(np.sum(returns >= BARS[task])), len(returns))
    text = f"{share} seeds at {BARS[task]:g} or better, greedy return {spread(list(returns), '.1f')}"
    return [Finding(text, share.is_most)]


def similar_to_the_dqn(evidence: Evidence, settings: str) -> list[Finding]:
    """Against the best stretch of training of every DQN that got to the bar: later it may have forgotten."""
    dqn = evidence.first("baselines-mountaincar/dqn-long", "baselines-mountaincar/dqn")
    returns = evidence.greedy(f"mountaincar/{VARIANTS[settings]}", NEURAL_EPISODES - 1)
    if dqn is None or returns is None:
        return [missing("DQN" if dqn is None else "Neural-E³")]
    there = {seed for seed, final in dqn.about["final"].items() if final["over_bar"] is not None}
    best: dict[str, float] = {}
    for row in evidence.rows(dqn.experiment) or []:
        if row["seed"] in there:
            best[row["seed"]] = max(best.get(row["seed"], -math.inf), float(row["return_mean"]))
    if not best:
        return [Finding("no DQN got there", None)]
    text = f"greedy return {spread(list(returns), '.1f')}; DQNs that got there {spread(list(best.values()), '.1f')}"
    return [Finding(text, bool(np.median(returns) >= np.median(list(best.values())) - A_FEW_STEPS))]


def explores_quickly(evidence: Evidence, settings: str, task: str) -> list[Finding]:
    """When exploring first meets the goal."""
    found = evidence.first_goal(f"{task}/{VARIANTS[settings]}")
    if found is None:
        return [missing("Neural-E³")]
    early = Share(sum(at < NEURAL_EPISODES for at in found.happened), found.share.total)
    return [
        Finding(
            f"{early} seeds met the goal while exploring, {str(found).rpartition(', ')[2]}", early.is_most
        )
    ]


def rnd_collects_nothing_early(evidence: Evidence) -> list[Finding]:
    waited = evidence.first_found(*RND)
    if waited is None:
        return [missing("PPO+RND")]
    early = sum(at <= RND_EPISODES for at in waited.happened)
    text = f"{Share(early, waited.share.total)} seeds met the goal in their first {RND_EPISODES:,} episodes"
    return [Finding(text, early == 0)]


def rnd_collects_late(evidence: Evidence) -> list[Finding]:
    waited = evidence.first_found(*RND)
    if waited is None or (not waited.happened and max(waited.gave_up) <= RND_EPISODES):
        return [missing(f"PPO+RND beyond {RND_EPISODES:,} episodes")]
    late = Share(sum(at > RND_EPISODES for at in waited.happened), waited.share.total)
    return [Finding(f"{late} seeds met the goal after that", late.is_most)]


RND = "baselines-mountaincar/ppo-rnd-long", "baselines-mountaincar/ppo-rnd"
ACROBOTS_RND = "baselines-acrobot/ppo-rnd-long", "baselines-acrobot/ppo-rnd"


Bounds = tuple[float, float]


def gain_is_smaller(evidence: Evidence, settings: str) -> list[Finding]:
    """The ratio of the DQN's median episodes, with their interval, to Neural-E³'s, on both tasks."""
    ratios = []
    for task in BARS:
        dqn = evidence.to_bar(f"baselines-{task}/dqn-long", f"baselines-{task}/dqn")
        neural = _episodes(evidence, settings, task)
        if dqn is None or neural is None:
            return [missing(task)]
        ratios.append(_ratio(_median_within(dqn), neural))
    car, acrobot = ratios
    told = ", ".join(f"{task} {_words(*ratio)}" for task, ratio in zip(BARS, ratios, strict=True))
    smaller = True if acrobot[1] < car[0] else False if acrobot[0] >= car[1] else None
    return [Finding(f"DQN's median episodes over Neural-E³'s, as far as its seeds tell: {told}", smaller)]


def _median_within(waited: Waiting) -> Bounds:
    """Two seeds between which the median lies with a chance of 94% or more: of five the first and the last, of twenty
    the sixth and the fifteenth. Kaplan and Meier's band has no upper end with so few. Runs that gave up would have
    taken longer than they were."""
    least = sorted([*waited.happened, *waited.gave_up])
    most = sorted([*map(float, waited.happened), *[math.inf] * len(waited.gave_up)])
    tail = max(1, int(stats.binom.ppf((1 - LEVEL) / 2, len(most), 0.5)))
    return float(least[tail - 1]), most[len(most) - tail]


def _episodes(evidence: Evidence, settings: str, task: str) -> Bounds | None:
    """What is known of Neural-E³'s median: an episode more than the largest budget that does not get most seeds to the
    bar, or more, and no more than the next."""
    result = evidence.find(f"{task}/{VARIANTS[settings]}")
    fewer = evidence.find(f"{task}/e3rl-few") if settings == E3RLS else None
    if result is None:
        return None
    verdicts = [one for found in (fewer, result) if found is not None for one in found.about["exploit"]]
    budgets = sorted({one["budget"] for one in verdicts})
    seeds = {one["seed"] for one in verdicts}
    there: set[int] = set()
    for before, budget in zip([0, *budgets], budgets, strict=False):
        there |= {v["seed"] for v in verdicts if v["budget"] == budget and v["return_mean"] >= BARS[task]}
        if Share(len(there), len(seeds)).is_most:
            return before + 1.0, float(budget)
    return budgets[-1] + 1.0, math.inf


def _ratio(many: Bounds, few: Bounds) -> Bounds:
    return many[0] / few[1], many[1] / few[0]


def _words(least: float, most: float) -> str:
    """Never more than is known: rounded outwards."""
    if math.isinf(most):
        return f"> {math.floor(least)}" if least > 0.0 else "unknown, as most of neither get there"
    return f"{math.floor(least)} to {math.ceil(most)}" if least >= 1.0 else f"< {math.ceil(most)}"


def rnd_is_quicker_on_acrobot(evidence: Evidence) -> list[Finding]:
    """Quicker progress is to meet the goal sooner, and to get to the bar sooner."""
    return [
        _quicker(what, wait(*ACROBOTS_RND), wait(*RND))
        for what, wait in (("goal first met", evidence.first_found), ("bar", evidence.to_bar))
    ]


def _quicker(what: str, acrobot: Waiting | None, car: Waiting | None) -> Finding:
    if acrobot is None or car is None:
        return missing("PPO+RND")
    here, there = ((one.median.value, min(one.gave_up, default=0)) for one in (acrobot, car))
    sooner = _is_less(here, there)
    return Finding(f"{what}: Acrobot {acrobot}; MountainCar {car}", sooner)


def _is_less(ours: tuple[float, int], theirs: tuple[float, int]) -> bool | None:
    """Of medians, each with how long was waited at least: one that was not met lies beyond that."""
    (here, waited), (there, others_waited) = ours, theirs
    if math.isinf(here):
        return False if waited >= there else None
    if math.isinf(there):
        return True if here < others_waited else None
    return here < there


def noise_does_not_help(evidence: Evidence, task: str) -> list[Finding]:
    """More seeds at the bar show that it helps where chance hardly explains them. With fewer than that nobody knows."""
    noisy, plain = NOISE[task]
    cells = f"baselines-{task}/{noisy}", f"baselines-{task}/{plain}"
    waits = [evidence.to_bar(cell) for cell in cells]
    if None in waits:
        return [missing("DQN with noise" if waits[0] is None else "DQN")]
    told = []
    for cell, name, waited in zip(cells, ("with noise", "without"), waits, strict=True):
        returns = [one["return_mean"] for one in evidence.finals(cell) or []]
        told.append(f"{name} {waited} episodes, greedy return {spread(returns, '.1f')}")
    more, chance = more_of(*(waited.share for waited in waits if waited is not None))
    return [Finding(f"{'; '.join(told)} (Fisher's P = {chance:.2f})", None if more is None else not more)]


NOISE = {"mountaincar": ("dqn-weight-noise", "dqn"), "acrobot": ("dqn-long-weight-noise", "dqn-long")}


PAPERS_SEARCHES = "graph", "graph-root", "tree"


def perfect_model_does_not_help(evidence: Evidence) -> list[Finding]:
    """Whether any search of the paper's sizes gets most episodes to the goal when it knows the true dynamics."""
    found = []
    for task in BARS:
        rows = evidence.rows(f"perfect-model/{task}")
        if rows is None:
            found.append(missing(task))
            continue
        own = [row for row in rows if row["planner"] in PAPERS_SEARCHES]
        shares = [Share(int(row["reached"]), int(row["episodes"])) for row in own]
        told = ", ".join(
            f"{row['planner']} {share.hits} of {share.total}, {1000 * float(row['seconds_per_plan']):.0f} ms a plan"
            for row, share in zip(own, shares, strict=True)
        )
        found.append(Finding(f"{task}: {told}", not any(share.is_most for share in shares)))
    return found


def small_ensembles_explore(evidence: Evidence, settings: str) -> list[Finding]:
    """On a lock, in mazes and on MountainCar. What is made of it is up to the exploit phase."""
    found = []
    for experiment in ENSEMBLES[settings]:
        result = evidence.find(experiment)
        if result is None:
            found.append(missing(experiment))
            continue
        try:
            config = stored_config(result.about["config"])
        except (KeyError, TypeError, UserError) as error:
            raise UserError(f"{result.path} is damaged: config: {error}") from error
        told, explored = _explored(evidence, experiment, config.explore.per_epoch)
        members = config.fit.members
        few = 4 <= members <= 8
        found.append(Finding(f"{experiment}, {members} members: {told}", explored if few else False))
    return found


def _explored(evidence: Evidence, experiment: str, per_epoch: int) -> tuple[str, bool | None]:
    """Of a lock the seeds, with each reward, that met the large one; elsewhere whether episodes reached the goal more
    often than those of the first epoch, which are uniform play, than chance explains."""
    rows = evidence.rows(experiment) or []
    if "phase" not in rows[0]:
        column, never = ("first_paid", "") if "first_paid" in rows[0] else ("paid_episodes", "0")
        every = {(row["reward"], row["seed"]) for row in rows}
        met = {(row["reward"], row["seed"]) for row in rows if row[column] != never}
        share = Share(len(met), len(every))
        return f"{share} met the reward", share.is_most
    reached: dict[bool, list[bool]] = {False: [], True: []}
    for row in (row for row in rows if row["phase"] == "explore"):
        reached[int(row["episode"]) > per_epoch].append(row["reached"] == "True")
    planned, uniform = (Share(sum(own), len(own)) for own in (reached[True], reached[False]))
    more, chance = more_of(planned, uniform)
    return f"goal in {planned} episodes, in {uniform} of uniform play (Fisher's P = {chance:.2f})", more


ENSEMBLES = {
    PAPERS: ("lock-paper/h20", "maze/10-paper", "mountaincar/paper"),
    E3RLS: ("stopping-protocol/h20", "maze/10-e3rl", "mountaincar/e3rl"),
}


CLAIMS = [
    *(
        Claim(
            "ensemble/small", "4.4", "Ensembles of 4 to 8 models explore successfully.",
            "with 4 to 8 members most seeds meet the reward of a lock while exploring, and episodes reach the goal of "
            "10 × 10 mazes and of MountainCar more often than uniform play (Fisher's exact test, P < 0.05), "
            "which nearly always does at 5 × 5",
            partial(small_ensembles_explore, settings=whose), whose,
        )
        for whose in ENSEMBLES
    ),
    Claim(
        "mountaincar/dqn", "5.3", "The DQN solves MountainCar after about 1,200 episodes.",
        f"more than half of the seeds get a mean of 100 above {BARS['mountaincar']:g}, in the median after 600 to "
        "2,400",
        dqn_solves,
    ),
    *(
        Claim(
            "mountaincar/explores", "5.3", "Neural-E³ explores MountainCar quickly.",
            f"most seeds meet the goal while exploring, in fewer than {NEURAL_EPISODES} episodes",
            partial(explores_quickly, settings=whose, task="mountaincar"), whose,
        )
        for whose in VARIANTS
    ),
    *(
        Claim(
            "mountaincar/neural", "5.3", "Neural-E³ solves it in under 300 episodes.",
            "most seeds reach the DQN's bar greedily after fewer",
            partial(neural_solves, settings=whose, task="mountaincar", within=NEURAL_EPISODES - 1), whose,
        )
        for whose in VARIANTS
    ),
    *(
        Claim(
            "mountaincar/similar", "5.3", "Its success there is similar to the DQN's.",
            f"its median greedy return is no more than {A_FEW_STEPS} below the best of DQNs that got to the bar",
            partial(similar_to_the_dqn, settings=whose), whose,
        )
        for whose in VARIANTS
    ),
    Claim(
        "mountaincar/rnd-nothing-early", "5.3", "PPO+RND collects nothing in its first 10,000 episodes.",
        "no seed meets the goal", rnd_collects_nothing_early,
    ),
    Claim(
        "mountaincar/rnd-late", "5.3", "After that it does.", "most seeds meet the goal then", rnd_collects_late,
    ),
    Claim(
        "control/perfect-model", "5.3", "Even with a perfect model planning for the sparse reward is impractical.",
        "with the true dynamics no search of the paper's sizes gets most episodes to the goal",
        perfect_model_does_not_help,
        note="Graph search of 2,000 nodes, by the distance to the nearest node (the text) and to the root (the "
        "released code for control), and tree search with 200 playouts.",
    ),
    *(
        Claim(
            "acrobot/neural", "5.3", "Neural-E³ explores Acrobot quickly too.",
            f"most seeds meet the goal while exploring, in fewer than {NEURAL_EPISODES} episodes",
            partial(explores_quickly, settings=whose, task="acrobot"), whose,
        )
        for whose in VARIANTS
    ),
    *(
        Claim(
            "acrobot/smaller-gain", "5.3", "There its gain over the DQN is smaller than on MountainCar.",
            "the DQN needs fewer times Neural-E³'s episodes than on MountainCar",
            partial(gain_is_smaller, settings=whose),
            whose,
        )
        for whose in VARIANTS
    ),
    Claim(
        "acrobot/rnd", "5.3", "PPO+RND gets going sooner on Acrobot than on MountainCar.",
        "the median seed meets the goal earlier, and gets to the bar earlier", rnd_is_quicker_on_acrobot,
    ),
    *(
        Claim(
            f"{task}/parameter-noise", "C.3", f"Parameter noise does not help the DQN ({name}).",
            f"no larger share of the seeds gets a mean of 100 above {BARS[task]:g} with it; it differs where more "
            "do than chance explains (Fisher's exact test, P < 0.05)",
            partial(noise_does_not_help, task=task),
        )
        for task, name in (("mountaincar", "MountainCar"), ("acrobot", "Acrobot"))
    ),
]  # fmt: skip
