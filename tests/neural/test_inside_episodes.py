"""Learning before an episode is over, on a compiled environment and on the same one in Python: what is in the buffer,
how often models are updated, seeds side by side, interruptions, failures, and rewards in units of the largest."""

import math
from typing import NamedTuple

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gymnasium import spaces
from jaxtyping import Array

from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.opening import open_environment
from e3rl.neural.agent import NeuralE3
from e3rl.neural.compiled_agent import compiled_agent
from e3rl.neural.presets import PRESETS
from e3rl.runs.checkpoint import load_arrays
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.runs.record import Record
from e3rl.runs.settings import changed
from e3rl.types import UserError

PLACES, LIMIT, SHORTEST = 5, 9, 3
SEEDS = (3, 4)
EVERY, EPISODES, UPDATES = 4, 4, 2
TINY = changed(
    PRESETS["e3rl-categories"],
    {
        "explore.episodes": EPISODES, "explore.update_every": EVERY, "explore.surprise": 0.0, "model.hidden": 8,
        "fit.members": 2, "fit.updates": UPDATES, "fit.batch": 4, "planner.nodes": 8, "exploit.nodes": 8,
        "evaluation_episodes": 2,
    },
)  # fmt: skip


class Walker(NamedTuple):
    place: Array
    time: Array
    lasts: Array


class Ring(AbstractEnvironment):
    """Five places in a ring, steps to either side or none; a place pays its number, and how long an episode lasts is
    drawn when it begins."""

    pays: Array
    time_limit: int = eqx.field(static=True, default=LIMIT)

    def __init__(self, pays=1.0):
        self.pays = jnp.asarray(pays, jnp.float32)

    @property
    def observation_space(self):
        return spaces.Discrete(PLACES)

    @property
    def action_space(self):
        return spaces.Discrete(3)

    def reset(self, key):
        key_place, key_lasts = jax.random.split(key)
        place = jax.random.randint(key_place, (), 0, PLACES)
        return Walker(place, jnp.int32(0), jax.random.randint(key_lasts, (), SHORTEST, LIMIT + 1)), place

    def step(self, key, state, action):
        place, time = (state.place + action - 1) % PLACES, state.time + 1
        reward = self.pays * place.astype(jnp.float32)
        return Walker(place, time, state.lasts), place, reward, time >= state.lasts, time >= LIMIT

    def render(self, state):
        raise NotImplementedError


class PythonRing(gymnasium.Env):
    """The same without JAX; `trouble` names the (episode, step) that fails."""

    trouble: tuple[int, int] | None = None
    episodes = 0

    def __init__(self):
        self.observation_space, self.action_space = spaces.Discrete(PLACES), spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        PythonRing.episodes += 1
        self.place, self.time = int(self.np_random.integers(PLACES)), 0
        self.lasts = int(self.np_random.integers(SHORTEST, LIMIT + 1))
        return self.place, {}

    def step(self, action):
        self.place, self.time = (self.place + int(action) - 1) % PLACES, self.time + 1
        if (PythonRing.episodes, self.time) == self.trouble:
            raise RuntimeError("the ring broke")
        return self.place, float(self.place), self.time >= self.lasts, False, {}


def make(kind):
    return Ring() if kind == "compiled" else gymnasium.wrappers.TimeLimit(PythonRing(), LIMIT)


@pytest.fixture(scope="module", autouse=True)
def held():
    """What is compiled serves every run of this module."""
    return [compiled_agent(open_environment(make(kind)).spec, TINY) for kind in ("compiled", "python")]


def learn(kind, out=None, seeds=SEEDS[:1], resume=False, watch=lambda progress: None, env=None, config=TINY):
    """The program, its policies, its buffer."""
    PythonRing.episodes = 0
    made = [open_environment(make(kind) if env is None else env) for _ in seeds]
    program = NeuralE3.make_program(made, config, seeds)
    folders = [RunFolder(out / f"seed{seed}") for seed in seeds] if out else []
    about = [NeuralE3.describe(None, {}, seed, config) for seed in seeds]
    policy, replay, _ = program.learn_all(Record(seeds, folders, about, watch, every=0.0), resume)
    return program, policy, replay


class Whole(NamedTuple):
    kind: str
    seeds: tuple
    out: object
    program: object
    policy: object
    replay: object
    inside: list


@pytest.fixture(scope="module", params=["compiled", "python"])
def whole(request, tmp_path_factory):
    """A run that nothing disturbed, and how often it learned inside of each episode."""
    kind, out = request.param, tmp_path_factory.mktemp("whole")
    seeds = SEEDS if kind == "compiled" else SEEDS[:1]
    agent = compiled_agent(open_environment(make(kind)).spec, TINY)
    inside, learn_inside = [], agent._learn_inside

    def told(policy, replay, keys, t, running, i):
        inside.append((int(t[0]), int(i[0]), np.asarray(running).tolist()))
        return learn_inside(policy, replay, keys, t, running, i)

    agent._learn_inside = told
    try:
        return Whole(kind, seeds, out, *learn(kind, out, seeds), inside)
    finally:
        agent._learn_inside = learn_inside


def explored(path):
    return [row for row in read_metrics(path) if row["phase"] == "explore"]


def episodes_of(rows, lengths):
    """Each episode's rows of the buffer."""
    ends = np.cumsum(lengths).tolist()
    parts = [slice(end - n, end) for n, end in zip(lengths, ends, strict=True)]
    return [jax.tree.map(lambda leaf, part=part: np.asarray(leaf)[part], rows) for part in parts]


def test_rows_of_the_buffer_are_the_episodes(whole):
    """Whole, in order, each transition of the ring, and nothing else."""
    for lane, seed in enumerate(whole.seeds):
        table = explored(whole.out / f"seed{seed}")
        lengths = [int(row["length"]) for row in table]
        assert len(lengths) == EPISODES
        assert len({length // EVERY for length in lengths}) > 1  # some learn more often on their way
        replay = jax.tree.map(lambda leaf, lane=lane: leaf[lane], whole.replay)
        assert int(replay.size) == sum(lengths)
        assert int(replay.recent) == sum(lengths[:-1])
        for rows, row in zip(episodes_of(replay.rows, lengths), table, strict=True):
            n = int(row["length"])
            assert rows.time.tolist() == list(range(n))
            assert rows.terminated.tolist() == [False] * (n - 1) + [True]
            place, after = rows.obs.argmax(axis=1), rows.next_obs.argmax(axis=1)
            assert after.tolist() == ((place + rows.action - 1) % PLACES).tolist()
            assert place[1:].tolist() == after[:-1].tolist()
            assert rows.reward.tolist() == after.tolist()
            assert float(row["return"]) == after.sum()
            assert math.isfinite(float(row["disagreement"]))


def test_models_are_updated_after_every_so_many_steps_and_after_the_episode(whole):
    per_lane = []
    for lane, seed in enumerate(whole.seeds):
        lengths = [int(row["length"]) for row in explored(whole.out / f"seed{seed}")]
        times = [(n - 1) // EVERY for n in lengths]  # not at the end, where the epoch's own update follows
        per_lane.append(times)
        counts = np.asarray(optax.tree.get(whole.policy.models.optimiser, "count"))
        assert set(counts[lane].ravel().tolist()) == {UPDATES * (EPISODES + sum(times))}
    wanted = [
        (t, i, [times[t] >= i for times in per_lane])
        for t in range(EPISODES)
        for i in range(1, max(times[t] for times in per_lane) + 1)
    ]
    assert whole.inside == wanted


def assert_same_run(one, other, seeds):
    for seed in seeds:
        tables = [
            [{**row, "seconds": None} for row in read_metrics(path / f"seed{seed}")] for path in (one, other)
        ]
        assert tables[0] == tables[1]
        first, second = (RunFolder(path / f"seed{seed}").policy.read_bytes() for path in (one, other))
        assert first == second


@pytest.mark.parametrize(("episode", "error"), [(3, KeyboardInterrupt), (2, SystemExit)])
def test_a_run_broken_off_resumes_to_the_same_bytes(whole, tmp_path, episode, error):
    def stop(progress):
        if (progress.phase, progress.episode) == ("explore", episode):
            raise error

    with pytest.raises(error):
        learn(whole.kind, tmp_path, whole.seeds, watch=stop)
    assert 0 < RunFolder(tmp_path / f"seed{SEEDS[0]}").about_checkpoint()["epoch"] < EPISODES
    learn(whole.kind, tmp_path, whole.seeds, resume=True)
    assert_same_run(tmp_path, whole.out, whole.seeds)


def test_a_seed_is_the_same_alone_and_beside_others(whole):
    """Also where its episode is over before, or after, its neighbour's."""
    for lane, seed in enumerate(whole.seeds):
        _, policy, replay = learn(whole.kind, seeds=(seed,))
        ours, theirs = ((policy, replay), (whole.policy, whole.replay))
        for own, beside in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            np.testing.assert_allclose(own[0], beside[lane], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(replay.rows.action[0], whole.replay.rows.action[lane])


@pytest.fixture
def trouble():
    yield
    PythonRing.trouble = None


@pytest.mark.parametrize("whole", ["python"], indirect=True)
@pytest.mark.parametrize("episode", [1, 3])
def test_an_environment_that_fails_in_the_middle_leaves_all_that_was_seen(whole, tmp_path, trouble, episode):
    """Also the part of the episode from which something was learned already, and that once."""
    lengths = [int(row["length"]) for row in explored(whole.out / "seed3")]
    broken = max(lengths[episode - 1] - 1, 1)
    PythonRing.trouble = (episode, broken + 1)
    with pytest.raises(
        UserError, match=rf"episode {episode}, step {broken + 1}: RuntimeError: the ring broke"
    ):
        learn("python", tmp_path)
    rows = explored(tmp_path / "seed3")
    assert [int(row["length"]) for row in rows] == [*lengths[: episode - 1], broken]
    arrays, about = load_arrays(RunFolder(tmp_path / "seed3").state)
    assert (about["epoch"], about["rows"]) == (episode - 1, episode)
    steps = sum(lengths[: episode - 1]) + broken
    found = {name.rpartition(".")[2]: array for name, array in arrays.items() if name.startswith("[2]")}
    assert (int(found["size"]), int(rows[-1]["env_steps"])) == (steps, steps)
    assert found["time"][:steps].tolist() == [t for row in rows for t in range(int(row["length"]))]

    PythonRing.trouble = None
    _, _, replay = learn("python", tmp_path, resume=True)
    done = explored(tmp_path / "seed3")
    assert len(done) == EPISODES + 1
    assert int(replay.size[0]) == sum(int(row["length"]) for row in done)


@pytest.mark.parametrize("whole", ["compiled"], indirect=True)
@pytest.mark.parametrize("pays", [1e6, 0.125])
def test_in_units_of_the_largest_reward_the_currency_does_not_matter(whole, pays):
    """What is done is the same; only what is recorded differs."""
    _, policy, replay = learn("compiled", env=Ring(pays))
    usual = jax.tree.map(lambda leaf: leaf[0], (whole.policy, whole.replay))
    ours = jax.tree.map(lambda leaf: leaf[0], (policy, replay))
    np.testing.assert_array_equal(ours[1].rows.action, usual[1].rows.action)
    np.testing.assert_array_equal(ours[1].rows.obs, usual[1].rows.obs)
    np.testing.assert_allclose(ours[1].rows.reward, pays * usual[1].rows.reward)
    assert float(ours[1].reward_unit) == pays * float(usual[1].reward_unit) == pays * (PLACES - 1)
    for own, one in zip(jax.tree.leaves(ours[0]), jax.tree.leaves(usual[0]), strict=True):
        np.testing.assert_allclose(own, one, rtol=1e-4, atol=1e-5)


def slow_surprise(models, replay, lane):
    """The largest loss of the last steps, in the mean over members, one step and one member at a time."""
    members, replay = jax.tree.map(lambda leaf: leaf[lane], (models.members, replay))
    count = jax.tree.leaves(members)[0].shape[0]
    largest = 0.0
    for row in range(int(replay.size) - EVERY, int(replay.size)):
        step = replay.take(jnp.array(row))
        each = [jax.tree.map(lambda leaf, e=e: leaf[e], members) for e in range(count)]
        losses = [float(member.loss(step.obs, step, jax.random.key(0))[0]) for member in each]
        largest = max(largest, float(np.mean(losses)))
    return largest


@pytest.mark.parametrize(("kind", "threshold"), [("compiled", 3.0), ("python", 6.0)])  # amid their losses
def test_what_was_foreseen_is_not_learned_from_before_the_end(kind, threshold):
    """An episode is interrupted where a step was foreseen badly, and only there; what was planned is then forgotten."""
    config = changed(TINY, {"explore.surprise": threshold})
    agent = compiled_agent(open_environment(make(kind)).spec, config)
    seeds = SEEDS if kind == "compiled" else SEEDS[:1]
    asked, learned = [], []
    play_on, is_surprised, learn_inside = agent._play_on, agent._is_surprised, agent._learn_inside

    def played(env, playing, policy, *others):
        now, replay, *told = play_on(env, playing, policy, *others)
        running = np.asarray(now.running[:, 0])
        losses = [slow_surprise(policy.models, replay, lane) for lane in range(len(running))]
        asked.append([bool(on and loss > threshold) for on, loss in zip(running, losses, strict=True)])
        return now, replay, *told

    def surprised(policy, replay):
        asked.append([slow_surprise(policy.models, replay, 0) > threshold])
        return is_surprised(policy, replay)

    def learns(policy, replay, keys, t, running, i):
        learned.append(np.asarray(running).tolist())
        return learn_inside(policy, replay, keys, t, running, i)

    agent._play_on, agent._is_surprised, agent._learn_inside = played, surprised, learns
    try:
        learn(kind, seeds=seeds, config=config)
    finally:
        agent._play_on, agent._is_surprised, agent._learn_inside = play_on, is_surprised, learn_inside
    assert learned == [lanes for lanes in asked if any(lanes)]
    assert 0 < len(learned) < len(asked)


@pytest.mark.parametrize("whole", ["compiled", "python"], indirect=True)
def test_the_least_surprise_is_always_exceeded(whole):
    config = changed(TINY, {"explore.surprise": 1e-12})
    _, policy, replay = learn(whole.kind, seeds=whole.seeds, config=config)
    for ours, usual in zip(
        jax.tree.leaves((policy, replay)), jax.tree.leaves((whole.policy, whole.replay)), strict=True
    ):
        np.testing.assert_array_equal(ours, usual)
