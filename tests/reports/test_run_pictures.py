"""The pictures beside a run's learning curve: what is in them against plain counting, and which runs get which."""

import json
import shutil

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib import image
from matplotlib.colors import LogNorm
from tiny import TINY

from e3rl.envs.acrobot import Acrobot
from e3rl.envs.opening import open_environment
from e3rl.models.ensemble import predict
from e3rl.models.fit import ModelSet
from e3rl.neural.agent import NeuralE3
from e3rl.neural.presets import PRESETS
from e3rl.neural.slots import OneSeed
from e3rl.planners.base import Policy
from e3rl.planners.utility import Squared
from e3rl.replay import Replay
from e3rl.reports import control, prediction_strip, search_graph
from e3rl.reports.recorded import read_run
from e3rl.reports.run_pictures import draw_extra
from e3rl.runs.folder import RunFolder, checkpoint_together
from e3rl.runs.settings import changed
from e3rl.types import UserError

SMALL = {
    "explore.episodes": 4, "explore.per_epoch": 2, "fit.members": 3, "fit.updates": 2, "fit.batch": 2, "fit.unroll": 1,
    "model.hidden": 4, "planner.nodes": 30, "evaluation_episodes": 1,
}  # fmt: skip
VALUE = {
    "exploit.value.updates": 2,
    "exploit.value.batch": 2,
    "exploit.value.hidden": 4,
    "exploit.snapshots": 1,
}
CONTROL = changed(PRESETS["e3rl-control"], SMALL | {"exploit": "graph", "exploit.nodes": 30})
IMAGE = changed(PRESETS["e3rl-image"], SMALL | {"exploit": "value", **VALUE})
"""The one searches to explore and to exploit, the other only to explore."""
CAR, MAZE = ("e3rl/MountainCar-v0", {"time_limit": 12}), ("e3rl/Maze-v0", {"size": 5, "time_limit": 12})
CAR_PICTURES = ["phase_plane.png", "search_graph.png"]
MAZE_PICTURES = ["search_graph.png", "predictions.png"]


def untrained(path, env_id, options, config=CONTROL):
    """A run interrupted after two epochs, with models drawn at random and made-up episodes, written as training
    writes it."""
    opened = open_environment(env_id, options)
    one = OneSeed(opened.spec, config)
    opened.close()
    rng = np.random.default_rng(0)

    def drawn(leaf):
        return rng.normal(0.0, 0.5, leaf.shape) if leaf.dtype == jnp.float32 else np.zeros(leaf.shape)

    shapes = eqx.filter_eval_shape(one.fresh, jax.random.key(0))[:2]
    models, value = jax.tree.map(lambda leaf: drawn(leaf).astype(leaf.dtype), shapes)
    horizon, shape = one.problem.horizon, one.encoding.shape
    low, high = one.encoding.low, one.encoding.high
    empty = Replay.empty(one.capacity, jnp.zeros(shape, one.storage), low, high)
    size = 4 * horizon
    obs, time = np.array(empty.rows.obs), np.array(empty.rows.time)
    obs[:size], time[:size] = rng.uniform(size=(size, *shape)), np.tile(np.arange(horizon), 4)
    rows = empty.rows._replace(obs=obs, next_obs=obs, time=time)
    replay = empty._replace(rows=rows, size=np.int32(size), recent=np.int32(size // 2))
    folder = RunFolder(path)
    folder.write_config(NeuralE3.describe(env_id, options, 0, config))
    checkpoint_together([folder], [(models, value, replay)], [{"epoch": 2, "env_steps": 0, "seconds": 0.0}])
    return path


@pytest.fixture(scope="module")
def car(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("car"), *CAR)


@pytest.fixture(scope="module")
def maze(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("maze"), *MAZE, IMAGE)


def names(paths):
    return [path.name for path in paths]


def colours(path):
    picture = image.imread(path)
    return len(np.unique(picture.reshape(-1, picture.shape[-1]), axis=0))


def assert_drawn(path, expected):
    drawn = draw_extra(path)
    assert names(drawn) == expected
    assert all(picture.parent == path and colours(picture) > 20 for picture in drawn)


def test_an_interrupted_run(car, maze):
    assert_drawn(car, CAR_PICTURES)
    assert_drawn(maze, MAZE_PICTURES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "config", "expected"), [(CAR, CONTROL, CAR_PICTURES), (MAZE, IMAGE, MAZE_PICTURES)]
)
def test_a_run_as_training_leaves_it(tmp_path, env, config, expected):
    NeuralE3(env[0], config, env_options=env[1]).learn(tmp_path)
    assert_drawn(tmp_path, expected)


def test_of_several_seeds_the_first_is_drawn(car, tmp_path):
    shutil.copytree(car, tmp_path / "seed9")
    (tmp_path / "seed10").mkdir()
    (tmp_path / "seed10" / "config.json").write_text("not read")
    assert draw_extra(tmp_path) == [tmp_path / "phase_plane.png", tmp_path / "search_graph.png"]


@pytest.mark.parametrize(
    ("env_id", "options", "changes", "expected"),
    [
        ("MountainCar-v0", {"max_episode_steps": 12}, {}, CAR_PICTURES),
        ("e3rl/MountainCar-v0", CAR[1] | {"scale_observation": True}, {}, CAR_PICTURES),
        ("e3rl/MountainCar-v0", CAR[1], {"planner": "uniform", "exploit": "value"}, CAR_PICTURES[:1]),
        ("FrozenLake-v1", {"is_slippery": False}, {"model": "factored"}, []),
    ],
)
def test_what_is_drawn_follows_from_environment_and_planner(tmp_path, env_id, options, changes, expected):
    config = changed(CONTROL, changes | ({"model.hidden": 4} if "model" in changes else {}))
    assert names(draw_extra(untrained(tmp_path, env_id, options, config))) == expected


def test_a_lock_has_its_picture_elsewhere(tmp_path):
    run = untrained(tmp_path, "e3rl/CombinationLock-v0", {"horizon": 3, "noise_bits": 1, "seed": 0}, TINY)
    assert read_run(run).name == "CombinationLock"
    assert draw_extra(run) == []


def test_runs_without_pictures(car, tmp_path):
    assert draw_extra(tmp_path) == []
    path = shutil.copytree(car, tmp_path / "run")
    about = json.loads((path / "config.json").read_text())
    other_size = {"config": about["config"] | {"model": {"name": "mlp", "hidden": 5}}}
    for change in (
        {"algo": "dqn"}, {"algo": "sarsa"}, {"env": None}, {"env": "NoSuch-v0"}, {"config": {"old": 1}}, other_size,
        {"format": 1},
    ):  # fmt: skip
        (path / "config.json").write_text(json.dumps(about | change))
        assert draw_extra(path) == []
    (path / "config.json").write_text(json.dumps(about))
    (path / "checkpoint" / "state.safetensors").write_bytes(b"half")
    with pytest.raises(UserError, match="is damaged"):
        draw_extra(path)
    (path / "checkpoint" / "state.safetensors").unlink()
    assert draw_extra(path) == []


def test_phase_plane_shows_every_visit_by_its_epoch(car):
    run = read_run(car)
    figure = control.phase_plane(run)
    visits = figure.axes[0].collections[0]
    np.testing.assert_array_equal(visits.get_offsets(), run.replay.rows.obs[:48])
    np.testing.assert_array_equal(
        visits.get_array(), np.repeat([1, 2], 24)
    )  # 2 episodes of 12 steps an epoch
    assert figure.axes[0].lines[0].get_xdata()[0] == 0.5


def test_phase_plane_marks_where_episodes_ended(car):
    """Colours stand for single epochs until there are too many of them to tell apart."""
    run = read_run(car)
    figure = control.phase_plane(with_episodes(run, [24, 12], [True, False]))
    ends = figure.axes[0].collections[1]
    np.testing.assert_array_equal(ends.get_offsets(), run.replay.rows.next_obs[23:24])
    assert ends.get_label() == "goal reached (1 of 2 episodes)"
    rows = jax.tree.map(lambda leaf: jnp.tile(leaf, (20,) + (1,) * (leaf.ndim - 1)), run.replay.rows)
    many = with_episodes(run._replace(replay=run.replay._replace(rows=rows)), [1] * 600, [False] * 600)
    norm = control.phase_plane(many).axes[0].collections[0].norm
    assert (len(norm.boundaries), norm.vmax) == (257, 300.5)


def test_disagreement_field_against_single_predictions(car):
    run = read_run(car)
    field = control.disagreement_field(run)
    line = np.linspace(0.0, 1.0, control.GRID)
    for row, column in ((0, 0), (0, 79), (30, 50)):
        point = jnp.array([line[column], line[row]], jnp.float32)
        predictions = [predict(run.members, point, jnp.array(a), jnp.array(0)) for a in range(3)]
        found = [Squared(reward_scale=0.0).disagreement(predicted) for predicted in predictions]
        assert field[row, column] == pytest.approx(max(float(value) for value in found), rel=1e-4)


def test_planes():
    angles = np.random.default_rng(0).uniform(-3, 3, (5, 2))
    (one, two), speed = angles.T, np.arange(5.0)
    obs = np.stack([np.cos(one), np.sin(one), np.cos(two), np.sin(two), speed, -speed], axis=1)
    np.testing.assert_allclose(control.PLANES["Acrobot"].project(obs)[:, 0], -np.cos(one) - np.cos(one + two))
    np.testing.assert_array_equal(control.PLANES["Acrobot"].project(obs)[:, 1], speed)
    assert Acrobot().observation_space.shape == obs.shape[1:]


def test_other_vectors_show_the_entries_of_largest_spread(car, tmp_path):
    run = read_run(car)
    assert control.plane_of(run).limits == (0.5,)
    scaled = {"scale_observation": True}  # where the goal has another place
    for other in (run._replace(env_id="Other-v0"), run._replace(env_options=scaled)):
        plane = control.plane_of(other)
        assert plane.labels == ("entry 0 of the observation", "entry 1 of the observation")
        assert plane.limits == ()
    acrobot = read_run(untrained(tmp_path / "acrobot", "e3rl/Acrobot-v1", {"time_limit": 12}))
    assert [len(axes.get_xlabel()) > 0 for axes in control.phase_plane(acrobot).axes] == [
        True,
        False,
    ]  # no field
    acrobot = acrobot._replace(env_id="Other-v0")
    scaled = np.asarray(acrobot.replay.scale(acrobot.replay.rows.obs[: acrobot.size]))
    widest = np.sort(np.argsort(-scaled.std(axis=0))[:2])
    np.testing.assert_array_equal(control.plane_of(acrobot).project(scaled), scaled[:, widest])


def test_colours_are_logarithmic_where_they_can_be():
    assert isinstance(control.log_scale(np.array([1e-3, 1.0])), LogNorm)
    for flat in ([0.0, 0.0], [2.0, 2.0], []):
        assert not isinstance(control.log_scale(np.array(flat)), LogNorm)


@pytest.mark.parametrize("mode", ["explore", "exploit"])
def test_the_call_drawn_is_the_planner_s(car, mode):
    run = read_run(car)
    assert list(search_graph.searches_of(run)) == ["explore", "exploit"]
    call = search_graph.planning_call(run, mode)
    planner, utility = search_graph.searches_of(run)[mode], getattr(run.config.utility, mode)
    start = run.replay.rows.obs[24]  # the second epoch's first
    policy = Policy(ModelSet(run.members, run.members, ()), None, run.replay.scale)
    plan = eqx.filter_jit(planner.plan)(
        policy, start, jnp.array(0, jnp.int32), jax.random.key(0), utility, run.problem
    )
    actions = call.graph.action[call.path[1:]]
    np.testing.assert_array_equal(actions, plan.actions[: plan.length])
    assert call.per_step[call.path[-1]] == pytest.approx(float(plan.value), rel=1e-5)
    assert len(call.per_step) == 31
    assert call.path[0] == 0


def test_unrolled_members_go_on_from_their_own_predictions(maze):
    run = read_run(maze)
    rows = run.replay.take(jnp.arange(2))
    found = prediction_strip.unroll(run.members, rows.obs[0], rows.action, rows.time)
    once = eqx.filter_jit(lambda member, *args: member(*args))
    for e in (0, 2):
        member, state = jax.tree.map(lambda leaf, e=e: leaf[e], run.members), rows.obs[0]
        for t in range(2):
            predicted = once(member, state, rows.action[t], rows.time[t])
            state = jnp.clip(predicted.obs, 0.0, 1.0)
            np.testing.assert_allclose(found.frames[t, e], state, atol=1e-5)
            np.testing.assert_allclose(found.reward[t, e], predicted.reward, atol=1e-5)
    first = eqx.filter_jit(predict)(run.members, rows.obs[0], rows.action[0], rows.time[0])
    np.testing.assert_allclose(
        found.disagreement[0], Squared(reward_scale=0.0).disagreement(first), rtol=1e-4
    )


def with_episodes(run, lengths, reached):
    """The run as if its episodes had had these lengths."""
    time = jnp.concatenate([jnp.arange(length) for length in lengths])
    ends = np.cumsum(lengths) - 1
    terminated = jnp.zeros(len(time), bool).at[ends].set(jnp.array(reached))
    rows = run.replay.rows._replace(time=time, terminated=terminated)
    return run._replace(replay=run.replay._replace(rows=rows, size=jnp.array(len(time))))


@pytest.mark.parametrize(
    ("lengths", "reached", "chosen"),
    [
        (
            [29, 29, 20, 33, 29],
            [True, True, True, True, False],
            (49 + 33, 82 + 29),
        ),  # planned and reached: two
        ([29, 29, 25, 33], [True] * 4, (87, 116)),  # as near: the longer, whose last 29 steps count
        ([5, 30, 29], [False, True, False], (6, 35)),  # nobody planned an episode that reached the goal
        ([5, 6, 7, 9], [False] * 4, (18, 27)),
        ([4], [False], (0, 4)),
    ],
)
def test_the_episode_of_the_strip(maze, lengths, reached, chosen):
    rows = prediction_strip.chosen_rows(with_episodes(read_run(maze), lengths, reached))
    assert (rows.start, rows.stop) == chosen


def test_columns_of_the_strip():
    assert prediction_strip.shown_steps(1) == [0, 1]
    assert prediction_strip.shown_steps(6) == [0, 1, 2, 3, 4, 5, 6]
    assert prediction_strip.shown_steps(29) == [0, 1, 6, 11, 16, 21, 25, 26, 27, 28, 29]


def test_maze_colours_and_cells():
    frame = np.zeros((5, 5, 3))
    frame[0, :, 0] = frame[3, 1, 1] = frame[2, 4, 2] = 1.0
    picture = np.rint(255 * prediction_strip.maze_picture(frame))
    assert picture[0, 2].tolist() == [45, 48, 56]
    assert picture[3, 1].tolist() == [52, 168, 83]
    assert picture[2, 4].tolist() == [214, 69, 65]
    assert picture[2, 2].tolist() == [250, 250, 248]
    assert prediction_strip.agent_cell(frame).tolist() == [3, 1]
