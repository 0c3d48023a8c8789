"""Training runs on a lock of three levels: their record, and that whatever stops one, resuming ends the same."""

import dataclasses
import errno
import json
import math
import os
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from e3rl.envs.lock import CombinationLock
from e3rl.neural import training as training_module
from e3rl.neural.acting import Policy
from e3rl.neural.agent import describe
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.lanes import Episodes, lanes_for
from e3rl.runs.folder import RunFolder, read_json, read_metrics
from e3rl.neural.training import Training
from e3rl.replay import Replay
from e3rl.types import UserError

SEEDS = (3, 4)
TINY = NeuralE3Config(
    explore_episodes=7, ensemble_size=2, hidden=8, model_updates=2, model_batch=4, value_updates=2, value_batch=4,
    exploit_updates=20, evaluation_episodes=5, playouts=4, particles=2, dqn_batch=4, round_episodes=3,
    round_updates=2,
)  # fmt: skip


def make_env(seed):
    return CombinationLock(3, antishaped=True, noise_bits=1, seed=seed)


def make(out=None, config=TINY, seeds=SEEDS, watch=lambda progress: None, checkpoint_epochs=3):
    folders = [RunFolder(out / f"seed{seed}") for seed in seeds] if out else []
    about = [describe(None, {}, seed, config) for seed in seeds] if out else []
    envs = [make_env(seed) for seed in seeds]
    return Training(envs, config, seeds, folders, about, watch, checkpoint_epochs)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Held here, the compiled functions serve every run of this module."""
    return lanes_for(make_env(0), TINY)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed."""
    out = tmp_path_factory.mktemp("whole")
    seen = []
    result = make(out, watch=seen.append).learn()
    return out, result, seen


def assert_same_run(out, other):
    for seed in SEEDS:
        one, two = out / f"seed{seed}", other / f"seed{seed}"
        assert (one / "checkpoint" / "policy.safetensors").read_bytes() == (
            two / "checkpoint" / "policy.safetensors"
        ).read_bytes()
        tables = [[{**row, "seconds": None} for row in read_metrics(path)] for path in (one, two)]
        assert tables[0] == tables[1]
        summaries = [{**RunFolder(path).summary(), "wall_seconds": None} for path in (one, two)]
        assert summaries[0] == summaries[1]


def test_the_record_of_a_run(whole):
    out, (_, replay, summaries), _ = whole
    for lane, seed in enumerate(SEEDS):
        path = out / f"seed{seed}"
        assert sorted(file.name for file in path.iterdir()) == [
            "checkpoint", "config.json", "metrics.csv", "summary.json",
        ]  # fmt: skip
        assert sorted(file.name for file in (path / "checkpoint").iterdir()) == [
            "policy.safetensors", "state.safetensors",
        ]  # fmt: skip
        about = read_json(path / "config.json")
        assert about["config"] == dataclasses.asdict(TINY)
        assert about["seed"] == seed
        rows = read_metrics(path)
        assert [row["phase"] for row in rows] == ["explore"] * 7 + ["exploit"] * 5
        assert [int(row["episode"]) for row in rows] == list(range(1, 13))
        assert [int(row["env_steps"]) for row in rows] == list(range(3, 37, 3))
        assert {row["length"] for row in rows} == {"3"}
        assert [math.isnan(float(row["model_loss"])) for row in rows] == [False] * 7 + [True] * 5
        assert float(rows[0]["v_explore"]) == math.inf
        assert all(math.isfinite(float(row["v_explore"])) for row in rows[1:])
        rewards = np.asarray(replay.rows.reward)[lane, : 7 * 3].reshape(7, 3).sum(axis=1)
        np.testing.assert_allclose([float(row["return"]) for row in rows[:7]], rewards, atol=1e-6)
        summary = RunFolder(path).summary()
        assert summary == summaries[lane]
        returns = np.array([float(row["return"]) for row in rows[7:]])
        assert summary["exploit_return_mean"] == pytest.approx(returns.mean(), abs=1e-6)
        low, high = summary["exploit_return_ci"]
        assert low <= summary["exploit_return_mean"] <= high
        assert (high - low) / 2 == pytest.approx(1.96 * returns.std(ddof=1) / 5**0.5, abs=1e-6)
        assert {key: summary[key] for key in ("algo", "env", "seed", "explore_episodes", "total_episodes")} == {
            "algo": "neural-e3", "env": None, "seed": seed, "explore_episodes": 7, "total_episodes": 12,
        }  # fmt: skip
        assert summary["optimal_return"] == pytest.approx(make_env(seed).optimal_return)
        assert summary["wall_seconds"] > 0


def test_a_watcher_sees_every_epoch(whole):
    _, _, seen = whole
    assert [progress.phase for progress in seen] == [
        "compiling", *["explore"] * 7, "training to exploit", "exploit",
    ]  # fmt: skip
    assert [progress.episode for progress in seen[1:8]] == list(range(1, 8))
    assert {progress.episodes for progress in seen[:8]} == {7}


def test_seeds_start_from_different_networks_and_locks(whole):
    _, (policy, replay, _), _ = whole
    head = np.asarray(policy.models.anchor.weights.head)
    assert np.all(head[0] != head[1])
    assert not np.array_equal(replay.rows.action[0], replay.rows.action[1])


def test_without_folders_nothing_is_written_and_the_result_is_the_same(whole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, _, summaries = make().learn()
    assert [s["exploit_return_mean"] for s in summaries] == [s["exploit_return_mean"] for s in whole[1][2]]
    assert list(tmp_path.iterdir()) == []


def stop_at(episode, phase="explore"):
    def watch(progress):
        if (progress.phase, progress.episode) == (phase, episode):
            raise KeyboardInterrupt

    return watch


@pytest.mark.parametrize(
    ("episode", "phase", "epoch"),
    [(1, "explore", None), (2, "explore", 1), (4, "explore", 3), (6, "explore", 5), (12, "exploit", 7)],
)
def test_an_interrupted_run_keeps_its_last_complete_epoch_and_resumes_exactly(
    whole, tmp_path, episode, phase, epoch
):
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, watch=stop_at(episode, phase)).learn()
    for seed in SEEDS:
        folder = RunFolder(tmp_path / f"seed{seed}")
        assert folder.state.exists() == (epoch is not None)
        if epoch is not None:
            assert folder.about_checkpoint()["epoch"] == epoch
            assert len(read_metrics(folder.path)) == epoch
    make(tmp_path).learn(resume=True)
    assert_same_run(tmp_path, whole[0])


def test_a_run_killed_between_table_and_checkpoint_resumes_exactly(whole, tmp_path, monkeypatch):
    """At the second checkpoint: the new table is in place, the new state is not."""

    def die(folder, tree, **about):
        folder.write_rows()
        if about["epoch"] == 6:
            raise SystemExit
        return stage(folder, tree, **about)

    stage = RunFolder.stage_checkpoint
    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "stage_checkpoint", die)
        with pytest.raises(SystemExit):
            make(tmp_path).learn()
    folder = RunFolder(tmp_path / f"seed{SEEDS[0]}")
    assert folder.about_checkpoint()["rows"] == 3
    assert len(read_metrics(folder.path)) == 6
    make(tmp_path).learn(resume=True)
    assert_same_run(tmp_path, whole[0])


def test_seeds_killed_between_their_commits_resume_exactly(whole, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path, watch=stop_at(5)).learn()
    first, second = (RunFolder(tmp_path / f"seed{seed}") for seed in SEEDS)
    waiting = second.state.with_name(".state.safetensors.tmp")
    second.state.replace(waiting)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "earlier", watch=stop_at(3)).learn()
    earlier = RunFolder(tmp_path / "earlier" / f"seed{SEEDS[1]}")
    earlier.state.replace(second.state)
    assert (first.about_checkpoint()["epoch"], second.about_checkpoint()["epoch"]) == (4, 2)
    make(tmp_path).learn(resume=True)
    assert_same_run(tmp_path, whole[0])


def test_seeds_saved_at_different_epochs_are_refused(tmp_path):
    for name, episode in (("a", 5), ("b", 3)):
        with pytest.raises(KeyboardInterrupt):
            make(tmp_path / name, watch=stop_at(episode)).learn()
    seed = f"seed{SEEDS[1]}"
    RunFolder(tmp_path / "b" / seed).state.replace(RunFolder(tmp_path / "a" / seed).state)
    with pytest.raises(UserError, match="saved at different epochs"):
        make(tmp_path / "a").learn(resume=True)


def test_resuming_a_finished_run_ends_the_same(whole, tmp_path):
    make(tmp_path).learn()
    make(tmp_path).learn(resume=True)
    assert_same_run(tmp_path, whole[0])


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            [0.5, math.nan],
            "the model loss of seed 4 became nan in epoch 4. The checkpoint from before it is kept.",
        ),
        ([math.inf, 0.5], "the model loss of seed 3 became inf in epoch 4."),
    ],
)
def test_a_loss_that_is_no_number_stops_the_run_and_keeps_what_was_good(
    whole, tmp_path, monkeypatch, compiled, loss, message
):
    update = compiled.update_models

    def spoil(models, replay, keys, t):
        models, good = update(models, replay, keys, t)
        return models, jnp.array(loss) if int(t[0]) == 4 else good

    with monkeypatch.context() as patch:
        patch.setattr(compiled, "update_models", spoil)
        with pytest.raises(UserError, match=message):
            make(tmp_path).learn()
    folders = [RunFolder(tmp_path / f"seed{seed}") for seed in SEEDS]
    assert [folder.about_checkpoint()["epoch"] for folder in folders] == [4, 4]
    make(tmp_path).learn(resume=True)
    assert_same_run(tmp_path, whole[0])


def test_an_exploration_value_that_is_no_number_stops_the_run(tmp_path, monkeypatch, compiled):
    plan = compiled.plan

    def spoil(*args):
        policy, v_explore = plan(*args)
        return policy, v_explore * math.nan if int(args[-1][0]) == 2 else v_explore

    monkeypatch.setattr(compiled, "plan", spoil)
    with pytest.raises(UserError, match=r"the exploration value of seed 3 became nan in epoch 2\."):
        make(tmp_path).learn()
    assert RunFolder(tmp_path / "seed3").about_checkpoint()["epoch"] == 2


def test_an_exploit_network_that_is_no_number_stops_the_run(whole, tmp_path, monkeypatch, compiled):
    exploit = compiled.exploit

    def spoil(*args):
        policy = exploit(*args)
        spoilt = jax.tree.map(lambda leaf: leaf * math.nan, policy.value.online)
        return policy._replace(value=policy.value._replace(online=spoilt))

    with monkeypatch.context() as patch:
        patch.setattr(compiled, "exploit", spoil)
        with pytest.raises(UserError, match="the exploit network of seed 3 became nan"):
            make(tmp_path).learn()
    assert not RunFolder(tmp_path / "seed3").policy.exists()
    make(tmp_path).learn(resume=True)
    assert_same_run(tmp_path, whole[0])


def test_a_full_disk_at_a_checkpoint(whole, tmp_path, monkeypatch):
    """The run stops, the checkpoint before it stands, and with room again the run goes on from there."""
    full = []

    def fsync(descriptor):
        if full:
            raise OSError(errno.ENOSPC, "No space left on device")

    def watch(progress):
        if progress.episode == 5:
            full.append(True)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        with pytest.raises(UserError, match=r"cannot write .*: No space left on device; what was .* kept"):
            make(tmp_path, watch=watch).learn()
    for seed in SEEDS:
        folder = RunFolder(tmp_path / f"seed{seed}")
        assert folder.about_checkpoint()["epoch"] == 3
        assert not [path for path in folder.path.rglob("*") if path.name.endswith(".tmp")]
    make(tmp_path).learn(resume=True)
    assert_same_run(tmp_path, whole[0])


def test_a_huge_epsilon_stops_once_there_is_a_value_and_leaves_a_checkpoint(tmp_path, monkeypatch, compiled):
    """Line 6: before the first episode v_explore is unknown, after it everything is below ε/|A|."""
    config = dataclasses.replace(TINY, epsilon=1e9)
    # ε is no part of what is compiled.
    monkeypatch.setattr(training_module, "lanes_for", lambda env, config: compiled)
    make(tmp_path, config, seeds=SEEDS[:1]).learn()
    for seed in SEEDS[:1]:
        folder = RunFolder(tmp_path / f"seed{seed}")
        assert folder.summary()["explore_episodes"] == 1
        assert folder.about_checkpoint()["epoch"] == 1
        assert [row["phase"] for row in read_metrics(folder.path)] == ["explore"] + ["exploit"] * 5
    policy = RunFolder(tmp_path / "seed3").policy.read_bytes()
    make(tmp_path, config, seeds=SEEDS[:1]).learn(resume=True)
    assert RunFolder(tmp_path / "seed3").policy.read_bytes() == policy


def test_one_evaluation_episode_has_no_interval(whole):
    training = make()
    training.clock = 0.0
    summary = training._summary(0, 7, np.array([1.0], np.float32))
    assert summary["exploit_return_mean"] == 1.0
    assert summary["exploit_return_ci"] is None
    json.dumps(summary, allow_nan=False)


@pytest.mark.parametrize("changes", [{"epsilon": 1.0}, {"exploit_rounds": 1}])
def test_settings_that_end_at_a_seeds_own_time_take_one_seed(changes):
    with pytest.raises(UserError, match="one by one"):
        make(config=dataclasses.replace(TINY, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"planner": "mcts", "leaf": "zero", "exploit": "dqn"},
        pytest.param({"planner": "mcts", "leaf": "value", "exploit": "mcts"}, marks=pytest.mark.slow),
        pytest.param(
            {"planner": "mcts", "leaf": "rollout", "choice": "best", "common_noise": False},
            marks=pytest.mark.slow,
        ),
        # As much experience as the other runs have, so that they share compiled programs.
        {"planner": "uniform", "exploit": "dqn", "explore_episodes": 1, "exploit_rounds": 2},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_every_way_to_explore_and_exploit_runs_to_the_end(tmp_path, changes):
    config = dataclasses.replace(TINY, **changes)
    _, _, (summary,) = make(tmp_path, config, seeds=SEEDS[:1]).learn()
    rows = read_metrics(tmp_path / "seed3")
    explored = config.explore_episodes
    assert [row["phase"] for row in rows[:explored]] == ["explore"] * explored
    assert {row["phase"] for row in rows[explored:]} == {"exploit"}
    assert summary["algo"] == ("ue2" if config.planner == "uniform" else "neural-e3")
    assert summary["explore_episodes"] == explored
    assert summary["total_episodes"] == len(rows)
    played = len(rows) - explored - config.evaluation_episodes
    assert played in ((3, 6) if config.exploit_rounds else (0,))
    assert all(-1.0 <= float(row["return"]) <= 5.0 for row in rows)
    assert all(math.isfinite(float(row["disagreement"])) for row in rows)
    known = [math.isfinite(float(row["v_explore"])) for row in rows[1:explored]]
    assert known == [config.planner == "mcts"] * (explored - 1)


WEIGHTS = Policy(None, jnp.array([1]), None)
NOTHING_SEEN = Replay.empty(1, jnp.zeros(1))


def scripted(scores):
    """Lanes whose episodes earn `scores[round]` in the mean and whose training adds 10 to the weights."""
    trained = []

    def play(env, policy, replay, keys, t, count, before):
        assert count == 3
        returns = scores[int(t[0]) - 1] + jnp.array([[-1.0, 0.0, 1.0]])
        empty = jnp.zeros((1, 3))
        return replay._replace(size=replay.size + 1), Episodes(
            returns, empty.astype(jnp.int32), empty, empty > 0, empty
        )

    def refine(policy, replay, keys, t):
        trained.append(int(replay.size))
        return policy._replace(value=policy.value + 10)

    return SimpleNamespace(exploit_episodes=play, refine=refine, epochs=1), trained


@pytest.mark.parametrize(
    ("scores", "kept", "played", "trained"),
    [
        ([1.0, 2.0, 3.0], 21, 3, [1, 2]),  # better throughout; nothing is trained that will not be played
        ([2.0, 1.0, 5.0], 1, 2, [1]),  # the drop ends it, and later luck is not seen
        ([1.0, 2.0, 0.0], 11, 3, [1, 2]),
    ],
)
def test_on_the_first_drop_the_best_weights_come_back(scores, kept, played, trained):
    """App. C.3."""
    config = dataclasses.replace(TINY, exploit="dqn", exploit_rounds=3)
    training = make(config=config, seeds=SEEDS[:1])
    training.lanes, seen = scripted(scores)
    training.clock = 0.0
    policy, replay = training._keep_training(WEIGHTS, NOTHING_SEEN)
    assert policy.value.tolist() == [kept]
    assert int(replay.size) == played
    assert seen == trained
    assert training.episodes == 3 * played


def test_models_that_plan_the_exploitation_are_refitted_on_its_episodes():
    config = dataclasses.replace(TINY, exploit="value", exploit_rounds=2)
    training = make(config=config, seeds=SEEDS[:1])
    training.lanes, _ = scripted([1.0, 2.0])
    training.lanes.update_models = lambda models, replay, keys, t: ((models or 0) + 1, 0.0)
    training.clock = 0.0
    policy, _ = training._keep_training(WEIGHTS, NOTHING_SEEN)
    assert policy.models == 1
