"""The tables of docs/benchmarks.md, from the files that `e3rl bench --out results/bench` saves. They have whatever rows
a file has; what a row is compared with was measured in the same run."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.wording import duration, head, row, signed, times

Row = dict[str, Any]
Lines = Iterator[str]
TARGETS: dict[str, float] = {
    "envs/python-env/overhead/": 1.0,
    "neural/plan/": 4.0,
    "neural/fit/100-updates": 2.0,
    "neural/dqn/": 5.0,
    "control/graph_search": 20.0,
    "control/model_update": 8.0,
    "control/dqn_update": 5.0,
    "baselines/ppo/": 20.0,
    "baselines/dqn/": 10.0,
}
"""How many times faster than the yardstick was asked for."""
PACKAGES = ("jax", "gymnasium", "torch", "stable-baselines3")
EXTRAS: dict[str, Callable[[Row], str]] = {
    "members in a loop": lambda one: times(_over(one, "members_in_a_loop_s")),
    "members in a list": lambda one: times(_over(one, "members_in_a_list_s")),
    "share of sgemm rate": lambda one: _percent(one.get("sgemm_fraction")),
    "bare products": lambda one: duration(one["bare_products_s"]) if "bare_products_s" in one else "",
    "steps alone": lambda one: duration(one["steps_alone_s"]) if "steps_alone_s" in one else "",
    "peak memory": lambda one: f"{one['peak_gb']:.2f} GB" if "peak_gb" in one else "",
}
"""Columns that a table has where a row of it has something to say there."""


def is_of(name: str, which: str) -> bool:
    """`neural/plan/` means every row below it, `control/graph_search` that row alone."""
    return name.startswith(which) if which.endswith("/") else name == which


def rows_of(evidence: Evidence, *which: str) -> list[Row]:
    """Rows of one benchmark, none where it has no file."""
    found = evidence.find(f"bench/{which[0].partition('/')[0]}")
    rows: list[Row] = [] if found is None else found.about["rows"]
    return [one for one in rows if any(is_of(one["name"], each) for each in which)]


def target_of(name: str) -> float | None:
    return next((target for which, target in TARGETS.items() if is_of(name, which)), None)


def _over(one: Row, field: str) -> float | None:
    """As a multiple of our time."""
    return one[field] / one["ours_s"] if one.get(field) is not None else None


def _ratio(ratio: float | None) -> str:
    """What is just below a small target must not be rounded up to it."""
    return times(ratio, 1 if ratio is None or ratio >= 10.0 else 2)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def recorded(about: dict[str, Any]) -> str:
    """Which run the rows are of."""
    machine, found = about["machine"], {**about["config"], **about.get("measured", {})}
    versions = {"Python": machine["python"], **{name: machine["versions"].get(name) for name in PACKAGES}}
    told = [f"{name} {version.partition('+')[0]}" for name, version in versions.items() if version]
    cpus = "one CPU" if machine["cpus_used"] == 1 else f"{machine['cpus_used']} CPUs"
    device = [f"one {found['device']}"] if found.get("device", "cpu") != "cpu" else []
    parts = [f"on {' and '.join([*device, cpus])} ({', '.join([machine['cpu'], *told])})"]
    if "sgemm_gflops" in found:
        parts.append(f"numpy's sgemm at {found['sgemm_gflops']:.0f} GFLOP/s")
    if "wall_s" in found:
        minutes = signed(found["wall_s"] / 60)
        parts.append(f"in {minutes} minute{'' if minutes == '1' else 's'}")
    commit, dirty, _ = str(machine["commit"]).partition("-dirty")
    return f"Recorded by `{about['command']}` at commit `{commit[:7]}{dirty}` {', '.join(parts)}."


def beside(evidence: Evidence, yardstick: str, *which: str) -> Lines:
    """A row of the file in a line: ours, the yardstick, and what else there is; then which run it was."""
    rows, name = rows_of(evidence, *which), which[0].partition("/")[0]
    if not rows:
        return
    extras = [title for title, tell in EXTRAS.items() if any(map(tell, rows))]
    targets = any(target_of(one["name"]) for one in rows)
    yield head("row", "ours", yardstick, "ratio", *["target"] * targets, *extras)
    for one in rows:
        target = target_of(one["name"]) if one["ratio"] is not None else None
        yield row(
            one["name"].removeprefix(f"{name}/"), duration(one["ours_s"]), duration(one["yardstick_s"]),
            _ratio(one["ratio"]), *[times(target, 0)] * targets, *(EXTRAS[title](one) for title in extras),
        )  # fmt: skip
    yield from _run_of(evidence, name)


def _run_of(evidence: Evidence, name: str) -> Lines:
    found = evidence.find(f"bench/{name}")
    if found is not None:
        yield from ("", recorded(found.about))


def whole_runs(evidence: Evidence) -> Lines:
    """Seconds that somebody waits for a run of the command."""
    rows = rows_of(evidence, "start/")
    if not rows:
        return
    gains = {"sooner": "sooner than in turn", "over_one_cpu": "sooner than on one CPU"}
    gains = {field: title for field, title in gains.items() if any(field in one for one in rows)}
    yield head("run", "first episode", "all of it", *gains.values())
    for one in rows:
        yield row(
            one["name"].removeprefix("start/"),
            duration(one["first_episode_s"]),
            duration(one["ours_s"]),
            *(times(one[field], 1) if field in one else "" for field in gains),
        )
    yield from _run_of(evidence, "start")


def random_play(evidence: Evidence) -> Lines:
    """Million steps a second, an environment in a line."""
    rows = {one["name"]: one for one in rows_of(evidence, "envs/") if "steps_per_second" in one}
    if not rows:
        return
    names, copies = (list(dict.fromkeys(name.split("/")[part] for name in rows)) for part in (1, 2))
    yield head("environment", *(f"{count[1:]} cop{'y' if count == 'x1' else 'ies'}" for count in copies))
    for name in names:
        each = (rows.get(f"envs/{name}/{count}") for count in copies)
        yield row(name, *(f"{one['steps_per_second'] / 1e6:.2f}" if one else "" for one in each))
    yield from _run_of(evidence, "envs")


def beside_gymnasium(evidence: Evidence) -> Lines:
    """The rows that have Gymnasium's own environment beside them."""
    played = [one for one in rows_of(evidence, "envs/") if "steps_per_second" in one]
    rows = [one for one in played if one["ratio"] is not None]
    if not rows:
        return
    yield head("row", "ours", "Gymnasium", "ratio")
    for one in rows:
        theirs = f"{duration(one['yardstick_s'])} ({one['yardstick'].rpartition(' ')[2]})"
        yield row(one["name"].removeprefix("envs/"), duration(one["ours_s"]), theirs, times(one["ratio"], 0))


def growth(evidence: Evidence) -> Lines:
    """Of one planning call, a size in a column."""
    rows = rows_of(evidence, "neural/growth/")
    if rows:
        yield head(*(one["name"].rpartition("/")[2] for one in rows))
        yield row(*(f"{one['over_paper']:.2f}" for one in rows))


def _by_name(rows: Sequence[Row]) -> dict[tuple[str, ...], Row]:
    """By the last parts of their names."""
    return {tuple(one["name"].split("/")[2:]): one for one in rows}


def batches(evidence: Evidence) -> Lines:
    """Trees that grow by several nodes at a time."""
    rows = _by_name(rows_of(evidence, "neural/batch/"))
    if not rows:
        return
    leaves, sizes = (list(dict.fromkeys(key[part] for key in rows)) for part in (0, 1))
    yield head("`planner.batch`", *sizes)
    yield row("calls in turn", *(rows[leaves[0], size]["calls_in_turn"] for size in sizes))
    for leaf in leaves:
        yield row(f"time, leaf {leaf}", *(f"{rows[leaf, size]['over_one_by_one']:.2f}" for size in sizes))


def several_seeds(evidence: Evidence) -> Lines:
    """Seconds an epoch and seed."""
    rows = _by_name(rows_of(evidence, "neural/seeds/"))
    if not rows:
        return
    ways = list(dict.fromkeys(key[1:] for key in rows))
    yield head("", *(f"{count[1:]}, {how}" for how, count in ways))
    for planner in dict.fromkeys(key[0] for key in rows):
        each = (rows.get((planner, *way)) for way in ways)
        yield row(planner, *(f"{one['per_seed_s']:.3f}" if one else "" for one in each))


def search_sizes(evidence: Evidence) -> Lines:
    """Graph search against its number of nodes."""
    sizes = {one["name"].removeprefix("control/graph_search_"): one for one in rows_of(evidence, "control/")}
    rows = {int(size): one for size, one in sizes.items() if size.isdecimal()}
    if rows:
        yield head("N_max", *(f"{size:,}" for size in rows))
        yield row("search", *(duration(one["ours_s"]) for one in rows.values()))


def on_a_gpu(evidence: Evidence) -> Lines:
    """Actions and whole runs of many seeds as one program."""
    rows = rows_of(evidence, "accelerator/")
    if not rows:
        return
    yield head("row", "all seeds", "a seed", "solved")
    for one in rows:
        name, seeds = one["name"].removeprefix("accelerator/").rsplit("/x", 1)
        solved = f"{one['solved']} of {seeds}" if "solved" in one else ""
        yield row(f"{name}, {seeds}", duration(one["ours_s"]), duration(one["per_seed_s"]), solved)
    yield from _run_of(evidence, "accelerator")


TABLES: dict[str, Callable[[Evidence], Lines]] = {
    "bench start": whole_runs,
    "bench envs": random_play,
    "bench envs beside Gymnasium": beside_gymnasium,
    "bench envs overhead": lambda evidence: beside(evidence, "a step", "envs/python-env/overhead/"),
    "bench envs overlap": lambda evidence: beside(
        evidence, "waiting for each other", "envs/python-env/overlap/"
    ),
    "bench neural": lambda evidence: beside(
        evidence, "eager PyTorch", "neural/plan/", "neural/fit/", "neural/dqn/"
    ),
    "bench neural growth": growth,
    "bench neural batches": batches,
    "bench neural seeds": several_seeds,
    "bench control": lambda evidence: beside(
        evidence, "eager PyTorch", "control/graph_search", "control/model_update", "control/dqn_update"
    ),
    "bench control nodes": search_sizes,
    "bench baselines": lambda evidence: beside(evidence, "Stable-Baselines3", "baselines/"),
    "bench dreem": lambda evidence: beside(evidence, "brute force", "dreem/"),
    "bench tabular": lambda evidence: beside(evidence, "NumPy", "tabular/"),
    "bench accelerator": on_a_gpu,
}
