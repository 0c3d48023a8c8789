"""What every dynamics family is: a network whose prediction can be drawn from, compared and scored."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Int, Shaped

from e3rl.replay import Transitions


class Prediction(NamedTuple):
    """M(· | s, a): the mean of the next observation, the mean reward, the chance that the episode ends."""

    obs: Float[Array, "*batch D"]
    reward: Float[Array, "*batch"]
    termination: Float[Array, "*batch"]


class AbstractDynamics(eqx.Module):
    """One member of the ensemble, unbatched: `jax.vmap` gives particles, minibatches and members."""

    @abstractmethod
    def __call__(
        self, obs: Shaped[Array, " D"], action: Int[Array, ""], time: Int[Array, ""]
    ) -> Prediction: ...

    @abstractmethod
    def draw(self, prediction: Prediction, uniform: Float[Array, " D"]) -> Float[Array, " D"]:
        """A next observation by inverse transform of uniform noise, so that members can share their noise."""

    @abstractmethod
    def loss(self, row: Transitions) -> Float[Array, ""]:
        """−log P_M(s', r, end | s, a) of one transition (section 4.1), up to constants."""

    @abstractmethod
    def prior_deviation(self) -> "AbstractDynamics":
        """The standard deviation with which each weight was drawn, in the shape of the weights."""
