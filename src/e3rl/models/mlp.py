"""Deterministic dynamics for vectors: the network of appendix C.3."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from e3rl.envs.encoding import Encoding
from e3rl.models.base import RARELY_ENDS, AbstractDynamics, AbstractFamily, Prediction, Problem, kinds_of
from e3rl.models.layers import CHANGE, GatedNetwork, Outputs
from e3rl.replay import Transitions
from e3rl.runs.settings import setting
from e3rl.types import Key, Keys


class MlpDynamics(AbstractDynamics):
    """Predicts the change of state, the reward and the logit of termination. States are taken for certain: the loss is
    the squared error, and nothing is left to draw."""

    network: GatedNetwork
    noise_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, entries: int, actions: int, width: int = 64, *, key: Key):
        self.network = GatedNetwork(entries, actions, width, entries + 2, key=key)
        self.noise_shape = (0,)

    def __call__(self, obs: Shaped[Array, " D"], action: Int[Array, ""], time: Int[Array, ""]) -> Prediction:
        return self.columns(obs, action, time)

    def columns(self, obs: Shaped[Array, "D *K"], action: Int[Array, ""], time: Int[Array, ""]) -> Prediction:
        return self.outputs(obs, action).prediction()

    def every_action(self, obs: Shaped[Array, " D"], time: Int[Array, ""], actions: int) -> Prediction:
        predicted = self._split(obs[:, None], self.network.every_action(obs - 0.5)).prediction()
        return predicted._replace(obs=predicted.obs.T)

    def outputs(
        self, obs: Float[Array, "D *K"], action: Int[Array, ""], context: Float[Array, "n *K"] | None = None
    ) -> Outputs:
        return self._split(obs, self.network(obs - 0.5, action, context))

    def _split(self, obs: Float[Array, "D *ones"], out: Float[Array, "outputs *K"]) -> Outputs:
        return Outputs(obs + CHANGE * out[:-2], out[-2], out[-1] + RARELY_ENDS)

    def draw(self, prediction: Prediction, uniform: Float[Array, "0 *K"]) -> Float[Array, "D *K"]:
        return prediction.obs

    def draw_columns(self, prediction: Prediction, uniform: Float[Array, "0 *K"]) -> Float[Array, "D *K"]:
        return prediction.obs

    def loss(
        self, obs: Float[Array, " D"], row: Transitions, key: Key
    ) -> tuple[Float[Array, ""], Float[Array, " D"]]:
        out = self.outputs(obs, row.action)
        error = jnp.sum((out.obs - row.next_obs) ** 2) / CHANGE**2
        return error + out.surprise(row), out.obs

    def losses(
        self, obs: Float[Array, "B D"], rows: Transitions, keys: Keys
    ) -> tuple[Float[Array, " B"], Float[Array, "B D"]]:
        out = self._split(obs.T, self.network.each(obs.T - 0.5, rows.action))
        error = jnp.sum((out.obs - rows.next_obs.T) ** 2, axis=0) / CHANGE**2
        return error + out.surprise(rows), out.obs.T

    def prior_deviation(self) -> "MlpDynamics":
        return eqx.tree_at(lambda model: model.network, self, self.network.prior_deviation())


@dataclass(frozen=True)
class Mlp(AbstractFamily):
    """For vectors of numbers whose next value is certain."""

    calibrated: ClassVar[bool] = True

    hidden: int = setting(64, "Hidden layer size (App. C.3: 64)", at_least=1)

    @staticmethod
    def natural(encoding: Encoding) -> bool:
        return len(encoding.shape) == 1 and kinds_of(encoding) == {"continuous"}

    def make(self, problem: Problem) -> Callable[[Key], MlpDynamics]:
        return lambda key: MlpDynamics(problem.entries, problem.actions, self.hidden, key=key)
