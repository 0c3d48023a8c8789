"""Every benchmark runs, at a size where its times mean nothing; the eager PyTorch yardstick of `e3rl bench neural`
computes the same numbers as ours on shared weights."""

import importlib
import json
import math
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from e3rl.models.base import Prediction
from e3rl.models.bernoulli import BernoulliDynamics
from e3rl.models.ensemble import make_ensemble
from e3rl.noise import uniform_noise
from e3rl.planners import mcts
from e3rl.planners.mcts import TreeSearch
from e3rl.planners.utility import Mean
from e3rl.replay import Transitions
from e3rl.values.double_dqn import double_q_targets
from e3rl.values.network import QNetwork
from e3rl.values.update import QStep, make_q_state

E, K, D, A, H, WIDTH, ROWS = 3, 6, 7, 4, 5, 8, 9
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
UTILITY = Mean(reward_scale=1.0)
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SMALLEST = {
    "start": {
        "runs": {
            "lock": "lock --horizon 2 --set explore.ratio=2 fit.updates=2 planner.value.updates=2 "
            "exploit.value.updates=2 evaluation_episodes=2"
        },
        "seeds": {"lock": [1, 2]},
    },
    "envs": {
        "copies": [1], "gymnasium_copies": [1], "steps_per_repeat": {"1": 200}, "gymnasium_steps_per_repeat": 20,
        "repeats": 1, "python_episodes": 10, "python_copies": [1, 2],
        "slow": {"step_s": 0.0, "copies": 2, "time_limit": 3, "config": "e3rl-control"},
    },
    "neural": {
        "transitions": 40, "dqn_updates": 3, "repeats": 1, "growth": {"H": [3], "K": [5], "E": [2], "playouts": [5]},
        "growth_repeats": 1, "batches": [0, 2], "seeds": [1, 2], "seeds_playouts": 3,
    },
    "control": {
        "members": 2, "width": 8, "nodes": 30, "unroll": 3, "sequences": 2, "timed_updates": 2, "dqn_updates": 3,
        "dqn_batch": 4, "episodes": 2, "warm_up_updates": 2, "repeats": 1, "growth": [20, 40], "growth_repeats": 1,
        "lanes": 2,
    },
    "dreem": {
        "brute_force": {"models": 4, "policies": 8, "repeats": 1}, "models": [5], "policies": [16],
        "fixed": {"models": 5, "policies": 16},
    },
    "tabular": {"sides": [3, 4], "compared": 3, "steps": 5, "repeats": 1},
    "baselines": {
        "repeats": 1, "our_steps": 3_000, "their_steps": 100, "tasks": [["ppo", "lock-h5"]],
        "rnd": {"config": "paper-lock-ppo-rnd", "horizon": 5, "steps": 640, "seed": 0},
    },
    "scaling": {
        "horizon": 3, "epoch_horizon": 3, "playouts": 5, "value_updates": 1, "table_steps": 3, "repeats": 1,
        "sizes": {"cpu": {"H": [3], "bits": [5], "E": [2], "K": [5], "playouts": [5, 6], "buffer": [40],
                          "seeds": [2], "states": [8], "H of an epoch": [3]}},
        "peak_sizes": {"cpu": {"product": 8, "copy": 16}},
    },
    "calibration": {
        "seeds": [200], "members": 2, "episodes_per_epoch": 1, "often": 1, "probes": 2, "priors": [0.1],
        "lock": {"horizon": 2, "coins": [1], "episodes": [1, 2], "updates": 1, "batch": 2},
        **{
            world: {"size": 7, "steps": 5, "slip": 0.1, "episodes": [1, 2], "updates": 1, "batch": 2}
            for world in ("rooms", "images")
        },
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALLEST)
def test_every_benchmark_runs(name, monkeypatch):
    for folder in (BENCHMARKS / "peers", BENCHMARKS):
        monkeypatch.syspath_prepend(str(folder))
    assert name in importlib.import_module("run").BENCHMARKS
    benchmark = importlib.import_module(name)
    for key, value in SMALLEST[name].items():
        monkeypatch.setitem(benchmark.CONFIG, key, value)
    with jax.numpy_dtype_promotion("standard"):  # as people run them
        rows = json.loads(json.dumps(benchmark.rows()))
    assert rows
    for row in rows:
        assert row["name"].startswith(f"{name}/")
        assert row["ours_s"] > 0.0
        assert {"yardstick", "yardstick_s", "ratio"} <= row.keys()


@pytest.mark.parametrize("name", SMALLEST)
def test_the_quick_version_changes_settings_that_there_are(name, monkeypatch):
    for folder in (BENCHMARKS / "peers", BENCHMARKS):
        monkeypatch.syspath_prepend(str(folder))
    benchmark = importlib.import_module(name)
    assert benchmark.QUICK
    assert benchmark.QUICK.keys() <= benchmark.CONFIG.keys()


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch", reason="torch comes with the extra `bench`")


@pytest.fixture
def eager(torch, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("eager_torch")


@pytest.fixture(scope="module")
def members(torch):
    def make(key):
        return BernoulliDynamics(D, A, H, WIDTH, "input", mean_over_bits=True, key=key)

    return make_ensemble(make, E, jax.random.key(0))


def network(seed):
    return QNetwork((D,), A, H, WIDTH, heads=False, key=jax.random.key(seed))


def transitions(*shape):
    rng = np.random.default_rng(0)
    return Transitions(
        obs=jnp.asarray(rng.integers(2, size=(*shape, D)), jnp.int8),
        action=jnp.asarray(rng.integers(A, size=shape), jnp.int32),
        time=jnp.asarray(rng.integers(H, size=shape), jnp.int32),
        reward=jnp.asarray(rng.normal(size=shape), jnp.float32),
        next_obs=jnp.asarray(rng.integers(2, size=(*shape, D)), jnp.int8),
        terminated=jnp.asarray(rng.integers(2, size=shape), bool),
    )


def columns(eager, rows):
    return eager.Replay({name: np.asarray(column) for name, column in rows._asdict().items()}).columns


def test_model_loss_and_gradient_are_ours(eager, members):
    rows = transitions(E, ROWS)

    def own_loss(member, rows):
        each, _ = jax.vmap(member.loss, in_axes=(0, 0, None))(rows.obs.astype(jnp.float32), rows, unused)
        return jnp.mean(each)

    def loss(members):
        each = eqx.filter_vmap(own_loss)(members, rows)
        return jnp.sum(each), each

    unused = jax.random.key(0)  # Bernoulli dynamics draw nothing

    (_, ours), gradient = eqx.filter_value_and_grad(loss, has_aux=True)(members)
    models = eager.dynamics(members)
    theirs = eager.model_loss(models, columns(eager, rows))
    np.testing.assert_allclose(theirs.detach().numpy(), ours, **CLOSE)
    theirs.sum().backward()
    for name, weight in models.named_parameters():
        np.testing.assert_allclose(weight.grad.numpy(), getattr(gradient.weights, name), **CLOSE)


def test_each_member_is_clipped_by_its_own_norm(eager, members):
    models = eager.dynamics(members)
    eager.model_loss(models, columns(eager, transitions(E, ROWS))).sum().backward()
    gradients = {name: jnp.asarray(weight.grad.numpy()) for name, weight in models.named_parameters()}
    ours, _ = jax.vmap(lambda g: optax.clip_by_global_norm(1.0).update(g, optax.EmptyState()))(gradients)
    eager.clip_each_member(models, 1.0)
    for name, weight in models.named_parameters():
        np.testing.assert_allclose(weight.grad.numpy(), ours[name], **CLOSE)


def test_double_dqn_target_and_loss_are_ours(eager):
    settings = QStep(learning_rate=1e-3, gradient_clip=10.0, target_period=10)
    state = make_q_state(network(0), settings)._replace(target=network(1))
    rows = transitions(ROWS)
    targets = double_q_targets(state, rows, 0.99)
    taken = jax.vmap(state.online)(rows.obs, rows.time)[jnp.arange(ROWS), rows.action]
    online, target = eager.q_network(state.online), eager.q_network(state.target)
    theirs = columns(eager, rows)
    np.testing.assert_allclose(eager.double_q_targets(online, target, theirs, 0.99).numpy(), targets, **CLOSE)
    loss = eager.dqn_loss(online, target, theirs, 0.99).item()
    assert loss == pytest.approx(float(jnp.mean(optax.huber_loss(taken, targets))), rel=1e-4)


def settings(leaf, playouts):
    return TreeSearch(
        playouts=playouts, particles=K, ucb=1.0, leaf=leaf, choice="mean", common_noise=True, from_samples=True
    )  # fmt: skip


@pytest.mark.parametrize("looped", [False, True])
def test_one_expansion_with_given_noise_is_ours(torch, eager, members, looped):
    rng = np.random.default_rng(1)
    particles = rng.integers(2, size=(E, K, D)).astype(np.float32)
    noise = rng.random((H, K, D), dtype=np.float32)
    action, time = 2, 3

    def each(member, state, uniform):
        predicted = member(state, jnp.array(action), jnp.array(time))
        return member.draw(predicted, uniform), predicted

    over_particles = jax.vmap(each, in_axes=(None, 0, 0))
    drawn, predicted = eqx.filter_vmap(over_particles, in_axes=(eqx.if_array(0), 0, None))(
        members, jnp.asarray(particles), jnp.asarray(noise[time])
    )
    empirical = Prediction(drawn.mean(1), predicted.reward.mean(1), predicted.termination.mean(1))
    models = eager.dynamics(members)
    if looped:
        models = eager.LoopedDynamics(models)
    search = eager.Search(models, None, settings("zero", 1), H, A, 1.0, noise=torch.tensor(noise))
    with torch.no_grad():
        theirs, reward, goes_on = search.advance(torch.tensor(particles), action, time)
    np.testing.assert_array_equal(theirs.numpy(), drawn)
    assert reward == pytest.approx(float(UTILITY.disagreement(empirical)), rel=1e-4)
    assert goes_on == pytest.approx(1.0 - float(predicted.termination.mean()), rel=1e-4)


@pytest.mark.parametrize("leaf", ["zero", "value"])
def test_a_search_that_tries_every_action_once_is_ours(torch, eager, members, leaf):
    chosen, obs, key = settings(leaf, A), transitions(1).obs[0], jax.random.key(3)
    start = jnp.array(0, jnp.int32)
    found = mcts.search(members, network(0), obs, start, key, UTILITY.explore, chosen, H, A)
    noise = uniform_noise(jax.random.split(key, 3)[0], (H, D, K)).swapaxes(1, 2)  # what it draws
    search = eager.Search(
        eager.dynamics(members), eager.q_network(network(0)), chosen, H, A, 1.0, torch.tensor(np.array(noise))
    )
    action, value = search.plan(torch.tensor(np.array(obs)).float(), 0)
    assert action == int(found.action)
    assert math.isclose(value, float(found.value), rel_tol=1e-4)
