"""Pictures of the environments' states (the panels of the paper's Figure 1), drawn with numpy alone.

Every shape is painted from its signed distance in pixels, negative inside; the pixels that the edge crosses
are blended, which smooths it. Points are (x, y) in pixels, x to the right and y down.
"""

import math

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

Colour = tuple[int, int, int]
Number = float | int
Point = tuple[Number, Number]
Picture = Float[np.ndarray, "h w 3"]

PAPER: Colour = (250, 250, 248)
INK: Colour = (45, 48, 56)
MUTED: Colour = (186, 191, 201)
GOOD: Colour = (176, 202, 228)
GOAL: Colour = (214, 69, 65)
AGENT: Colour = (52, 168, 83)
GROUND: Colour = (206, 215, 196)
LINK: Colour = (72, 118, 178)
WHITE: Colour = (255, 255, 255)

LOCK_STATES = 3
LOCK_CELL, LOCK_GAP, LOCK_COLUMNS = 32, 6, 25
MAZE_PIXELS = 400
HILL_SIZE = (600, 400)
ACROBOT_PIXELS = 400
CART_SIZE = (600, 400)


def blank(width: int, height: int) -> Picture:
    return np.full((height, width, 3), PAPER, float)


def finish(picture: Picture) -> UInt8[np.ndarray, "h w 3"]:
    return np.rint(picture).astype(np.uint8)


def _blend(picture: Picture, distance: Float[np.ndarray, "h w"], colour: Colour) -> None:
    cover = np.clip(0.5 - distance, 0.0, 1.0)[:, :, None]
    picture += cover * (np.array(colour) - picture)


def _window(
    picture: Picture, low: Point, high: Point
) -> tuple[Float[np.ndarray, "a b 3"], Float[np.ndarray, "1 b"], Float[np.ndarray, "a 1"]]:
    """The part of the picture around a shape, with the x and y of its pixels' centres."""
    height, width, _ = picture.shape
    left, right = (int(np.clip(x, 0, width)) for x in (low[0] - 1, high[0] + 2))
    top, bottom = (int(np.clip(y, 0, height)) for y in (low[1] - 1, high[1] + 2))
    x, y = np.arange(left, right) + 0.5, np.arange(top, bottom) + 0.5
    return picture[top:bottom, left:right], x[None, :], y[:, None]


def draw_box(picture: Picture, low: Point, high: Point, colour: Colour, corner: Number = 0) -> None:
    """A rectangle with rounded corners."""
    part, x, y = _window(picture, low, high)
    across = np.abs(x - (low[0] + high[0]) / 2) - (high[0] - low[0]) / 2 + corner
    along = np.abs(y - (low[1] + high[1]) / 2) - (high[1] - low[1]) / 2 + corner
    outside = np.hypot(np.maximum(across, 0.0), np.maximum(along, 0.0))
    _blend(part, outside + np.minimum(np.maximum(across, along), 0.0) - corner, colour)


def draw_line(picture: Picture, start: Point, end: Point, width: Number, colour: Colour) -> None:
    """A stroke with round ends; a disc where start and end coincide."""
    radius = width / 2
    low = min(start[0], end[0]) - radius, min(start[1], end[1]) - radius
    high = max(start[0], end[0]) + radius, max(start[1], end[1]) + radius
    part, x, y = _window(picture, low, high)
    dx, dy = end[0] - start[0], end[1] - start[1]
    length = dx * dx + dy * dy
    share = np.clip(((x - start[0]) * dx + (y - start[1]) * dy) / length, 0.0, 1.0) if length else 0.0
    _blend(part, np.hypot(x - start[0] - share * dx, y - start[1] - share * dy) - radius, colour)


def draw_disc(picture: Picture, centre: Point, radius: Number, colour: Colour) -> None:
    draw_line(picture, centre, centre, 2 * radius, colour)


def draw_polygon(picture: Picture, corners: list[Point], colour: Colour) -> None:
    """A convex polygon, its corners in clockwise order on the screen."""
    xs, ys = zip(*corners, strict=True)
    part, x, y = _window(picture, (min(xs), min(ys)), (max(xs), max(ys)))
    distance = np.full(part.shape[:2], -np.inf)
    for (x_0, y_0), (x_1, y_1) in zip(corners, corners[1:] + corners[:1], strict=True):
        edge = math.hypot(x_1 - x_0, y_1 - y_0)
        distance = np.maximum(distance, ((x - x_0) * (y_1 - y_0) - (y - y_0) * (x_1 - x_0)) / edge)
    _blend(part, distance, colour)


def _draw_agent(picture: Picture, centre: Point, radius: Number) -> None:
    draw_disc(picture, centre, radius, WHITE)
    draw_disc(picture, centre, 0.78 * radius, AGENT)


def draw_lock(horizon: int, level: int, latent: int) -> UInt8[np.ndarray, "h w 3"]:
    """Levels from left to right, in bands when there are many; the two good states above the dead one.

    Dead states are dark, the last level's good states red. The hollow column at the end is where the last
    action leads.
    """
    bands = math.ceil((horizon + 1) / LOCK_COLUMNS)
    columns = math.ceil((horizon + 1) / bands)
    pitch = LOCK_CELL + LOCK_GAP
    margin = 2 * LOCK_GAP
    band_height = LOCK_STATES * pitch + margin
    picture = blank(columns * pitch + 2 * margin - LOCK_GAP, bands * band_height + margin - LOCK_GAP)
    for column in range(horizon + 1):
        band, place = divmod(column, columns)
        for state in range(LOCK_STATES):
            left = float(margin + place * pitch)
            top = float(margin + band * band_height + state * pitch)
            low, high = (left, top), (left + LOCK_CELL, top + LOCK_CELL)
            alive = state < LOCK_STATES - 1
            if column == horizon:
                draw_box(picture, low, high, MUTED if alive else INK, corner=6)
                draw_box(picture, (left + 2, top + 2), (high[0] - 2, high[1] - 2), PAPER, corner=4)
            else:
                colour = (GOAL if column == horizon - 1 else GOOD) if alive else INK
                draw_box(picture, low, high, colour, corner=6)
            if (column, state) == (level, latent):
                _draw_agent(picture, (left + LOCK_CELL / 2, top + LOCK_CELL / 2), 0.36 * LOCK_CELL)
    return finish(picture)


def draw_maze(
    walls: Bool[np.ndarray, "n n"], agent: Int[np.ndarray, " 2"], goal: Int[np.ndarray, " 2"]
) -> UInt8[np.ndarray, "h w 3"]:
    """Walls dark, the goal a red square, the agent a green disc."""
    cell = max(4, MAZE_PIXELS // len(walls))
    picture = blank(cell * len(walls), cell * len(walls))
    for row, column in np.argwhere(walls).tolist():
        draw_box(picture, (cell * column, cell * row), (cell * (column + 1), cell * (row + 1)), INK)
    inset = 0.12 * cell
    row, column = goal.tolist()
    low = cell * column + inset, cell * row + inset
    draw_box(picture, low, (low[0] + 0.76 * cell, low[1] + 0.76 * cell), GOAL, corner=0.15 * cell)
    row, column = agent.tolist()
    _draw_agent(picture, (cell * (column + 0.5), cell * (row + 0.5)), 0.4 * cell)
    return finish(picture)


def draw_mountain_car(position: float) -> UInt8[np.ndarray, "h w 3"]:
    """The hill sin(3x), a little beyond the position's bounds −1.2 and 0.6, with car and flag (at 0.5)."""
    width, height = HILL_SIZE
    left, scale = -1.3, width / 2.0
    rise = 0.45 * scale  # so that slopes look as steep as Gymnasium draws them

    def ground(x: float) -> Point:
        return (x - left) * scale, height - 40 - rise * (1 + math.sin(3 * x))

    picture = blank(width, height)
    part, x, y = _window(picture, (0, 0), (width, height))
    phase = 3 * (left + x / scale)
    slope = 3 * rise / scale * np.cos(phase)
    depth = (height - 40 - rise * (1 + np.sin(phase)) - y) / np.hypot(1.0, slope)
    _blend(part, depth, GROUND)
    _blend(part, np.abs(depth) - 1.5, INK)

    foot = ground(0.5)
    top = foot[1] - 56
    draw_line(picture, foot, (foot[0], top), 3, INK)
    draw_polygon(picture, [(foot[0], top), (foot[0] + 30, top + 10), (foot[0], top + 20)], GOAL)

    angle = math.atan(3 * rise / scale * math.cos(3 * position))
    ahead, up = (math.cos(angle), -math.sin(angle)), (-math.sin(angle), -math.cos(angle))
    base = ground(position)

    def on_car(along: Number, above: Number) -> Point:
        return base[0] + along * ahead[0] + above * up[0], base[1] + along * ahead[1] + above * up[1]

    draw_polygon(picture, [on_car(-11, 28), on_car(9, 28), on_car(15, 19), on_car(-15, 19)], AGENT)
    draw_line(picture, on_car(-17, 15), on_car(17, 15), 12, AGENT)
    for along in (-12, 12):
        draw_disc(picture, on_car(along, 8), 7, INK)
        draw_disc(picture, on_car(along, 8), 3, MUTED)
    return finish(picture)


def draw_acrobot(theta_1: float, theta_2: float) -> UInt8[np.ndarray, "h w 3"]:
    """The two links from their pivot in the middle, and the dashed height that the tip must pass."""
    scale = ACROBOT_PIXELS / 4.4
    pivot = ACROBOT_PIXELS / 2, ACROBOT_PIXELS / 2
    elbow = pivot[0] + scale * math.sin(theta_1), pivot[1] + scale * math.cos(theta_1)
    tip = elbow[0] + scale * math.sin(theta_1 + theta_2), elbow[1] + scale * math.cos(theta_1 + theta_2)
    picture = blank(ACROBOT_PIXELS, ACROBOT_PIXELS)
    for x in range(10, ACROBOT_PIXELS, 20):
        draw_line(picture, (x - 5, pivot[1] - scale), (x + 5, pivot[1] - scale), 3, GOAL)
    for start, end in ((pivot, elbow), (elbow, tip)):
        draw_line(picture, start, end, 16, LINK)
    for joint in (pivot, elbow):
        draw_disc(picture, joint, 10, INK)
        draw_disc(picture, joint, 4, MUTED)
    _draw_agent(picture, tip, 8)
    return finish(picture)


def draw_cart_pole(position: float, angle: float) -> UInt8[np.ndarray, "h w 3"]:
    """The cart on its track, whose ends (at ±2.4) are marked, and the pole, to the right for positive angles."""
    width, height = CART_SIZE
    scale, rail = width / 5.4, height - 100
    picture = blank(width, height)
    draw_line(picture, (0, rail), (width, rail), 3, INK)
    for end in (-2.4, 2.4):
        draw_line(
            picture, (width / 2 + end * scale, rail - 14), (width / 2 + end * scale, rail + 14), 4, GOAL
        )
    axle = width / 2 + position * scale, rail - 24.0
    draw_box(picture, (axle[0] - 32, axle[1]), (axle[0] + 32, rail + 6.0), AGENT, corner=6)
    tip = axle[0] + scale * math.sin(angle), axle[1] - scale * math.cos(angle)
    draw_line(picture, axle, tip, 12, LINK)
    draw_disc(picture, axle, 6, INK)
    return finish(picture)
