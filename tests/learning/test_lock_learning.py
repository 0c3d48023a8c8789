"""Neural-E³ learns the lock: whole runs, on seeds that tuned nothing."""

import jax
import numpy as np
import optax
import pytest

from e3rl.envs.lock import CombinationLock
from e3rl.envs.opening import open_environment
from e3rl.neural.agent import NeuralE3
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.presets import PRESETS
from e3rl.planners import exploit_dqn, mcts
from e3rl.runs.record import Record
from e3rl.runs.settings import changed


def train(config, seeds, horizon, **options):
    """The program, all experience, and what every seed is worth as a share of the best."""
    locks = [CombinationLock(horizon, antishaped=True, seed=seed, **options) for seed in seeds]
    program = NeuralE3.make_program([open_environment(lock) for lock in locks], config, seeds)
    policies, replay, summaries = program.learn_all(Record(seeds))
    for summary, lock in zip(summaries, locks, strict=True):
        assert summary["optimal_return"] == pytest.approx(lock.optimal_return)
    worth = [summary["exploit_return_mean"] / summary["optimal_return"] for summary in summaries]
    return program, policies, replay, worth


def test_a_lock_of_six_levels_is_opened_by_planned_exploration():
    """The one learning test of the quick suite. With these settings ten of ten seeds, 200 to 209, open the lock; none
    of them does with planner=uniform, whose 80 episodes hardly ever find the reward, nor with fit.updates=1."""
    changes = {
        "explore.episodes": 80, "fit.members": 3, "fit.updates": 60, "fit.batch": 16, "model.hidden": 16,
        **{f"planner.value.{name}": value for name, value in (("updates", 60), ("batch", 16))},
        **{f"exploit.value.{name}": value for name, value in (("updates", 3_000), ("batch", 32))},
        **{f"{part}.value.hidden": 16 for part in ("planner", "exploit")},
        **{f"{part}.value.target_rate": 0.05 for part in ("planner", "exploit")},
    }  # fmt: skip
    _, _, _, [worth] = train(changed(NeuralE3Config(), changes), [200], 6, noise_bits=1)
    assert worth >= 0.95


@pytest.mark.slow
def test_the_defaults_solve_the_antishaped_lock_of_five_levels():
    """Solved: at least 95% of the optimal return over 100 greedy episodes, on every seed."""
    _, _, _, worth = train(NeuralE3Config(), (21, 22), 5)
    assert min(worth) >= 0.95


@pytest.mark.slow
def test_uniform_exploration_does_not_find_the_long_lock():
    """UE² pays for what it cannot see: at ten levels uniform play is paid once in two thousand episodes."""
    changes = {
        "planner": "uniform",
        "explore.episodes": 250,
        "fit.updates": 20,
        "exploit.value.updates": 2_000,
    }
    _, _, _, [worth] = train(changed(NeuralE3Config(), changes), [21], 10)
    assert worth < 0.5


@pytest.mark.slow
def test_the_papers_settings_reach_the_kernels(monkeypatch):
    """App. C.1's table at a small size: what is searched, how long the DQN is trained, when planning begins."""
    config = changed(
        PRESETS["paper-lock-h5"],
        {
            "explore.episodes": 24, "planner.playouts": 8, "planner.particles": 4, "fit.updates": 5,
            "exploit.value.updates": 50,
        },
    )  # fmt: skip
    searched, trained = [], []
    search, fit = mcts.mctx.search, exploit_dqn.fit_dqn

    def told_search(*args, root, num_simulations, max_depth, **rest):
        searched.append((root.embedding.particles.shape, num_simulations, max_depth))
        return search(*args, root=root, num_simulations=num_simulations, max_depth=max_depth, **rest)

    def told_fit(state, replay, key, settings, updates):
        trained.append((settings.batch, settings.learning_rate, settings.target_period, updates))
        return fit(state, replay, key, settings, updates)

    monkeypatch.setattr(mcts.mctx, "search", told_search)
    monkeypatch.setattr(exploit_dqn, "fit_dqn", told_fit)
    program, policies, replay, _ = train(config, [21], 5)
    bits = program.spec.encoding.shape[0]
    assert set(searched) == {((1, 5, bits, 4), 8, 5)}  # E members, K particles, playouts, H
    assert set(trained) == {(100, 1e-4, 1_000, 50)}
    assert int(optax.tree.get(jax.tree.map(lambda leaf: leaf[0], policies.value.optimiser), "count")) == 50
    assert policies.models.members.weights.hidden.shape == (1, 5, 50, 50)

    # Until there are a hundred transitions, twenty episodes, actions are those that nobody planned.
    agent, keys = program.agent, program.keys
    models, value, empty = agent.init(keys)
    policy, _ = agent.plan(models, value, empty, keys, program._epoch(0))
    taken = np.asarray(replay.rows.action)[0, : 24 * 5].reshape(24, 5)
    uniform = np.stack(
        [
            np.asarray(
                agent._collect(program.env, policy, empty, keys, program._epoch(t), True)[0].rows.action
            )[0, :5]
            for t in range(24)
        ]
    )
    np.testing.assert_array_equal(taken[:20], uniform[:20])
    assert not np.array_equal(taken[20:], uniform[20:])
