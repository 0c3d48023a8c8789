"""Which dynamics family and which planner an environment gets, and what is said where a choice cannot work."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.envs.adapter import GymnasiumEnvironment, make
from e3rl.envs.lock import CombinationLock
from e3rl.envs.vector import HostEnvironments
from e3rl.neural.agent import NeuralE3
from e3rl.neural.auto import prepare, suited_config
from e3rl.neural.config import CONFIGS, NeuralE3Config
from e3rl.neural.lanes import LARGEST_BUFFER, Lanes
from e3rl.types import UserError


class Toy(gymnasium.Env):
    """Any observation space; what is seen is a matter of the actions, or with `dice` of chance."""

    def __init__(self, space, dice=False):
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self.dice = dice

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        self.observation_space.seed(0)
        return self.observation_space.sample(), {}

    def step(self, action):
        self.count += 1
        self.observation_space.seed(int(self.np_random.integers(2**31)) if self.dice else self.count)
        return self.observation_space.sample(), 0.0, self.count == 5, False, {}


IMAGE = spaces.Box(0, 255, (6, 5, 3), np.uint8)
DICT = spaces.Dict({"place": spaces.Box(0.0, 1.0, (2,)), "door": spaces.Discrete(3)})


@pytest.mark.parametrize(
    ("env", "options", "family", "planner", "distance"),
    [
        ("CartPole-v1", {}, "mlp", "graph", "squared"),
        ("MountainCar-v0", {}, "mlp", "graph", "squared"),
        ("FrozenLake-v1", {}, "factored", "mcts", "marginal"),
        ("FrozenLake-v1", {"is_slippery": False}, "factored", "graph", "marginal"),
        ("Blackjack-v1", {}, "factored", "mcts", "marginal"),
        ("Taxi-v4", {}, "factored", "graph", "marginal"),
        ("e3rl/MountainCar-v0", {}, "mlp", "graph", "squared"),
        ("e3rl/MountainCar-v0", {"push_failure": 0.5}, "mlp", "mcts", "squared"),
        ("e3rl/Maze-v0", {"size": 5}, "conv", "graph", "squared"),
        ("e3rl/RandomMDP-v0", {}, "factored", "mcts", "marginal"),
        (Toy(IMAGE), {}, "conv", "graph", "squared"),
        (Toy(IMAGE, dice=True), {}, "conv", "mcts", "squared"),
        (Toy(DICT), {}, "factored", "graph", "squared"),
        (Toy(spaces.MultiBinary([2, 2])), {}, "bernoulli", "graph", "marginal"),
        (Toy(spaces.MultiDiscrete([2, 3])), {}, "factored", "graph", "marginal"),
    ],
    ids=str,
)
def test_the_family_follows_the_observations_and_the_planner_the_dice(
    env, options, family, planner, distance
):
    made = make(env, **options)
    config = suited_config(made)
    assert (config.family, config.planner, config.distance) == (family, planner, distance)
    assert not config.clock
    if family == "conv":  # a model of images is the policy, where it can be searched
        assert config.exploit == ("graph" if planner == "graph" else "dqn")
    if isinstance(env, str) and isinstance(made, GymnasiumEnvironment):
        made.close()


def test_a_short_binary_problem_is_a_lock():
    assert suited_config(CombinationLock(5)) == CONFIGS["e3rl"]
    assert suited_config(CombinationLock(100)) == CONFIGS["e3rl"]
    assert suited_config(CombinationLock(101)).family == "bernoulli"
    assert not suited_config(CombinationLock(101)).clock


def test_what_has_an_id_is_copied_and_what_is_an_object_is_not():
    config = NeuralE3Config(family="mlp", episodes_per_epoch=3)
    copies, chosen = prepare("CartPole-v1", {}, config)
    assert isinstance(copies, HostEnvironments)
    assert copies.copies == 3
    assert chosen is config
    copies.close()
    env = gymnasium.make("CartPole-v1")
    alone, _ = prepare(env, {}, config)
    assert alone.copies == 1
    functional, _ = prepare("e3rl/MountainCar-v0", {"time_limit": 9}, config)
    assert functional.time_limit == 9


@pytest.mark.parametrize(
    ("env", "family", "message"),
    [
        (
            "e3rl/MountainCar-v0",
            "bernoulli",
            r"family 'bernoulli' is for binary vectors: use 'mlp' for Box\(",
        ),
        (
            "e3rl/MountainCar-v0",
            "conv",
            r"'conv' is for images \[height, width, channels\], not shape \(2,\): ",
        ),
        ("e3rl/RandomMDP-v0", "bernoulli", r"'bernoulli' is for binary vectors: use 'factored' for Discrete"),
        ("e3rl/RandomMDP-v0", "conv", "use 'factored' here"),
        ("e3rl/Maze-v0", "mlp", "family 'mlp' is for vectors: use 'conv' here"),
        ("e3rl/Maze-v0", "mdn", "family 'mdn' is for vectors: use 'conv' here"),
        ("e3rl/CombinationLock-v0", "conv", "use 'bernoulli' here"),
    ],
)
def test_a_family_that_does_not_fit_is_one_line(env, family, message):
    with pytest.raises(UserError, match=message) as raised:
        NeuralE3(env, NeuralE3Config(family=family, explore_episodes=1))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("env", "family"),
    [
        ("e3rl/CombinationLock-v0", "mlp"),
        ("e3rl/CombinationLock-v0", "factored"),
        ("e3rl/RandomMDP-v0", "mlp"),
        ("e3rl/MountainCar-v0", "factored"),
        ("e3rl/MountainCar-v0", "mdn"),
        ("e3rl/MountainCar-v0", "vae"),
        ("e3rl/Maze-v0", "vae"),
    ],
)
def test_families_that_serve_more_than_their_own(env, family):
    assert NeuralE3(env, NeuralE3Config(family=family, explore_episodes=1)).lanes.config.family == family


def test_a_buffer_that_is_too_large_says_what_to_do():
    big = Toy(spaces.Box(0, 255, (210, 160, 3), np.uint8))
    env = HostEnvironments(make(big), time_limit=1000)
    config = NeuralE3Config(family="conv", explore_episodes=50)
    with pytest.raises(
        UserError, match=r"51000 transitions of 100800 entries would take 38 GiB: lower"
    ) as error:
        Lanes(env, config)
    assert "\n" not in str(error.value)
    assert "ResizeObservation" in str(error.value)
    fits = NeuralE3Config(family="conv", explore_episodes=9)
    lanes = Lanes(env, fits)
    assert 2 * 4 * lanes.capacity * lanes.entries <= LARGEST_BUFFER


def test_zeros_and_ones_take_a_byte_each():
    """The same buffer of bits is a quarter of that of floats."""
    bits = HostEnvironments(make(Toy(spaces.MultiBinary(100_800))), time_limit=1000)
    assert Lanes(bits, NeuralE3Config(explore_episodes=40, clock=False)).storage == np.int8
