"""Rounds of practice: which policy they keep, for every seed of a program, and resuming in the middle of them."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tiny
from tiny import AGENT, SEEDS, TINY, assert_same_run

from e3rl.models.fit import ModelSet
from e3rl.neural.agent import NeuralE3
from e3rl.neural.config import NeuralE3Config, Rounds
from e3rl.neural.practice import EXPLORED, ROUND, ROUNDS, Practice, exploration_starts, rounds_of
from e3rl.neural.presets import PRESETS
from e3rl.neural.slots import Episodes
from e3rl.planners.base import Policy
from e3rl.replay import Replay
from e3rl.reports.learning import draw_runs, lock_visits
from e3rl.reports.recorded import read_run
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.runs.record import StopAsked
from e3rl.runs.settings import as_dict, changed, from_dict

FIRST = SEEDS[:1]
ALL_PLAYED = {"rounds.stop_on_drop": False, "rounds.updates": 0}
PRACTICE = changed(TINY, {**ALL_PLAYED, "explore.episodes": 3, "rounds.count": 2, "rounds.episodes": 2})
NOTHING_SEEN = Replay.empty(1, jnp.zeros(1))


def scripted(scores, seeds=FIRST):
    """An agent whose episodes earn `scores[round][lane]` in the mean, whose training adds 10 to the weights and whose
    fits are 100 times the models, to which updates add the time."""
    trained = []

    def play(env, policy, replay, keys, t, count, before):
        means = jnp.asarray(scores[int(t[0]) - 1], jnp.float32).reshape(-1, 1)
        returns = means + jnp.array([[-1.0, 0.0, 1.0]])
        assert returns.shape == (len(seeds), count)
        empty = jnp.zeros(returns.shape)
        return replay._replace(size=replay.size + 1), Episodes(
            returns, empty.astype(jnp.int32), empty, empty, empty > 0, empty
        )

    def refine(policy, replay, keys, t, over):
        trained.append(int(jnp.max(replay.size)))
        return policy._replace(value=policy.value + 10)

    def exploit(models, replay, keys, over):
        trained.append(int(jnp.max(replay.size)))
        return Policy(models, models.members * 100, None)

    def update_models(models, replay, keys, t, over):
        return models._replace(members=models.members + t), 0.0

    return SimpleNamespace(
        exploit_episodes=play,
        refine=refine,
        exploit=exploit,
        update_models=update_models,
        one=SimpleNamespace(epochs=1),
    ), trained


def practised(changes, scores, seeds=FIRST, counts=None):
    """The policy that is kept, the rounds played, and what was seen whenever something was trained. Seeds may have
    other `counts` of rounds than the settings say."""
    made = tiny.program(changed(TINY, changes), seeds)
    made.agent, trained = scripted(scores, seeds)
    record = tiny.record(seeds=seeds)
    ones = jnp.ones(len(seeds), jnp.int32)
    models = ModelSet(ones, ones, ())
    practice = Practice.begin(Policy(models, ones, None), jnp.full(len(seeds), jnp.inf))
    abouts = [{ROUND: 0, EXPLORED: 0}] * len(seeds)
    if counts is not None:
        abouts = [{**about, ROUNDS: count} for about, count in zip(abouts, counts, strict=True)]
        seen = jax.tree.map(lambda leaf: jnp.stack([leaf] * len(seeds)), NOTHING_SEEN)
        policy, replay = made._practise(record, models, seen, practice, abouts)
        assert replay.size.tolist() == list(counts)
        assert record.episodes.tolist() == [3 * count for count in counts]
        return policy, max(counts), trained
    policy, replay = made._practise(record, models, NOTHING_SEEN, practice, abouts)
    assert record.episodes.tolist() == [3 * int(replay.size)] * len(seeds)
    return policy, int(replay.size), trained


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
    policy, rounds, seen = practised({"exploit": "dqn", "rounds.count": 3}, scores)
    assert policy.value.tolist() == [kept]
    assert (rounds, seen) == (played, trained)


def test_models_that_plan_the_exploitation_are_refitted_on_its_episodes():
    policy, _, _ = practised({"rounds.count": 2}, [1.0, 2.0])
    assert policy.models.members.tolist() == [1 + 2]  # once, at a time of its own after the only epoch


@pytest.mark.parametrize(
    ("scores", "kept"),
    [([2.0, 1.0, 5.0], 3), ([2.0, 3.0, 1.0], 2), ([2.0, 1.0, 0.0], 1), ([2.0, 2.0, 2.0], 3)],
)
def test_every_round_is_played_and_the_best_is_kept(scores, kept):
    """Of equals the later one. As many policies are fitted as are tried, each to models that follow the last ones."""
    models = [1, 1 + 2, 1 + 2 + 3]
    policy, rounds, trained = practised({**ALL_PLAYED, "rounds.count": 3}, scores)
    assert (rounds, trained) == (3, [1, 2])
    assert policy.models.members.tolist() == [models[kept - 1]]
    assert policy.value.tolist() == [1 if kept == 1 else 100 * models[kept - 1]]
    trained_on, _, _ = practised({**ALL_PLAYED, "rounds.count": 3, "rounds.updates": 2}, scores)
    assert trained_on.value.tolist() == [1 + 10 * (kept - 1)]


def test_every_seed_of_a_program_keeps_its_own_best():
    policy, _, _ = practised({**ALL_PLAYED, "rounds.count": 2}, [[1.0, 2.0], [2.0, 1.0]], SEEDS)
    assert policy.value.tolist() == [300, 1]


def test_a_seed_that_has_had_its_rounds_is_left_alone():
    """The second would have been better in a third one, which only the first plays."""
    scores = [[1.0, 1.0], [2.0, 2.0], [3.0, 9.0]]
    policy, rounds, _ = practised({**ALL_PLAYED, "rounds.count": 2}, scores, SEEDS, counts=(3, 2))
    assert rounds == 3
    assert policy.value.tolist() == [600, 300]


@pytest.mark.parametrize(
    ("count", "leftover", "counts"), [(2, False, [2, 2]), (2, True, [2 + 3, 2]), (0, True, [0, 0])]
)
def test_episodes_that_exploration_did_not_need_are_practised(count, leftover, counts):
    """Of a ceiling of 10 episodes the first seed took 4 and the second all, and rounds are of two."""
    time = jnp.array([[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0], [0] * 10 + [1]])
    lanes = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), Replay.empty(11, jnp.zeros(1)))
    replay = lanes._replace(rows=lanes.rows._replace(time=time), size=jnp.array([5, 11]))
    rounds = Rounds(count=count, episodes=2, stop_on_drop=False, leftover=leftover)
    assert rounds_of(rounds, 10, replay) == counts


def program(config=PRACTICE, seeds=SEEDS):
    """There is room for as much experience as in other runs, so that what was compiled for those serves here."""
    made = tiny.program(config, seeds)
    assert made.agent.one.capacity == AGENT.one.capacity
    for name in ("init", "plan", "_collect", "update_models", "exploit", "_exploit_episodes"):
        setattr(made.agent, name, getattr(AGENT, name))
    return made


def learn(out, resume=False, watch=lambda progress: None, config=PRACTICE, seeds=SEEDS, callback=None):
    record = tiny.record(out, config, seeds, watch)
    record.callback = callback
    return program(config, seeds).learn_all(record, resume)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of two seeds that nothing disturbed."""
    out, seen, fits = tmp_path_factory.mktemp("practice"), [], []
    made = program()

    def told(*args, **more):
        fits.append(AGENT.exploit(*args, **more))
        return fits[-1]

    made.agent.exploit = told
    policy, replay, summaries = made.learn_all(tiny.record(out, PRACTICE, watch=seen.append), False)
    return SimpleNamespace(out=out, policy=policy, replay=replay, summaries=summaries, seen=seen, fits=fits)


def test_the_record_of_practice(whole):
    for lane, seed in enumerate(SEEDS):
        rows = read_metrics(whole.out / f"seed{seed}")
        assert [row["phase"] for row in rows] == ["explore"] * 3 + ["practice"] * 4 + ["exploit"] * 5
        summary = whole.summaries[lane]
        episodes = [summary[f"{what}_episodes"] for what in ("explore", "practice", "total")]
        assert episodes == [3, 4, 12]
        judged = [float(row["return"]) for row in rows[7:]]
        assert summary["exploit_return_mean"] == pytest.approx(np.mean(judged), abs=1e-6)
        means = [np.mean([float(row["return"]) for row in rows[i : i + 2]]) for i in (3, 5)]
        best = 1 if means[1] >= means[0] else 0
        assert len(whole.fits) == 2
        for kept, fitted in zip(
            jax.tree.leaves(whole.policy), jax.tree.leaves(whole.fits[best]), strict=True
        ):
            np.testing.assert_array_equal(kept[lane], fitted[lane])
    before, after = (jax.tree.leaves(fit.value.online) for fit in whole.fits)
    assert any(np.any(np.asarray(a) != np.asarray(b)) for a, b in zip(before, after, strict=True))


def test_a_watcher_hears_of_the_rounds(whole):
    told = [(each.phase, each.episode, each.episodes, each.what) for each in whole.seen[4:]]
    assert told == [
        ("training to exploit", 3, 7, "round 1/2"),
        ("practising", 5, 7, "round 1/2"),
        ("training to exploit", 5, 7, "round 2/2"),
        ("practising", 7, 7, "round 2/2"),
        ("exploit", 12, 12, ""),
    ]


def stop_at(episode, phase, error):
    def watch(progress):
        if (progress.phase, progress.episode) == (phase, episode):
            raise error

    return watch


@pytest.mark.parametrize(
    ("episode", "phase", "error", "rounds", "rows"),
    [
        (3, "training to exploit", KeyboardInterrupt, None, 3),
        (5, "practising", KeyboardInterrupt, None, 3),  # before it is complete: played again
        (5, "training to exploit", SystemExit, 1, 5),  # what was played is not lost
        (12, "exploit", KeyboardInterrupt, 2, 7),
    ],
)
def test_practice_broken_off_resumes_to_the_same_bytes(whole, tmp_path, episode, phase, error, rounds, rows):
    with pytest.raises(error):
        learn(tmp_path, watch=stop_at(episode, phase, error))
    for seed in SEEDS:
        about = RunFolder(tmp_path / f"seed{seed}").about_checkpoint()
        assert (about.get(ROUND), about["rows"]) == (rounds, rows)
    learn(tmp_path, resume=True)
    assert_same_run(tmp_path, whole.out)


def test_a_callback_stops_practice_after_a_round(whole, tmp_path):
    with pytest.raises(StopAsked):
        learn(tmp_path, callback=lambda progress: progress.what != "round 1/2")
    about = RunFolder(tmp_path / "seed3").about_checkpoint()
    assert (about[ROUND], about["rows"]) == (1, 5)
    learn(tmp_path, resume=True)
    assert_same_run(tmp_path, whole.out)


def test_rounds_that_end_on_a_drop_resume_to_the_same_bytes(tmp_path):
    """The value is trained on from what a checkpoint has."""
    config = changed(PRACTICE, {"rounds.stop_on_drop": True, "rounds.updates": 2})
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    learn(whole, config=config, seeds=FIRST)
    with pytest.raises(SystemExit):
        learn(cut, watch=stop_at(5, "training to exploit", SystemExit), config=config, seeds=FIRST)
    assert RunFolder(cut / "seed3").about_checkpoint()[ROUND] == 1
    learn(cut, resume=True, config=config, seeds=FIRST)
    policies = [RunFolder(out / "seed3").policy.read_bytes() for out in (whole, cut)]
    assert policies[0] == policies[1]
    phases = [row["phase"] for row in read_metrics(cut / "seed3")]
    assert set(phases[3:]) == {"exploit"}  # as it was recorded before there was a choice


def test_pictures_of_exploration_leave_practice_out(whole, tmp_path):
    path = whole.out / "seed3"
    assert RunFolder(path).about_checkpoint()[ROUND] == 2
    time = np.asarray(whole.replay.rows.time)[0, : int(whole.replay.size[0])]
    starts = exploration_starts(time, {"rows": 7, EXPLORED: 3})
    assert starts.tolist() == [0, 3, 6, 9]
    assert exploration_starts(time, {"rows": 7}).tolist() == [*range(0, 22, 3)]
    draw_runs([path], tmp_path / "learning.png")


def test_what_reports_read_back(tmp_path):
    agent = NeuralE3(tiny.LOCK, PRACTICE, seed=3, env_options={**tiny.OPTIONS, "seed": 3})
    agent.program = program(seeds=FIRST)
    agent.learn(out=tmp_path, progress=False)
    run = read_run(tmp_path)
    assert run is not None
    assert (run.size, run.start) == (9, 6)
    assert lock_visits(tmp_path).sum() == 9


def test_settings_from_before_there_was_a_choice():
    stored = as_dict(PRESETS["paper-control"])
    assert stored["rounds"] == {"count": 0, "episodes": 20, "updates": 25_000}
    assert from_dict(NeuralE3Config, stored) == PRESETS["paper-control"]
    assert as_dict(Rounds(stop_on_drop=False))["stop_on_drop"] is False


def test_which_rounds_let_seeds_share_a_program():
    assert NeuralE3.share_a_program(PRACTICE)
    assert not NeuralE3.share_a_program(changed(PRACTICE, {"rounds.stop_on_drop": True}))
