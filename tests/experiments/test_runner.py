"""`e3rl train`'s runner: names and options of environments, a folder for every seed, finished runs left alone."""

import dataclasses

import pytest

from e3rl.envs.adapter import make
from e3rl.envs.lock import CombinationLock
from e3rl.envs.vector import HostEnvironments
from e3rl.experiments import runner
from e3rl.experiments.runner import environment, settings, train
from e3rl.neural.agent import describe
from e3rl.neural.config import CONFIGS, NeuralE3Config
from e3rl.neural.lanes import lanes_for
from e3rl.runs.folder import RunFolder, read_json, read_metrics, write_json
from e3rl.types import UserError

LOCK = "e3rl/CombinationLock-v0"
OPTIONS = {"horizon": 3, "antishaped": True, "noise_bits": 1}
SEEDS = (3, 4)
TINY = NeuralE3Config(
    explore_episodes=7, ensemble_size=2, hidden=8, model_updates=2, model_batch=4, value_updates=2, value_batch=4,
    exploit_updates=20, evaluation_episodes=5, playouts=4, particles=2, dqn_batch=4, round_episodes=3,
    round_updates=2,
)  # fmt: skip


def run(out, seeds=SEEDS, resume=False, options=OPTIONS, watch=lambda progress: None):
    return train(LOCK, options, TINY, seeds, out, resume, watch)


@pytest.fixture(scope="module")
def compiled():
    return lanes_for(CombinationLock(3, noise_bits=1), TINY)


@pytest.fixture(scope="module")
def two(compiled, tmp_path_factory):
    out = tmp_path_factory.mktemp("two")
    return out, *run(out)


def test_short_names_and_their_options():
    assert environment("lock", {"horizon": 3}) == (LOCK, {"horizon": 3})
    assert environment(LOCK, {"antishaped": True}) == (LOCK, {"antishaped": True})
    assert environment("maze", {"size": 5}) == ("e3rl/Maze-v0", {"size": 5})
    assert environment("CartPole-v1", {}) == ("CartPole-v1", {})


@pytest.mark.parametrize(
    ("name", "option", "message"),
    [
        ("mountaincar", "horizon", "--horizon belongs to lock: mountaincar has no horizon"),
        ("CartPole-v1", "antishaped", "--antishaped belongs to lock"),
        ("lock", "size", "--size belongs to maze: lock has no size"),
    ],
)
def test_options_of_another_environment(name, option, message):
    with pytest.raises(UserError, match=message):
        environment(name, {option: 3})


def test_ue2_is_neural_e3_without_a_planner():
    changes = {"hidden": "8"}
    chosen = settings(LOCK, OPTIONS, "neural-e3", "paper-lock-h5", changes)
    assert chosen == dataclasses.replace(CONFIGS["paper-lock-h5"], hidden=8)
    ue2 = settings(LOCK, OPTIONS, "ue2", "paper-lock-h5", changes)
    assert ue2 == dataclasses.replace(chosen, planner="uniform")


def test_every_seed_has_its_own_folder_and_its_own_lock(two):
    out, paths, summaries = two
    assert paths == [out / "seed3", out / "seed4"]
    assert sorted(path.name for path in out.iterdir()) == ["seed3", "seed4"]
    for path, summary, seed in zip(paths, summaries, SEEDS, strict=True):
        about = read_json(path / "config.json")
        assert (about["algo"], about["env"], about["seed"]) == ("neural-e3", LOCK, seed)
        assert about["env_options"] == {**OPTIONS, "seed": seed}
        assert summary == RunFolder(path).summary()
        assert summary["seed"] == seed
        assert summary["seeds_in_program"] == 2
        assert len(read_metrics(path)) == 12


def test_options_may_name_the_lock_for_all_seeds():
    assert runner._with_seed(LOCK, {"seed": 9}, 3) == {"seed": 9}
    assert runner._with_seed("e3rl/Maze-v0", {"size": 5}, 3) == {"size": 5}


def test_a_finished_run_is_not_run_again(two, monkeypatch):
    monkeypatch.setattr(runner, "Training", None)
    assert run(two[0], resume=True) == two[1:]
    with pytest.raises(UserError, match=r"holds another run: env_options.horizon is 3 there, 4 was given"):
        run(two[0], resume=True, options=OPTIONS | {"horizon": 4})


def test_a_run_that_one_seed_finished_is_finished_for_all(two, tmp_path):
    """As after a kill between the last files of two seeds."""

    def stop(progress):
        if progress.phase == "exploit":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, watch=stop)
    (tmp_path / "seed3" / "summary.json").write_bytes((two[0] / "seed3" / "summary.json").read_bytes())
    paths, summaries = run(tmp_path, resume=True)
    assert [summary["exploit_return_mean"] for summary in summaries] == [
        summary["exploit_return_mean"] for summary in two[2]
    ]
    for path, same in zip(paths, two[1], strict=True):
        assert RunFolder(path).policy.read_bytes() == RunFolder(same).policy.read_bytes()


def test_a_folder_with_a_run_is_refused(two):
    with pytest.raises(UserError, match="seed3 already holds a run"):
        run(two[0])


def test_one_run_and_several_seeds_do_not_mix(two):
    with pytest.raises(UserError, match="already holds the runs of several seeds"):
        run(two[0], seeds=[3])
    with pytest.raises(UserError, match="already holds the run of one seed"):
        run(two[0] / "seed3")


def test_an_environment_it_cannot_learn_leaves_no_folder(tmp_path):
    with pytest.raises(UserError, match="use 'conv' here"):
        train("e3rl/Maze-v0", {}, TINY, [0], tmp_path / "out", False, lambda progress: None)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def events(monkeypatch):
    """What happens to environments, with a training that only says when it is due; seed 5's fails."""
    events = []

    class Told(HostEnvironments):
        def close(self):
            events.append("closed")
            super().close()

    def prepare(env, options, config, asynchronous):
        events.append("prepared")
        made = make(env, **options)
        return (made if env == LOCK else Told(made)), config

    class Training:
        def __init__(self, envs, config, seeds, *rest):
            events.append(f"trained {list(seeds)}")
            self.envs, self.seeds = envs, seeds

        def learn(self, resume):
            if 5 in self.seeds:
                raise UserError("broken")
            return None, None, [{"seed": seed} for seed in self.seeds]

    monkeypatch.setattr(runner, "prepare", prepare)
    monkeypatch.setattr(runner, "Training", Training)
    return events


def test_an_environment_in_python_lives_as_long_as_its_seed(events, tmp_path):
    _, summaries = train("CartPole-v1", {}, TINY, SEEDS, tmp_path, False, print)
    assert summaries == [{"seed": 3}, {"seed": 4}]
    assert events == ["prepared", "trained [3]", "closed", "prepared", "trained [4]", "closed"]


def test_an_environment_in_python_is_closed_when_its_seed_fails(events, tmp_path):
    with pytest.raises(UserError, match="broken"):
        train("CartPole-v1", {}, TINY, (4, 5, 6), tmp_path, False, print)
    assert events == ["prepared", "trained [4]", "closed", "prepared", "trained [5]", "closed"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (TINY, ["prepared", "prepared", "trained [3, 4]"]),
        (dataclasses.replace(TINY, epsilon=0.1), ["prepared", "trained [3]", "prepared", "trained [4]"]),
    ],
    ids=["together", "one by one"],
)
def test_compiled_environments_share_a_program_where_they_can(events, config, expected, tmp_path):
    train(LOCK, OPTIONS, config, SEEDS, tmp_path, False, print)
    assert events == expected


@pytest.mark.parametrize("env", ["CartPole-v1", LOCK])
def test_a_seed_that_finished_is_not_trained_again_for_one_that_did_not(env, events, tmp_path):
    config = dataclasses.replace(TINY, epsilon=0.1)
    options = OPTIONS if env == LOCK else {}
    own = runner._with_seed(env, options, 3)
    RunFolder(tmp_path / "seed3").write_config(describe(env, own, 3, config))
    write_json(tmp_path / "seed3" / "summary.json", {"seed": 3, "stored": True})
    paths, summaries = train(env, options, config, SEEDS, tmp_path, True, print)
    assert paths == [tmp_path / "seed3", tmp_path / "seed4"]
    assert summaries == [{"seed": 3, "stored": True}, {"seed": 4}]
    assert events == ["prepared", "trained [4]"] + ["closed"] * (env != LOCK)
    with pytest.raises(UserError, match=r"seed3 holds another run: config.hidden is 8 there, 9 was given"):
        train(env, options, dataclasses.replace(config, hidden=9), SEEDS, tmp_path, True, print)
