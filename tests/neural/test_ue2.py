"""UE² (section 5.2): Neural-E³ whose exploration is uniform and whose exploitation is the same."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl import cli
from e3rl.envs.lock import CombinationLock
from e3rl.neural.config import CONFIGS
from e3rl.neural.lanes import Lanes, lanes_for
from e3rl.runs.folder import read_json, read_metrics

HORIZON, EPISODES, ACTIONS = 3, 400, 4
ENV = CombinationLock(HORIZON, noise_bits=1, seed=5)
LANE = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], ENV)
KEYS = jax.random.key(3)[None]
TINY = {
    "explore_episodes": 2 * EPISODES, "episodes_per_epoch": EPISODES, "ensemble_size": 2, "hidden": 8,
    "model_updates": 2, "model_batch": 4, "value_updates": 2, "value_batch": 4, "exploit_updates": 20,
    "evaluation_episodes": 5,
}  # fmt: skip
NEURAL_E3 = dataclasses.replace(CONFIGS["e3rl"], **TINY)
UE2 = dataclasses.replace(NEURAL_E3, planner="uniform")


@pytest.fixture(scope="module")
def lanes():
    """Held here, the compiled functions serve the command line too."""
    return lanes_for(ENV, UE2)


@pytest.fixture(scope="module")
def explored(lanes):
    """The second epoch, where Neural-E³ would plan: the models, and all that was seen."""
    models, value, replay = lanes.init(KEYS)
    for t in range(2):
        epoch = jnp.full(1, t, jnp.int32)
        policy, v_explore = lanes.plan(models, value, replay, KEYS, epoch)
        assert np.isinf(v_explore[0])  # nobody says when to stop
        replay, _ = lanes.collect(LANE, policy, replay, KEYS, epoch)
    return models, value, replay


def test_exploration_is_uniform_at_every_step(explored):
    actions = np.asarray(explored[2].rows.action)[0, EPISODES * HORIZON : 2 * EPISODES * HORIZON]
    for step in actions.reshape(EPISODES, HORIZON).T:
        counts = np.bincount(step, minlength=ACTIONS)
        # Pearson's statistic with 3 degrees of freedom is beyond 21 once in ten thousand.
        assert np.sum((counts - EPISODES / ACTIONS) ** 2) / (EPISODES / ACTIONS) < 21.0


def test_exploration_heeds_neither_models_nor_values(lanes, explored):
    models, value, replay = explored
    epoch = jnp.ones(1, jnp.int32)
    other = jax.tree.map(lambda leaf: -leaf, (models.members, value.online))
    changed = models._replace(members=other[0]), value._replace(online=other[1])
    collected = []
    for own_models, own_value in ((models, value), changed):
        policy, _ = lanes.plan(own_models, own_value, replay, KEYS, epoch)
        collected.append(lanes.collect(LANE, policy, replay, KEYS, epoch)[0].rows.action)
    np.testing.assert_array_equal(*collected)


def test_exploitation_is_that_of_neural_e3(lanes, explored):
    """From the same models and experience, to the bit: policy and greedy episodes."""
    models, _, replay = explored
    planning = Lanes(ENV, NEURAL_E3)
    own, other = (each.exploit(models, replay, KEYS) for each in (lanes, planning))
    assert jax.tree.structure(own) == jax.tree.structure(other)
    for one, two in zip(jax.tree.leaves(own), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(
        *(each.evaluate(LANE, own, KEYS, 10) for each in (lanes, planning)),
    )


def test_the_command_line_trains_it(lanes, tmp_path, capsys):
    command = [
        "train", "lock", "--algo", "ue2", "--horizon", "3", "--env", "noise_bits=1", "--out", str(tmp_path / "run"),
        "--set", *(f"{key}={value}" for key, value in TINY.items()), "--json",
    ]  # fmt: skip
    assert cli.main(command) == 0
    [summary] = json.loads(capsys.readouterr().out)["runs"]
    assert (summary["algo"], summary["explore_episodes"]) == ("ue2", 2 * EPISODES)
    about = read_json(tmp_path / "run" / "config.json")
    assert (about["algo"], about["config"]["planner"]) == ("ue2", "uniform")
    phases = [row["phase"] for row in read_metrics(tmp_path / "run")]
    assert phases == ["explore"] * 2 * EPISODES + ["exploit"] * 5
    assert cli.main([*command, "--resume", "--algo", "neural-e3"]) == 2
    assert "algo is 'ue2' there, 'neural-e3' was given" in capsys.readouterr().err
