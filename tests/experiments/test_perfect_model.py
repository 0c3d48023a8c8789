"""Planning with the true dynamics: they are the environment's own, and the table says what became of each search."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.envs.acrobot import Acrobot
from e3rl.envs.mountain_car import MountainCar
from e3rl.envs.playing.rollout import rollout, uniform_policy
from e3rl.envs.spec import spec_of
from e3rl.experiments import perfect_model
from e3rl.experiments.perfect_model import PerfectModelExperiment, TrueDynamics
from e3rl.planners.graph_search import GraphSearch
from e3rl.replay import Scale
from e3rl.reports.claims.control import perfect_model_does_not_help
from e3rl.reports.claims.evidence import Evidence
from e3rl.reports.perfect_model import table
from e3rl.types import UserError


@pytest.mark.parametrize("env", [MountainCar(), Acrobot(time_limit=200)])
def test_a_true_model_foretells_every_step(env):
    encoding = spec_of(env).encoding
    scale = Scale(jnp.asarray(encoding.low), jnp.asarray(encoding.high))
    model = TrueDynamics(env, scale)
    played = jax.jit(lambda key: rollout(env, uniform_policy(env.num_actions), key))(jax.random.key(1))
    times = jnp.arange(env.time_limit, dtype=jnp.int32)
    foretold = jax.jit(jax.vmap(model))(scale(played.obs), played.action, times)
    steps = np.asarray(played.valid)
    np.testing.assert_allclose(foretold.obs[steps], scale(played.next_obs)[steps], atol=2e-5)
    np.testing.assert_array_equal(foretold.reward[steps], played.reward[steps])
    np.testing.assert_array_equal(foretold.termination[steps], played.terminated[steps].astype(float))


def test_the_goal_ends_an_imagined_episode():
    env = MountainCar()
    encoding = spec_of(env).encoding
    scale = Scale(jnp.asarray(encoding.low), jnp.asarray(encoding.high))
    before = scale(jnp.array([0.49, 0.05]))
    foretold = TrueDynamics(env, scale)(before, jnp.array(2), jnp.array(0))
    assert (float(foretold.termination), float(foretold.reward)) == (1.0, 0.0)


@pytest.fixture
def tiny(monkeypatch):
    experiment = PerfectModelExperiment(
        MountainCar(time_limit=5), episodes=2, seeds=(200,), searches=("graph",)
    )
    monkeypatch.setitem(perfect_model.PERFECT_MODEL_EXPERIMENTS, "perfect-model/mountaincar", experiment)
    monkeypatch.setitem(perfect_model.SEARCHES, "graph", GraphSearch(nodes=20))


def test_a_row_for_every_search(tiny, tmp_path):
    said = []
    [row] = perfect_model.run("perfect-model/mountaincar", tmp_path, said.append)
    assert (row["planner"], row["reached"], row["episodes"], row["return_mean"]) == ("graph", 0, 2, -5.0)
    assert row["seconds_per_plan"] > 0
    assert said[0].startswith("perfect-model/mountaincar, graph: goal in 0 of 2 episodes, ")
    assert table(tmp_path).splitlines()[2].startswith("| mountaincar | graph | 0 of 2 | -5 | ")
    car, acrobot = perfect_model_does_not_help(Evidence.under(tmp_path))
    assert car.holds
    assert car.text.startswith("mountaincar: graph 0 of 2, ")
    assert acrobot.holds is None
    path = tmp_path / "perfect-model-mountaincar.csv"
    path.write_text(path.read_text().replace(",2,0,", ",2,2,"))
    assert perfect_model_does_not_help(Evidence.under(tmp_path))[0].holds is False


def test_what_is_not_there_is_one_line(tmp_path):
    with pytest.raises(UserError, match="unknown experiment 'perfect-model/none'"):
        perfect_model.run("perfect-model/none", tmp_path, print)
    with pytest.raises(UserError, match="no results of planning with the true dynamics"):
        table(tmp_path)
