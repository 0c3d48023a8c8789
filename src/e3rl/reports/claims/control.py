"""Section 5.3 and appendix C.3: MountainCar and Acrobot; and how large ensembles must be (section 4.4)."""

import math
from collections.abc import Mapping
from functools import partial

import numpy as np
from scipy import stats

from e3rl.experiments.baselines import MARKS
from e3rl.neural.old_names import stored_config
from e3rl.reports.claims.claim import Claim, Finding, missing
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.claims.lock import PAPERS
from e3rl.reports.claims.mazes import E3RLS
from e3rl.reports.statistics.intervals import Share, spread
from e3rl.types import UserError

STEADIED = "the paper's, with a steadied DQN"
VARIANTS = {PAPERS: "paper", STEADIED: "steadied", E3RLS: "e3rl"}
BARS: Mapping[str, float] = {
    task: MARKS[env].bar or math.nan
    for task, env in (("mountaincar", "e3rl/MountainCar-v0"), ("acrobot", "e3rl/Acrobot-v1"))
}
DQN_EPISODES, NEURAL_EPISODES, RND_EPISODES = 1_200, 300, 10_000
"""As the paper has them."""


def dqn_solves(evidence: Evidence) -> list[Finding]:
    waited = evidence.to_bar("baselines-mountaincar/dqn")
    if waited is None:
        return [missing("DQN")]
    about = DQN_EPISODES / 2 <= waited.median.value <= 2 * DQN_EPISODES
    return [Finding(f"DQN: {waited} episodes", waited.share.is_most and about)]


def neural_solves(evidence: Evidence, settings: str, task: str, within: int | None) -> list[Finding]:
    returns = evidence.greedy(f"{task}/{VARIANTS[settings]}", within)
    if returns is None:
        return [missing("Neural-E³")]
    share = Share(int(np.sum(returns >= BARS[task])), len(returns))
    text = f"{share} seeds at {BARS[task]:g} or better, greedy return {spread(list(returns), '.1f')}"
    return [Finding(text, share.is_most)]


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


Bounds = tuple[float, float]


def gain_is_smaller(evidence: Evidence, settings: str) -> list[Finding]:
    """The ratio of the DQN's episodes to Neural-E³'s, on both tasks."""
    ratios = []
    for task in BARS:
        dqn = evidence.to_bar(f"baselines-{task}/dqn-long", f"baselines-{task}/dqn")
        neural = _episodes(evidence, settings, task)
        if dqn is None or neural is None:
            return [missing(task)]
        median = dqn.median.value
        waited = (float(min(dqn.gave_up)), math.inf) if math.isinf(median) else (median, median)
        ratios.append(_ratio(waited, neural))
    car, acrobot = ratios
    told = ", ".join(f"{task} {_words(*ratio)}" for task, ratio in zip(BARS, ratios, strict=True))
    smaller = True if acrobot[1] < car[0] else False if acrobot[0] >= car[1] else None
    return [Finding(f"DQN's episodes over Neural-E³'s: {told}", smaller)]


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
    acrobot, car = evidence.first_found("baselines-acrobot/ppo-rnd"), evidence.first_found(*RND)
    if acrobot is None or car is None:
        return [missing("PPO+RND")]
    text = f"goal first met: Acrobot {acrobot}; MountainCar {car}"
    return [Finding(text, acrobot.median.value < car.median.value)]


def noise_does_not_help(evidence: Evidence) -> list[Finding]:
    """More seeds at the bar show that it helps where chance hardly explains them. With fewer than that nobody knows."""
    cells = "baselines-mountaincar/dqn-weight-noise", "baselines-mountaincar/dqn"
    noisy, plain = (evidence.to_bar(cell) for cell in cells)
    if noisy is None or plain is None:
        return [missing("DQN with noise" if noisy is None else "DQN")]
    told = []
    for cell, name, waited in zip(cells, ("with noise", "without"), (noisy, plain), strict=True):
        returns = [one["return_mean"] for one in evidence.finals(cell) or []]
        told.append(f"{name} {waited} episodes, greedy return {spread(returns, '.1f')}")
    table = [[w.share.hits, w.share.total - w.share.hits] for w in (noisy, plain)]
    chance = float(stats.fisher_exact(table, "greater").pvalue)
    more = noisy.share.hits * plain.share.total > plain.share.hits * noisy.share.total
    text = f"MountainCar: {'; '.join(told)} (Fisher's P = {chance:.2f})"
    return [Finding(text, True if not more else False if chance < 0.05 else None)]


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


def small_ensembles_suffice(evidence: Evidence) -> list[Finding]:
    found = []
    for experiment in ("stopping/h20", "maze/10-e3rl", "mountaincar/e3rl"):
        result = evidence.find(experiment)
        if result is None:
            found.append(missing(experiment))
            continue
        try:
            members = stored_config(result.about["config"]).fit.members
        except (KeyError, TypeError, UserError) as error:
            raise UserError(f"{result.path} is damaged: config: {error}") from error
        if "exploit" in result.about:
            reached = [one["reached"] >= 0.95 for one in result.about["exploit"]]
            share = Share(sum(reached), len(reached))
        else:
            rows = evidence.rows(experiment) or []
            share = Share(sum(row["solved"] == "True" for row in rows), len(rows))
        found.append(
            Finding(f"{experiment}, {members} members: {share}", 4 <= members <= 8 and share.is_most)
        )
    return found


CLAIMS = [
    Claim(
        "ensemble/small", "4.4", "Ensembles of 4 to 8 models explore successfully.",
        "with 4 to 8 members most seeds solve a lock, a maze, MountainCar", small_ensembles_suffice,
    ),
    Claim(
        "mountaincar/dqn", "5.3", "The DQN solves MountainCar after about 1,200 episodes.",
        f"more than half of the seeds get a mean of 100 above {BARS['mountaincar']:g}, in the median after 600 to "
        "2,400",
        dqn_solves,
    ),
    *(
        Claim(
            "mountaincar/neural", "5.3", "Neural-E³ solves it in under 300 episodes.",
            "most seeds reach the DQN's bar greedily after fewer",
            partial(neural_solves, settings=whose, task="mountaincar", within=NEURAL_EPISODES - 1), whose,
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
            "acrobot/neural", "5.3", "Neural-E³ explores Acrobot quickly too.", "most seeds reach the bar greedily",
            partial(neural_solves, settings=whose, task="acrobot", within=NEURAL_EPISODES - 1), whose,
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
        "the median seed meets the goal earlier", rnd_is_quicker_on_acrobot,
    ),
    Claim(
        "control/parameter-noise", "C.3", "Parameter noise does not help the DQN.",
        f"no larger share of the seeds gets a mean of 100 above {BARS['mountaincar']:g} with it; it differs where more "
        "do than chance explains (Fisher's exact test, P < 0.05)",
        noise_does_not_help,
    ),
]  # fmt: skip
