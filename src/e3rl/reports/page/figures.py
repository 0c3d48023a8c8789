"""The paper's figures as charts, from the results that are there."""

import csv
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from e3rl.experiments.catalogue import family_of
from e3rl.reports import baselines, deterministic, lock_budgets
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.lock_budgets import PAPER_RATIO
from e3rl.reports.page.chart import Chart, Panel, Series
from e3rl.reports.page.svg import thinned
from e3rl.reports.results import Result
from e3rl.reports.statistics.comparisons import performance_profile
from e3rl.reports.statistics.intervals import Share

HORIZONS, SIZES = (5, 10, 15, 20), (5, 10, 20)
NEURAL = {
    "lock": ("Neural-E³", deterministic.COLOURS[0]),
    "lock-paper": ("Neural-E³, the paper's settings", "#1f9bb5"),
}
ENDED = "#6b7b8c"
BESIDE = {"dqn": "#777777", "e3rl-dqn": "#a0522d", "ppo-rnd": "#b8860b"}
"""Colours of baselines beside several kinds of Neural-E³."""
RANGES = "Median over seeds, and the range from worst to best, as the paper draws them."
TRAINED = (
    f"{RANGES} Baselines: returns while training. Neural-E³: greedy return after so many episodes of exploring (marks; "
    "where seeds end by themselves, at their median), and returns while exploring (dashed) where they are known."
)
CONFIRMATORY = "Dotted lines and hollow marks: confirmatory seeds, with settings that were frozen before."


def charts(evidence: Evidence) -> list[Chart]:
    """Those that have something to show, confirmatory seeds beside the paper's."""
    apart = evidence.confirmed()
    made = _charts(evidence)
    if apart is not None:
        made = [_beside(*both) for both in zip(made, _charts(apart), strict=True)]
    return [chart for chart in made if any(panel.series for panel in chart.panels)]


def _charts(evidence: Evidence) -> list[Chart]:
    return [
        *(
            _locks(evidence, reward, name, "lock")
            for reward, name in (("standard", "2a"), ("antishaped", "2b"))
        ),
        _mazes(evidence),
        _control(evidence),
        *(_locks(evidence, reward, "4", "long") for reward in ("standard", "antishaped")),
        _budgets(evidence),
        _profile(evidence),
    ]


def _beside(chart: Chart, apart: Chart) -> Chart:
    """What confirmatory seeds gave is series of its own, in the panels of the same titles."""
    more = {panel.title: panel for panel in apart.panels if panel.series}
    if not more:
        return chart
    panels = [
        panel._replace(series=[*panel.series, *_confirmatory(more.pop(panel.title, None))])
        for panel in chart.panels
    ]
    panels += [panel._replace(series=_confirmatory(panel)) for panel in more.values()]
    return chart._replace(panels=panels, caption=f"{chart.caption.removesuffix('.')}. {CONFIRMATORY}")


def _confirmatory(panel: Panel | None) -> list[Series]:
    own = [] if panel is None else panel.series
    return [one._replace(name=f"{one.name} (confirmatory)", confirmatory=True) for one in own]


def _locks(evidence: Evidence, reward: str, number: str, budgets: str) -> Chart:
    panels = []
    for horizon in HORIZONS:
        series, optimum = list(_neural_locks(evidence, horizon, reward)), None
        series += _ended(evidence, horizon, reward) if budgets == "lock" else []
        for algo in ("dqn", "ppo", "ppo-rnd"):
            result = evidence.find(f"baselines-{budgets}/h{horizon}-{reward}-{algo}")
            if result is not None:
                high = algo == "dqn" and budgets == "lock"  # its values start at the size of the reward
                series.append(_curve(result, "DQN, optimistic start" if high else baselines.METHODS[algo][0]))
                optimum = next(iter(result.about["final"].values()))["optimal_return"]
        paper = evidence.find(f"baselines-paper/h{horizon}-{reward}-dqn") if budgets == "lock" else None
        if paper is not None:
            series.append(_curve(paper, "DQN, the paper's settings")._replace(colour="#d08c2f"))
        level = None if optimum is None else (optimum, "optimal return")
        panels.append(Panel(f"{horizon} levels", series, "episodes", "return", level))
    if budgets == "long" and not any(
        evidence.find(f"baselines-long/h{horizon}-{reward}-dqn") for horizon in HORIZONS
    ):
        panels = []
    title = f"Figure {number}: combination locks, {reward} rewards"
    return Chart(f"figure-{number}-{reward}", title, TRAINED, panels, log=True)


def _neural_locks(evidence: Evidence, horizon: int, reward: str) -> Iterator[Series]:
    for family, (name, colour) in NEURAL.items():
        result = evidence.find(f"{family}/h{horizon}")
        rows = evidence.rows(f"{family}/h{horizon}") or []
        points = [
            (int(row["episodes"]), float(row["return_mean"])) for row in rows if row["reward"] == reward
        ]
        if points:
            yield _marks(name, colour, points)
        if result is None:
            continue
        for table in result.about.get("more_tables", []):
            with result.path.with_name(table).open(newline="") as file:
                own = [row for row in csv.DictReader(file) if row["reward"] == reward]
            if own:
                every = [(int(row["episode"]), float(row["return_mean"])) for row in own]
                yield _marks(f"{name}, exploring", colour, every)._replace(marks=False, dashed=True)


def _ended(evidence: Evidence, horizon: int, reward: str) -> list[Series]:
    """Where exploration of a lock ends by itself, which is sooner for some seeds than for others."""
    rows = evidence.rows(f"stopping-protocol/h{horizon}") or []
    own = [row for row in rows if row["reward"] == reward]
    if not own:
        return []
    usual = float(np.median([int(row["episodes"]) for row in own]))
    name = deterministic.VARIANTS["ends"]
    return [_marks(name, ENDED, [(usual, float(row["return_mean"])) for row in own])]


def _curve(result: Result, name: str) -> Series:
    measured = baselines.measure(result)
    colour = next((colour for label, colour in baselines.METHODS.values() if label == name), "#c0392b")
    episodes, returns = measured.curve
    kept = thinned(len(episodes))
    middle, low, high = (part(returns, axis=0)[kept] for part in (np.median, np.min, np.max))
    return Series(name, colour, episodes[kept].tolist(), middle.tolist(), low.tolist(), high.tolist())


def _marks(name: str, colour: str, points: Sequence[tuple[int | float, float]]) -> Series:
    """The seeds' values at every budget."""
    places = sorted({x for x, _ in points})
    values = [[y for at, y in points if at == x] for x in places]
    middle = [float(np.median(own)) for own in values]
    return Series(name, colour, places, middle, list(map(min, values)), list(map(max, values)), marks=True)


def _explored(result: Result, colour: str) -> list[Series]:
    """Of mazes and control tasks: exploring epoch by epoch, exploiting after each budget."""
    name = deterministic.label_of(result.experiment)
    size, curves = deterministic.explored(result)
    episodes = (size * np.arange(1, curves.shape[1] + 1)).tolist()
    usual, low, high = (curve.tolist() for curve in deterministic.middle_and_range(curves))
    exploring = Series(f"{name}, exploring", colour, episodes, usual, low, high, dashed=True)
    by_place = deterministic.marks_of(result.about["exploit"])
    points = [(place, mean) for place, means in by_place.items() for mean in means]
    return [exploring, _marks(name, colour, points)]


def _task_panel(evidence: Evidence, title: str, neural: Sequence[str], others: Mapping[str, str]) -> Panel:
    series: list[Series] = []
    for experiment, colour in zip(neural, deterministic.COLOURS, strict=False):
        result = evidence.find(experiment)
        if result is not None and result.about.get("exploit"):
            series += _explored(result, colour)
    for algo, experiment in others.items():
        result = evidence.find(experiment)
        if result is not None:
            series.append(_curve(result, baselines.METHODS[algo][0])._replace(colour=BESIDE[algo]))
    return Panel(title, series, "episodes", "return")


def _mazes(evidence: Evidence) -> Chart:
    panels = [
        _task_panel(
            evidence,
            f"{size} × {size}",
            [f"maze/{size}-{variant}" for variant in ("e3rl", "ue2", "paper", "paper-ue2")],
            {"dqn": f"baselines-maze/{size}-dqn"},
        )
        for size in SIZES
    ]
    return Chart("figure-2c", "Figure 2c: mazes", TRAINED, panels, log=True)


def _control(evidence: Evidence) -> Chart:
    panels = [
        _task_panel(
            evidence,
            title,
            [f"{task}/{variant}" for variant in ("e3rl", "nearest", "paper", "paper-rounds", "steadied")],
            {algo: f"baselines-{task}/{algo}" for algo in BESIDE},
        )
        for task, title in deterministic.TASKS.items()
    ]
    return Chart("figure-2d", "Figure 2d: MountainCar and Acrobot", TRAINED, panels, log=True)


def _budgets(evidence: Evidence) -> Chart:
    panels = []
    locks = {name: evidence.rows(name) or [] for name in evidence.named if family_of(name) == "lock"}
    for name, rows in sorted(locks.items(), key=lambda item: (_horizon(item[1]), item[0])):
        series = []
        for reward, colour in lock_budgets.COLOURS.items():
            shares = [Share(*lock_budgets.solved(rows, reward, ratio)) for ratio in lock_budgets.ratios(rows)]
            intervals = [tuple(100 * value for value in share.interval) for share in shares if share.total]
            if intervals:
                middle, low, high = (list(part) for part in zip(*intervals, strict=True))
                series.append(
                    Series(reward, colour, lock_budgets.ratios(rows), middle, low, high, marks=True)
                )
        panels.append(Panel(name, series, "exploration episodes per level", "seeds solved, %"))
    caption = (
        "Seeds solved after each budget, with Clopper and Pearson's 95% intervals. The paper's budgets: "
        + ", ".join(f"{ratio} at H={horizon}" for horizon, ratio in PAPER_RATIO.items())
    )
    return Chart("budgets", "How many episodes a lock takes", caption, panels)


def _horizon(rows: Sequence[dict[str, str]]) -> int:
    return int(rows[0]["horizon"]) if rows else 0


def _profile(evidence: Evidence) -> Chart:
    """All locks at once: the share of runs whose greedy return exceeds a share of the optimum."""
    marks = np.linspace(0.0, 1.0, 51)[:-1]
    series = []
    for algo in ("neural", "dqn", "ppo", "ppo-rnd"):
        scores = [
            own
            for horizon in HORIZONS
            for reward in ("standard", "antishaped")
            if (own := _final_shares(evidence, algo, horizon, reward)) is not None
        ]
        if len(scores) == 2 * len(HORIZONS):
            name, colour = NEURAL["lock"] if algo == "neural" else baselines.METHODS[algo]
            profile = 100 * performance_profile(scores, marks.tolist())
            series.append(Series(name, colour, (100 * marks).tolist(), profile.tolist()))
    panel = Panel("eight locks", series, "greedy return, % of the optimum", "runs above, %")
    caption = (
        "Performance profile over both rewards and four horizons: the share of all runs whose greedy return at the "
        "end exceeds a share of the optimum. Neural-E³ with e3rl's settings at the paper's budgets."
    )
    return Chart("profile", "All locks at once", caption, [panel] if series else [])


def _final_shares(evidence: Evidence, algo: str, horizon: int, reward: str) -> np.ndarray | None:
    if algo != "neural":
        finals = evidence.finals(f"baselines-lock/h{horizon}-{reward}-{algo}")
        return (
            None
            if finals is None
            else np.array([one["return_mean"] / one["optimal_return"] for one in finals])
        )
    rows = evidence.rows(f"lock/h{horizon}") or []
    own = [row for row in rows if row["reward"] == reward and int(row["ratio"]) == PAPER_RATIO[horizon]]
    return (
        np.array([float(row["return_mean"]) / float(row["optimal_return"]) for row in own]) if own else None
    )
