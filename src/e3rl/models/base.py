"""What every dynamics family is: a network whose prediction can be drawn from, compared and scored."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt32

from e3rl.envs.encoding import Encoding
from e3rl.envs.spec import Spec
from e3rl.replay import Transitions
from e3rl.runs.settings import Settings
from e3rl.types import Key, Keys

RARELY_ENDS = -5.0
"""Logit of termination before anything is learned: a state never seen is not assumed to end the episode."""


class Prediction(NamedTuple):
    """M(· | s, a): the mean of the next observation, the mean reward, the chance that the episode ends."""

    obs: Float[Array, "..."]
    reward: Float[Array, "..."]
    termination: Float[Array, "..."]
    detail: Any = ()
    """What `draw` needs beyond the mean, arrays of the family's own choosing."""
    particles: Shaped[Array, "..."] | None = None
    """Draws of the next observation on a last axis K, where a planner has some and asks what they are worth."""


def within_bounds(obs: Float[Array, "..."]) -> Float[Array, "..."]:
    """Observations are scaled to [0, 1], and imagination has to stay there: beyond it models know nothing, disagree
    about everything, and a planner would have eyes for nothing else."""
    return jnp.clip(obs, 0.0, 1.0)


class Taken(NamedTuple):
    """What became of an ensemble's particles: where the first step led, and means over them at every step."""

    after: Shaped[Array, "E ..."]
    drawn: Float[Array, "T E D"]
    believed: Prediction


class ManySteps(ABC):
    """An ensemble whose particles take many steps in one program of a device, and are held there as it likes."""

    @abstractmethod
    def hold(self, obs: Shaped[Array, " D"]) -> Shaped[Array, "E ..."]:
        """All particles at one observation."""

    @abstractmethod
    def shown(self, held: Shaped[Array, "E ..."]) -> Shaped[Array, "E D K"]:
        """The particles as planners know them."""

    @abstractmethod
    def take(
        self,
        held: Shaped[Array, "E ..."],
        actions: Int[Array, " T"],
        time: Int[Array, ""],
        dice: UInt32[Array, "T 2"],
        first: UInt32[Array, " T"],
        own: bool,
        count: Int[Array, ""],
    ) -> Taken:
        """The first `count` of these steps, at least one, with the noise of `uniform_noise` for the keys `dice`: the
        numbers from `first` on, of which every member has its `own` or all share the same. Means of steps that were not
        taken are 0."""


class AbstractDynamics(eqx.Module):
    """One member of the ensemble; `jax.vmap` gives minibatches and members. Observations are scaled to [0, 1]."""

    draws_bits: ClassVar[bool] = False
    """Whether what `draw` returns is made of zeros and ones, which take a byte each where many are kept."""
    noise_shape: eqx.AbstractVar[tuple[int, ...]]
    """Shape of the uniform noise that `draw` turns into one next observation; (0,) for deterministic dynamics."""

    @abstractmethod
    def __call__(
        self, obs: Shaped[Array, "*obs"], action: Int[Array, ""], time: Int[Array, ""]
    ) -> Prediction: ...

    @abstractmethod
    def draw(self, prediction: Prediction, uniform: Float[Array, "*noise"]) -> Float[Array, "*obs"]:
        """A next observation by inverse transform of uniform noise, so that members can share their noise."""

    def most_likely(self, prediction: Prediction) -> Float[Array, "*obs"]:
        """The one next observation that stands for the prediction where planning takes dynamics for deterministic."""
        return prediction.obs

    @abstractmethod
    def loss(
        self, obs: Float[Array, "*obs"], row: Transitions, key: Key
    ) -> tuple[Float[Array, ""], Float[Array, "*obs"]]:
        """−log P_M(s', r, end | s, a) of one transition (section 4.1), up to constants, when `obs` stands for s: the
        observation itself or, unrolled (App. B.1), the model's own prediction of it. With it the predicted mean of s'.
        """

    def losses(
        self, obs: Float[Array, "B *obs"], rows: Transitions, keys: Keys
    ) -> tuple[Float[Array, " B"], Float[Array, "B *obs"]]:
        """`loss` of a large minibatch. Families whose layers are matrix products may override this: with a hundred rows
        and more, rows as columns are faster on a CPU than what `vmap` compiles to."""
        return jax.vmap(self.loss)(obs, rows, keys)

    @abstractmethod
    def prior_deviation(self) -> "AbstractDynamics":
        """The standard deviation with which each weight was drawn, in the shape of the weights."""

    def columns(
        self, obs: Shaped[Array, "*obs K"], action: Int[Array, ""], time: Int[Array, ""]
    ) -> Prediction:
        """The predictions for K particles on the last axis. Families whose layers are matrix products override this:
        weights @ columns is twice as fast on a CPU as what `vmap` compiles to, and tree search is little else."""
        return jax.vmap(self, in_axes=(-1, None, None), out_axes=-1)(obs, action, time)

    def draw_columns(
        self, prediction: Prediction, uniform: Float[Array, "*noise K"]
    ) -> Float[Array, "*obs K"]:
        return jax.vmap(self.draw, in_axes=(-1, -1), out_axes=-1)(prediction, uniform)

    def many_steps(self, particles: int) -> "ManySteps | None":
        """Of an ensemble (all arrays with a leading axis of members), for that many particles each: what takes many
        steps in one program of this device, if anything does."""
        return None

    def every_action(self, obs: Shaped[Array, "*obs"], time: Int[Array, ""], actions: int) -> Prediction:
        """The predictions for one state and each of `actions` actions, on a leading axis."""
        return jax.vmap(self, in_axes=(None, 0, None))(obs, jnp.arange(actions, dtype=jnp.int32), time)


class DiceTelling(AbstractDynamics):
    """One whose loss is by entry, so that entries that are dice can be found (`models/dice.py`)."""

    heeds: eqx.AbstractVar[Bool[Array, " D"] | None]
    """The entries that it looks at; None for all."""

    @abstractmethod
    def entry_losses(
        self, obs: Float[Array, " D"], row: Transitions
    ) -> tuple[Float[Array, " D"], Float[Array, ""]]:
        """`loss` by entry of the next observation, and the rest of it."""

    @abstractmethod
    def mean_losses(self, mean: Float[Array, " D"], row: Transitions) -> Float[Array, " D"]:
        """The loss of every entry if its mean were predicted always."""


def heeded(centred: Float[Array, "D *K"], heeds: Bool[Array, " D"] | None) -> Float[Array, "D *K"]:
    """A network's inputs, less those that it does not look at. The fewer are left, the more each of them counts, so
    that they come to the variance for which the first layer was drawn."""
    if heeds is None:
        return centred
    left = jnp.maximum(jnp.sum(heeds, dtype=jnp.float32), 1.0) / heeds.shape[0]
    return jnp.where(heeds.reshape(-1, *[1] * (centred.ndim - 1)), centred / jnp.sqrt(left), 0.0)


@dataclass(frozen=True)
class Problem:
    """What networks and planners are made for: an environment, and whether they see the time step."""

    spec: Spec
    clock: bool
    """Values, and the models of families that can, see the time step; otherwise they are the same at every step."""

    @property
    def shape(self) -> tuple[int, ...]:
        return self.spec.encoding.shape

    @property
    def entries(self) -> int:
        return math.prod(self.shape)

    @property
    def actions(self) -> int:
        return self.spec.actions

    @property
    def horizon(self) -> int:
        return self.spec.horizon


@dataclass(frozen=True)
class AbstractFamily(Settings):
    """A kind of dynamics with its settings (section 4.1)."""

    of_probabilities: ClassVar[bool] = False
    """Whether a prediction's mean is made of chances, as distances between distributions need."""
    tells_dice: ClassVar[bool] = False
    """Whether its loss is told by entry, so that entries that are dice can be found (`models/dice.py`)."""
    calibrated: ClassVar[bool] = False
    """Whether members' disagreement tells what was tried from what was not, by `e3rl bench calibration`, so that it can
    end exploration."""

    @staticmethod
    def natural(encoding: Encoding) -> bool:
        """Whether this is the family for such observations where nobody names one."""
        return False

    @staticmethod
    def refuses(encoding: Encoding) -> str | None:
        """What the family is for, where these observations are not that."""
        return None if len(encoding.shape) == 1 else "vectors"

    @abstractmethod
    def make(self, problem: Problem) -> Callable[[Key], AbstractDynamics]:
        """Makes a member of the ensemble from its key."""

    def loss_terms(self, entries: int) -> int:
        """How many entries of an observation the loss adds up: what the weight of a prior counts in."""
        return entries


def kinds_of(encoding: Encoding) -> set[str]:
    return {part.kind for part in encoding.parts}
