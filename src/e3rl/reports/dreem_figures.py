"""The figures of docs/dreem.md: Lemma 3's ellipsoids, ranks against their bounds, and the lock beside Neural-E³."""

import json
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from e3rl.dreem.ellipsoid import Ellipsoid
from e3rl.dreem.iteration_complexity import ReplayedRound
from e3rl.dreem.rank import Factorisation
from e3rl.experiments import dreem_ellipsoid
from e3rl.experiments.dreem_lock import REWARDS, SHOWN
from e3rl.experiments.dreem_results import read_csv
from e3rl.reports.saving import save_figure

BLUE, RED, GREEN, GREY = "#3b6fb6", "#c0392b", "#2e8b57", "#999999"
DPI = 150
METADATA = {"Software": "e3rl"}
SHOWN_ROUNDS = 2


def draw(folder: Path) -> list[Path]:
    """Draw every figure from the data in `folder` (and the ellipsoids' run, repeated from its seed) into it."""
    figures = {
        "ranks": ranks(folder / "rank.json"),
        "lock-rounds": lock_rounds(folder),
        "lock-sweep": lock_sweep(folder / "lock-sweep.csv"),
    }
    drawn = [_save(figure, folder / f"{name}.png") for name, figure in figures.items()]
    return [draw_ellipsoids(folder), *drawn]


def draw_ellipsoids(folder: Path) -> Path:
    """Figure 3 of the paper, from its run, which is repeated."""
    return _save(ellipsoids(dreem_ellipsoid.run()), folder / "ellipsoids.png")


def _save(figure: Figure, path: Path) -> Path:
    return save_figure(figure, path, dpi=DPI, metadata=METADATA)


def ellipsoids(run: dreem_ellipsoid.EllipsoidRun) -> Figure:
    """The paper's illustration of Lemma 3 for d = 2, from a run: a panel per round."""
    shown = run.rounds[:SHOWN_ROUNDS]
    figure = Figure(figsize=(5.6 * len(shown), 6.6), layout="constrained")
    for t, (axes, row) in enumerate(
        zip(figure.subplots(1, len(shown), squeeze=False)[0], shown, strict=True)
    ):
        _round(axes, row, run.factors[row.step - 1], run.phi)
        axes.set_title(
            f"round {t + 1}, step h = {row.step}: volume × {row.volumes.ratio:.3f}, "
            f"slab alone × {row.volumes.sliced_ratio:.3f}",
            fontsize=10,
        )
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)
    return figure


def _round(axes: Axes, row: ReplayedRound, factors: Factorisation, phi: float) -> None:
    points, gone = factors.right, row.left & ~row.kept
    axes.scatter(points[gone, 0], points[gone, 1], s=9, color=GREY, label="models: misfit above 2φ", zorder=2)
    axes.scatter(
        points[row.kept, 0],
        points[row.kept, 1],
        s=9,
        color="black",
        label="models: misfit at most 2φ",
        zorder=3,
    )
    for body, colour, label in (
        (row.volumes.before, BLUE, "$O_t$"),
        (row.volumes.sliced, RED, "$O_{t,+}$"),
        (row.volumes.after, GREEN, "$O_{t+1}$"),
    ):
        if body.dimension == 2:
            axes.plot(*outline(body), color=colour, label=label, zorder=4)
    reach = float(np.abs(outline(row.volumes.before)).max())
    normal = row.policy / np.linalg.norm(row.policy)
    along = np.array([-normal[1], normal[0]])
    for side in (-1.0, 1.0):
        middle = side * 2.0 * phi / np.linalg.norm(row.policy) * normal
        ends = np.stack([middle - 3 * reach * along, middle + 3 * reach * along], axis=1)
        axes.plot(*ends, color=RED, linestyle=":", linewidth=1, label="$|U(π)·v| = 2φ$" if side > 0 else None)
    # The embedding of a policy lives in the dual space: only its direction can be drawn here.
    star = 0.7 * reach * normal
    axes.plot(*np.stack([np.zeros(2), star], axis=1), color="black", linewidth=0.8)
    axes.scatter(star[:1], star[1:], marker="*", s=140, color="gold", edgecolor="black", zorder=5,
                 label="direction of $U(π_{explore})$")  # fmt: skip
    axes.set_xlim(-1.15 * reach, 1.15 * reach)
    axes.set_ylim(-1.15 * reach, 1.15 * reach)
    axes.set_aspect("equal")
    axes.axhline(0, color="#dddddd", linewidth=0.6, zorder=0)
    axes.axvline(0, color="#dddddd", linewidth=0.6, zorder=0)


def outline(body: Ellipsoid) -> Float[np.ndarray, "2 N"]:
    angles = np.linspace(0.0, 2.0 * np.pi, 300)
    circle = np.stack([np.cos(angles), np.sin(angles)])
    return body.basis @ np.linalg.cholesky(body.shape) @ circle


def ranks(path: Path) -> Figure:
    """Ranks of the misfit matrices against what Propositions 1 to 3 allow."""
    rows = json.loads(path.read_text())["rows"]
    figure = Figure(figsize=(8.5, 3.6), layout="constrained")
    axes = figure.subplots()
    place = np.arange(len(rows))
    axes.bar(
        place - 0.27, [max(row["ranks"]) for row in rows], 0.26, color=BLUE, label="largest rank of $A_h$"
    )
    per_factor = [max(row.get("ranks_per_factor", [0])) for row in rows]
    axes.bar(place, per_factor, 0.26, color=GREEN, label="with a distance per factor")
    axes.bar(place + 0.27, [row["bound"] for row in rows], 0.26, color=GREY, label="the proposition's bound")
    axes.set_xticks(place, [f"{row['family']}\n|S| = {row['states']}" for row in rows], fontsize=7)
    axes.set_ylabel("rank")
    axes.legend(fontsize=8)
    return figure


def lock_rounds(folder: Path) -> Figure:
    """v_explore and models left over episodes, DREEM's and Neural-E³'s."""
    dreem, neural = read_csv(folder / "lock-rounds.csv"), read_csv(folder / "lock-neural.csv")
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    explored, left, learned = figure.subplots(1, 3)
    for reward, colour, style in zip(REWARDS, (BLUE, RED), ("-", "--"), strict=True):
        own = [row for row in dreem if row["reward"] == reward]
        episodes = [int(row["episodes"]) for row in own]
        look = {"color": colour, "linestyle": style, "label": reward}
        explored.step(
            episodes, [float(row["v_explore"]) for row in own], where="post", marker="o", ms=3, **look
        )
        left.step(
            episodes, [float(row["log10_models"]) for row in own], where="post", marker="o", ms=3, **look
        )
        theirs = [row for row in neural if row["reward"] == reward and np.isfinite(float(row["v_explore"]))]
        learned.plot(
            [int(row["episode"]) for row in theirs], [float(row["v_explore"]) for row in theirs], **look
        )
    horizon = SHOWN["horizon"]
    for axes, title in (
        (explored, f"DREEM, H={horizon}, n={SHOWN['n']}: $v_{{explore}}$"),
        (left, "DREEM: log₁₀ of the models left"),
        (learned, f"Neural-E³, H={horizon}: its estimate of $v_{{explore}}$"),
    ):
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("episodes")
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=8)
    return figure


def lock_sweep(path: Path) -> Figure:
    """How few trajectories per round and step DREEM gets by with."""
    rows = read_csv(path)
    figure = Figure(figsize=(8, 3.4), layout="constrained")
    share, spent = figure.subplots(1, 2)
    for horizon, colour in zip(
        sorted({int(row["horizon"]) for row in rows}), (BLUE, GREEN, RED), strict=True
    ):
        own = [row for row in rows if int(row["horizon"]) == horizon]
        sizes = sorted({int(row["n"]) for row in own})
        solved = [np.mean([row["solved"] == "True" for row in own if int(row["n"]) == n]) for n in sizes]
        share.plot(sizes, solved, marker="o", ms=4, color=colour, label=f"H = {horizon}")
        done = [
            [int(r["episodes"]) for r in own if int(r["n"]) == n and r["solved"] == "True"] for n in sizes
        ]
        pairs = [(n, float(np.median(each))) for n, each in zip(sizes, done, strict=True) if each]
        spent.plot(*zip(*pairs, strict=True), marker="o", ms=4, color=colour, label=f"H = {horizon}")
    share.set_ylabel("share of runs solved")
    spent.set_ylabel("episodes of the solved runs, median")
    spent.set_yscale("log")
    for axes in (share, spent):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("n, trajectories per round and step")
        axes.legend(fontsize=8)
    return figure
