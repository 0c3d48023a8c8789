"""What every dynamics family is: a network whose prediction can be drawn from, compared and scored."""

from abc import abstractmethod
from typing import NamedTuple

import equinox as eqx
from jaxtyping import Array, Float, Int, Shaped

from e3rl.replay import Transitions


class Prediction(NamedTuple):
    """M(· | s, a): the mean of the next observation, the mean reward, the chance that the episode ends."""

    obs: Float[Array, "..."]
    reward: Float[Array, "..."]
    termination: Float[Array, "..."]


class AbstractDynamics(eqx.Module):
    """One member of the ensemble; `jax.vmap` gives minibatches and members.

    It takes one observation [D], or K particles as the columns of a matrix [D, K]: weights @ columns is twice as fast
    on a CPU as what `vmap` over particles compiles to, and planning is little else.
    """

    @abstractmethod
    def __call__(
        self, obs: Shaped[Array, "D *K"], action: Int[Array, ""], time: Int[Array, ""]
    ) -> Prediction: ...

    @abstractmethod
    def draw(self, prediction: Prediction, uniform: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        """A next observation by inverse transform of uniform noise, so that members can share their noise."""

    @abstractmethod
    def loss(self, row: Transitions) -> Float[Array, ""]:
        """−log P_M(s', r, end | s, a) of one transition (section 4.1), up to constants."""

    @abstractmethod
    def prior_deviation(self) -> "AbstractDynamics":
        """The standard deviation with which each weight was drawn, in the shape of the weights."""
