"""The paper's picture of predictions in a maze (App. C.2): each member's imagined frames beside the real ones."""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from e3rl.envs.drawing import AGENT, GOAL, INK, PAPER
from e3rl.envs.maze import Maze
from e3rl.models.base import Prediction, within_bounds
from e3rl.models.ensemble import Ensemble
from e3rl.planners.utility import Squared
from e3rl.reports.recorded import Recorded
from e3rl.types import Action

STEPS = 29
LAST_SHOWN, EARLIER_SHOWN = 5, 5
"""Columns: every one of the last steps, where the paper's models disagree, and a few from before."""
WRONG = "#e08a00"
FRAME = 1.05  # inches
SQUARED = Squared(reward_scale=0.0)


class Unrolled(NamedTuple):
    """What the members predict for one action sequence, each from its own predictions."""

    frames: Float[Array, "T E *obs"]
    reward: Float[Array, "T E"]
    disagreement: Float[Array, " T"]
    """max_{e,e'} ‖s_e − s_e'‖² after every step, the explore utility of App. B.2.1."""


@eqx.filter_jit
def unroll(
    ensemble: Ensemble, obs: Float[Array, "*obs"], actions: Int[Array, " T"], times: Int[Array, " T"]
) -> Unrolled:
    """The members' predictions from the scaled observation `obs` on, as graph search unrolls them."""

    def step(states: Float[Array, "members *obs"], now: tuple[Action, Int[Array, ""]]) -> tuple:
        def imagine(member: Ensemble, state: Float[Array, "*obs"]) -> tuple[Array, Prediction]:
            predicted = member(state, *now)
            return within_bounds(member.most_likely(predicted)), predicted

        states, predicted = eqx.filter_vmap(imagine)(ensemble, states)
        return states, Unrolled(states, predicted.reward, SQUARED.disagreement(predicted))

    members = jax.tree.leaves(ensemble)[0].shape[0]
    found: Unrolled
    _, found = jax.lax.scan(step, jnp.broadcast_to(obs, (members, *obs.shape)), (actions, times))
    return found


def chosen_rows(run: Recorded) -> slice:
    """The last `STEPS` steps of the episode that reached the goal in a number of steps nearest to that (the longer of
    two as near), of those that exploration planned: in the first epoch nobody plans. Without any, of all episodes."""
    ends = np.flatnonzero(np.append(np.diff(run.episode), 1))
    lengths = np.diff(np.append(-1, ends))
    reached = np.asarray(run.replay.rows.terminated)[ends]
    planned = np.arange(len(ends)) >= run.config.explore.per_epoch
    for wanted in (reached & planned, reached, planned):
        if wanted.any():
            break
    else:
        wanted = np.ones(len(ends), bool)
    distance = np.abs(lengths - STEPS) - 0.5 * (lengths > STEPS)
    best = int(np.argmin(np.where(wanted, distance, np.inf)))
    end = int(ends[best]) + 1
    return slice(end - min(int(lengths[best]), STEPS), end)


def shown_steps(count: int) -> list[int]:
    """Columns of a strip of `count` steps; 0 is where the unrolling begins."""
    last = range(max(1, count - LAST_SHOWN + 1), count + 1)
    earlier = np.ceil(np.linspace(1, last[0], EARLIER_SHOWN, endpoint=False)).astype(int).tolist()
    return sorted({0, *earlier, *last})


def maze_picture(frame: Float[np.ndarray, "n n 3"]) -> Float[np.ndarray, "n n 3"]:
    """Walls dark, the goal red, the agent green; values between 0 and 1 are faint."""
    picture = np.full(frame.shape, PAPER, float)
    for channel, colour in ((0, INK), (2, GOAL), (1, AGENT)):
        picture += np.clip(frame[:, :, channel, None], 0.0, 1.0) * (np.array(colour) - picture)
    return picture / 255.0


def agent_cell(frames: Float[np.ndarray, "*N n n c"]) -> Int[np.ndarray, "*N 2"]:
    """Row and column where the agent is most likely to be."""
    place = frames[..., 1].reshape(*frames.shape[:-3], -1).argmax(axis=-1)
    return np.stack(np.divmod(place, frames.shape[-2]), axis=-1)


def prediction_strip(run: Recorded) -> Figure | None:
    """Rows are the real frames and every member's; None for anything but a maze."""
    if not isinstance(run.env, Maze):
        return None
    part = chosen_rows(run)
    rows = run.replay.take(jnp.arange(part.start, part.stop))
    found = jax.tree.map(np.asarray, unroll(run.members, rows.obs[0], rows.action, rows.time))
    first, after = np.asarray(rows.obs[:1]), np.asarray(rows.next_obs)
    real = np.concatenate([first, after])
    count, members = found.reward.shape
    imagined = np.concatenate([np.broadcast_to(first[:, None], (1, members, *first.shape[1:])), found.frames])
    rewards = np.concatenate([np.asarray(rows.reward)[:, None], found.reward], axis=1)
    misplaced = np.any(agent_cell(imagined) != agent_cell(real)[:, None], axis=-1)

    steps = shown_steps(count)
    size = (FRAME * len(steps) + 0.8, (FRAME + 0.2) * (members + 1) + 2.6)
    figure = Figure(figsize=size, layout="constrained")
    heights = [(FRAME + 0.2) * (members + 1) + 0.5, 2.1]
    strip, below = figure.subfigures(2, 1, squeeze=False, height_ratios=heights)[:, 0]
    grid = strip.subplots(members + 1, len(steps), squeeze=False)
    for row, column in np.ndindex(*grid.shape):
        axes, step = grid[row, column], steps[column]
        axes.imshow(maze_picture(real[step] if row == 0 else imagined[step, row - 1]))
        axes.set_xticks([])
        axes.set_yticks([])
        wrong = row > 0 and misplaced[step, row - 1]
        axes.spines[:].set(color=WRONG if wrong else "0.7", linewidth=2.5 if wrong else 0.8)
        axes.set_xlabel(f"{rewards[step - 1, row]:+.2f}" if step else " ", fontsize=7, labelpad=1)
        if row == 0:
            axes.set_title("start" if step == 0 else f"step {step}", fontsize=9)
        if column == 0:
            axes.set_ylabel("real" if row == 0 else f"model {row}", fontsize=9)
    _errors(below.subplots(), found, after)
    reached = "reached the goal" if bool(np.asarray(rows.terminated)[-1]) else "did not reach the goal"
    figure.suptitle(
        f"{run.task}: {count} steps of an exploration episode that {reached}, as seen and as predicted\n"
        "by every model from the first frame on. Under a frame its reward; framed in orange: agent misplaced.",
        fontsize=10,
    )
    return figure


def _errors(axes: Axes, found: Unrolled, real: Float[np.ndarray, "T n n c"]) -> None:
    step = np.arange(1, len(real) + 1)
    errors = np.sum((np.asarray(found.frames) - real[:, None]) ** 2, axis=(2, 3, 4))
    axes.plot(step, errors.max(axis=1), color="0.6", marker=".", label="largest error of a model")
    axes.plot(
        step, found.disagreement, color="#3b6fb6", marker=".", label="largest disagreement of two models"
    )
    axes.set_yscale("log" if min(errors.max(axis=1).min(), found.disagreement.min()) > 0 else "linear")
    axes.set_xlim(0.5, len(real) + 0.5)
    axes.set_xlabel("step")
    axes.set_ylabel("squared distance")
    axes.legend(fontsize=8, frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0.0, 1.0))
