"""The adapter: who comes through the door as what, and what is stopped there."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from e3rl import make
from e3rl.envs.adapter import GymnasiumEnvironment
from e3rl.envs.lock import CombinationLock
from e3rl.envs.membership import surely_member, violation
from e3rl.envs.registration import FunctionalGymEnv
from e3rl.types import UserError

NAN, INF = float("nan"), float("inf")


class Scripted(gymnasium.Env):
    """Returns what it is told to: observations in turn, then the same reward and flags at every step."""

    def __init__(self, space, observations, reward=0.0, terminated=False, truncated=False, actions=None):
        self.observation_space = space
        self.action_space = actions or spaces.Discrete(2)
        self.observations, self.result = observations, (reward, terminated, truncated, {})
        self.actions_seen = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.turn = 0
        return self.observations[0], {}

    def step(self, action):
        self.actions_seen.append(action)
        self.turn += 1
        return self.observations[self.turn % len(self.observations)], *self.result


@pytest.mark.parametrize(
    ("env_id", "shape", "actions", "limit"),
    [
        ("CartPole-v1", (4,), 2, 500),
        ("FrozenLake-v1", (16,), 4, 100),
        ("Taxi-v4", (500,), 6, 200),
        ("CliffWalking-v1", (48,), 4, None),
        ("Blackjack-v1", (32 + 11 + 2,), 2, None),
    ],
)
def test_gymnasium_environments(env_id, shape, actions, limit):
    """Side by side with the environment itself, with the same seed and the same actions."""
    env, twin = make(env_id), gymnasium.make(env_id)
    assert isinstance(env, GymnasiumEnvironment)
    assert (env.encoding.shape, env.num_actions, env.time_limit) == (shape, actions, limit)
    obs, (expected, _) = env.reset(seed=3), twin.reset(seed=3)
    rng = np.random.default_rng(0)
    for _ in range(30):
        assert obs.dtype == np.float32
        np.testing.assert_array_equal(
            obs, spaces.flatten(twin.observation_space, expected).astype(np.float32)
        )
        action = rng.integers(actions)
        obs, reward, terminated, truncated = env.step(action)
        expected, *rest = twin.step(action)
        assert [reward, terminated, truncated] == rest[:3]
        assert (type(reward), type(terminated), type(truncated)) == (float, bool, bool)
        if terminated or truncated:
            obs, (expected, _) = env.reset(), twin.reset()
    env.close()
    twin.close()


@pytest.mark.parametrize(
    ("space", "obs", "encoded"),
    [
        (
            spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Box(0.0, 1.0, (1,))}),
            {"b": 1, "a": np.array([0.5], np.float32)},
            [0.5, 0, 1],
        ),
        (spaces.MultiBinary(2), np.array([1, 0], np.int8), [1, 0]),
        (spaces.MultiDiscrete([2, 2]), np.array([1, 0]), [0, 1, 1, 0]),
        (spaces.Box(0, 255, (2, 2, 1), np.uint8), np.full((2, 2, 1), 255, np.uint8), np.ones((2, 2, 1))),
        (spaces.Box(0.0, 1.0, (1,)), np.array([0.5]), [0.5]),  # float64 where float32 was promised
        # float32 rounds this bound down, so the float64 value lies above it.
        (spaces.Box(0.0, 0.7, (1,)), np.array([0.7]), np.array([0.7], np.float32)),
    ],
)
def test_spaces(space, obs, encoded):
    env = make(Scripted(space, [obs], reward=np.float64(0.25), terminated=np.True_))
    np.testing.assert_array_equal(env.reset(), encoded)
    after, *rest = env.step(0)
    np.testing.assert_array_equal(after, encoded)
    assert rest == [0.25, True, False]


def test_ours_come_back_as_their_functional_core():
    lock = CombinationLock(3)
    assert make(lock) is lock
    assert isinstance(make("e3rl/CombinationLock-v0", horizon=7), CombinationLock)
    assert make("e3rl/CombinationLock-v0", horizon=7).horizon == 7
    made = gymnasium.make("e3rl/CombinationLock-v0", horizon=6)
    assert make(made) is made.unwrapped.functional
    bare = FunctionalGymEnv(lock)
    assert make(bare) is lock
    adapted = make("CartPole-v1")
    assert make(adapted) is adapted


def test_a_wrapper_that_changes_something_is_not_thrown_away():
    wrapped = gymnasium.wrappers.TransformReward(
        FunctionalGymEnv(CombinationLock(3, antishaped=True)), lambda r: 7
    )
    env = make(wrapped)
    assert isinstance(env, GymnasiumEnvironment)
    env.reset(seed=0)
    assert env.step(0)[1] == 7.0
    limited = make(gymnasium.wrappers.TimeLimit(FunctionalGymEnv(CombinationLock(3)), 2))
    assert limited.time_limit == 2


def test_actions_count_from_zero():
    raw = Scripted(spaces.Discrete(1), [0], actions=spaces.Discrete(2, start=3))
    env = make(raw)
    env.reset()
    assert env.action_space == spaces.Discrete(2)
    for action in (0, np.int64(1), np.array(1)):
        env.step(action)
    assert raw.actions_seen == [3, 4, 4]


@pytest.mark.parametrize("action", [2, -1, 0.0, None, True, [0], "left"])
def test_bad_actions(action):
    env = make(Scripted(spaces.Discrete(1), [0]))
    env.reset()
    with pytest.raises(UserError, match="action must be an integer from 0 to 1, got"):
        env.step(action)


def test_step_needs_an_episode():
    env = make(Scripted(spaces.Discrete(1), [0], truncated=True))
    with pytest.raises(UserError, match="call reset"):
        env.step(0)
    env.reset()
    env.step(0)
    with pytest.raises(UserError, match="call reset"):
        env.step(0)


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (spaces.Box(-1.0, 1.0, (1,)), r"continuous action space Box.*gymnasium\.wrappers\.DiscretizeAction"),
        (spaces.MultiDiscrete([2, 2]), r"action space MultiDiscrete.* needs a Discrete one"),
    ],
)
def test_action_spaces_refused(actions, message):
    with pytest.raises(UserError, match=message):
        make(Scripted(spaces.Discrete(1), [0], actions=actions))


def test_the_advice_on_continuous_actions_works():
    with pytest.raises(UserError, match=r"MountainCarContinuous-v0 .*DiscretizeAction"):
        make("MountainCarContinuous-v0")
    discretised = gymnasium.wrappers.DiscretizeAction(gymnasium.make("MountainCarContinuous-v0"), bins=3)
    assert make(discretised).num_actions == 3


VECTOR = spaces.Box(-1.0, 1.0, (2,))
GOOD = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("space", "good", "bad", "message"),
    [
        (VECTOR, GOOD, np.array([0.0, NAN], np.float32), r"observation\[1\] is nan"),
        (VECTOR, GOOD, np.array([INF, 0.0], np.float32), r"observation\[0\] is inf"),
        (VECTOR, GOOD, np.array([0.0, 1.5], np.float32), r"observation\[1\] is 1.5, outside the space Box"),
        (VECTOR, GOOD, np.zeros(3, np.float32), r"observation has shape \(3,\), the space .* has \(2,\)"),
        (VECTOR, GOOD, None, "observation must be an array of numbers, got None"),
        (VECTOR, GOOD, ["a", "b"], "observation must be an array of numbers"),
        (VECTOR, GOOD, [[1.0], [1.0, 2.0]], "observation must be an array of numbers"),
        (VECTOR, GOOD, np.array([1j, 0]), "observation must be an array of numbers"),
        (spaces.Discrete(3), 0, 3, "observation is 3, outside the space Discrete"),
        (spaces.Discrete(3), 0, 1.0, "observation has dtype float64, the space .* has int64: 1.0"),
        (spaces.Box(0, 255, (1,), np.uint8), np.zeros(1, np.uint8), np.array([0.5]), "has dtype float64"),
        (spaces.Box(0, 255, (1,), np.uint8), np.zeros(1, np.uint8), np.array([-1]), r"\[0\] is -1, outside"),
        (spaces.MultiBinary(2), np.zeros(2, np.int8), np.array([0, 2], np.int8), r"\[1\] is 2, outside"),
        (spaces.MultiDiscrete([2, 3]), np.zeros(2, int), np.array([0, 3]), r"\[1\] is 3, outside"),
        (
            spaces.Dict({"a": spaces.Discrete(2), "b": VECTOR}),
            {"a": 0, "b": GOOD},
            {"a": 0, "b": np.array([NAN, 0.0])},
            r"observation\['b'\]\[0\] is nan",
        ),
        (spaces.Dict({"a": spaces.Discrete(2)}), {"a": 0}, {"c": 0}, r"must be a dict with the keys \['a'\]"),
        (spaces.Tuple([spaces.Discrete(2)]), (0,), (0, 0), "must be a tuple of 1"),
        (spaces.Tuple([spaces.Discrete(2)]), (0,), (2,), r"observation\[0\] is 2, outside"),
    ],
)
def test_bad_observations_are_caught_where_they_enter(space, good, bad, message):
    env = make(Scripted(space, [good, good, bad]))
    env.reset()
    env.step(0)
    with pytest.raises(UserError, match=f"^Scripted, episode 1, step 2: .*{message}"):
        env.step(0)
    with pytest.raises(UserError, match=f"^Scripted, episode 1, step 0: .*{message}"):
        make(Scripted(space, [bad])).reset()


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ({"reward": NAN}, "reward is nan"),
        ({"reward": -INF}, "reward is -inf"),
        ({"reward": None}, "reward must be a number, got None"),
        ({"reward": "5"}, "reward must be a number, got '5'"),
        ({"reward": np.zeros(2)}, "reward must be a number"),
        ({"terminated": 0}, "terminated must be a bool, got 0"),
        ({"truncated": None}, "truncated must be a bool, got None"),
    ],
)
def test_bad_rewards_and_flags(result, message):
    env = make(Scripted(VECTOR, [GOOD], **result))
    env.reset()
    with pytest.raises(UserError, match=f"Scripted, episode 1, step 1: {message}"):
        env.step(0)


def test_the_old_interface_is_named():
    env = make(Scripted(VECTOR, [GOOD]))
    env.reset()
    env.env.step = lambda action: (GOOD, 0.0, False, {})
    with pytest.raises(
        UserError, match=r"step must return \(observation, reward, terminated, truncated, info\)"
    ):
        env.step(0)
    env.env.reset = lambda seed: GOOD
    with pytest.raises(UserError, match=r"reset must return \(observation, info\)"):
        env.reset()


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Blackjack-v1", "Taxi-v4"])
def test_violation_agrees_with_gymnasium_on_members(env_id):
    space = gymnasium.make(env_id).observation_space
    space.seed(0)
    assert all(violation(space, space.sample()) is None for _ in range(20))


SPACES = [
    spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Box(-np.inf, np.inf, (2,), np.float64),
    spaces.Box(np.array([-INF, 0.0], np.float32), np.array([1.0, INF], np.float32)), spaces.Box(0, 255, (2,), np.uint8),
    spaces.Discrete(3, start=2), spaces.MultiBinary(2), spaces.MultiDiscrete([3, 3]),
]  # fmt: skip
SHOWN = [
    *(np.array([x, y], dtype) for x in (-2, 0, 1, 300) for y in (0, 1) for dtype in (np.float32, np.float64, np.int64)),
    *(np.array([x, 0.5], dtype) for x in (NAN, INF, -INF, 3e38) for dtype in (np.float32, np.float64)),
    np.zeros(3, np.float32), np.zeros(2, np.uint8), [0.0, 0.0], None, 2, 4, 5, 2.0, True, NAN, np.int64(3), np.int64(9),
]  # fmt: skip


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_what_surely_is_a_member_has_no_violation(space):
    passing = [obs for obs in SHOWN if surely_member(space)(obs)]
    assert all(violation(space, obs) is None for obs in passing)
    space.seed(0)
    at_a_glance = isinstance(space, spaces.Box | spaces.Discrete)
    assert at_a_glance == all(surely_member(space)(space.sample()) for _ in range(20))


@pytest.mark.parametrize(
    ("env_id", "arguments", "message"),
    [
        ("CartPol-v1", {}, "unknown environment 'CartPol-v1'; did you mean 'CartPole-v1'"),
        (
            "gymnasium:CartPol-v1",
            {},
            "unknown environment 'gymnasium:CartPol-v1'; did you mean 'gymnasium:CartPole-v1'",
        ),
        ("gymnasium:", {}, "an id is missing after 'gymnasium:', as in gymnasium:Mine-v0"),
        ("CartPole-v7", {}, "unknown environment 'CartPole-v7'; did you mean 'CartPole-v"),
        ("CombinationLock-v0", {}, "did you mean 'e3rl/CombinationLock-v0'"),
        ("e3rl/Mase-v0", {}, "unknown environment 'e3rl/Mase-v0'; did you mean 'e3rl/Maze-v0'"),
        ("e3rl/Zebra-v3", {}, "unknown environment 'e3rl/Zebra-v3'; known: e3rl/CombinationLock-v0, "),
        (
            "zebra/Quagga-v3",
            {},
            "unknown environment 'zebra/Quagga-v3'; one of your own is named with its module",
        ),
        ("no such id", {}, "cannot make 'no such id': Malformed"),
        ("e3rl/CombinationLock-v0", {"horizonn": 5}, "takes no argument 'horizonn'; did you mean 'horizon'"),
        ("e3rl/Maze-v0", {"colour": 5}, "takes no argument 'colour'; it takes size"),
        ("e3rl/RandomMDP-v0", {"horizon": "ten"}, "horizon must be a whole number, got 'ten'"),
        ("e3rl/RandomMDP-v0", {"horizon": 0}, "horizon must be at least 1"),
        ("CartPole-v1", {"horizonn": 5}, "CartPole-v1 takes no argument 'horizonn'"),
        ("FrozenLake-v1", {"map_name": "9x9"}, "FrozenLake-v1 cannot be made with map_name='9x9'"),
        ("ALE/Pong-v5", {}, r'needs the Atari extra: pip install "gymnasium\[atari\]"'),
        ("no_such_module:Env-v0", {}, "needs a package that is not installed: .*no_such_module"),
    ],
)
def test_ids_and_arguments_refused(env_id, arguments, message):
    with pytest.raises(UserError, match=message) as caught:
        make(env_id, **arguments)
    if arguments != {"horizon": "ten"}:  # under test the type checker writes that one, and it is long
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("env_id", "module"), [("LunarLander-v3", "Box2D"), ("Ant-v5", "mujoco")])
def test_missing_extras(env_id, module, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(UserError, match=f"{env_id} needs a package that is not installed: .*pip install"):
        make(env_id)


@pytest.mark.parametrize("thing", [None, 3, ["CartPole-v1"], CombinationLock])
def test_other_things_refused(thing):
    with pytest.raises(UserError, match="expected an environment or the id of one, got"):
        make(thing)


def test_arguments_for_a_built_environment_refused():
    with pytest.raises(UserError, match="takes no arguments, got horizon"):
        make(CombinationLock(3), horizon=5)
