"""What an agent must know of an environment before it meets it."""

from dataclasses import dataclass, field
from typing import Any

import gymnasium

from e3rl.envs.adapter import CHECKING_WRAPPERS, GymnasiumEnvironment
from e3rl.envs.base import AbstractEnvironment
from e3rl.envs.encoding import Encoding

SHORT = 100
"""Steps up to which a problem of bits may hide the time step."""
DEFAULT_TIME_LIMIT = 1000
"""Steps after which an episode is cut where neither the environment nor the caller sets a limit."""

# Under these the environment still pays its own rewards.
_SAME_REWARDS = (*CHECKING_WRAPPERS, gymnasium.wrappers.TimeLimit, gymnasium.ObservationWrapper)


@dataclass(frozen=True)
class Spec:
    """An environment seen from outside. Those that are equal can share compiled programs."""

    name: str = field(compare=False)
    """Its id where it has one, otherwise its class."""
    encoding: Encoding
    """How its observations become arrays."""
    actions: int
    """A: they count from 0."""
    horizon: int
    """H: steps after which an episode is cut, whoever cuts it."""
    optimal_return: float | None = field(default=None, compare=False)
    """The expected return of the best policy, None where it is not known."""

    @property
    def may_hide_time(self) -> bool:
        """Whether this is a short problem of bits: in some of them, as in the lock, what is best depends on a time step
        that is not shown."""
        binary = all(part.kind == "binary" for part in self.encoding.parts)
        return binary and len(self.encoding.shape) == 1 and self.horizon <= SHORT


def spec_of(
    made: AbstractEnvironment | GymnasiumEnvironment, name: str | None = None, time_limit: int | None = None
) -> Spec:
    """The spec of an environment, under a name of the caller's and cut by a limit of the caller's if there are any."""
    limits = [limit for limit in (made.time_limit, time_limit) if limit is not None]
    horizon = min(limits, default=DEFAULT_TIME_LIMIT)
    if isinstance(made, AbstractEnvironment):
        name, encoding = name or type(made).__name__, Encoding(made.observation_space)
    else:
        name, encoding = name or made.name, made.encoding
    return Spec(name, encoding, made.num_actions, horizon, _optimal_return(made))


def _optimal_return(made: AbstractEnvironment | GymnasiumEnvironment) -> float | None:
    core: Any = made
    if isinstance(made, GymnasiumEnvironment):
        core = made.env
        while isinstance(core, _SAME_REWARDS):
            core = core.env
    # Wrappers answer only for themselves, and the mazes' optimum is a function: no two of them are alike.
    optimum = getattr(core, "optimal_return", None)
    return optimum if isinstance(optimum, float) else None
