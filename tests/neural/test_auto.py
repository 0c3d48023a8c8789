"""Which dynamics family and which planner an environment gets, and what is said where a choice cannot work."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from e3rl.envs.lock import CombinationLock
from e3rl.envs.opening import open_environment
from e3rl.envs.spec import spec_of
from e3rl.experiments.reach import pendulum_of_five_torques
from e3rl.models import FAMILIES
from e3rl.models.factored import Factored
from e3rl.models.tiles import Tiles
from e3rl.neural.auto import suited_config
from e3rl.neural.config import NeuralE3Config
from e3rl.neural.presets import PRESETS
from e3rl.neural.slots import OneSeed
from e3rl.planners import EXPLOITERS, PLANNERS, UTILITIES
from e3rl.runs.settings import changed
from e3rl.types import UserError


class Toy(gymnasium.Env):
    """Any observation space; what is seen is a matter of the actions, or with `dice` of chance."""

    def __init__(self, space, dice=False, breaks=False):
        self.observation_space, self.action_space = space, spaces.Discrete(2)
        self.dice, self.breaks = dice, breaks

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        self.observation_space.seed(0)
        return self.observation_space.sample(), {}

    def step(self, action):
        if self.breaks:
            raise RuntimeError("the door jammed")
        self.count += 1
        self.observation_space.seed(int(self.np_random.integers(2**31)) if self.dice else self.count)
        return self.observation_space.sample(), 0.0, self.count == 5, False, {}


IMAGE = spaces.Box(0, 255, (6, 5, 3), np.uint8)
DICT = spaces.Dict({"place": spaces.Box(0.0, 1.0, (2,)), "door": spaces.Discrete(3)})


IDS = spaces.Box(0, 5, (4, 3), np.int64)
LAMPS = spaces.Box(0.0, 1.0, (4,))


class Lamps(Toy):
    """One of several is lit."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._lit(0), {}

    def step(self, action):
        _, reward, ended, cut, about = super().step(action)
        at = int(self.np_random.integers(4)) if self.dice else self.count % 4
        return self._lit(at), reward, ended, cut, about

    def _lit(self, at):
        return np.eye(4, dtype=self.observation_space.dtype)[at]


def test_ids_and_lit_lamps_are_categories():
    """As they are seen, whatever they are declared as."""
    assert suited(Toy(IDS)).model == Tiles(categories=6, unit=1 / 5)
    assert suited("e3rl/KeyDoor-v0").model == Tiles(categories=8, unit=1 / 255)
    for env in (Lamps(LAMPS), Lamps(LAMPS, dice=True), Lamps(spaces.MultiBinary(4))):
        assert suited(env).model == Factored(one_hot=True)
    assert suited("Taxi-v4").model == Factored()  # declared so


def suited(env, **options):
    opened = open_environment(env, options)
    try:
        return suited_config(opened)
    finally:
        opened.close()


@pytest.mark.parametrize(
    ("env", "options", "family", "planner", "utility"),
    [
        ("CartPole-v1", {}, "mlp", "graph", "squared"),
        ("FrozenLake-v1", {}, "factored", "mcts", "marginal"),
        ("FrozenLake-v1", {"is_slippery": False}, "factored", "states", "marginal"),
        ("Blackjack-v1", {}, "factored", "mcts", "marginal"),
        ("Taxi-v4", {}, "factored", "states", "marginal"),
        ("e3rl/MountainCar-v0", {}, "mlp", "graph", "squared"),
        ("e3rl/MountainCar-v0", {"push_failure": 0.5}, "mlp", "mcts", "squared"),
        ("e3rl/Maze-v0", {"size": 5}, "conv", "graph", "squared"),
        ("e3rl/RandomMDP-v0", {}, "factored", "mcts", "marginal"),
        (Toy(IMAGE), {}, "conv", "graph", "squared"),
        (Toy(IMAGE, dice=True), {}, "conv", "mcts", "squared"),
        (Toy(IMAGE, breaks=True), {}, "conv", "mcts", "squared"),  # why is told when it is trained on
        (Toy(DICT), {}, "factored", "graph", "squared"),
        (Toy(spaces.MultiBinary([2, 2])), {}, "bernoulli", "graph", "marginal"),
        (Toy(spaces.MultiDiscrete([2, 3])), {}, "factored", "states", "marginal"),
        ("e3rl/KeyDoor-v0", {}, "tiles", "states", "marginal"),
        (Toy(IDS), {}, "tiles", "states", "marginal"),
        (Lamps(LAMPS), {}, "factored", "states", "marginal"),
        (Lamps(spaces.MultiBinary(4)), {}, "factored", "states", "marginal"),
        (Lamps(LAMPS, dice=True), {}, "factored", "mcts", "marginal"),
    ],
    ids=str,
)
def test_the_family_follows_the_observations_and_the_planner_the_dice(env, options, family, planner, utility):
    config = suited(env, **options)
    found = FAMILIES.name_of(type(config.model)), PLANNERS.name_of(type(config.planner))
    assert found == (family, planner)
    assert UTILITIES.name_of(type(config.utility)) == utility
    assert not config.clock
    exploit = EXPLOITERS.name_of(type(config.exploit))
    if family == "conv":  # a model of images is the policy, where it can be searched
        assert exploit == ("graph" if planner == "graph" else "dqn")
    else:
        assert exploit == ("states" if planner == "states" else "value")
    if planner == "states":  # learns before an episode is over
        assert config.explore.update_every > 0
        assert config.planner.once
        assert not config.exploit.once
    elif family == "factored":  # a category never tried may promise any reward
        assert (config.utility.reward_scale, config.utility.caution) == (1.0, 0.3)
    if planner == "mcts":  # values without a clock
        assert not config.planner.value.heads
        assert config.planner.value.discount == 0.99


def test_practice_is_part_of_the_episodes_that_an_environment_of_numbers_gets():
    def episodes(config):
        return config.explore.episodes, config.rounds.count, config.rounds.total

    assert episodes(suited("CartPole-v1")) == (30, 4, 20)
    assert not suited("CartPole-v1").rounds.stop_on_drop
    assert episodes(suited(pendulum_of_five_torques())) == (15, 3, 15)  # rewards everywhere
    assert episodes(suited(Toy(IMAGE))) == (50, 0, 0)


def test_a_short_binary_problem_is_a_lock():
    assert suited(CombinationLock(5)) == PRESETS["e3rl"]
    assert suited(CombinationLock(100)) == PRESETS["e3rl"]
    longer = suited(CombinationLock(101))
    assert FAMILIES.name_of(type(longer.model)) == "bernoulli"
    assert not longer.clock


def with_family(env, family):
    utility = "marginal" if family in ("bernoulli", "factored") else "squared"
    config = changed(NeuralE3Config(), {"model": family, "utility": utility, "explore.episodes": 1})
    return OneSeed(open_environment(env).spec, config)


@pytest.mark.parametrize(
    ("env", "family", "message"),
    [
        ("e3rl/MountainCar-v0", "bernoulli", r"family 'bernoulli' is for binary vectors: use 'mlp' for Box\("),
        ("e3rl/MountainCar-v0", "conv", r"family 'conv' is for images \[height, .*\].*: use 'mlp' for Box"),
        ("e3rl/RandomMDP-v0", "bernoulli", r"'bernoulli' is for binary vectors: use 'factored' for Discrete"),
        ("e3rl/RandomMDP-v0", "conv", "use 'factored' for"),
        ("e3rl/Maze-v0", "mlp", "family 'mlp' is for vectors.*: use 'conv' for"),
        ("e3rl/Maze-v0", "mdn", "family 'mdn' is for vectors.*: use 'conv' for"),
        ("e3rl/CombinationLock-v0", "conv", "use 'bernoulli' for"),
    ],
)  # fmt: skip
def test_a_family_that_does_not_fit_is_one_line(env, family, message):
    with pytest.raises(UserError, match=message) as raised:
        with_family(env, family)
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
    assert with_family(env, family).config.model == FAMILIES[family]()


def test_zeros_and_ones_take_a_byte_each():
    """The same buffer of bits is a quarter of that of floats."""
    assert buffer_of(spaces.Box(0.0, 1.0, (100,)), "mlp").storage == np.float32
    assert buffer_of(spaces.MultiBinary(100), "bernoulli").storage == np.int8


def buffer_of(space, family):
    opened = open_environment(Toy(space))
    changes = {"model": family, "utility": "marginal", "explore.episodes": 40, "clock": False}
    return OneSeed(spec_of(opened.made, time_limit=1000), changed(NeuralE3Config(), changes))
