"""Pictures: the right colour at places worked out by hand."""

import jax
import numpy as np
import pytest

from e3rl.envs import drawing
from e3rl.envs.acrobot import Acrobot
from e3rl.envs.cart_pole import CartPole
from e3rl.envs.drawing import AGENT, GOAL, GOOD, GROUND, INK, LINK, MUTED, PAPER, Canvas
from e3rl.envs.lock import CombinationLock
from e3rl.envs.maze import Maze
from e3rl.envs.mountain_car import MountainCar

BLACK = (0, 0, 0)


def at(picture, x, y):
    return tuple(int(value) for value in picture[int(y), int(x)])


def where(picture, colour):
    """Mean (x, y) of the pixels that have exactly this colour."""
    rows, columns = np.nonzero((picture == np.array(colour, np.uint8)).all(axis=-1))
    return float(columns.mean()), float(rows.mean())


def covered(canvas):
    """How much of each pixel is black, on a canvas on which nothing else is drawn."""
    return 1.0 - canvas.picture()[:, :, 0] / PAPER[0]


def test_a_box_covers_its_pixels_in_proportion():
    canvas = Canvas(8, 8)
    canvas.box((2, 2), (5.5, 4), BLACK)
    wanted = np.zeros((8, 8))
    wanted[2:4, 2:5] = 1.0
    wanted[2:4, 5] = 0.5
    np.testing.assert_allclose(covered(canvas), wanted, atol=0.01)


@pytest.mark.parametrize("radius", [3.0, 5.5])
def test_a_disc_is_round_smooth_and_in_its_place(radius):
    canvas = Canvas(20, 20)
    canvas.disc((10.0, 9.0), radius, BLACK)
    cover = covered(canvas)
    assert cover.sum() == pytest.approx(np.pi * radius**2, rel=0.03)
    rows, columns = np.indices(cover.shape) + 0.5
    assert np.average(columns, weights=cover) == pytest.approx(10.0, abs=0.05)
    assert np.average(rows, weights=cover) == pytest.approx(9.0, abs=0.05)
    distance = np.hypot(columns - 10.0, rows - 9.0) - radius
    np.testing.assert_allclose(cover[distance < -1.0], 1.0)
    np.testing.assert_allclose(cover[distance > 1.0], 0.0)
    assert ((cover > 0.1) & (cover < 0.9)).sum() >= 8


def test_a_triangle_has_the_area_of_a_triangle():
    canvas = Canvas(40, 40)
    canvas.polygon([(5, 5), (35, 20), (5, 35)], BLACK)
    assert covered(canvas).sum() == pytest.approx(450, rel=0.03)


def test_a_line_has_its_width_and_round_ends():
    canvas = Canvas(40, 40)
    canvas.line([(10, 10), (30, 10), (30, 30)], 6, BLACK)
    cover = covered(canvas)
    # Two strokes less the 3 × 3 that both cover, a quarter of a disc around the corner, half a disc at each end.
    assert cover.sum() == pytest.approx(2 * 120 - 9 + np.pi * 9 / 4 + np.pi * 9, rel=0.03)
    np.testing.assert_allclose(
        cover[6:14, 20], [0, 1, 1, 1, 1, 1, 1, 0], atol=0.26
    )  # a quarter pixel either way
    np.testing.assert_allclose(cover[8:12, 20], 1.0)
    assert cover[10, 7] > 0.9  # the end goes on for half the width
    assert cover[7, 7] < 0.1


def test_shapes_may_leave_the_picture():
    canvas = Canvas(10, 10)
    canvas.line([(-20, 5), (30, 5)], 4, BLACK)
    canvas.disc((-50, -50), 5, BLACK)
    cover = covered(canvas)
    np.testing.assert_allclose(cover[4:6], 1.0)
    np.testing.assert_allclose(cover[:2], 0.0)


def lock_cell(column, state):
    """Centre of a lock's cell in the first band, and a point in it that the agent's disc leaves free."""
    x, y = 12 + 38 * column + 16, 12 + 38 * state + 16
    return (x, y), (x - 13, y)


@pytest.mark.parametrize(("level", "latent"), [(0, 0), (3, 2), (4, 1), (5, 0)])
def test_the_lock_shows_states_by_colour_and_the_agent(level, latent):
    picture = drawing.draw_lock(5, level, latent)
    assert picture.dtype == np.uint8
    for column in range(6):
        for state in range(3):
            centre, side = lock_cell(column, state)
            if column == 5:
                wanted = PAPER
            elif state == 2:
                wanted = INK
            else:
                wanted = GOAL if column == 4 else GOOD
            assert at(picture, *side) == wanted
            assert (at(picture, *centre) == AGENT) == ((column, state) == (level, latent))


@pytest.mark.parametrize("horizon", [1, 24, 25, 200])
def test_locks_of_any_length_fit_the_page(horizon):
    picture = drawing.draw_lock(horizon, horizon - 1, 0)
    assert picture.shape[1] < 1000
    assert picture.shape[0] < 1200
    x, y = where(picture, AGENT)
    assert at(picture, x - 13, y) == GOAL
    assert where(drawing.draw_lock(horizon, horizon, 1), AGENT) != (x, y)


@pytest.mark.parametrize("size", [5, 20])
def test_the_maze_shows_each_cell(size):
    env = Maze(size)
    state, _ = env.reset(jax.random.key(1))
    picture = env.render(state)
    cell = picture.shape[0] // size
    for row, column in np.ndindex(size, size):
        seen = at(picture, (column + 0.5) * cell, (row + 0.5) * cell)
        if (row, column) == tuple(state.agent.tolist()):
            assert seen == AGENT
        elif (row, column) == tuple(state.goal.tolist()):
            assert seen == GOAL
        else:
            assert seen == (INK if state.walls[row, column] else PAPER)


def test_the_car_stands_on_the_hill_where_its_position_says():
    valley, left, top = (drawing.draw_mountain_car(x) for x in (-np.pi / 6, -1.0, 0.5))
    for picture, position in ((valley, -np.pi / 6), (left, -1.0), (top, 0.5)):
        x, _ = where(picture, MUTED)  # hubs of the wheels
        assert x == pytest.approx((position + 1.3) * 300, abs=8)
        assert at(picture, 300, 395) == GROUND
        assert at(picture, 300, 5) == PAPER
    assert where(valley, AGENT)[1] > where(left, AGENT)[1] > where(top, AGENT)[1]
    np.testing.assert_allclose(where(valley, GOAL), where(left, GOAL))


def test_the_acrobot_hangs_and_stands_where_its_angles_say():
    scale = 400 / 4.4
    for angles, tip in [
        ((0.0, 0.0), (200, 200 + 2 * scale)),
        ((np.pi, 0.0), (200, 200 - 2 * scale)),
        ((np.pi / 2, np.pi / 2), (200 + scale, 200 - scale)),
    ]:
        picture = drawing.draw_acrobot(*angles)
        np.testing.assert_allclose(where(picture, AGENT), tip, atol=1.0)
    middle = 200 + scale / 2
    assert at(drawing.draw_acrobot(np.pi / 2, 0.0), middle, 200) == LINK
    assert where(drawing.draw_acrobot(0.0, 0.0), GOAL)[1] == pytest.approx(200 - scale, abs=1.0)


def test_the_pole_stands_on_its_cart():
    scale = 600 / 5.4
    for position, angle in [(0.0, 0.0), (-1.5, 0.2), (1.0, -0.2)]:
        picture = drawing.draw_cart_pole(position, angle)
        axle = 300 + position * scale, 276
        assert at(picture, *axle) == INK
        assert at(picture, axle[0] + scale * np.sin(angle) / 2, 276 - scale * np.cos(angle) / 2) == LINK
        assert where(picture, AGENT)[0] == pytest.approx(axle[0], abs=1.0)
        for end in (-2.4, 2.4):
            assert at(picture, 300 + end * scale, 290) == GOAL


@pytest.mark.parametrize("picture", [drawing.draw_acrobot(1.0, -0.8), drawing.draw_mountain_car(-0.5)])
def test_slanted_edges_are_smoothed(picture):
    """Some pixels have a colour between two of those drawn with."""
    flat = {AGENT, GOAL, GOOD, GROUND, INK, LINK, MUTED, PAPER, (255, 255, 255)}
    colours = {tuple(colour) for colour in picture.reshape(-1, 3).tolist()}
    assert len(colours - flat) > 20


@pytest.mark.parametrize("kind", [CombinationLock, Maze, MountainCar, Acrobot, CartPole])
def test_every_render_is_an_rgb_picture_of_the_agent(kind):
    env = kind()
    state, _ = env.reset(jax.random.key(0))
    picture = env.render(state)
    assert picture.dtype == np.uint8
    assert picture.ndim == 3
    assert (picture == np.array(AGENT, np.uint8)).all(axis=-1).any()
