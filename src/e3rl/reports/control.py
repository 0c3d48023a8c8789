"""Where exploration went in an environment of continuous observations, and where the models still disagree
(section 5.3)."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, LogNorm, Normalize
from matplotlib.figure import Figure

from e3rl.envs import acrobot, cart_pole, mountain_car
from e3rl.models.ensemble import Ensemble, predict
from e3rl.planners import UTILITIES
from e3rl.planners.utility import AbstractUtility
from e3rl.reports.recorded import Recorded
from e3rl.types import Action

GRID = 80
"""Points of the disagreement field along each axis."""
LEAST_SHARE = 1e-6
"""Disagreement below this share of the largest has the colour of none."""
END, LIMIT = "#c0392b", "0.25"


class Plane(NamedTuple):
    """Two numbers of an observation that a picture can show."""

    labels: tuple[str, str]
    project: Callable[[Float[np.ndarray, "N D"]], Float[np.ndarray, "N 2"]]
    limits: tuple[float, ...] = ()
    """Values on the horizontal axis beyond which episodes end."""
    limit_label: str = ""
    ending: str = "an episode terminated"


def _tip(obs: Float[np.ndarray, "N 6"]) -> Float[np.ndarray, "N 2"]:
    """Height of the tip above the pivot, −cos θ₁ − cos(θ₁ + θ₂), and speed of the first joint."""
    cos_1, sin_1, cos_2, sin_2, speed, _ = obs.T
    return np.stack([-cos_1 - (cos_1 * cos_2 - sin_1 * sin_2), speed], axis=1)


PLANES = {
    "MountainCar": Plane(
        ("position", "velocity"), lambda obs: obs, (mountain_car.GOAL_POSITION,), "goal", "goal reached"
    ),
    "Acrobot": Plane(
        ("height of the tip above the pivot", "speed of the first joint"),
        _tip,
        (acrobot.TARGET_HEIGHT,),
        "goal",
        "goal reached",
    ),
    "CartPole": Plane(
        ("angle of the pole", "speed of the pole"),
        lambda obs: obs[:, 2:],
        (-cart_pole.MAX_ANGLE, cart_pole.MAX_ANGLE),
        "limits of the angle",
    ),
}
"""Planes that mean something; other environments show the two entries of largest spread."""


def plane_of(run: Recorded) -> Plane | None:
    """What to show of this run's observations; None for images and for vectors without two continuous entries."""
    encoding = run.problem.spec.encoding
    known = PLANES.get(run.name)
    if known and not run.env_options.get("scale_observation"):
        return known
    entries = [
        d for part in encoding.parts if part.kind == "continuous" for d in range(part.start, part.stop)
    ]
    if len(encoding.shape) != 1 or len(entries) < 2:
        return None
    spread = np.std(run.replay.scale(run.replay.rows.obs[: run.size])[:, jnp.array(entries)], axis=0)
    widest = np.array(entries)[np.sort(np.argsort(-spread, kind="stable")[:2])]
    labels = (f"entry {widest[0]} of the observation", f"entry {widest[1]} of the observation")
    return Plane(labels, lambda obs: obs[:, widest])


def phase_plane(run: Recorded) -> Figure | None:
    """Visited states coloured by epoch and, of observations with two entries, the disagreement field beside them."""
    plane = plane_of(run)
    if plane is None:
        return None
    has_field = run.problem.spec.encoding.shape == (2,)
    figure = Figure(figsize=(12 if has_field else 7, 5), layout="constrained")
    axes = figure.subplots(1, 2 if has_field else 1, squeeze=False, sharex=True, sharey=True)[0]
    _visits(axes[0], run, plane)
    if has_field:
        _field(axes[1], run)
    for panel in axes:
        for value in plane.limits:
            label = plane.limit_label if value == plane.limits[-1] else None
            panel.axvline(value, color=LIMIT, linestyle="--", linewidth=1.2, label=label)
        panel.set_xlabel(plane.labels[0])
    axes[0].set_ylabel(plane.labels[1])
    handles, labels = axes[0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), frameon=False)
    count = int(run.episode[-1]) + 1
    figure.suptitle(f"{run.task} after {count} exploration episode{'s' * (count > 1)}", fontsize=11)
    return figure


def _visits(axes: Axes, run: Recorded, plane: Plane) -> None:
    rows = jax.tree.map(lambda leaf: np.asarray(leaf)[: run.size], run.replay.rows)
    epoch = 1 + run.episode // run.config.explore.per_epoch
    edges = np.arange(0.5, epoch[-1] + 1)
    if len(edges) > 257:
        edges = np.linspace(0.5, epoch[-1] + 0.5, 257)
    points = plane.project(rows.obs)
    drawn = axes.scatter(
        points[:, 0],
        points[:, 1],
        c=epoch,
        s=float(np.clip(20_000 / run.size, 4, 16)),
        linewidths=0,
        cmap="viridis",
        norm=BoundaryNorm(edges, colormaps["viridis"].N),
    )
    ends = rows.terminated
    if ends.any():
        label = f"{plane.ending} ({ends.sum()} of {run.episode[-1] + 1} episodes)"
        last = plane.project(rows.next_obs[ends])
        axes.scatter(
            last[:, 0], last[:, 1], marker="x", s=28, color=END, linewidths=1.3, label=label, zorder=3
        )
    axes.set_title(f"where exploration went: {run.size:,} visited states", fontsize=10)
    assert axes.figure is not None
    ticks = np.unique(np.linspace(1, epoch[-1], min(10, epoch[-1])).astype(int))
    axes.figure.colorbar(drawn, ax=axes, label="epoch", ticks=ticks, pad=0.02)


def _field(axes: Axes, run: Recorded) -> None:
    low, high = (np.asarray(bound) for bound in run.replay.scale)
    values = disagreement_field(run)
    drawn = axes.imshow(
        values,
        origin="lower",
        extent=(float(low[0]), float(high[0]), float(low[1]), float(high[1])),
        aspect="auto",
        cmap="magma",
        norm=log_scale(values),
    )
    name = UTILITIES.name_of(type(run.config.utility))
    axes.set_title("where its models disagree: largest over actions and pairs of models", fontsize=10)
    assert axes.figure is not None
    axes.figure.colorbar(drawn, ax=axes, label=f"disagreement ({name} distance)", pad=0.02)


def log_scale(values: Float[np.ndarray, "*any"]) -> Normalize:
    """Logarithmic colours, or linear ones where nothing is above zero or everything is equal."""
    top = float(values.max(initial=0.0))
    low = max(float(values.min(initial=np.inf)), LEAST_SHARE * top)
    return LogNorm(low, top, clip=True) if 0.0 < low < top < np.inf else Normalize()


def disagreement_field(run: Recorded) -> Float[np.ndarray, "y x"]:
    """max_a max_{e,e'} δ of App. B.2.1 over a grid of the two entries; rows are the second entry, from its bottom."""
    line = jnp.linspace(0.0, 1.0, GRID)
    points = jnp.stack(jnp.meshgrid(line, line), axis=-1).reshape(-1, 2)
    values = _disagreements(run.members, points, run.problem.actions, run.config.utility)
    return np.asarray(values).reshape(GRID, GRID)


@eqx.filter_jit
def _disagreements(
    members: Ensemble, points: Float[Array, "B D"], actions: int, utility: AbstractUtility
) -> Float[Array, " B"]:
    def at(point: Float[Array, " D"], action: Action) -> Float[Array, ""]:
        predicted = predict(members, point, action, jnp.array(0, jnp.int32))
        return utility.disagreement(predicted)

    every_action = jax.vmap(at, in_axes=(None, 0))
    choices = jnp.arange(actions, dtype=jnp.int32)
    return jax.vmap(lambda point: jnp.max(every_action(point, choices)))(points)
