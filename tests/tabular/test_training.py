"""Tabular E³ from end to end: worlds it must solve, runs that are interrupted, environments that break."""

import json
import math
from contextlib import closing

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.envs.opening import open_environment
from e3rl.envs.spec import DEFAULT_TIME_LIMIT
from e3rl.experiments.agents import load, suited_agent
from e3rl.runs.checkpoint import load_arrays, save_tree
from e3rl.runs.folder import RunFolder, read_metrics
from e3rl.runs.handover import HandOver
from e3rl.runs.settings import changed
from e3rl.runs.train import train as train_seeds
from e3rl.tabular import playing, training
from e3rl.tabular.agent import TabularE3
from e3rl.tabular.config import ExploreTable, TabularE3Config
from e3rl.tabular.minds import Doubt
from e3rl.tabular.posterior import Table
from e3rl.types import UserError

LIMIT, ACTIONS, CELLS = 12, 4, 16
"""One horizon and one number of actions for all: what is compiled serves every test here and in test_minds.py."""
GOAL, DECOY, NOWHERE = 15, 3, 16
MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))
CONFIG = TabularE3Config(evaluation_episodes=3)
SHORT = changed(CONFIG, {"explore.episodes": 4})


class Grid(gymnasium.Env):
    """A room of 4 × 4: 1 in the corner opposite, 0.2 in the one nearer by; both end the episode. What is in `trouble`
    is called at (episode, step)."""

    trouble: dict = {}  # noqa: RUF012
    episodes = 0

    def __init__(self):
        self.observation_space = spaces.Discrete(CELLS + 1)
        self.action_space = spaces.Discrete(ACTIONS)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        Grid.episodes += 1
        self.cell, self.count = 0, 0
        return self.cell, {}

    def step(self, action):
        self.count += 1
        if (Grid.episodes, self.count) in self.trouble:
            self.trouble[Grid.episodes, self.count]()
        (y, x), (down, right) = divmod(self.cell, 4), MOVES[int(action)]
        self.cell = 4 * min(max(y + down, 0), 3) + min(max(x + right, 0), 3)
        reward = {GOAL: 1.0, DECOY: 0.2}.get(self.cell, 0.0)
        return self.cell, reward, reward > 0, False, {}


CHAIN = np.zeros((3, ACTIONS, 3))
"""Action 1 leads to the right and action 0 to the left, where they do not slip; the others stay."""
for place in range(3):
    CHAIN[place, 0, max(place - 1, 0)] += 0.8
    CHAIN[place, 0, min(place + 1, 2)] += 0.2
    CHAIN[place, 1, min(place + 1, 2)] += 0.8
    CHAIN[place, 1, max(place - 1, 0)] += 0.2
    CHAIN[place, 2:, place] = 1.0
PAYS = np.zeros((3, ACTIONS))
PAYS[0, 2], PAYS[2, 1] = 0.1, 1.0


class Chain(gymnasium.Env):
    """A little for staying at the left end, much for pushing on at the right one."""

    def __init__(self):
        self.observation_space = spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(ACTIONS)

    def _seen(self):
        return np.array([math.cos(self.place), math.sin(self.place)], np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self._seen(), {}

    def step(self, action):
        reward = PAYS[self.place, action]
        self.place = int(self.np_random.choice(3, p=CHAIN[self.place, action]))
        return self._seen(), reward, False, False, {}


@pytest.fixture(scope="module", autouse=True)
def registered():
    gymnasium.register("TabularGrid-v0", entry_point=Grid, max_episode_steps=LIMIT)
    gymnasium.register("TabularChain-v0", entry_point=Chain, max_episode_steps=LIMIT)
    yield
    for name in ("TabularGrid-v0", "TabularChain-v0"):
        gymnasium.registry.pop(name)


@pytest.fixture(autouse=True)
def no_trouble():
    Grid.trouble = {}


def train(out=None, config=CONFIG, resume=False, watch=lambda progress: None, env="TabularGrid-v0"):
    Grid.episodes = 0
    agent = TabularE3(env, config, seed=1)
    try:
        return agent.learn(out, resume=resume, watch=watch)
    finally:
        agent.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nothing disturbed."""
    Grid.trouble = {}
    out = tmp_path_factory.mktemp("whole")
    return out, train(out)


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """Another, of few episodes."""
    Grid.trouble = {}
    out = tmp_path_factory.mktemp("short")
    return out, train(out, SHORT)


def rows_of(path):
    return [{**row, "seconds": None} for row in read_metrics(path)]


def assert_same_run(one, other):
    assert rows_of(one) == rows_of(other)
    assert RunFolder(one).policy.read_bytes() == RunFolder(other).policy.read_bytes()


def test_a_room_is_explored_until_nothing_is_left_to_find(whole):
    _, summary = whole
    assert summary["ended"].startswith("by itself: something new in ")
    assert summary["exploit_return_mean"] == 1.0
    assert summary["explore_episodes"] <= 30
    assert summary["states"] == CELLS - 2  # the two corners are ends


def test_the_folder_of_a_run(whole):
    run, summary = whole
    names = {str(path.relative_to(run)) for path in run.rglob("*") if path.is_file()}
    state, policy = "checkpoint/state.safetensors", "checkpoint/policy.safetensors"
    assert names == {"config.json", "metrics.csv", "summary.json", state, policy}
    about = json.loads((run / "config.json").read_text())
    assert (about["algo"], about["config"]["explore"]["epsilon"]) == ("tabular-e3", 0.05)
    assert json.loads((run / "summary.json").read_text()) == summary
    rows, explored = read_metrics(run), summary["explore_episodes"]
    assert [row["phase"] for row in rows] == ["explore"] * explored + ["exploit"] * 3
    lengths = [int(row["length"]) for row in rows]
    assert [int(row["env_steps"]) for row in rows] == np.cumsum(lengths).tolist()
    assert summary["explore_steps"] == sum(lengths[:explored])
    assert [float(row["return"]) for row in rows[explored:]] == [1.0] * 3
    columns = {
        name: np.array([float(row[name]) for row in rows[:explored]])
        for name in ("disagreement", "v_explore")
    }
    assert columns["disagreement"][0] == pytest.approx(2.0 * lengths[0], rel=0.5)  # nearly everything is new
    assert columns["v_explore"][-1] < columns["v_explore"][0]
    assert all(math.isnan(float(row["disagreement"])) for row in rows[explored:])


def test_a_run_broken_off_resumes_to_the_same_end(whole, tmp_path):
    last = whole[1]["explore_episodes"]

    def stop(progress):
        if progress.phase == "explore" and progress.episode == last - 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, watch=stop)
    assert len(read_metrics(tmp_path)) == last - 2  # the episode that was not recorded is repeated
    with pytest.raises(UserError, match="already holds a run: give --resume"):
        train(tmp_path)
    train(tmp_path, resume=True)
    assert_same_run(tmp_path, whole[0])
    assert state_of(tmp_path) == state_of(whole[0])


def state_of(path):
    """The last checkpoint, without the time it took."""
    arrays, about = load_arrays(RunFolder(path).state)
    return {name: array.tolist() for name, array in arrays.items()}, {**about, "seconds": None}


def test_a_noisy_run_broken_off_in_the_middle_of_an_episode_resumes_to_the_same_end(tmp_path, monkeypatch):
    """Before, its table had changed since the last episode ended."""
    config = changed(CONFIG, {"explore.episodes": 6})
    train(tmp_path / "whole", config, env="TabularChain-v0")
    calm, steps = Chain.step, 0

    def step(self, action):
        nonlocal steps
        steps += 1
        if steps == 4 * LIMIT + 5:
            raise KeyboardInterrupt
        return calm(self, action)

    with monkeypatch.context() as patch:
        patch.setattr(Chain, "step", step)
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path / "broken", config, env="TabularChain-v0")
    assert len(read_metrics(tmp_path / "broken")) == 4
    train(tmp_path / "broken", config, resume=True, env="TabularChain-v0")
    assert_same_run(tmp_path / "broken", tmp_path / "whole")


def jams():
    raise RuntimeError("the door\njammed")


@pytest.mark.parametrize("step", [3, 1])
def test_an_environment_that_breaks_ends_the_run_with_what_was_seen_kept(step, tmp_path):
    """In the second episode, after the beginnings that were looked at."""
    Grid.trouble = {(training.STARTS + 2, step): jams}
    with pytest.raises(UserError) as raised:
        train(tmp_path, SHORT)
    words = f"TabularGrid-v0, step {step} of an episode: RuntimeError: the door jammed ("
    assert str(raised.value).startswith(words)
    assert "in jams" in raised.value.__notes__[0]
    rows = rows_of(tmp_path)
    assert [row["phase"] for row in rows] == ["explore"] * len(rows)
    assert [int(row["length"]) for row in rows[1:]] == ([step - 1] if step > 1 else [])
    arrays, about = load_arrays(RunFolder(tmp_path).state)
    assert arrays["['count']"].sum() == about["env_steps"] == sum(int(row["length"]) for row in rows)
    Grid.trouble = {}
    summary = train(tmp_path, SHORT, resume=True)
    done = rows_of(tmp_path)
    assert done[: len(rows)] == rows
    assert [int(row["episode"]) for row in done] == list(range(1, len(done) + 1))
    assert summary["explore_episodes"] == len(rows) + 3


@pytest.mark.parametrize("when", ["first reset", "evaluation"])
def test_an_environment_that_breaks_at_another_time(when, short, tmp_path, monkeypatch):
    def reset(self, *, seed=None, options=None):
        jams()

    if when == "evaluation":
        Grid.trouble = {(training.STARTS + 4 + 2, 4): jams}
        place = "step 4"
    else:
        monkeypatch.setattr(Grid, "reset", reset)
        place = "reset"
    with pytest.raises(
        UserError, match=f"TabularGrid-v0, {place} of an episode: RuntimeError: the door jammed"
    ):
        train(tmp_path, SHORT)
    monkeypatch.undo()
    Grid.trouble = {}
    train(tmp_path, SHORT, resume=True)
    assert_same_run(tmp_path, short[0])


def test_more_states_than_the_table_holds_are_one_clear_error(tmp_path):
    """With all that was seen; and again where it is taken up."""
    for resume in (False, True):
        with pytest.raises(
            HandOver, match="more than 6 different observations: train neural-e3 instead"
        ) as told:
            train(tmp_path, changed(CONFIG, {"capacity": 6}), resume)
        steps = told.value.steps
        assert len(steps.time) == int(read_metrics(tmp_path)[-1]["env_steps"])
        assert len(np.unique(steps.obs, axis=0)) == 6
        assert len(np.unique(np.concatenate([steps.obs, steps.next_obs[~steps.terminated]]), axis=0)) == 7
    assert not (tmp_path / "summary.json").exists()


class Halls(Grid):
    """Episodes begin in one of 60 halls, nothing leads from one to another."""

    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Discrete(60)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.hall = int(self.np_random.integers(60))
        return self.hall, {}

    def step(self, action):
        return self.hall, float(action == 1), True, False, {}


@pytest.mark.parametrize(("env", "looks"), [(Halls, training.MOST_LOOKS), (Grid, training.STARTS)])
def test_where_episodes_begin_is_looked_at_while_it_brings_something_new(env, looks):
    program = TabularE3(gymnasium.wrappers.TimeLimit(env(), LIMIT), CONFIG).program
    table = Table(ACTIONS, 2, 0, 1000)
    assert len(program._look_at_starts(table).starts) == looks
    small = Table(ACTIONS, 2, 0, 40)
    assert len(program._look_at_starts(small).starts) <= 40  # a table is not filled with looking


def test_starts_that_fill_the_table():
    with pytest.raises(UserError, match="more than 3 different observations: train neural-e3 instead"):
        TabularE3(gymnasium.wrappers.TimeLimit(Numbers(), LIMIT), changed(CONFIG, {"capacity": 3})).learn()


class Numbers(gymnasium.Env):
    """What is seen never comes back."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Discrete(ACTIONS)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.np_random.normal(size=2).astype(np.float32), {}

    def step(self, action):
        return self.np_random.normal(size=2).astype(np.float32), float(action == 1), False, False, {}


def test_observations_that_never_come_back_are_left_to_another_agent(monkeypatch):
    monkeypatch.setattr(training, "ENOUGH_STEPS", 30)
    env = gymnasium.wrappers.TimeLimit(Numbers(), LIMIT)
    with pytest.raises(
        HandOver, match=r"only 0.0% of 36 steps led to observations seen in earlier episodes"
    ) as told:
        TabularE3(env, changed(CONFIG, {"explore.episodes": 9})).learn()
    assert told.value.steps.episodes == 4
    np.testing.assert_array_equal(told.value.steps.time, list(range(LIMIT)) * 4)
    kept = TabularE3(env, changed(CONFIG, {"explore.episodes": 5, "explore.repeats": 0.0})).learn()
    assert kept["explore_episodes"] == 5


class Odd(Grid):
    """The room of 4 × 4, seen in another way, paid otherwise, without an end, or deaf to seeds and copies."""

    def __init__(self, space, shown, pays=1.0, ends=True):
        super().__init__()
        self.observation_space, self.shown, self.pays, self.ends = space, shown, pays, ends

    def __deepcopy__(self, memo):
        raise TypeError("there is only one of these")

    def reset(self, *, seed=None, options=None):
        return self.shown(super().reset()[0]), {}

    def step(self, action):
        cell, reward, ended, _, _ = super().step(action)
        return self.shown(cell), self.pays * reward, ended and self.ends, False, {}


def one_hot(cell):
    return np.eye(CELLS, dtype=np.float32)[cell]


SEEN = {
    "floats": (spaces.Box(0.0, 1.0, (CELLS,), np.float32), one_hot),
    "a grid of floats": (spaces.Box(0.0, 1.0, (4, 4), np.float32), lambda cell: one_hot(cell).reshape(4, 4)),
    "bits": (spaces.MultiBinary(CELLS), lambda cell: one_hot(cell).astype(np.int8)),
    "an image": (
        spaces.Box(0, 255, (4, 4, 3), np.uint8),
        lambda cell: np.repeat((255 * one_hot(cell)).astype(np.uint8).reshape(4, 4, 1), 3, axis=2),
    ),
    "a dict": (
        spaces.Dict(row=spaces.Discrete(4), rest=spaces.Tuple([spaces.Box(-1.0, 1.0, (1,), np.float32)])),
        lambda cell: {"row": cell // 4, "rest": (np.array([cell % 4 / 4], np.float32),)},
    ),
}


@pytest.mark.parametrize("name", SEEN)
def test_a_room_however_it_is_seen(name):
    env = gymnasium.wrappers.TimeLimit(Odd(*SEEN[name]), LIMIT)
    with closing(open_environment(env)) as opened:
        assert suited_agent(opened)[0] == "tabular-e3"
    summary = TabularE3(env, CONFIG, seed=1).learn()
    assert (summary["exploit_return_mean"], summary["states"]) == (1.0, CELLS - 2)


def test_rewards_of_a_million():
    env = gymnasium.wrappers.TimeLimit(Odd(*SEEN["bits"], pays=1e6), LIMIT)
    summary = TabularE3(env, CONFIG, seed=1).learn()
    assert summary["exploit_return_mean"] == 1e6
    assert summary["ended"].startswith("by itself")


def test_episodes_without_an_end_are_cut():
    """The corner pays at every visit, nothing ends."""
    env = Odd(*SEEN["floats"], ends=False)
    config = changed(CONFIG, {"explore.episodes": 3, "evaluation_episodes": 1, "lookahead": 50})
    summary = TabularE3(env, config, seed=1).learn()
    assert summary["exploit_return_mean"] >= DEFAULT_TIME_LIMIT - 10  # it pushes on into the corner


class ByTheClock(Grid):
    """Every episode terminates after LIMIT steps, by a clock that nobody sees."""

    def step(self, action):
        cell = super().step(action)[0]
        return cell, float(cell == GOAL), self.count == LIMIT, False, {}


def test_what_ends_with_the_time_limit_is_no_end():
    env = gymnasium.wrappers.TimeLimit(ByTheClock(), LIMIT)
    summary = TabularE3(env, CONFIG, seed=1).learn()
    assert summary["exploit_return_mean"] == LIMIT - 5
    assert summary["states"] == CELLS


def test_learned_it_predicts_evaluates_saves_and_loads(whole, tmp_path):
    agent = load(whole[0])
    assert isinstance(agent, TabularE3)
    room = Grid()
    cell, _ = room.reset()
    for _ in range(LIMIT):
        cell, reward, ended, _, _ = room.step(agent.predict(cell))
        if ended:
            break
    assert (cell, reward) == (GOAL, 1.0)
    np.testing.assert_array_equal(agent.evaluate(2), [1.0, 1.0])
    agent.save(tmp_path / "saved")
    again = TabularE3.load(tmp_path / "saved")
    assert [again.predict(0, time) for time in range(5)] == [agent.predict(0, time) for time in range(5)]
    assert again.predict(np.arange(5), 0).tolist() == [agent.predict(cell, 0) for cell in range(5)]
    for each in (agent, again):
        each.close()


def test_what_was_never_seen_gets_some_action(whole):
    agent = load(whole[0])
    drawn = [agent.predict(NOWHERE, time) for time in range(LIMIT)]
    assert set(drawn) <= set(range(ACTIONS))
    assert len(set(drawn)) > 1
    assert drawn == [agent.predict(NOWHERE, time) for time in range(LIMIT)]
    with pytest.raises(UserError, match="time must be in 0 … 11, got 12"):
        agent.predict(0, LIMIT)
    agent.close()


def test_another_agents_policy_is_refused(whole, tmp_path):
    agent = load(whole[0])
    agent.save(tmp_path)
    path = RunFolder(tmp_path).policy
    save_tree(path, {"weights": np.zeros(3)})
    with pytest.raises(
        UserError, match=r"policy.safetensors belongs to another kind of run: '.keys' is missing"
    ):
        TabularE3.load(tmp_path)
    agent.close()


def optimum_of_the_chain():
    value = np.zeros(3)
    for _ in range(LIMIT):
        value = (PAYS + CHAIN @ value).max(axis=1)
    return value[0]


def worth_on_the_chain(agent):
    """What the agent's policy returns on average, computed from the chain itself."""
    seen = [[math.cos(place), math.sin(place)] for place in range(3)]
    value = np.zeros(3)
    for time in reversed(range(LIMIT)):
        taken = [agent.predict(np.array(obs, np.float32), time) for obs in seen]
        value = np.array([PAYS[s, a] + CHAIN[s, a] @ value for s, a in enumerate(taken)])
    return value[0]


def test_a_slippery_chain_is_learned():
    agent = TabularE3("TabularChain-v0", changed(CONFIG, {"explore.episodes": 20}), seed=0)
    summary = agent.learn()
    assert summary["states"] == 3
    assert worth_on_the_chain(agent) >= 0.9 * optimum_of_the_chain()
    agent.close()


def test_where_returns_differ_there_are_more_greedy_episodes(monkeypatch):
    agent = TabularE3("TabularChain-v0", changed(CONFIG, {"explore.episodes": 20}), seed=0)
    greedy = []
    for enough in (playing.ENOUGH_TO_JUDGE, 4 * LIMIT):
        monkeypatch.setattr(playing, "ENOUGH_TO_JUDGE", enough)
        summary = agent.learn()
        greedy.append(summary["total_episodes"] - summary["explore_episodes"])
    assert greedy == [10 * 3, 4]
    agent.close()


def test_functional_environments_are_stepped_in_python():
    options = {"num_states": 3, "num_actions": ACTIONS, "horizon": LIMIT, "seed": 1}
    agent = TabularE3("e3rl/RandomMDP-v0", changed(CONFIG, {"explore.episodes": 4}), env_options=options)
    summary = agent.learn()
    assert (summary["states"], summary["explore_steps"]) == (3, 4 * LIMIT)
    assert 0.0 < summary["exploit_return_mean"] < LIMIT
    assert summary["optimal_return"] == agent.program.spec.optimal_return
    assert 0 <= agent.predict(1) < ACTIONS
    agent.close()


def test_the_number_of_episodes_is_a_ceiling(short):
    _, summary = short
    assert summary["explore_episodes"] == 4
    assert summary["ended"].startswith("after 4 episodes, the most that it was given: something new in ")


class Still(gymnasium.Env):
    """Nothing ever happens."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(ACTIONS)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 0, 0.0, False, False, {}


@pytest.mark.parametrize(("epsilon", "ended"), [(0.05, "by itself"), (0.0, "after 20 episodes")])
def test_without_epsilon_only_the_number_of_episodes_ends_it(epsilon, ended):
    config = changed(CONFIG, {"explore.episodes": 20, "explore.epsilon": epsilon})
    summary = TabularE3(gymnasium.wrappers.TimeLimit(Still(), LIMIT), config).learn()
    assert summary["ended"].startswith(ended)


def test_an_episode_is_given_up_when_there_is_nothing_left_to_find(monkeypatch):
    """Asked every few steps, exploration ends within an episode."""
    monkeypatch.setattr(training, "QUIET", 4)
    summary = TabularE3(gymnasium.wrappers.TimeLimit(Still(), LIMIT), CONFIG).learn()
    assert summary["ended"].startswith("by itself")
    assert summary["explore_steps"] % LIMIT > 0


@pytest.mark.parametrize(("states", "episodes", "limit"), [(3, 0, 100), (50, 0, 250), (50, 7, 7)])
def test_how_many_episodes_there_are_at_most(states, episodes, limit):
    assert ExploreTable(episodes=episodes).limit(states) == limit


def test_seeds_are_trained_one_after_the_other(tmp_path):
    config = changed(CONFIG, {"explore.episodes": 1})
    paths, summaries = train_seeds(TabularE3, "TabularGrid-v0", {}, config, [4, 5], tmp_path)
    assert [path.name for path in paths] == ["seed4", "seed5"]
    assert [summary["seeds_in_program"] for summary in summaries] == [1, 1]


def test_it_has_no_copies_to_run_apart():
    with pytest.raises(UserError, match=r"tabular-e3 .* has no copies to run apart"):
        TabularE3("TabularGrid-v0", asynchronous=True)


@pytest.fixture(scope="module")
def program():
    agent = TabularE3("TabularGrid-v0", changed(CONFIG, {"lookahead": 5}))
    yield agent.program
    agent.close()


@pytest.mark.parametrize(
    ("regret", "untried", "kinds"),
    [
        (0.0, 1.0, [training.UNKNOWN] * 4),
        (0.5, 1.0, [training.UNKNOWN, training.CHALLENGER, training.LEADER, training.CHALLENGER]),
        (0.5, 0.0, [training.LEADER, training.CHALLENGER] * 2),
    ],
    ids=["no doubt about what is best", "doubts", "doubts and nothing untried"],
)
def test_what_an_episode_is_for(program, regret, untried, kinds):
    doubt = Doubt(1.0, regret, untried, stale=False)
    assert [program._kind(doubt, t) for t in range(4)] == kinds


def test_a_plan_is_not_followed_further_than_it_sees(program):
    assert (program.steps, program.every) == (5, 5)
