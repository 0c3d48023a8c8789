"""Training runs of a DQN on small problems: their record, and that whatever stops one, resuming ends the same."""

import dataclasses
import json
import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import LOCK, OPTIONS, SEEDS, lock
from tiny_baselines import STEPS, TINY_DQN, IdleConfig, program, record

from e3rl import cli
from e3rl.baselines import DQN, DQN_CONFIGS, PPO, PPORND
from e3rl.baselines.agent import BaselineAgent
from e3rl.envs.lock import CombinationLock
from e3rl.envs.opening import open_environment
from e3rl.experiments.agents import load
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.runs.record import StopAsked
from e3rl.runs.settings import as_dict
from e3rl.runs.train import train
from e3rl.types import UserError

POLE = dataclasses.replace(TINY_DQN, clock=False)
NOISY, NOISY_POLE = (dataclasses.replace(config, weight_noise=True) for config in (TINY_DQN, POLE))


def on_locks(seeds):
    return program(DQN, TINY_DQN, seeds)


def in_python(seeds):
    return program(DQN, POLE, seeds, ["CartPole-v1"])


def noisy_on_locks(seeds):
    return program(DQN, NOISY, seeds)


def noisy_in_python(seeds):
    return program(DQN, NOISY_POLE, seeds, ["CartPole-v1"])


def idling(seeds):
    return program(DQN, IDLE, seeds)


IDLE = IdleConfig(clock=True)
KINDS = {
    "two seeds idling": (idling, IDLE, SEEDS),
    "one seed": (on_locks, TINY_DQN, SEEDS[:1]),
    "in python": (in_python, POLE, SEEDS[:1]),
    "weight noise": (noisy_on_locks, NOISY, SEEDS[:1]),
    "weight noise in python": (noisy_in_python, NOISY_POLE, SEEDS[:1]),
    "two seeds": (on_locks, TINY_DQN, SEEDS),
}
SLOW = {"two seeds"}
"""Compiles for long what a single seed and idling ones go through as well."""


class Kind:
    """Trains, as often as asked, in the same way."""

    def __init__(self, make, config, seeds):
        self.make, self.config, self.seeds = make, config, seeds

    def learn(self, out, resume=False, watch=lambda progress: None, callback=None):
        made, kept = self.make(self.seeds), record(DQN, self.config, self.seeds, out, watch)
        kept.callback = callback
        try:
            return made.learn(kept, resume)
        finally:
            made.close()


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in KINDS],
)
def kind(request):
    return Kind(*KINDS[request.param])


@pytest.fixture(scope="module")
def whole(kind, tmp_path_factory):
    """A run that nothing disturbed."""
    out, seen = tmp_path_factory.mktemp("whole"), []
    return out, kind.learn(out, watch=seen.append), seen


def assert_same_run(one, two):
    weights = [path / "checkpoint" / "policy.safetensors" for path in (one, two)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    tables = [[{**row, "seconds": None} for row in read_metrics(path)] for path in (one, two)]
    assert tables[0] == tables[1]
    unlike = dict.fromkeys(("wall_seconds", "steps_per_second", "env", "env_options"))
    summaries = [{**RunFolder(path).summary(), **unlike} for path in (one, two)]
    assert summaries[0] == summaries[1]


def assert_same_runs(out, other, seeds):
    for seed in seeds:
        assert_same_run(out / f"seed{seed}", other / f"seed{seed}")


def test_the_record_of_a_run(kind, whole):
    out, (_, summaries), seen = whole
    for seed, summary in zip(kind.seeds, summaries, strict=True):
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
        assert (summary["env_steps"], summary["algo"], summary["seed"]) == (STEPS, "dqn", seed)
        own = {"sigma"} if getattr(kind.config, "weight_noise", False) else set()
        assert set(summary["metrics"]) == (
            {"reward"} if kind.config is IDLE else {"loss", "value", "epsilon", *own}
        )
        assert json.loads((path / "summary.json").read_text()) == summary
        steps = [int(row["env_steps"]) for row in rows]
        assert steps == sorted(steps)
        assert max(int(row["env_steps"]) for row in trained) <= STEPS
        assert {row["disagreement"] for row in rows} == {"nan"}
    words = [progress.episode for progress in seen if progress.phase == "train"]
    assert words == sorted(words)
    assert {24, 48, 72, 90} <= set(words)  # and more often until it is known how long a call takes
    assert (seen[0].phase, seen[-1].phase) == ("compiling", "exploit")


def test_twins_are_equal_and_a_finished_run_resumed_is_left_as_it_is(kind, whole, tmp_path):
    for resume in (False, True):
        kind.learn(tmp_path, resume)
        assert_same_runs(whole[0], tmp_path, kind.seeds)


@pytest.mark.parametrize("stop_at", [24, 72])
def test_a_killed_run_resumed_ends_the_same(kind, whole, stop_at, tmp_path):
    def kill(progress):
        if progress.phase == "train" and progress.episode == stop_at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kind.learn(tmp_path, watch=kill)
    for seed in kind.seeds:
        assert not (tmp_path / f"seed{seed}" / "summary.json").exists()
    kind.learn(tmp_path, resume=True)
    assert_same_runs(whole[0], tmp_path, kind.seeds)


@pytest.mark.slow
def test_a_run_that_a_callback_stops_goes_on_to_the_same_end(kind, whole, tmp_path):
    with pytest.raises(StopAsked):
        kind.learn(tmp_path, callback=lambda progress: progress.episode < 48)
    kind.learn(tmp_path, resume=True)
    assert_same_runs(whole[0], tmp_path, kind.seeds)


def test_seeds_in_one_program_learn_what_they_learn_alone():
    """Up to rounding: the first seed's network, trained beside another and by itself. The other's is another."""
    together, alone = (
        np.asarray(on_locks(seeds).learn(record(DQN, TINY_DQN, seeds))[0].q.online.head)
        for seeds in (SEEDS, SEEDS[:1])
    )
    assert np.all(together[0] != together[1])
    np.testing.assert_allclose(alone[0], together[0], rtol=1e-3, atol=1e-4)


def test_seeds_in_one_program_see_what_they_see_alone():
    together, alone = (idling(seeds).learn(record(DQN, IDLE, seeds)) for seeds in (SEEDS, SEEDS[1:]))
    np.testing.assert_array_equal(together[0]["learned"], 15)
    np.testing.assert_array_equal(together[0]["obs"][1], alone[0]["obs"][0])
    assert np.any(together[0]["obs"][0] != alone[0]["obs"][0])
    assert together[1][1]["exploit_return_mean"] == alone[1][0]["exploit_return_mean"]


def test_episodes_of_the_lock_last_its_horizon():
    """Two seeds, two copies, three levels: all end every iteration."""
    loop = idling(SEEDS).loop
    carry, ended, metrics = loop.advance(loop.begin(), 4)
    assert ended.ended.shape == (4, 2, 3, 2)
    np.testing.assert_array_equal(ended.ended, np.broadcast_to([[False], [False], [True]], (4, 2, 3, 2)))
    assert set(ended.lengths[ended.ended]) == {3}
    assert metrics["reward"].shape == (4, 2)
    np.testing.assert_array_equal(carry.time, 0)
    np.testing.assert_array_equal(carry.obs[..., 4:], np.broadcast_to([1.0, 0.0, 0.0], (2, 2, 3)))


def test_the_clock_in_what_is_remembered():
    """A hand for every step that is played, none once the episode is over."""
    loop = on_locks(SEEDS[:1]).loop
    carry, _, _ = loop.advance(loop.begin(), 4)
    rows = jax.tree.map(lambda leaf: np.asarray(leaf)[0, :24], carry.state.replay.rows)
    np.testing.assert_array_equal(rows.obs[:, 4:].sum(axis=-1), 1.0)
    np.testing.assert_array_equal(rows.next_obs[:, 4:].sum(axis=-1), ~rows.terminated)
    assert rows.terminated.sum() == 8


def test_a_loss_that_is_no_number_ends_the_run():
    broken = eqx.tree_at(lambda env: env.shaping, lock(), jnp.array([jnp.nan, jnp.nan]))
    made = program(DQN, TINY_DQN, [3], [broken])
    with pytest.raises(UserError, match=r"the loss of seed 3 became nan by step 6"):
        made.learn(record(DQN, TINY_DQN, [3]), False)


def test_a_loss_that_is_no_number_leaves_what_was_good(tmp_path, monkeypatch):
    """Compiled programs work in the memory of the state they are given: it was copied before."""
    made = idling(SEEDS)
    advance, calls = made.loop.advance, []

    def spoiled(carry, count, until):
        carry, ended, reports = advance(carry, count, until)
        calls.append(count)
        if len(calls) == 3:
            reports = {name: np.full_like(values, np.nan) for name, values in reports.items()}
        return carry, ended, reports

    monkeypatch.setattr(made.loop, "advance", spoiled)
    own = record(DQN, IDLE, SEEDS, tmp_path)
    own.every = 30.0
    with pytest.raises(
        UserError, match=r"the reward of seed 3 became nan .*The checkpoint from before it is kept"
    ):
        made.learn(own, False)
    for seed in SEEDS:
        assert RunFolder(tmp_path / f"seed{seed}").about_checkpoint()["epoch"] == sum(calls[:2])


def test_an_environment_that_does_not_repeat_itself():
    made = in_python([3])
    made.loop.begin()
    with pytest.raises(UserError, match="CartPole-v1 does not repeat itself under the same seed"):
        made.loop.restore({"episodes": [0, 0], "actions": [[1] * 50, []]})
    made.close()


def test_processes_of_their_own_change_nothing(tmp_path, capsys):
    """The command line, with a process for each copy, against the same run without."""
    changes = {name: str(getattr(POLE, name)) for name in POLE.__dataclass_fields__}
    argv = ["train", "CartPole-v1", "--algo", "dqn", "--seed", "3", "--json", "--config", "e3rl-dqn", "--set"]
    argv += [f"{name}={value}" for name, value in changes.items() if name != "clock"]
    for name, more in {"here": [], "processes": ["--async"]}.items():
        assert cli.main([*argv, "--out", str(tmp_path / name), *more]) == 0
    assert_same_run(tmp_path / "here", tmp_path / "processes")
    [run] = json.loads(capsys.readouterr().out.splitlines()[0])["runs"]
    assert run["config"] == as_dict(POLE)
    assert cli.main(["report", str(tmp_path / "here")]) == 0
    verdict, picture, page = capsys.readouterr().out.splitlines()
    assert f"after {run['explore_episodes']} training episodes" in verdict
    assert picture == f"picture: {tmp_path / 'here' / 'learning.png'}"
    assert page == f"page: {tmp_path / 'here' / 'report.html'}"


def test_train_makes_a_folder_for_every_seed(tmp_path):
    def go(resume, seeds=SEEDS):
        return train(DQN, LOCK, OPTIONS, TINY_DQN, seeds, tmp_path / "runs", resume)

    paths, summaries = go(resume=False)
    assert [path.name for path in paths] == ["seed3", "seed4"]
    assert [summary["env_options"]["seed"] for summary in summaries] == [3, 4]
    assert [summary["seeds_in_program"] for summary in summaries] == [1, 1]  # on a CPU one after the other
    assert all(math.isfinite(summary["optimal_return"]) for summary in summaries)
    with pytest.raises(UserError, match="already holds a run"):
        go(resume=False)
    assert go(resume=True) == (paths, summaries)
    agent = load(paths[0])
    assert (agent.algo, agent.seed) == ("dqn", 3)
    assert agent.evaluate(5).mean() == summaries[0]["exploit_return_mean"]
    with pytest.raises(UserError, match="already holds the runs of several seeds"):
        go(resume=False, seeds=[3])


def test_settings_follow_from_the_environment():
    locked = open_environment(lock())
    car = open_environment("e3rl/MountainCar-v0")
    long = open_environment(CombinationLock(horizon=101))
    for agent, name in ((DQN, "dqn"), (PPO, "ppo"), (PPORND, "ppo-rnd")):
        presets = agent.presets
        assert agent.configured(locked) == presets[f"e3rl-lock-{name}"]
        assert agent.configured(car) == agent.configured(long, "auto") == presets[f"e3rl-{name}"]
        assert agent.configured(locked, f"e3rl-{name}") == presets[f"e3rl-{name}"]
    assert DQN.configured(car, None, {"hidden": "8"}).hidden == 8
    assert not set(PPO.presets) & set(PPORND.presets)


@pytest.mark.parametrize(
    ("agent", "given", "message"),
    [
        (DQN, "e3rl-ppo", "unknown config 'e3rl-ppo'; known: auto, e3rl-dqn, "),
        (DQN, PPO.usual, "dqn takes settings of type DQNConfig, got PPOConfig"),
        (PPORND, PPO.usual, "ppo-rnd needs a bonus: bonus=rnd, or train ppo"),
    ],
)
def test_settings_of_somebody_else(agent: type[BaselineAgent], given, message):
    with pytest.raises(UserError, match=message):
        agent.configured(open_environment(lock()), given)


def test_seeds_share_a_program_where_that_gains_something(monkeypatch):
    assert not DQN.share_a_program(DQN_CONFIGS["e3rl-dqn"])
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert DQN.share_a_program(DQN_CONFIGS["e3rl-dqn"])
