"""Figure 1 of the paper: the environments, drawn from their own `render()`."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8
from matplotlib import image
from matplotlib.figure import Figure

from e3rl.envs.acrobot import Acrobot, AcrobotState
from e3rl.envs.lock import GOOD_1, CombinationLock, LockState
from e3rl.envs.maze import Maze
from e3rl.envs.mountain_car import MountainCar
from e3rl.reports.saving import save_figure

Picture = UInt8[np.ndarray, "h w 3"]

# File name, letter and caption in the combined figure; the letters are the paper's.
CAPTIONS = {
    "lock": "(a) stochastic combination lock",
    "maze-1": "(b) maze",
    "maze-2": "(b) another episode's maze",
    "mountain-car": "(c) MountainCar",
    "acrobot": "(c) Acrobot",
}
COMBINED = "environments"
LOCK_HORIZON = 20
MAZE_SIZE = 10
SHEET_WIDTH, CAPTION_ROOM = 10.0, 0.4  # inches
DPI = 150
METADATA = {"Software": "e3rl"}
"""In place of matplotlib's name and version, which would make a new file of the same picture."""


def panels(seed: int = 0) -> dict[str, Picture]:
    """The five pictures by file name. `seed` chooses the mazes and the car's start."""
    key_first, key_second, key_car = jax.random.split(jax.random.key(seed), 3)
    lock, maze, car, acrobot = (
        CombinationLock(horizon=LOCK_HORIZON),
        Maze(size=MAZE_SIZE),
        MountainCar(),
        Acrobot(),
    )
    # The agent on its way through the lock, and the acrobot in mid-swing: at rest it is a vertical line.
    middle = LockState(jnp.array(LOCK_HORIZON // 3, jnp.int32), jnp.array(GOOD_1, jnp.int32))
    swinging = AcrobotState(jnp.array([1.0, -0.8, 0.0, 0.0]), jnp.array(0, jnp.int32))
    return {
        "lock": lock.render(middle),
        "maze-1": maze.render(maze.reset(key_first)[0]),
        "maze-2": maze.render(maze.reset(key_second)[0]),
        "mountain-car": car.render(car.reset(key_car)[0]),
        "acrobot": acrobot.render(swinging),
    }


def combined(pictures: dict[str, Picture]) -> Figure:
    """All panels on one sheet: the lock above, the other four in a row below it, as wide as they are."""
    first, *others = pictures
    aspects = {name: picture.shape[1] / picture.shape[0] for name, picture in pictures.items()}
    widths = [aspects[name] for name in others]
    heights = [sum(widths) / aspects[first], 1.0]
    scale = SHEET_WIDTH / sum(widths)
    figure = Figure(figsize=(SHEET_WIDTH, scale * sum(heights) + CAPTION_ROOM), dpi=DPI, layout="constrained")
    layout: list[Any] = [[first] * len(others), others]
    axes = figure.subplot_mosaic(layout, width_ratios=widths, height_ratios=heights)
    for name, axis in axes.items():
        axis.imshow(pictures[name], interpolation="lanczos")
        axis.set_title(CAPTIONS[name], fontsize=10)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_color("#bbbbbb")
    return figure


def draw_panels(folder: Path, seed: int = 0) -> list[Path]:
    """Write every panel and the combined sheet as PNG into `folder`, made if missing."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = panels(seed)
    paths = []
    for name, picture in pictures.items():
        paths.append(folder / f"{name}.png")
        image.imsave(paths[-1], picture, metadata=METADATA)
    paths.append(folder / f"{COMBINED}.png")
    save_figure(combined(pictures), paths[-1], metadata=METADATA)
    return paths
