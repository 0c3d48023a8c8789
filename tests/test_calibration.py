"""`e3rl bench calibration`: its measures against slow ones, what counts as tried, and a run of it all."""

import importlib
import json
import math
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from e3rl.envs.lock import DEAD
from e3rl.models.bernoulli import Bernoulli
from e3rl.models.tiles import Tiles
from e3rl.types import Trajectory

few = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), min_size=2, max_size=12)
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def calibration():
    with pytest.MonkeyPatch.context() as patch, jax.numpy_dtype_promotion("standard"):
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("calibration")


@pytest.fixture(scope="module")
def worlds(calibration):
    return importlib.import_module("known_worlds")


@settings(deadline=None)
@given(few)
def test_auroc_is_how_often_a_positive_wins(calibration, cases):
    score, _, positive = (np.array(column) for column in zip(*cases, strict=True))
    wins = [float(p > n) + 0.5 * (p == n) for p in score[positive] for n in score[~positive]]
    found = calibration.auroc(score.astype(float), positive)
    if not wins:
        assert found is None
    else:
        assert found == pytest.approx(sum(wins) / len(wins))


def ranks(values):
    return [sum(v < x for v in values) + (sum(v == x for v in values) + 1) / 2 for x in values]


@settings(deadline=None)
@given(few)
def test_spearman_is_the_correlation_of_ranks(calibration, cases):
    x, y, _ = zip(*cases, strict=True)
    found = calibration.spearman(np.array(x, float), np.array(y, float))
    if len(set(x)) == 1 or len(set(y)) == 1:
        assert found is None
        return
    a, b = ([rank - (len(x) + 1) / 2 for rank in ranks(values)] for values in (x, y))
    both = sum(i * j for i, j in zip(a, b, strict=True))
    assert found == pytest.approx(both / math.sqrt(sum(i * i for i in a) * sum(j * j for j in b)))


def test_what_was_tried_on_a_lock_is_counted_by_level_state_and_action(worlds):
    world = worlds.lock(200, horizon=3, coins=2)
    latents, actions = [[0, 1, DEAD], [1, 1, 1]], [[3, 2, 1], [3, 0, 0]]
    coins = jax.random.bernoulli(jax.random.key(0), shape=(2, 3, 2))
    obs = jnp.concatenate([jax.nn.one_hot(jnp.array(latents), 3), coins.astype(jnp.float32)], axis=-1)
    number, flag = jnp.zeros((2, 3)), jnp.zeros((2, 3), bool)
    valid = jnp.array([[True, True, True], [True, True, False]])
    episodes = Trajectory(obs, jnp.array(actions), number, obs, flag, flag, valid)
    expected = np.zeros((12, 4), int)
    for level, latent, action in ((0, 0, 3), (1, 1, 2), (2, DEAD, 1), (0, 1, 3), (1, 1, 0)):
        expected[3 * level + latent, action] += 1
    np.testing.assert_array_equal(world.tried(episodes), expected)


@pytest.mark.parametrize("observation", ["lock", "category", "coordinates", "image"])
def test_play_never_tries_what_is_withheld_and_moves_as_the_table_says(worlds, observation):
    if observation == "lock":
        world = worlds.lock(201, horizon=3, coins=2)
    else:
        world = worlds.rooms(201, size=7, steps=20, slip=0.1, observation=observation)
    np.testing.assert_allclose(world.play.sum(axis=1), 1.0)
    np.testing.assert_array_equal((world.play == 0.0).sum(axis=1), 1)
    episodes = world.episodes(jax.random.key(0), 40)
    tried = world.tried(episodes)
    assert tried.sum() == np.sum(np.asarray(episodes.valid))
    assert not tried[world.play == 0.0].any()
    assert not tried[~world.live].any()
    np.testing.assert_allclose(world.chance[world.live].sum(axis=-1), 1.0)
    for n, t in np.argwhere(np.asarray(episodes.valid)):
        here = int(world.state_of(episodes.obs[n, t], jnp.array(t)))
        there = int(world.state_of(episodes.next_obs[n, t], jnp.array(t + 1)))
        assert world.chance[here, int(episodes.action[n, t]), there] > 0.0


def test_truth_has_a_half_where_coins_are_thrown_and_chances_of_tiles(calibration, worlds):
    lock = worlds.lock(200, horizon=3, coins=2)
    asked = calibration.questions(lock, Bernoulli(), 4, 0)
    assert asked.obs.shape == (4, 8, 5)  # a lock starts alive
    assert set(np.unique(asked.obs)) == {0.0, 1.0}
    assert len(np.unique(asked.obs[:, 0, 3:], axis=0)) > 1
    np.testing.assert_array_equal(asked.next_obs[..., 3:], 0.5)
    chance, _ = lock.env.transition_table()
    np.testing.assert_allclose(asked.next_obs[0, :, :3], chance[0, 0])
    rooms = worlds.rooms(200, size=7, steps=5, slip=0.1, observation="image")
    asked = calibration.questions(rooms, Tiles(categories=2, unit=1.0), 4, 0)
    np.testing.assert_allclose(asked.next_obs.sum(axis=-1), 1.0)
    np.testing.assert_allclose(asked.next_obs[..., 1, 1].sum(axis=(2, 3)), 1.0)  # the agent is somewhere


def test_measures_of_answers_that_are_known(calibration):
    answers = calibration.Answers(
        {"marginal": np.array([[0.1, 0.2], [0.3, 0.9]])}, np.array([[0.0, 1.0], [2.0, 3.0]])
    )
    found = calibration.measures(answers, np.array([[20, 3], [11, 0]]))["marginal"]
    assert found == {
        "auroc": 1.0,
        "spearman": pytest.approx(1.0),
        "well_tried": pytest.approx(0.2),
        "untried": pytest.approx(0.9),
        "error_well_tried": pytest.approx(1.0),
        "error_untried": pytest.approx(3.0),
        "share_untried": 0.25,
    }


def test_a_small_run_says_what_every_utility_tells(calibration, monkeypatch, capsys):
    small = {"horizon": 2, "coins": [1], "episodes": [2, 4], "updates": 2, "batch": 4}
    for key, value in {
        "seeds": [200],
        "members": 2,
        "episodes_per_epoch": 2,
        "probes": 2,
        "often": 1,
    }.items():
        monkeypatch.setitem(calibration.CONFIG, key, value)
    monkeypatch.setitem(calibration.CONFIG, "lock", small)
    variant = next(v for v in calibration.variants() if v.name == "lock-h2-coins1/bernoulli-prior0.23-dice")
    with jax.numpy_dtype_promotion("standard"):
        rows = json.loads(json.dumps(list(calibration.rows_of(variant, "1/1"))))
    assert "seed 200" in capsys.readouterr().err
    told = {row["name"].rpartition("/")[2] for row in rows}
    assert told == {"marginal", "mean", "hellinger", "joint", "squared"}
    for row in rows:
        assert row["name"].startswith("calibration/lock-h2-coins1/")
        assert row["episodes"] == [2, 4]
        assert all(0.0 <= value <= 1.0 for value in row["auroc"])
        assert all(-1.0 <= value <= 1.0 for value in row["spearman"])
        assert row["untried"][-1] > 0.0
        assert row["auroc_by_seed"] == [row["auroc"]]
