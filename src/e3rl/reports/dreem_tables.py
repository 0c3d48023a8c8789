"""The tables of docs/dreem.md, from the files of `e3rl reproduce dreem` and `e3rl dreem ... --out results/dreem`."""

import math
from collections.abc import Callable, Iterator

import numpy as np

from e3rl.reports import lock_budgets
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.wording import head, row

Lines = Iterator[str]
PROPOSITIONS = {"tabular": "1", "low-rank": "2", "factored": "3"}
HORIZONS = (5, 10, 20)


def ranks(evidence: Evidence) -> Lines:
    """Of misfit matrices; what is above its proposition's bound is bold."""
    found = evidence.find("dreem/rank")
    if found is None:
        return
    yield head("family", "states", "bound", "ranks of A_1, A_2, …", "with a distance per factor")
    for one in found.about["rows"]:
        told = ", ".join(f"**{rank}**" if rank > one["bound"] else str(rank) for rank in one["ranks"])
        per_factor = ", ".join(map(str, one.get("ranks_per_factor", ())))
        name = f"{one['family']} (Proposition {PROPOSITIONS[one['family']]})"
        yield row(name, one["states"], one["bound"], told, per_factor)


def ellipsoids(evidence: Evidence) -> Lines:
    """Lemma 3 through a run."""
    found = evidence.find("dreem/ellipsoid")
    if found is None:
        return
    run = found.about["practical"]
    premise = 6.0 * math.sqrt(max(run["rank"])) * run["phi"]
    yield head(
        "round", "models in the slabs", "largest misfit", f"premise 6√d φ = {premise:.2f}",
        "vol O_{t+1} / vol O_t", "vol O_{t,+} / vol O_t", "body",
    )  # fmt: skip
    for one in run["rounds"]:
        yield row(
            one["round"], f"{one['models_before']} → {one['models_after']}", f"{one['largest_misfit']:.2f}",
            "met" if one["premise"] else "not met",
            *(f"{one[ratio]:.3f}" for ratio in ("volume_ratio", "sliced_ratio", "body_ratio")),
        )  # fmt: skip


def certified(evidence: Evidence) -> Lines:
    """The theorem with its own constants."""
    found = evidence.find("dreem/certify")
    if found is None:
        return
    yield head("family", "d", "n", "v < v* − ε", "truth eliminated", "rounds, at most", "bound T")
    for one in found.about["rows"]:
        yield row(
            one["family"], one["rank"], f"{one['n']:.1e}", f"{one['failures']} of {one['runs']}",
            one["true_model_eliminated"], one["rounds_max"], f"{one['rounds_bound']:,.0f}",
        )  # fmt: skip


def below_theory(evidence: Evidence) -> Lines:
    """How many times fewer trajectories than the theorem's still never failed."""
    rows = evidence.rows("dreem/below-theory")
    if not rows:
        return
    rules = list(dict.fromkeys(one["phi_rule"] for one in rows))
    yield head("family", *(f"φ {'as in the theorem' if rule == 'theorem' else rule}" for rule in rules))
    for family in dict.fromkeys(one["family"] for one in rows):
        yield row(family, *(_smallest_n(rows, family, rule) for rule in rules))


def _smallest_n(rows: list[dict[str, str]], family: str, rule: str) -> str:
    """From the theorem's n on downwards, until a run fails; and how the next one failed."""
    best = None
    for one in (one for one in rows if (one["family"], one["phi_rule"]) == (family, rule)):
        if float(one["success_rate"]) < 1.0:
            kinds = ("everything_eliminated", "unfinished", "suboptimal")
            why = max(kinds, key=lambda kind: int(one[kind])).replace("_", " ")
            return (
                f"{best}; then {why} in {one[why.replace(' ', '_')]} of {one['runs']}"
                if best
                else f"none; {why}"
            )
        best = f"n = {float(one['n']):.1e}, 1/{float(one['shrink']):g} of the theorem's"
    return str(best)


def doubling(evidence: Evidence) -> Lines:
    known, unknown = evidence.find("dreem/certify"), evidence.find("dreem/certify-doubling")
    if known is None or unknown is None:
        return
    yield head(
        "family",
        "d",
        "largest guess",
        "v < v* − ε",
        "truth eliminated",
        "trajectories, times those with d known",
    )
    given = {one["family"]: one for one in known.about["rows"]}
    for one in unknown.about["rows"]:
        ratio = one["trajectories_max"] / given[one["family"]]["trajectories_max"]
        failed = f"{one['failures']} of {one['runs']}"
        rank = given[one["family"]]["rank"]
        yield row(
            one["family"], rank, one["rank_guess_max"], failed, one["true_model_eliminated"], f"{ratio:.2f}"
        )


def lock_theorem(evidence: Evidence) -> Lines:
    """The theorem's constants on the class of all locks."""
    found = evidence.find("dreem/lock-theorem")
    if found is None:
        return
    yield head("H", "models", "φ", "n", "failures", "truth eliminated", "rounds, at most", "bound T")
    for one in found.about["rows"]:
        yield row(
            one["horizon"], f"{10 ** one['log10_models']:.0e}", f"{one['phi']:.1e}", f"{one['n']:.1e}",
            f"{one['failures']} of {one['runs']}", one["true_model_eliminated"], one["rounds_max"],
            f"{one['rounds_bound']:,.0f}",
        )  # fmt: skip


def lock_sweep(evidence: Evidence) -> Lines:
    """How few trajectories will do on locks."""
    rows = evidence.rows("dreem/lock-sweep")
    if not rows:
        return
    yield head("H", "n", "solved", "episodes of the solved runs, median (range)", "rounds, median")
    for horizon, n in dict.fromkeys((one["horizon"], one["n"]) for one in rows):
        own = [one for one in rows if (one["horizon"], one["n"]) == (horizon, n)]
        solved = [one for one in own if one["solved"] == "True"]
        episodes = [float(one["episodes"]) for one in solved]
        told = f"{np.median(episodes):,.0f} ({min(episodes):,.0f} to {max(episodes):,.0f})" if solved else ""
        rounds = f"{np.median([float(one['rounds']) for one in solved]):g}" if solved else ""
        yield row(horizon, n, f"{len(solved)} of {len(own)}", told, rounds)


def beside_neural(evidence: Evidence) -> Lines:
    """Smallest n and smallest budgets that solved everything that was run with them."""
    rows = evidence.rows("dreem/lock-sweep")
    if not rows:
        return
    yield head(
        "H", "DREEM, smallest n that solved all", "its episodes, median",
        "Neural-E³, episodes of the smallest budget that solved all seeds, standard / antishaped",
    )  # fmt: skip
    for horizon in HORIZONS:
        own = [one for one in rows if int(one["horizon"]) == horizon]
        sizes = {
            n: [one for one in own if int(one["n"]) == n] for n in sorted({int(one["n"]) for one in own})
        }
        all_solved = [n for n, runs in sizes.items() if all(one["solved"] == "True" for one in runs)]
        if all_solved:
            runs = sizes[all_solved[0]]
            episodes = f"{np.median([float(one['episodes']) for one in runs]):,.0f}"
            budgets = (_smallest_budget(evidence, horizon, reward) for reward in ("standard", "antishaped"))
            yield row(horizon, f"{all_solved[0]} ({len(runs)} runs)", episodes, " / ".join(budgets))


def _smallest_budget(evidence: Evidence, horizon: int, reward: str) -> str:
    """From which on every seed is solved."""
    rows, smallest = evidence.rows(f"lock/h{horizon}") or [], "–"
    for ratio in reversed(lock_budgets.ratios(rows)):
        hits, total = lock_budgets.solved(rows, reward, ratio)
        if hits < total:
            break
        smallest = f"{ratio * horizon:,}"
    return smallest


TABLES: dict[str, Callable[[Evidence], Lines]] = {
    "ranks": ranks,
    "ellipsoids": ellipsoids,
    "certified": certified,
    "doubling": doubling,
    "below theory": below_theory,
    "lock theorem": lock_theorem,
    "lock sweep": lock_sweep,
    "DREEM beside Neural-E³": beside_neural,
}
