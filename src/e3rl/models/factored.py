"""Dynamics for observations of mixed kind: one distribution per part of the encoding."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from e3rl.envs.encoding import Encoding, Part
from e3rl.models.base import RARELY_ENDS, AbstractDynamics, AbstractFamily, Prediction, Problem, kinds_of
from e3rl.models.layers import CHANGE, GatedNetwork, Outputs
from e3rl.replay import Transitions
from e3rl.runs.settings import setting
from e3rl.types import Key


class FactoredDynamics(AbstractDynamics):
    """The gated network of appendix C.3 with a head for each part: a chance for a binary entry, a softmax for a
    categorical variable, the change for a continuous entry. Parts are independent given state and action."""

    network: GatedNetwork
    parts: tuple[Part, ...] = eqx.field(static=True)
    noise_shape: tuple[int, ...] = eqx.field(static=True)

    def __init__(self, parts: tuple[Part, ...], actions: int, width: int = 64, *, key: Key):
        entries = parts[-1].stop
        self.network = GatedNetwork(entries, actions, width, entries + 2, key=key)
        self.parts = parts
        self.noise_shape = (sum(_draws(part) for part in parts),)

    def __call__(self, obs: Shaped[Array, " D"], action: Int[Array, ""], time: Int[Array, ""]) -> Prediction:
        return self.columns(obs, action, time)

    def columns(self, obs: Shaped[Array, "D *K"], action: Int[Array, ""], time: Int[Array, ""]) -> Prediction:
        return self._means(obs, self.network(self._inputs(obs), action)).prediction()

    def every_action(self, obs: Shaped[Array, " D"], time: Int[Array, ""], actions: int) -> Prediction:
        out = self.network.every_action(self._inputs(obs))
        predicted = self._means(obs[:, None], out).prediction()
        return predicted._replace(obs=predicted.obs.T)

    def _inputs(self, obs: Shaped[Array, "D *K"]) -> Float[Array, "D *K"]:
        """What the network sees: a one-hot as its single active entry rather than centred, and every part with the same
        say, however many entries it has."""
        centre, weight = np.zeros(obs.shape[0], np.float32), np.zeros(obs.shape[0], np.float32)
        for part in self.parts:
            entries = slice(part.start, part.stop)
            one_hot = part.kind == "categorical"
            centre[entries] = 0.0 if one_hot else 0.5
            # The network draws weights for entries with variance 1/12 that share one unit between them.
            size = 1.0 if one_hot else (part.stop - part.start) / 12
            weight[entries] = (obs.shape[0] / 12 / len(self.parts) / size) ** 0.5
        column = (-1, *[1] * (obs.ndim - 1))
        return (obs - centre.reshape(column)) * weight.reshape(column)

    def _means(self, obs: Float[Array, "D *ones"], out: Float[Array, "outputs *K"]) -> Outputs:
        means = []
        for part in self.parts:
            entries = out[part.start : part.stop]
            match part.kind:
                case "binary":
                    means.append(jax.nn.sigmoid(entries))
                case "categorical":
                    means.append(jax.nn.softmax(entries, axis=0))
                case "continuous":
                    means.append(obs[part.start : part.stop] + CHANGE * entries)
        return Outputs(jnp.concatenate(means), out[-2], out[-1] + RARELY_ENDS)

    def draw(self, prediction: Prediction, uniform: Float[Array, "n *K"]) -> Float[Array, "D *K"]:
        drawn, used = [], 0
        for part in self.parts:
            chance = prediction.obs[part.start : part.stop]
            noise = uniform[used : used + _draws(part)]
            used += _draws(part)
            match part.kind:
                case "binary":
                    drawn.append((noise < chance).astype(jnp.float32))
                case "categorical":
                    passed = jnp.sum(jnp.cumsum(chance[:-1], axis=0) <= noise, axis=0)
                    drawn.append(jax.nn.one_hot(passed, chance.shape[0], axis=0))
                case "continuous":
                    drawn.append(chance)
        return jnp.concatenate(drawn)

    def draw_columns(self, prediction: Prediction, uniform: Float[Array, "n *K"]) -> Float[Array, "D *K"]:
        return self.draw(prediction, uniform)

    def most_likely(self, prediction: Prediction) -> Float[Array, "D *K"]:
        chosen = []
        for part in self.parts:
            chance = prediction.obs[part.start : part.stop]
            match part.kind:
                case "binary":
                    chosen.append(jnp.round(chance))
                case "categorical":
                    chosen.append(jax.nn.one_hot(jnp.argmax(chance, axis=0), chance.shape[0], axis=0))
                case "continuous":
                    chosen.append(chance)
        return jnp.concatenate(chosen)

    def loss(
        self, obs: Shaped[Array, " D"], row: Transitions, key: Key
    ) -> tuple[Float[Array, ""], Float[Array, " D"]]:
        out = self.network(self._inputs(obs), row.action)
        means = self._means(obs, out)
        total = means.surprise(row)
        for part in self.parts:
            entries = slice(part.start, part.stop)
            logits, seen = out[entries], row.next_obs[entries]
            match part.kind:
                case "binary":
                    total += jnp.sum(jax.nn.softplus(logits) - seen * logits)
                case "categorical":
                    total += jax.nn.logsumexp(logits) - jnp.sum(seen * logits)
                case "continuous":
                    total += jnp.sum((means.obs[entries] - seen) ** 2) / CHANGE**2
        return total, means.obs

    def prior_deviation(self) -> "FactoredDynamics":
        return eqx.tree_at(lambda model: model.network, self, self.network.prior_deviation())


def _draws(part: Part) -> int:
    """How many uniform numbers it takes to draw the part."""
    return {"binary": part.stop - part.start, "categorical": 1, "continuous": 0}[part.kind]


@dataclass(frozen=True)
class Factored(AbstractFamily):
    """For vectors of mixed kind: bits, categories and numbers."""

    of_probabilities: ClassVar[bool] = True
    calibrated: ClassVar[bool] = True

    hidden: int = setting(64, "Hidden layer size", at_least=1)
    one_hot: bool = setting(
        False,
        "The observation, declared as bits or numbers, is one category: of its entries one is 1, the rest 0",
        before=False,
    )

    @staticmethod
    def natural(encoding: Encoding) -> bool:
        return len(encoding.shape) == 1 and kinds_of(encoding) not in ({"binary"}, {"continuous"})

    def make(self, problem: Problem) -> Callable[[Key], FactoredDynamics]:
        one = (Part("categorical", 0, problem.entries),)
        parts = one if self.one_hot else problem.spec.encoding.parts
        return lambda key: FactoredDynamics(parts, problem.actions, self.hidden, key=key)
