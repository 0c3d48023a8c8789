"""Training Neural-E³ on locks of three levels: its record, its ends, and resuming to the same bytes."""

import copy
import math
import threading

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import AGENT, SEEDS, TINY, assert_same_run

from e3rl.neural import compiled_agent
from e3rl.neural.compiled_agent import CompiledAgent
from e3rl.planners import PLANNERS
from e3rl.runs import lanes
from e3rl.runs.folder import RunFolder, read_json, read_metrics
from e3rl.runs.record import StopAsked
from e3rl.runs.settings import as_dict, changed
from e3rl.types import UserError

FIRST = SEEDS[:1]
OURS = {
    f"jit({name})"
    for name in ("compiled", "collect", "play_on", "update_models", "exploit", "exploit_episodes")
}
"""Programs that are compiled ahead; the first is what all are called where types are checked."""


def learn(out=None, config=TINY, seeds=SEEDS, resume=False, watch=lambda progress: None):
    return tiny.program(config, seeds).learn_all(tiny.record(out, config, seeds, watch), resume)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed."""
    out, seen = tmp_path_factory.mktemp("whole"), []
    return out, learn(out, watch=seen.append), seen


def test_the_record_of_a_run(whole):
    out, (_, replay, summaries), _ = whole
    for lane, seed in enumerate(SEEDS):
        path = out / f"seed{seed}"
        about = read_json(path / "config.json")
        assert about["config"] == as_dict(TINY)
        assert (about["algo"], about["seed"]) == ("neural-e3", seed)
        rows = read_metrics(path)
        assert [row["phase"] for row in rows] == ["explore"] * 7 + ["exploit"] * 5
        assert [int(row["episode"]) for row in rows] == list(range(1, 13))
        assert [int(row["env_steps"]) for row in rows] == list(range(3, 37, 3))
        assert {row["length"] for row in rows} == {"3"}
        assert [math.isnan(float(row["model_loss"])) for row in rows] == [False] * 7 + [True] * 5
        assert all(float(row["disagreement"]) > 0.0 for row in rows)
        assert float(rows[0]["v_explore"]) == math.inf
        assert all(math.isfinite(float(row["v_explore"])) for row in rows[1:])
        rewards = np.asarray(replay.rows.reward)[lane, : 7 * 3].reshape(7, 3).sum(axis=1)
        np.testing.assert_allclose([float(row["return"]) for row in rows[:7]], rewards, atol=1e-6)
        summary = RunFolder(path).summary()
        assert summary == summaries[lane]
        returns = np.array([float(row["return"]) for row in rows[7:]])
        assert summary["exploit_return_mean"] == pytest.approx(returns.mean(), abs=1e-6)
        assert (summary["explore_episodes"], summary["total_episodes"]) == (7, 12)
        assert summary["optimal_return"] == pytest.approx(tiny.lock(seed).optimal_return)


def test_a_watcher_sees_every_epoch(whole):
    _, _, seen = whole
    assert [progress.phase for progress in seen] == [
        "compiling", *["explore"] * 7, "training to exploit", "exploit",
    ]  # fmt: skip
    assert [progress.episode for progress in seen] == [0, *range(1, 8), 7, 12]
    assert {progress.episodes for progress in seen[:8]} == {7}
    assert all(progress.disagreement > 0.0 for progress in seen[1:8])


def test_seeds_start_from_different_networks_and_locks(whole):
    _, (policy, replay, _), _ = whole
    head = np.asarray(policy.models.anchor.weights.head)
    assert np.all(head[0] != head[1])
    assert not np.array_equal(replay.rows.action[0], replay.rows.action[1])


def stop_at(episode, phase="explore", error=KeyboardInterrupt):
    def watch(progress):
        if (progress.phase, progress.episode) == (phase, episode):
            raise error

    return watch


@pytest.mark.parametrize(
    ("episode", "phase", "error", "epoch"),
    [
        (5, "explore", KeyboardInterrupt, 4),
        (6, "explore", SystemExit, 5),  # killed: there is the last checkpoint
        (7, "training to exploit", SystemExit, 7),
        (12, "exploit", KeyboardInterrupt, 7),
    ],
)
def test_a_run_broken_off_resumes_to_the_same_bytes(whole, tmp_path, episode, phase, error, epoch):
    with pytest.raises(error):
        learn(tmp_path, watch=stop_at(episode, phase, error))
    for seed in SEEDS:
        assert RunFolder(tmp_path / f"seed{seed}").about_checkpoint()["epoch"] == epoch
    learn(tmp_path, resume=True)
    assert_same_run(tmp_path, whole[0])


def test_a_run_that_a_callback_stops_resumes_to_the_same_bytes(whole, tmp_path):
    stopped = tiny.record(tmp_path)
    stopped.callback = lambda progress: progress.episode < 4
    with pytest.raises(StopAsked):
        tiny.program().learn(stopped, False)
    assert [RunFolder(tmp_path / f"seed{seed}").about_checkpoint()["epoch"] for seed in SEEDS] == [4, 4]
    learn(tmp_path, resume=True)
    assert_same_run(whole[0], tmp_path)


def test_without_folders_the_result_is_the_same(whole):
    _, _, summaries = learn()
    assert [s["exploit_return_mean"] for s in summaries] == [s["exploit_return_mean"] for s in whole[1][2]]


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_what_was_good(whole, tmp_path, monkeypatch):
    update = AGENT.update_models

    def spoil(models, replay, keys, t, over):
        models, good = update(models, replay, keys, t, over=over)
        return models, jnp.array([0.5, math.nan]) if int(t[0]) == 4 else good

    with monkeypatch.context() as patch:
        patch.setattr(AGENT, "update_models", spoil)
        with pytest.raises(
            UserError, match=r"the model loss of seed 4 became nan in epoch 4\. The checkpoint"
        ):
            learn(tmp_path)
    for seed in SEEDS:
        assert RunFolder(tmp_path / f"seed{seed}").about_checkpoint()["epoch"] == 4
    learn(tmp_path, resume=True)
    assert_same_run(tmp_path, whole[0])


def test_an_exploration_value_that_is_no_number_stops_the_run(tmp_path, monkeypatch):
    plan = AGENT.plan

    def spoil(*args, over):
        policy, v_explore = plan(*args, over=over)
        return policy, v_explore * math.nan if int(args[-1][0]) == 2 else v_explore

    monkeypatch.setattr(AGENT, "plan", spoil)
    with pytest.raises(UserError, match=r"the exploration value of seed 3 became nan in epoch 2\."):
        learn(tmp_path)
    assert RunFolder(tmp_path / "seed3").about_checkpoint()["epoch"] == 2


def test_an_exploit_network_that_is_no_number_stops_the_run(tmp_path, monkeypatch):
    exploit = AGENT.exploit

    def spoil(*args):
        policy = exploit(*args)
        weights, rest = eqx.partition(policy.value.online, eqx.is_inexact_array)
        spoilt = eqx.combine(jax.tree.map(lambda leaf: leaf * math.nan, weights), rest)
        return policy._replace(value=policy.value._replace(online=spoilt))

    monkeypatch.setattr(AGENT, "exploit", spoil)
    with pytest.raises(UserError, match="the exploit network of seed 3 became nan"):
        learn(tmp_path)
    assert not RunFolder(tmp_path / "seed3").policy.exists()
    assert RunFolder(tmp_path / "seed3").about_checkpoint()["epoch"] == 7


@pytest.fixture(scope="module")
def own_times(tmp_path_factory):
    """Seeds that end at their own time: what is left to find is scripted, the rest is as ever."""
    config = changed(
        TINY, {"explore.episodes": 40, "explore.epsilon": 1.0, "explore.uniform_transitions": 999}
    )

    def run(out, seeds=SEEDS, resume=False, watch=lambda progress: None):
        made = tiny.program(config, seeds)
        plan = made.agent.plan

        def scripted(models, value, replay, keys, t, over):
            policy, _ = plan(models, value, replay, keys, t, over=over)
            quiet = {3: 12, 4: 17}  # seed: the epoch from which on nothing is left
            return policy, jnp.array([0.0 if int(t[0]) >= quiet[seed] else 9.0 for seed in seeds])

        made.agent = copy.copy(made.agent)
        made.agent.plan = scripted
        return made.learn_all(tiny.record(out, config, seeds, watch), resume)

    return run


def test_every_seed_ends_at_its_own_time(own_times, tmp_path):
    """Line 6 for several seeds in one program: each as it would be alone, and one that is over changes no more."""
    _, _, summaries = own_times(tmp_path / "both")
    # After `quiet` epochs little is left, and that for ten epochs.
    assert [summary["explore_episodes"] for summary in summaries] == [21, 26]
    assert all(summary["ended"].startswith("by itself: ") for summary in summaries)
    for seed, explored in zip(SEEDS, (21, 26), strict=True):
        own_times(tmp_path / "alone", (seed,))
        rows, alone = (read_metrics(tmp_path / name / f"seed{seed}") for name in ("both", "alone"))
        assert [row["phase"] for row in rows] == ["explore"] * explored + ["exploit"] * 5
        for row, other in zip(rows[:explored], alone, strict=False):
            assert row["return"] == other["return"]
        assert float(rows[explored - 1]["epsilon_hat"]) == 0.0


@pytest.mark.parametrize("episode", [9, 23, 26])
def test_seeds_that_end_at_their_own_time_resume_exactly(own_times, tmp_path, episode):
    """Interrupted before the first is over, between the two, and after the last episode."""
    own_times(tmp_path / "whole")

    def stop(progress):
        if progress.phase == "explore" and progress.episode == episode:
            raise SystemExit

    with pytest.raises(SystemExit):
        own_times(tmp_path / "parts", watch=stop)
    own_times(tmp_path / "parts", resume=True)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")


def test_an_epsilon_that_cannot_be_reached_leaves_it_to_the_number_of_episodes(tmp_path):
    config = changed(TINY, {"explore.epsilon": 1e-9})
    _, _, summaries = tiny.program(config).learn_all(tiny.record(tmp_path, config), False)
    for summary in summaries:
        assert summary["explore_episodes"] == 7
        assert summary["ended"].startswith("after 7 episodes, the most that it was given: ")


def test_rounds_that_end_at_a_seeds_own_time_take_one_seed():
    with pytest.raises(UserError, match="one by one"):
        tiny.program(changed(TINY, {"rounds.count": 1}))


def test_rounds_of_more_episodes_and_training():
    """App. C.3, with models refitted in between."""
    config = changed(TINY, {"explore.episodes": 1, "rounds.count": 2, "evaluation_episodes": 3})
    made = tiny.program(config, FIRST)
    # There is room for as much experience as in other runs, so that what was compiled for those serves here.
    assert made.agent.one.capacity == AGENT.one.capacity
    for name in ("init", "plan", "_collect", "update_models", "exploit"):
        setattr(made.agent, name, getattr(AGENT, name))
    refined, refine = [], made.agent.refine

    def told(policy, replay, keys, t, over):
        found = refine(policy, replay, keys, t, over=over)
        refined.append((policy, found, int(replay.size[0])))
        return found

    made.agent.refine = told
    policy, _, [summary] = made.learn_all(tiny.record(None, config, FIRST))
    [(before, after, size)] = refined
    assert size == 3 + 3 * 3  # an episode of exploration, three of the first round
    moved = [
        np.any(np.asarray(one) != np.asarray(other))
        for one, other in zip(
            jax.tree.leaves(before.value.online), jax.tree.leaves(after.value.online), strict=True
        )
    ]
    assert any(moved)
    kept = jax.tree.leaves(policy.value.online)
    ends = [jax.tree.leaves(each.value.online) for each in (before, after)]
    assert any(all(np.array_equal(a, b) for a, b in zip(kept, end, strict=True)) for end in ends)
    assert (summary["explore_episodes"], summary["practice_episodes"]) == (1, 2 * 3)
    assert summary["total_episodes"] == 1 + 2 * 3 + 3


SEARCHES = [
    {"planner": "mcts", "planner.leaf": "zero", "exploit": "dqn"},
    {"planner": "mcts", "planner.leaf": "value", "exploit": "mcts"},
    {"planner": "mcts", "planner.leaf": "rollout", "planner.choice": "best", "planner.common_noise": False},
    {"planner": "mcts", "planner.leaf": "zero", "planner.batch": 1, "planner.reuse": True, "exploit": "mcts",
     "exploit.batch": 2, "exploit.leaf": "zero", "exploit.reuse": True},
    {"planner": "uniform", "exploit": "dqn", "explore.episodes": 1, "rounds.count": 2},
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("changes", SEARCHES, ids=lambda changes: "-".join(map(str, changes.values())))
def test_every_way_to_explore_and_exploit_runs_to_the_end(tmp_path, changes):
    small = {"planner.playouts": 4, "planner.particles": 2} if changes["planner"] == "mcts" else {}
    small |= {"exploit.playouts": 4, "exploit.particles": 2} if changes.get("exploit") == "mcts" else {}
    small |= (
        {"exploit.value.updates": 20, "exploit.value.batch": 4} if changes.get("exploit") == "dqn" else {}
    )
    config = changed(TINY, {**changes, **small})
    _, _, [summary] = learn(tmp_path, config, FIRST)
    rows = read_metrics(tmp_path / "seed3")
    explored = config.explore.episodes
    assert [row["phase"] for row in rows[:explored]] == ["explore"] * explored
    assert {row["phase"] for row in rows[explored:]} == {"exploit"}
    assert summary["explore_episodes"] == explored
    assert summary["total_episodes"] == len(rows)
    played = len(rows) - explored - config.evaluation_episodes
    assert played in ((3, 6) if config.rounds.count else (0,))
    assert all(-1.0 <= float(row["return"]) <= 5.0 for row in rows)
    assert all(math.isfinite(float(row["disagreement"])) for row in rows)
    known = [math.isfinite(float(row["v_explore"])) for row in rows[1:explored]]
    assert known == [PLANNERS.name_of(type(config.planner)) == "mcts"] * (explored - 1)


@pytest.mark.parametrize(
    ("changes", "seeds", "lane_by_lane"),
    [
        ({"rounds.count": 1}, FIRST, True),
        ({"explore.update_every": 2, "explore.per_epoch": 1}, SEEDS, True),
        ({}, SEEDS, False),
    ],
    ids=["with practice", "learning inside episodes", "as for an accelerator"],
)
def test_compiling_ahead_compiles_nothing_twice_and_changes_nothing(
    changes, seeds, lane_by_lane, tmp_path, monkeypatch
):
    """Whether a processor is to spare is no matter but for the time that it takes."""
    config, counts = changed(TINY, {"explore.episodes": 3, **changes}), []
    for module in (lanes, compiled_agent):
        monkeypatch.setattr(module, "lane_by_lane", lambda: lane_by_lane)

    def listen(event, _, fun_name="", **others):
        if event.endswith("backend_compile_duration") and fun_name in OURS:
            counts[-1][threading.current_thread().name.startswith(lanes.COMPILES)] += 1

    for thread in threading.enumerate():  # of tests that were stopped
        if thread.name.startswith(lanes.COMPILES):
            thread.join()
    monkeypatch.setattr("e3rl.neural.training.compiled_agent", CompiledAgent)
    monkeypatch.setattr("e3rl.neural.training.compiling", lanes.compiling)
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        for name, processors in {"alone": [0], "helped": [0, 1] if lane_by_lane else [0, 1, 2]}.items():
            monkeypatch.setattr(lanes, "processors", lambda processors=processors: processors)
            counts.append([0, 0])
            learn(tmp_path / name, config, seeds)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    (alone, none), (own, helped) = counts
    assert none == 0
    assert helped > 0
    assert own + helped == alone
    for seed in seeds:
        one, other = (RunFolder(tmp_path / name / f"seed{seed}") for name in ("alone", "helped"))
        assert one.policy.read_bytes() == other.policy.read_bytes()
