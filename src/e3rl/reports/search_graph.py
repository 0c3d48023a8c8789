"""The graph that one call of DeterministicPlanner grew (App. B.2.1), and the plan it returned."""

from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from e3rl.envs.maze import Maze
from e3rl.models.base import Problem
from e3rl.models.ensemble import Ensemble
from e3rl.planners import graph_search
from e3rl.planners.base import AbstractPlanner
from e3rl.planners.graph_search import Graph, GraphSearch
from e3rl.reports.control import Plane, log_scale, plane_of
from e3rl.reports.prediction_strip import agent_cell, maze_picture
from e3rl.reports.recorded import Recorded
from e3rl.values.imagined import Utility

Mode = Literal["explore", "exploit"]

PLAN, START = "#c0392b", "#2e8b57"
GOLDEN_ANGLE = np.pi * (3.0 - np.sqrt(5.0))
CELL_RADIUS = 0.4


class Call(NamedTuple):
    """One planning call, on the host; empty rows of the graph are left out."""

    mode: Mode
    graph: Graph
    per_step: Float[np.ndarray, " N"]
    """Utility per step of every node; NaN for the root and where predictions were not finite."""
    path: Int[np.ndarray, " L"]
    """The nodes of the plan, root first."""


def searches_of(run: Recorded) -> dict[Mode, GraphSearch]:
    """The phases in which this run plans by graph search, with the planners."""
    planners: dict[Mode, AbstractPlanner] = {"explore": run.config.planner, "exploit": run.config.exploit}
    return {mode: planner for mode, planner in planners.items() if isinstance(planner, GraphSearch)}


def planning_call(run: Recorded, mode: Mode) -> Call:
    """Plan with the run's models from the first observation of its last epoch."""
    planner = searches_of(run)[mode]
    obs = run.replay.take(jnp.array(run.start, jnp.int32)).obs
    utility = run.config.utility.explore if mode == "explore" else run.config.utility.exploit
    grown = _search(run.members, obs, utility, planner, run.problem)
    node = int(graph_search.best_node(grown, jax.random.key(0), planner.top_share))
    graph = jax.tree.map(lambda leaf: np.asarray(leaf)[: int(grown.size)] if leaf.ndim else leaf, grown)
    usable = (graph.depth > 0) & np.isfinite(graph.utility)
    per_step = np.where(usable, graph.utility, np.nan) / np.maximum(graph.depth, 1)
    path = [node]
    while graph.parent[path[-1]] != graph_search.NO_PARENT:
        path.append(int(graph.parent[path[-1]]))
    return Call(mode, graph, per_step, np.array(path[::-1]))


@eqx.filter_jit
def _search(
    members: Ensemble, obs: Float[Array, "*obs"], utility: Utility, planner: GraphSearch, problem: Problem
) -> Graph:
    start = jnp.array(0, jnp.int32)
    return graph_search.search(members, obs, start, utility, planner, problem.actions, problem.horizon)


def search_graph(run: Recorded) -> Figure | None:
    """A panel for every phase that searches; None where none does, or where states have no place in a picture."""
    modes = list(searches_of(run))
    is_maze = isinstance(run.env, Maze)
    plane = None if is_maze else plane_of(run)
    if not modes or not (is_maze or plane):
        return None
    figure = Figure(figsize=(6.6 * len(modes), 5.8), layout="constrained")
    for axes, mode in zip(figure.subplots(1, len(modes), squeeze=False)[0], modes, strict=True):
        call = planning_call(run, mode)
        if plane is None:
            _in_maze(axes, run, call)
        else:
            _in_plane(axes, run, call, plane)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), frameon=False)
    about = "nodes where the models expect to be on average, edges to their parents"
    separator = ": " if len(modes) > 1 else "\n"
    figure.suptitle(f"{run.task}: the search graph of one planning call{separator}{about}", fontsize=11)
    return figure


def _in_plane(axes: Axes, run: Recorded, call: Call, plane: Plane) -> None:
    low, high = (np.asarray(bound) for bound in run.replay.scale)
    places = plane.project(low + np.asarray(call.graph.mean) * np.where(high > low, high - low, 1.0))
    _draw(axes, call, places, places[call.path])
    for value in plane.limits:
        label = plane.limit_label if value == plane.limits[-1] else None
        axes.axvline(value, color="0.25", linestyle="--", linewidth=1.2, label=label)
    axes.set_xlabel(plane.labels[0])
    axes.set_ylabel(plane.labels[1])


def _in_maze(axes: Axes, run: Recorded, call: Call) -> None:
    """Nodes in the cell where they put the agent, spread around its centre in the order of their insertion."""
    mean = np.asarray(call.graph.mean)
    axes.imshow(0.5 + 0.5 * maze_picture(mean[0]))
    row, column = agent_cell(mean).T
    centres = np.stack([column, row], axis=1).astype(float)
    places = centres.copy()
    cells = row * mean.shape[1] + column
    for cell in np.unique(cells):
        own = np.flatnonzero(cells == cell)
        rank = np.arange(len(own))
        radius = CELL_RADIUS * np.sqrt(rank / max(len(own) - 1, 1))
        angle = rank * GOLDEN_ANGLE
        places[own] += (radius * np.array([np.cos(angle), np.sin(angle)])).T
    _draw(axes, call, places, centres[call.path])
    axes.set_xticks([])
    axes.set_yticks([])


def _draw(axes: Axes, call: Call, places: Float[np.ndarray, "N 2"], path: Float[np.ndarray, "L 2"]) -> None:
    shown = np.flatnonzero(np.isfinite(call.per_step) & np.isfinite(places).all(axis=1))
    edges = np.stack([places[call.graph.parent[shown]], places[shown]], axis=1)
    axes.add_collection(LineCollection(list(edges), colors="0.5", linewidths=0.4, alpha=0.5, zorder=1))
    # The most useful on top.
    shown = shown[np.argsort(call.per_step[shown], kind="stable")]
    values = call.per_step[shown]
    norm = log_scale(values) if call.mode == "explore" else Normalize()
    (x, y), (path_x, path_y) = places[shown].T, path.T
    drawn = axes.scatter(x, y, c=values, s=9, cmap="viridis", norm=norm, linewidths=0, zorder=2)
    axes.plot(path_x, path_y, color=PLAN, linewidth=1.8, zorder=3, label="the plan")
    axes.scatter(path_x[-1:], path_y[-1:], color=PLAN, s=36, zorder=4, label="its last node")
    axes.scatter(
        path_x[:1], path_y[:1], color=START, s=50, zorder=4, edgecolors="white", label="start of the episode"
    )
    what = "disagreement of the models" if call.mode == "explore" else "predicted reward"
    assert axes.figure is not None
    axes.figure.colorbar(drawn, ax=axes, label=f"{what} per step", pad=0.02)
    axes.set_title(
        f"{call.mode}: {len(call.per_step):,} nodes; the plan of {len(path) - 1} steps has "
        f"{call.per_step[call.path[-1]]:.3g} per step",
        fontsize=10,
    )
