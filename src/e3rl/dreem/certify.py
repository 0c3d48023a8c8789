"""Theorem 1 checked by running it: many random problems, each solved by DREEM with the theorem's own constants."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from e3rl.dreem.algorithm import Dreem, policy_return
from e3rl.dreem.distributions import Policies
from e3rl.dreem.doubling import learn_unknown_rank
from e3rl.dreem.eliminate import RealizabilityError
from e3rl.dreem.model_class import ModelClass
from e3rl.dreem.policies import optimal_policies
from e3rl.envs.tabular import TabularMDP, factored_mdp, low_rank_mdp, random_mdp
from e3rl.memory import refuse_too_large
from e3rl.types import UserError

MAX_SEED = 2**30


@dataclass(frozen=True)
class FamilySettings:
    make: Callable[[int], TabularMDP]
    """An MDP of the family from a seed."""
    rank: int
    """A bound on the rank of the misfit matrices by Propositions 1 to 3."""
    places: tuple[int, ...] = ()
    """Where given, a candidate differs from the truth in one of these states only."""


def tree_mdp(depth: int = 2, seed: int = 0) -> TabularMDP:
    """A binary tree: actions choose the branch, and each leaf and action has its chance of the one paid state.

    A policy sees one leaf, so candidates that differ in one leaf each take a round per leaf. State 2k + 1 and 2k + 2
    are the children of k; the last two states are unpaid and paid.
    """
    rng = np.random.default_rng(seed)
    leaves = 2**depth
    states = 2 * leaves + 1
    table = np.zeros((states, 2, states))
    for k in range(leaves - 1):
        table[k, 0, 2 * k + 1] = table[k, 1, 2 * k + 2] = 1.0
    chance = rng.random((leaves, 2))
    table[leaves - 1 : 2 * leaves - 1, :, -1] = chance
    table[leaves - 1 : 2 * leaves - 1, :, -2] = 1.0 - chance
    table[-2:, :, -2] = 1.0
    return TabularMDP(table, np.eye(states)[-1], np.eye(states)[0], depth + 1)


FAMILIES: dict[str, FamilySettings] = {
    "random": FamilySettings(lambda seed: random_mdp(num_states=4, num_actions=2, horizon=3, seed=seed), 4),
    "low-rank": FamilySettings(
        lambda seed: low_rank_mdp(num_states=8, num_actions=2, horizon=3, rank=2, seed=seed), 2
    ),
    # 2³ states, fewer than the factored table's 24 parameters
    "factored": FamilySettings(
        lambda seed: factored_mdp(num_values=2, num_factors=3, num_parents=1, horizon=3, seed=seed), 8
    ),
    "tree": FamilySettings(lambda seed: tree_mdp(2, seed), 9, places=(3, 4, 5, 6)),
}


@dataclass(frozen=True)
class Problem:
    models: ModelClass
    policies: Policies
    true_index: int
    rank: int

    @property
    def env(self) -> TabularMDP:
        return self.models.environment(self.true_index)


def family(name: str) -> FamilySettings:
    if name not in FAMILIES:
        raise UserError(f"unknown family {name!r}; known: {', '.join(FAMILIES)}")
    return FAMILIES[name]


def make_problem(name: str, models: int, extra_policies: int, seed: int) -> Problem:
    """A true MDP of the family among `models` candidates, and policies that satisfy Assumption 1.

    Candidates replace some of the truth's states by a mixture with another MDP, in weights from 1e-3 (hard to tell
    apart) to 1. Π holds an optimal policy for each model and `extra_policies` random ones.
    """
    if models < 1:
        raise UserError(f"the model class is empty: it needs at least one model, got {models}")
    if extra_policies < 0:
        raise UserError(f"the number of random policies must be at least 0, got {extra_policies}")
    if not 0 <= seed < MAX_SEED:
        raise UserError(f"seed must be from 0 to {MAX_SEED - 1}, got {seed}")
    settings, rng = family(name), np.random.default_rng([seed, 17])
    truth = settings.make(2 * seed)
    table = np.asarray(truth.transitions)
    plans = (models + extra_policies) * truth.horizon * truth.num_states
    needs = {
        "models": 8.0 * 4 * models * table.size,
        "policies": 8.0 * 4 * plans,
        "misfits": 8.0 * models * plans,
    }
    refuse_too_large("this problem", needs, lambda: "--models or --policies")
    tables = np.repeat(table[None], models, axis=0)
    place = int(rng.integers(models))
    strangers = _strangers(truth, settings.make(2 * seed + 1), rng)
    for k in np.delete(np.arange(models), place):
        changed = rng.random(truth.num_states) < 0.7
        if settings.places:
            changed = np.arange(truth.num_states) == rng.choice(settings.places)
        weight = 10.0 ** rng.uniform(-3.0, 0.0) * changed[:, None, None]
        tables[k] = (1.0 - weight) * table + weight * strangers[rng.integers(len(strangers))]
    candidates = ModelClass(tables, np.asarray(truth.rewards), np.asarray(truth.start), truth.horizon)
    best, _ = optimal_policies(candidates.transitions, candidates.rewards)
    shape = (extra_policies, truth.horizon, truth.num_states)
    others = rng.integers(truth.num_actions, size=shape).astype(best.dtype)
    policies = np.unique(np.concatenate([best, others]), axis=0)
    return Problem(candidates, policies, place, settings.rank)


def _strangers(
    truth: TabularMDP, other: TabularMDP, rng: np.random.Generator
) -> list[Float[np.ndarray, "S A S"]]:
    """Tables to mix with: another member of the family, the truth with its actions reversed, fresh random rows."""
    table = np.asarray(truth.transitions)
    fresh = rng.dirichlet(np.ones(truth.num_states), size=table.shape[:-1])
    return [np.asarray(other.transitions), table[:, ::-1], fresh]


def certify(
    name: str,
    runs: int,
    *,
    models: int = 30,
    extra_policies: int = 64,
    epsilon: float = 0.1,
    delta: float = 0.1,
    seed: int = 0,
    shrink: float = 1.0,
    phi_scale: float | None = None,
    max_rounds: int | None = None,
    doubling: bool = False,
) -> dict[str, Any]:
    """How often v ≥ v* − ε and what it took, over `runs` problems; without options, under Theorem 1's constants.

    In practical mode n is the theorem's divided by `shrink`, and φ stays, or is `phi_scale` times the deviation that
    the proof allows for this n, which grows with √shrink. A run fails if its policy is worse than v* − ε, if every
    model is eliminated, or if it does not finish.
    """
    if runs < 1:
        raise UserError(f"runs must be at least 1, got {runs}")
    if doubling and shrink != 1.0:
        raise UserError("the doubling trick chooses n itself: leave n alone")
    tally: Counter[str] = Counter()
    gaps, rounds, left, bounds, used = [], [], [], [], []
    for run in range(runs):
        problem = make_problem(name, models, extra_policies, seed + run)
        env, rng = problem.env, np.random.default_rng([seed + run, 29])
        agent = Dreem(
            problem.models,
            problem.policies,
            epsilon=epsilon,
            delta=delta,
            rank=problem.rank,
            max_rounds=max_rounds,
            check_policies=run == 0,
        )
        agent.n = max(1, round(agent.theory.n / shrink))
        if phi_scale is not None:
            agent.phi *= phi_scale * math.sqrt(shrink)
        bounds.append(agent.theory.rounds)
        try:
            if doubling:
                attempt = learn_unknown_rank(
                    problem.models, problem.policies, env, epsilon=epsilon, delta=delta, seed=rng
                )
                result, trajectories = attempt.result, attempt.trajectories
                tally["rank_guess_max"] = max(tally["rank_guess_max"], attempt.ranks[-1])
            else:
                result = agent.learn(env, rng)
                trajectories = result.trajectories
        except RealizabilityError:
            tally.update(failures=1, true_model_eliminated=1, everything_eliminated=1)
            continue
        gap = env.optimal_return - policy_return(env, result.policy)
        gaps.append(gap)
        used.append(trajectories)
        rounds.append(len(result.rounds))
        left.append([models, *(r.models_left for r in result.rounds)])
        tally.update(
            failures=int(gap > epsilon or not result.finished),
            unfinished=int(not result.finished),
            suboptimal=int(gap > epsilon),
            true_model_eliminated=int(problem.true_index not in result.models_left),
        )
    report = {
        "family": name,
        "runs": runs,
        "failures": tally["failures"],
        "success_rate": 1.0 - tally["failures"] / runs,
        "required_rate": 1.0 - delta,
        "true_model_eliminated": tally["true_model_eliminated"],
        "everything_eliminated": tally["everything_eliminated"],
        "unfinished": tally["unfinished"],
        "suboptimal": tally["suboptimal"],
        "rounds_max": max(rounds, default=0),
        "rounds_bound": min(bounds),
        "gap_max": max(gaps, default=None),
        "models": models,
        "models_left_per_round": _mean_left(left),
        "trajectories_max": max(used, default=0),
        "epsilon": epsilon,
        "delta": delta,
        "seed": seed,
    }
    if doubling:
        return {**report, "rank_guess_max": tally["rank_guess_max"]}
    return {**report, "rank": family(name).rank, "n": agent.n, "phi": agent.phi, "theory_n": agent.theory.n}


def certify_all(names: Sequence[str], runs: int, **options: Any) -> dict[str, Any]:
    """`certify` for several families: sums and extremes, and each family's own report."""
    reports = [certify(name, runs, **options) for name in names]
    return {
        "runs": sum(report["runs"] for report in reports),
        "failures": sum(report["failures"] for report in reports),
        "true_model_eliminated": sum(report["true_model_eliminated"] for report in reports),
        "rounds_max": max(report["rounds_max"] for report in reports),
        "rounds_bound": min(report["rounds_bound"] for report in reports),
        "families": reports,
    }


def _mean_left(left: list[list[int]]) -> list[float]:
    """The mean number of models after each round, a run that has ended keeping its last."""
    if not left:
        return []
    longest = max(map(len, left))
    padded: Float[np.ndarray, "runs rounds"] = np.array(
        [row + [row[-1]] * (longest - len(row)) for row in left], float
    )
    return [round(value, 3) for value in padded.mean(axis=0).tolist()]
