"""Training runs of a DQN on small problems: their record, and that whatever stops one, resuming ends the same."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.baselines.agent import describe
from e3rl.baselines.loop_jax import CompiledProgram
from e3rl.baselines.config import DQNConfig
from e3rl.baselines.loop_python import HostProgram
from e3rl.baselines.running import configured, load, train
from e3rl.baselines.training import Training
from e3rl.envs.adapter import make
from e3rl.envs.lock import CombinationLock
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.types import UserError

LOCK = "e3rl/CombinationLock-v0"
OPTIONS = {"horizon": 3, "noise_bits": 1}
TINY = DQNConfig(
    total_steps=90, clock=True, evaluation_episodes=5, copies=2, steps=3, updates=2, hidden=8, batch=4, capacity=64,
    learning_starts=12, target_period=5,
)  # fmt: skip
ITERATIONS = 15
SEEDS = (3, 4)


def lock_program(seeds):
    envs = [CombinationLock(**OPTIONS, seed=seed) for seed in seeds]
    program = CompiledProgram(TINY.baseline(), envs, seeds, TINY.clock)
    program.size = 4  # several calls, the last one shorter
    return program


def host_program(seeds):
    config = dataclasses.replace(TINY, clock=False)
    [seed] = seeds
    program = HostProgram(config.baseline(), [make("CartPole-v1") for _ in range(2)], seed, clock=False)
    program.size = 4
    return program


def training(program, seeds, out=None, watch=lambda progress: None):
    folders = [RunFolder(out / f"seed{seed}") for seed in seeds] if out else []
    about = [describe("dqn", None, {}, seed, TINY) for seed in seeds] if out else []
    return Training(program, TINY, seeds, folders, about, watch=watch, checkpoint_seconds=0.0)


KINDS = {
    "compiled": (lock_program, SEEDS),
    "alone": (lock_program, SEEDS[:1]),
    "host": (host_program, SEEDS[:1]),
}


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture(scope="module")
def whole(kind, tmp_path_factory):
    """A run that nothing disturbed."""
    program, seeds = kind
    out = tmp_path_factory.mktemp("whole")
    seen = []
    result = training(program(seeds), seeds, out, seen.append).learn()
    return out, result, seen


def assert_same_run(out, other, seeds):
    for seed in seeds:
        one, two = out / f"seed{seed}", other / f"seed{seed}"
        weights = [path / "checkpoint" / "policy.safetensors" for path in (one, two)]
        assert weights[0].read_bytes() == weights[1].read_bytes()
        tables = [[{**row, "seconds": None} for row in read_metrics(path)] for path in (one, two)]
        assert tables[0] == tables[1]
        unlike = {"wall_seconds": None, "steps_per_second": None}
        summaries = [{**RunFolder(path).summary(), **unlike} for path in (one, two)]
        assert summaries[0] == summaries[1]


def test_the_record_of_a_run(kind, whole):
    out, (_, summaries), seen = whole
    for seed, summary in zip(kind[1], summaries, strict=True):
        path = out / f"seed{seed}"
        rows = read_metrics(path)
        trained = [row for row in rows if row["phase"] == "train"]
        greedy = [row for row in rows if row["phase"] == "exploit"]
        assert [int(row["episode"]) for row in rows] == list(range(1, len(rows) + 1))
        assert len(greedy) == 5
        assert summary["exploit_return_mean"] == pytest.approx(
            np.mean([float(row["return"]) for row in greedy])
        )
        assert (summary["explore_episodes"], summary["total_episodes"]) == (len(trained), len(rows))
        assert (summary["env_steps"], summary["algo"], summary["seed"]) == (90, "dqn", seed)
        assert set(summary["metrics"]) == {"loss", "value", "epsilon"}
        assert json.loads((path / "summary.json").read_text()) == summary
        steps = [int(row["env_steps"]) for row in rows]
        assert steps == sorted(steps)
        assert max(int(row["env_steps"]) for row in trained) <= 90
        assert {row["disagreement"] for row in rows} == {"nan"}
    assert [progress.episode for progress in seen if progress.phase == "train"] == [24, 48, 72, 90]
    assert seen[-1].phase == "exploit"


def test_episodes_of_the_lock_last_its_horizon():
    """Two copies, three levels: both end every iteration."""
    program = lock_program(SEEDS)
    carry, ended, metrics = program.advance(program.begin(), 4)
    assert ended.ended.shape == (4, 2, 3, 2)
    np.testing.assert_array_equal(ended.ended, np.broadcast_to([[False], [False], [True]], (4, 2, 3, 2)))
    assert set(ended.lengths[ended.ended]) == {3}
    assert metrics["loss"].shape == (4, 2)
    np.testing.assert_array_equal(carry.time, 0)
    np.testing.assert_array_equal(carry.obs[..., 4:], np.broadcast_to([1.0, 0.0, 0.0], (2, 2, 3)))
    np.testing.assert_array_equal(carry.state.replay.rows.obs[:, :24, 4:].sum(axis=-1), 1.0)
    after_the_end = carry.state.replay.rows.next_obs[:, :24][
        np.asarray(carry.state.replay.rows.terminated)[:, :24]
    ]
    np.testing.assert_array_equal(after_the_end[:, 4:], 0.0)


def test_twins_are_equal(kind, whole, tmp_path):
    program, seeds = kind
    training(program(seeds), seeds, tmp_path).learn()
    assert_same_run(whole[0], tmp_path, seeds)


@pytest.mark.parametrize("stop_at", [24, 72])
def test_a_killed_run_resumed_ends_the_same(kind, whole, stop_at, tmp_path):
    program, seeds = kind

    def kill(progress):
        if progress.phase == "train" and progress.episode == stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        training(program(seeds), seeds, tmp_path, kill).learn()
    for seed in seeds:
        assert not (tmp_path / f"seed{seed}" / "summary.json").exists()
    training(program(seeds), seeds, tmp_path).learn(resume=True)
    assert_same_run(whole[0], tmp_path, seeds)


def test_resuming_a_finished_run_changes_nothing(kind, whole, tmp_path):
    program, seeds = kind
    training(program(seeds), seeds, tmp_path).learn()
    training(program(seeds), seeds, tmp_path).learn(resume=True)
    assert_same_run(whole[0], tmp_path, seeds)


def test_a_loss_that_is_no_number_ends_the_run():
    class Broken(CombinationLock):
        def step(self, key, state, action):
            state, obs, _, terminated, truncated = super().step(key, state, action)
            return state, obs, jnp.array(jnp.nan), terminated, truncated

    program = CompiledProgram(TINY.baseline(), [Broken(**OPTIONS)], [3], TINY.clock)
    with pytest.raises(UserError, match=r"the loss of seed 3 became nan by step 90"):
        training(program, [3]).learn()


def test_an_environment_that_does_not_repeat_itself(tmp_path):
    program = host_program([3])
    program.begin()
    with pytest.raises(UserError, match="CartPole-v1 does not repeat itself under the same seed"):
        program.restore({"episodes": [0, 0], "actions": [[1] * 50, []]})


def test_train_makes_a_folder_for_every_seed(tmp_path):
    def go(resume):
        return train("dqn", LOCK, OPTIONS, TINY, SEEDS, tmp_path / "runs", resume, lambda progress: None)

    paths, summaries = go(resume=False)
    assert [path.name for path in paths] == ["seed3", "seed4"]
    assert [summary["env_options"]["seed"] for summary in summaries] == [3, 4]
    assert all(math.isfinite(summary["optimal_return"]) for summary in summaries)
    with pytest.raises(UserError, match="already holds a run"):
        go(resume=False)
    assert go(resume=True) == (paths, summaries)
    agent = load(paths[0])
    assert (agent.algo, agent.seed) == ("dqn", 3)
    assert agent.evaluate(5).mean() == summaries[0]["exploit_return_mean"]
    with pytest.raises(UserError, match="already holds the runs of several seeds"):
        train("dqn", LOCK, OPTIONS, TINY, [3], tmp_path / "runs", False, lambda progress: None)


def test_baselines_by_name():
    car = "e3rl/MountainCar-v0"
    assert configured("dqn", car, "auto", {"hidden": "8"}) == DQNConfig(hidden=8)
    assert configured("ppo-rnd", car, "auto", {}).rnd
    lock = configured("dqn", LOCK, "auto", {})
    assert lock == configured("dqn", car, "e3rl-lock-dqn", {})
    assert lock != configured("dqn", car, "auto", {})
    with pytest.raises(UserError, match="unknown baseline 'sarsa'; known: dqn, ppo, ppo-rnd"):
        configured("sarsa", car, "auto", {})
    with pytest.raises(UserError, match="unknown config 'e3rl-ppo'; known: e3rl-dqn"):
        configured("dqn", car, "e3rl-ppo", {})


def test_seeds_in_one_program_learn_what_they_learn_alone():
    """Up to rounding: the first seed's network, trained beside another and by itself. The other's is another."""
    together, _ = training(lock_program(SEEDS), SEEDS).learn()
    assert np.all(np.asarray(together.q.online.head[0]) != np.asarray(together.q.online.head[1]))
    alone, _ = training(lock_program(SEEDS[:1]), SEEDS[:1]).learn()
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a[0], b[0], rtol=1e-3, atol=1e-4),
        together.q.online, alone.q.online,
    )  # fmt: skip
