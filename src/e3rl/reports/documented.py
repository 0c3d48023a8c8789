"""Tables of the documentation, and numbers in its sentences (`numbers`), that are made from the data: `python -m
e3rl.reports.documented docs results` brings them up to date. A page says where by marks; tests compare."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from e3rl.experiments.baselines import BASELINE_EXPERIMENTS
from e3rl.experiments.deterministic import DETERMINISTIC_EXPERIMENTS
from e3rl.experiments.practised import PRACTISED_EXPERIMENTS
from e3rl.reports import (
    bench_tables,
    deterministic,
    dreem_tables,
    lock_budgets,
    perfect_model,
    planning,
    reach,
    scaling,
    stopping,
    unified,
)
from e3rl.reports.baselines import METHODS, episodes_to_bar
from e3rl.reports.calibration import tables as calibration_tables
from e3rl.reports.claims.evidence import CONFIRM, Evidence
from e3rl.reports.numbers import number
from e3rl.reports.statistics.intervals import Share, interquartile_mean, spread, stratified_bootstrap
from e3rl.reports.statistics.waiting import Chosen, Waiting
from e3rl.reports.wording import head, listed, row
from e3rl.runs.checkpoint import write_file
from e3rl.types import UserError

INLINE = re.compile(r"<!-- n: (?P<key>.*?) -->.*?<!-- /n -->", re.DOTALL)
BEGIN, END = "<!-- made by e3rl.reports.documented: {} -->", "<!-- end -->"
HORIZONS, SIZES = (5, 10, 15, 20), (5, 10, 20)
REWARDS = ("standard", "antishaped")
Lines = Iterator[str]


def lock_budget(evidence: Evidence) -> Lines:
    """How many episodes Neural-E³ takes on the locks."""
    yield head(
        "experiment", "budget", "solved there [95%], standard", "antishaped",
        "smallest budget for every second seed, then the others there: standard", "antishaped",
    )  # fmt: skip
    for name in (*(f"lock/h{horizon}" for horizon in (*HORIZONS, 50)), "lock-long/h50"):
        rows = evidence.rows(name)
        if rows:
            horizon, ratios = int(rows[0]["horizon"]), lock_budgets.ratios(rows)
            ratio = lock_budgets.PAPER_RATIO.get(horizon, ratios[-1])
            words = (
                f"{ratio}H, the paper's" if horizon in lock_budgets.PAPER_RATIO else f"{ratio}H, the largest"
            )
            solved = [Share(*lock_budgets.solved(rows, reward, ratio)) for reward in REWARDS]
            yield row(name, words, *solved, *(_chosen(lock_budgets.chosen_budget(rows, r)) for r in REWARDS))


def _chosen(chosen: Chosen) -> str:
    if chosen.budget is None:
        return "none"
    return f"{chosen.budget}H, then {chosen.solved.hits} of {chosen.solved.total}"


def baselines_on_locks(evidence: Evidence, reward: str) -> Lines:
    yield head(f"lock, {reward} rewards", *(f"H = {horizon}" for horizon in HORIZONS))
    for algo in ("dqn", "ppo", "ppo-rnd"):
        waited = [evidence.to_bar(f"baselines-lock/h{horizon}-{reward}-{algo}") for horizon in HORIZONS]
        yield row(METHODS[algo][0] + (", values start high" if algo == "dqn" else ""), *map(_short, waited))
        if algo == "dqn":
            alone = [evidence.to_bar(f"baselines-paper/h{horizon}-{reward}-dqn") for horizon in HORIZONS]
            yield row(f"{METHODS[algo][0]}, the paper's table alone", *map(_short, alone))
        longer = [evidence.to_bar(f"baselines-long/h{horizon}-{reward}-{algo}") for horizon in HORIZONS]
        if any(longer):
            yield row(f"{METHODS[algo][0]}, Figure 4's budget", *map(_short, longer))
    budgets = [evidence.episodes_to_solve(f"lock/h{horizon}", reward) for horizon in HORIZONS]
    yield row("Neural-E³, budgets", *map(_short, budgets))
    ended = [evidence.episodes_to_solve(f"stopping/h{horizon}", reward) for horizon in HORIZONS]
    yield row("Neural-E³, ends by itself", *map(_short, ended))


def _short(waited: Waiting | None) -> str:
    if waited is None:
        return "not run"
    share, median = waited.share, str(waited).rpartition("median ")[2]
    return f"{share.hits} of {share.total}, {median}"


def baselines_elsewhere(evidence: Evidence) -> Lines:
    yield head(
        "experiment", "steps", "episodes", "greedy return at the end, by seed", "goal met while training"
    )
    for name in (
        "cartpole/dqn",
        "cartpole/ppo",
        "mountaincar/dqn",
        "mountaincar/dqn-long",
        "mountaincar/dqn-weight-noise",
        "mountaincar/ppo-rnd",
        "mountaincar/ppo-rnd-long",
        "mountaincar/ppo-rnd-faster",
        "acrobot/dqn",
        "acrobot/dqn-long",
        "acrobot/dqn-long-weight-noise",
        "acrobot/e3rl-dqn",
        "acrobot/ppo-rnd",
        "acrobot/ppo-rnd-long",
        "maze/5-dqn",
        "maze/10-dqn",
        "maze/20-dqn",
    ):
        result = evidence.find(f"baselines-{name}")
        if result is not None:
            finals = list(result.about["final"].values())
            episodes = [one["episodes"] for one in finals]
            returns = ", ".join(_minus(f"{one['return_mean']:.0f}") for one in finals)
            met = "–"
            if "first_found" in finals[0]:
                met = f"{sum(one['first_found'] is not None for one in finals)} of {len(finals)}"
            steps = f"{result.about['settings']['steps']:,}"
            yield row(name, steps, f"{min(episodes):,} to {max(episodes):,}", returns, met)


def _minus(text: str) -> str:
    return text.replace("-", "−")


def control(evidence: Evidence) -> Lines:
    yield from _exploited(
        evidence, [f"{task}/{v}" for task in deterministic.TASKS for v in deterministic.VARIANTS]
    )


def mazes(evidence: Evidence) -> Lines:
    yield from _exploited(evidence, [f"maze/{size}-{v}" for size in SIZES for v in deterministic.VARIANTS])


def _exploited(evidence: Evidence, names: list[str]) -> Lines:
    yield head(
        "experiment", "exploration episodes", "greedy return: median (worst to best seed)", "interquartile mean [95%]",
        "best possible", "goal reached", "return while exploring, first epoch aside (last epoch)",
    )  # fmt: skip
    for name in names:
        result = evidence.find(name)
        if result is None:
            continue
        size, epochs = deterministic.explored(result)
        for budget in sorted({one["budget"] for one in result.about["exploit"]}):
            own = [one for one in result.about["exploit"] if one["budget"] == budget]
            means = [one["return_mean"] for one in own]
            middle = stratified_bootstrap(interquartile_mean, [np.array(means, float)]).text()
            optima = [one["optimal_return_mean"] for one in own if "optimal_return_mean" in one]
            best = f"{np.median(optima):.2f}" if optima else "–"
            reached = " to ".join(
                f"{share:.0%}" for share in sorted({f(o["reached"] for o in own) for f in (min, max)})
            )
            exploring = deterministic.exploring_words(epochs[:, : budget // size])
            cells = (spread(means), middle, best, reached, exploring)
            yield row(name, deterministic.budget_words(own), *map(_minus, cells))


def _confirmed(evidence: Evidence) -> Evidence | None:
    """What stands in a table counts as recorded where something that it asked for is: so it asks for one thing here."""
    evidence.find("stopping/h10")
    return evidence.confirmed()


def confirmed_exploit(evidence: Evidence) -> Lines:
    apart = _confirmed(evidence)
    if apart is not None:
        names = [*DETERMINISTIC_EXPERIMENTS, *PRACTISED_EXPERIMENTS]
        yield from _exploited(apart, [name for name in names if apart.find(name)])


def confirmed_baselines(evidence: Evidence) -> Lines:
    apart = _confirmed(evidence)
    found = [] if apart is None else [one for one in map(apart.find, BASELINE_EXPERIMENTS) if one is not None]
    if not found:
        return
    yield head("experiment", "seeds", "greedy return: median (worst to best)", "mean of 100 above the bar")
    for result in found:
        seeds, finals = list(result.about["final"]), list(result.about["final"].values())
        returns = _minus(spread([one["return_mean"] for one in finals]))
        yield row(result.experiment, f"{seeds[0]} to {seeds[-1]}", returns, episodes_to_bar(finals))


def confirmed_planning(evidence: Evidence) -> Lines:
    apart = _confirmed(evidence)
    if apart is not None and apart.find("planning/value-exploit-dqn") is not None:
        yield from _planning(apart, "planning/value-exploit-dqn")


def peers(evidence: Evidence) -> Lines:
    result = evidence.find("peers/summary")
    if result is None:
        return
    yield head(
        "task",
        "steps",
        "e3rl",
        "Stable-Baselines3",
        "our mean and their interval",
        "our steps a second, times theirs",
    )
    for one in result.about["rows"]:
        sides = (
            f"{one[f'{side}_return_mean']:.1f} [{one[f'{side}_return_low']:.1f}, {one[f'{side}_return_high']:.1f}]"
            for side in ("e3rl", "sb3")
        )
        place = "below" if one["below"] else "above" if one["above"] else "inside"
        steps = f"{one['steps']:,}"
        yield row(
            f"{one['env']}, {one['algo']}", steps, *map(_minus, sides), place, f"{one['speed_ratio']:.0f}"
        )


def fresh_cartpole(evidence: Evidence) -> Lines:
    """The same DQN on seeds that no table had: some of those for tuning, and confirmatory ones."""
    result = evidence.find("baselines-cartpole/dqn")
    if result is None:
        return
    path, apart = result.path.parent / "fresh" / result.path.name, evidence.confirmed()
    found = [json.loads(path.read_text())] if path.is_file() else []
    confirmed = None if apart is None else apart.find(result.experiment)
    found += [] if confirmed is None else [confirmed.about]
    if found:
        yield " ".join(_at_its_best(about["final"]) for about in found)


def _at_its_best(finals: dict[str, Any]) -> str:
    returns = [
        round(one["return_mean"]) for one in finals.values()
    ]  # 499.98: it fell once, late, in 100 episodes
    best = Share(sum(value == 500 for value in returns), len(returns))
    others = ", ".join(str(value) for value in sorted(returns) if value < 500)
    seeds = sorted(map(int, finals))
    rest = f"; the others at {others}" if others else ""
    return f"On seeds {seeds[0]} to {seeds[-1]}, {best} ended at 500 (rounded){rest}."


def calibration(evidence: Evidence) -> Lines:
    """What disagreement tells, by `e3rl bench calibration`."""
    found = evidence.find("bench/calibration")
    if found is not None:
        yield from calibration_tables(found.about["rows"])


def _folder_of(evidence: Evidence, experiment: str, table: Callable[[Path], str], part: int = 0) -> Lines:
    """One of the tables about the folder in which an experiment's results lie."""
    found = evidence.find(experiment)
    if found is not None:
        yield from table(found.table.parent).split("\n\n")[part].splitlines()


def _planning(evidence: Evidence, experiment: str) -> Lines:
    group = experiment.partition("/")[0]
    yield from _folder_of(evidence, experiment, lambda folder: planning.table(folder, group))


def how_cost_grows(evidence: Evidence) -> Lines:
    found = evidence.find("bench/scaling")
    if found is not None:
        yield from scaling.table(found.path.parent)


PARTS: dict[str, Callable[[Evidence], Lines]] = {
    "lock budgets": lock_budget,
    "baselines, standard": lambda evidence: baselines_on_locks(evidence, "standard"),
    "baselines, antishaped": lambda evidence: baselines_on_locks(evidence, "antishaped"),
    "baselines elsewhere": baselines_elsewhere,
    "fresh CartPole": fresh_cartpole,
    "control": control,
    "mazes": mazes,
    "peers": peers,
    "stopping": lambda evidence: _folder_of(evidence, "stopping/h10", stopping.table),
    "stopping, fresh": lambda evidence: _folder_of(
        evidence, "stopping/h10", lambda folder: stopping.table(folder / "fresh", folder / "fresh/more")
    ),
    "confirmed locks": lambda evidence: _folder_of(
        evidence, "stopping/h10", lambda folder: stopping.table(folder.parent / CONFIRM / folder.name)
    ),
    "confirmed exploit": confirmed_exploit,
    "confirmed baselines": confirmed_baselines,
    "confirmed planning": confirmed_planning,
    "calibration": calibration,
    "one phase": lambda evidence: _folder_of(evidence, "unified/lock-h5", unified.table),
    "repulsion": lambda evidence: _folder_of(evidence, "repulsion/lock-h5", unified.table, part=1),
    "reach": lambda evidence: _folder_of(evidence, "reach/taxi", reach.table),
    "reach quick": lambda evidence: _folder_of(
        evidence, "reach/taxi", lambda folder: reach.table(folder / "quick")
    ),
    "perfect model": lambda evidence: _folder_of(evidence, "perfect-model/mountaincar", perfect_model.table),
    "planning": lambda evidence: _planning(evidence, "planning/value"),
    "planning, H=5": lambda evidence: _planning(evidence, "planning-h5/value"),
    "planning, trees": lambda evidence: _planning(evidence, "planning-tree/one-by-one"),
    "scaling": how_cost_grows,
    **dreem_tables.TABLES,
    **bench_tables.TABLES,
}
"""By the name that stands in a page's mark. To add a table, write what makes its lines and put it here."""


def _lines(name: str, evidence: Evidence) -> list[str]:
    """Of a table; where there is nothing to make it of, one that says what is missing."""
    try:
        found = list(PARTS[name](evidence))
    except UserError:
        raise
    except (IndexError, KeyError, TypeError, ValueError) as error:
        raise UserError(f"the table {name!r} cannot be made: {type(error).__name__}: {error}") from error
    asked = list(evidence.asked)
    if found and any(evidence.find(experiment) is not None for experiment in asked):
        return found
    others = [f"{len(asked) - 2} others"] if len(asked) > 3 else asked[2:]
    return [f"Not recorded yet: nothing of it is in the results of {listed([*asked[:2], *others])}."]


def made(page: str, evidence: Evidence) -> str:
    """The page with its tables and numbers as they are today."""

    def table(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in PARTS:
            raise UserError(f"no table is called {name!r}")
        return "\n".join([BEGIN.format(name), *_lines(name, evidence.asking()), END])

    def inline(found: re.Match[str]) -> str:
        return f"<!-- n: {found['key']} -->{number(found['key'], evidence)}<!-- /n -->"

    return INLINE.sub(inline, re.sub(rf"{BEGIN.format('(.*?)')}\n.*?{END}", table, page, flags=re.DOTALL))


def pages(docs: Path) -> list[Path]:
    """Those of the documentation, and the one that stands in front of it."""
    front = docs.parent / "README.md"
    return [*sorted(docs.glob("*.md")), *([front] if front.is_file() else [])]


def main(docs: Path, results: Path) -> None:
    evidence = Evidence.under(results)
    for path in pages(docs):
        text = path.read_text()
        try:
            new = made(text, evidence)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error
        if new != text:
            write_file(path, new.encode())


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]))
    except UserError as error:
        print(f"e3rl: error: {error}", file=sys.stderr)
        sys.exit(2)
