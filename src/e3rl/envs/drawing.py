"""Pictures of the environments' states (the panels of the paper's Figure 1), drawn with Pillow."""

import math

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image, ImageDraw

Colour = tuple[int, int, int]
Number = float | int
Point = tuple[Number, Number]
Picture = UInt8[np.ndarray, "h w 3"]

PAPER: Colour = (250, 250, 248)
INK: Colour = (45, 48, 56)
MUTED: Colour = (186, 191, 201)
GOOD: Colour = (176, 202, 228)
GOAL: Colour = (214, 69, 65)
AGENT: Colour = (52, 168, 83)
GROUND: Colour = (206, 215, 196)
LINK: Colour = (72, 118, 178)
WHITE: Colour = (255, 255, 255)
DOOR_KEY: Colour = (222, 165, 33)

LOCK_STATES = 3
LOCK_CELL, LOCK_GAP, LOCK_COLUMNS = 32, 6, 25
MAZE_PIXELS = 400
HILL_SIZE = (600, 400)
ACROBOT_PIXELS = 400
CART_SIZE = (600, 400)
STRIP_CELL = 16
STRIP_AGENT: Colour = (38, 139, 210)
ENLARGED = 4


class Canvas:
    """Points are (x, y) in pixels, x to the right and y down. Everything is drawn enlarged and then reduced, which
    smooths the edges."""

    def __init__(self, width: int, height: int):
        self._image = Image.new("RGB", (ENLARGED * width, ENLARGED * height), PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def box(self, low: Point, high: Point, colour: Colour, corner: Number = 0) -> None:
        """A rectangle with rounded corners."""
        (left, top), (right, bottom) = _enlarged([low, high])
        # To Pillow the far edge is the last pixel inside.
        self._draw.rounded_rectangle((left, top, right - 1, bottom - 1), ENLARGED * corner, colour)

    def disc(self, centre: Point, radius: Number, colour: Colour) -> None:
        low, high = (centre[0] - radius, centre[1] - radius), (centre[0] + radius, centre[1] + radius)
        self.box(low, high, colour, corner=radius)

    def line(self, points: list[Point], width: Number, colour: Colour) -> None:
        """A stroke through the points, with round ends."""
        self._draw.line(_enlarged(points), colour, round(ENLARGED * width), joint="curve")
        for end in (points[0], points[-1]):
            self.disc(end, width / 2, colour)

    def polygon(self, corners: list[Point], colour: Colour) -> None:
        self._draw.polygon(_enlarged(corners), colour)

    def agent(self, centre: Point, radius: Number) -> None:
        self.disc(centre, radius, WHITE)
        self.disc(centre, 0.78 * radius, AGENT)

    def picture(self) -> Picture:
        return np.array(self._image.reduce(ENLARGED))


def _enlarged(points: list[Point]) -> list[tuple[int, int]]:
    return [(round(ENLARGED * x), round(ENLARGED * y)) for x, y in points]


def draw_lock(horizon: int, level: int, latent: int) -> Picture:
    """Levels from left to right, in bands when there are many; the two good states above the dead one.

    Dead states are dark, the last level's good states red. The hollow column at the end is where the last
    action leads.
    """
    bands = math.ceil((horizon + 1) / LOCK_COLUMNS)
    columns = math.ceil((horizon + 1) / bands)
    pitch = LOCK_CELL + LOCK_GAP
    margin = 2 * LOCK_GAP
    band_height = LOCK_STATES * pitch + margin
    canvas = Canvas(columns * pitch + 2 * margin - LOCK_GAP, bands * band_height + margin - LOCK_GAP)
    for column in range(horizon + 1):
        band, place = divmod(column, columns)
        for state in range(LOCK_STATES):
            left, top = margin + place * pitch, margin + band * band_height + state * pitch
            right, bottom = left + LOCK_CELL, top + LOCK_CELL
            alive = state < LOCK_STATES - 1
            if column == horizon:
                canvas.box((left, top), (right, bottom), MUTED if alive else INK, corner=6)
                canvas.box((left + 2, top + 2), (right - 2, bottom - 2), PAPER, corner=4)
            else:
                colour = (GOAL if column == horizon - 1 else GOOD) if alive else INK
                canvas.box((left, top), (right, bottom), colour, corner=6)
            if (column, state) == (level, latent):
                canvas.agent((left + LOCK_CELL / 2, top + LOCK_CELL / 2), 0.36 * LOCK_CELL)
    return canvas.picture()


def draw_maze(
    walls: Bool[np.ndarray, "n n"], agent: Int[np.ndarray, " 2"], goal: Int[np.ndarray, " 2"]
) -> Picture:
    """Walls dark, the goal a red square, the agent a green disc."""
    cell = max(4, MAZE_PIXELS // len(walls))
    canvas = Canvas(cell * len(walls), cell * len(walls))
    for row, column in np.argwhere(walls).tolist():
        canvas.box((cell * column, cell * row), (cell * (column + 1), cell * (row + 1)), INK)
    row, column = goal.tolist()
    low, high = (cell * (column + 0.12), cell * (row + 0.12)), (cell * (column + 0.88), cell * (row + 0.88))
    canvas.box(low, high, GOAL, corner=0.15 * cell)
    row, column = agent.tolist()
    canvas.agent((cell * (column + 0.5), cell * (row + 0.5)), 0.4 * cell)
    return canvas.picture()


def draw_key_door(
    cells: Int[np.ndarray, "n n"], agent: Int[np.ndarray, " 2"], heading: int, carrying: bool
) -> Picture:
    """Walls dark, the goal a red square, the key a ring with a bit, the door blue and hollow once it is open; the agent
    is a green disc whose nose shows where it is heading, with the key beside it if it has it."""
    cell = max(12, MAZE_PIXELS // len(cells))
    canvas = Canvas(cell * len(cells), cell * len(cells))

    def place(row: Number, column: Number, inset: Number) -> tuple[Point, Point]:
        return (cell * (column + inset), cell * (row + inset)), (
            cell * (column + 1 - inset),
            cell * (row + 1 - inset),
        )

    def key(row: Number, column: Number, size: Number) -> None:
        x, y = cell * (column + 0.5), cell * (row + 0.5)
        canvas.line([(x, y), (x + 1.6 * size * cell, y)], 0.5 * size * cell, DOOR_KEY)
        canvas.disc((x - 0.5 * size * cell, y), 0.8 * size * cell, DOOR_KEY)
        canvas.disc((x - 0.5 * size * cell, y), 0.4 * size * cell, PAPER)

    _, wall, goal, lies, locked, opened = range(6)
    for (row, column), what in np.ndenumerate(cells):
        if what == wall:
            canvas.box(*place(row, column, 0), INK)
        elif what == goal:
            canvas.box(*place(row, column, 0.12), GOAL, corner=0.15 * cell)
        elif what == lies:
            key(row, column, 0.2)
        elif what in (locked, opened):
            canvas.box(*place(row, column, 0), LINK)
            if what == opened:
                canvas.box(*place(row, column, 0.12), PAPER)
    row, column = agent.tolist()
    x, y = cell * (column + 0.5), cell * (row + 0.5)
    ahead = ((1, 0), (0, 1), (-1, 0), (0, -1))[heading]
    canvas.agent((x, y), 0.36 * cell)
    canvas.disc((x + 0.3 * cell * ahead[0], y + 0.3 * cell * ahead[1]), 0.12 * cell, INK)
    if carrying:
        key(row, column, 0.12)
    return canvas.picture()


def draw_strip(worth: Float[np.ndarray, " S"], agent: int) -> Picture:
    """A square per state, the brighter the better paid (in [0, 1]); blue marks where the agent is."""
    greys = np.round(40 + 200 * worth).astype(np.uint8)
    picture = np.zeros((STRIP_CELL + 2, len(worth) * STRIP_CELL + 2, 3), np.uint8)
    for state in range(len(worth)):
        left = 1 + state * STRIP_CELL
        picture[1:-1, left + 1 : left + STRIP_CELL - 1] = greys[state]
        if state == agent:
            picture[5:-5, left + 4 : left + STRIP_CELL - 4] = STRIP_AGENT
    return picture


def draw_mountain_car(position: float) -> Picture:
    """The hill sin(3x), a little beyond the position's bounds −1.2 and 0.6, with car and flag (at 0.5)."""
    width, height = HILL_SIZE
    left, scale = -1.3, width / 2.0
    rise = 0.45 * scale  # so that slopes look as steep as Gymnasium draws them

    def ground(x: float) -> Point:
        return (x - left) * scale, height - 40 - rise * (1 + math.sin(3 * x))

    canvas = Canvas(width, height)
    hill = [ground(left + x / scale) for x in range(-4, width + 5, 2)]
    canvas.polygon([*hill, (width + 4, height), (-4, height)], GROUND)
    canvas.line(hill, 3, INK)

    foot = ground(0.5)
    top = foot[1] - 56
    canvas.line([foot, (foot[0], top)], 3, INK)
    canvas.polygon([(foot[0], top), (foot[0] + 30, top + 10), (foot[0], top + 20)], GOAL)

    angle = math.atan(3 * rise / scale * math.cos(3 * position))
    ahead, up = (math.cos(angle), -math.sin(angle)), (-math.sin(angle), -math.cos(angle))
    base = ground(position)

    def on_car(along: Number, above: Number) -> Point:
        return base[0] + along * ahead[0] + above * up[0], base[1] + along * ahead[1] + above * up[1]

    canvas.polygon([on_car(-11, 28), on_car(9, 28), on_car(15, 19), on_car(-15, 19)], AGENT)
    canvas.line([on_car(-17, 15), on_car(17, 15)], 12, AGENT)
    for along in (-12, 12):
        canvas.disc(on_car(along, 8), 7, INK)
        canvas.disc(on_car(along, 8), 3, MUTED)
    return canvas.picture()


def draw_acrobot(theta_1: float, theta_2: float) -> Picture:
    """The two links from their pivot in the middle, and the dashed height that the tip must pass."""
    scale = ACROBOT_PIXELS / 4.4
    pivot = ACROBOT_PIXELS / 2, ACROBOT_PIXELS / 2
    elbow = pivot[0] + scale * math.sin(theta_1), pivot[1] + scale * math.cos(theta_1)
    tip = elbow[0] + scale * math.sin(theta_1 + theta_2), elbow[1] + scale * math.cos(theta_1 + theta_2)
    canvas = Canvas(ACROBOT_PIXELS, ACROBOT_PIXELS)
    for x in range(10, ACROBOT_PIXELS, 20):
        canvas.line([(x - 5, pivot[1] - scale), (x + 5, pivot[1] - scale)], 3, GOAL)
    canvas.line([pivot, elbow, tip], 16, LINK)
    for joint in (pivot, elbow):
        canvas.disc(joint, 10, INK)
        canvas.disc(joint, 4, MUTED)
    canvas.agent(tip, 8)
    return canvas.picture()


def draw_cart_pole(position: float, angle: float) -> Picture:
    """The cart on its track, whose ends (at ±2.4) are marked, and the pole, to the right for positive angles."""
    width, height = CART_SIZE
    scale, rail = width / 5.4, height - 100
    canvas = Canvas(width, height)
    canvas.line([(0, rail), (width, rail)], 3, INK)
    for end in (width / 2 - 2.4 * scale, width / 2 + 2.4 * scale):
        canvas.line([(end, rail - 14), (end, rail + 14)], 4, GOAL)
    axle = width / 2 + position * scale, rail - 24
    canvas.box((axle[0] - 32, axle[1]), (axle[0] + 32, rail + 6), AGENT, corner=6)
    tip = axle[0] + scale * math.sin(angle), axle[1] - scale * math.cos(angle)
    canvas.line([axle, tip], 12, LINK)
    canvas.disc(axle, 6, INK)
    return canvas.picture()
