"""Multivariate Bernoulli dynamics for binary observations: the combination lock's model (sections 4.1 and 5.1)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Shaped

from e3rl.draws import normals
from e3rl.envs.encoding import Encoding
from e3rl.models.base import (
    RARELY_ENDS,
    AbstractFamily,
    DiceTelling,
    ManySteps,
    Prediction,
    Problem,
    heeded,
    kinds_of,
)
from e3rl.replay import Transitions
from e3rl.runs.settings import setting
from e3rl.types import Key

Conditioning = Literal["input", "gate"]


class Weights(eqx.Module):
    """What is learned. The first layer is one matrix over (observation, one-hot action, one-hot time) kept in blocks,
    so that a one-hot input costs a row lookup instead of a product."""

    observe: Float[Array, "width D"]
    bias: Float[Array, " width"]
    act: Float[Array, "A width"] | None
    clock: Float[Array, "H width"] | None
    gate: Float[Array, "H A width"] | None
    hidden: Float[Array, "width width"]
    hidden_bias: Float[Array, " width"]
    head: Float[Array, "outputs width"]
    head_bias: Float[Array, " outputs"]


class BernoulliDynamics(DiceTelling):
    """Two hidden ReLU layers from (observation, action, time step) to the chance of each bit of the next observation.

    `conditioning="input"` feeds action and time step as one-hot inputs, as the paper's code does. `"gate"` multiplies a
    learned vector for each (time step, action) into the first hidden layer, the way appendix C.3 embeds actions: a pair
    that was never tried keeps its random gate, so members go on disagreeing about it whatever is learned elsewhere.
    """

    draws_bits: ClassVar[bool] = True
    weights: Weights
    heeds: Bool[Array, " D"] | None
    noise_shape: tuple[int, ...] = eqx.field(static=True)
    mean_over_bits: bool = eqx.field(static=True)
    reward_weight: float = eqx.field(static=True)

    def __init__(
        self,
        bits: int,
        actions: int,
        horizon: int,
        width: int = 64,
        conditioning: Conditioning = "gate",
        mean_over_bits: bool = False,
        reward_weight: float = 0.5,
        *,
        key: Key,
    ):
        self.noise_shape = (bits,)
        self.mean_over_bits = mean_over_bits
        self.reward_weight = reward_weight
        gated = conditioning == "gate"
        shapes = {
            "observe": (width, bits),
            "bias": (width,),
            "act": None if gated else (actions, width),
            "clock": None if gated else (horizon, width),
            "gate": (horizon, actions, width) if gated else None,
            "hidden": (width, width),
            "hidden_bias": (width,),
            "head": (bits + 2, width),
            "head_bias": (bits + 2,),
        }
        deviation = _deviations(width, bits, gated)
        keys = dict(zip(shapes, jax.random.split(key, len(shapes)), strict=True))
        drawn = normals(keys, {name: shape for name, shape in shapes.items() if shape is not None})
        scaled = {name: deviation[name] * drawn[name] if name in drawn else None for name in shapes}
        self.weights = Weights(**scaled)  # type: ignore[arg-type]
        self.heeds = None

    def __call__(self, obs: Shaped[Array, " D"], action: Int[Array, ""], time: Int[Array, ""]) -> Prediction:
        return self.columns(obs, action, time)

    def columns(self, obs: Shaped[Array, "D *K"], action: Int[Array, ""], time: Int[Array, ""]) -> Prediction:
        out = self._outputs(obs, action, time)
        return Prediction(jax.nn.sigmoid(out[:-2]), out[-2], jax.nn.sigmoid(out[-1]))

    def _outputs(
        self, obs: Shaped[Array, "D *K"], action: Int[Array, ""], time: Int[Array, ""]
    ) -> Float[Array, "outputs *K"]:
        """Logits of the bits, the reward, the logit of termination."""
        w = self.weights

        def column(vector: Float[Array, " n"]) -> Float[Array, "n *ones"]:
            return vector.reshape(-1, *[1] * (obs.ndim - 1))

        x = w.observe @ heeded(obs.astype(jnp.float32) - 0.5, self.heeds)
        if w.gate is None:
            assert w.act is not None
            assert w.clock is not None
            x = jax.nn.relu(x + column(w.bias + w.act[action] + w.clock[time]))
        else:
            x = jax.nn.relu(x + column(w.bias)) * column(w.gate[time, action])
        x = jax.nn.relu(w.hidden @ x + column(w.hidden_bias))
        return w.head @ x + column(w.head_bias.at[-1].add(RARELY_ENDS))

    def draw(self, prediction: Prediction, uniform: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        return (uniform < prediction.obs).astype(jnp.float32)

    def draw_columns(self, prediction: Prediction, uniform: Float[Array, "D *K"]) -> Float[Array, "D *K"]:
        return self.draw(prediction, uniform)

    def many_steps(self, particles: int) -> ManySteps | None:
        if jax.default_backend() != "gpu":
            return None
        from e3rl.models.bernoulli_steps import BernoulliSteps, fits  # Pallas takes a while to import

        _, width, bits = self.weights.observe.shape
        return BernoulliSteps(self, particles) if fits(bits, width) else None

    def most_likely(self, prediction: Prediction) -> Float[Array, "D *K"]:
        return jnp.round(prediction.obs)

    def loss(
        self, obs: Shaped[Array, " D"], row: Transitions, key: Key
    ) -> tuple[Float[Array, ""], Float[Array, " D"]]:
        out = self._outputs(obs, row.action, row.time)
        bits, rest = self._losses(out, row)
        observation = jnp.mean(bits) if self.mean_over_bits else jnp.sum(bits)
        return observation + rest, jax.nn.sigmoid(out[:-2])

    def entry_losses(
        self, obs: Float[Array, " D"], row: Transitions
    ) -> tuple[Float[Array, " D"], Float[Array, ""]]:
        return self._losses(self._outputs(obs, row.action, row.time), row)

    def mean_losses(self, mean: Float[Array, " D"], row: Transitions) -> Float[Array, " D"]:
        return -jnp.log(jnp.where(row.next_obs > 0.5, mean, 1.0 - mean))

    def _losses(
        self, out: Float[Array, " outputs"], row: Transitions
    ) -> tuple[Float[Array, " D"], Float[Array, ""]]:
        """Of every bit, and of reward and termination."""
        logits, reward, ending = out[:-2], out[-2], out[-1]
        bits = jax.nn.softplus(logits) - row.next_obs.astype(jnp.float32) * logits
        end = jax.nn.softplus(ending) - row.terminated.astype(jnp.float32) * ending
        return bits, self.reward_weight * (reward - row.reward) ** 2 + end

    def prior_deviation(self) -> "BernoulliDynamics":
        width, bits = self.weights.observe.shape
        deviation = _deviations(width, bits, self.weights.gate is not None)
        filled = {
            name: None if weight is None else jnp.full_like(weight, deviation[name])
            for name, weight in vars(self.weights).items()
        }
        return eqx.tree_at(lambda model: model.weights, self, Weights(**filled))  # type: ignore[arg-type]


def _deviations(width: int, bits: int, gated: bool) -> dict[str, float]:
    """Standard deviation of each block's initial weights: unit variance into every layer, twice that after a ReLU.

    Bits count as ±½, a one-hot block as its single active input.
    """
    shared = 1.0 if gated else 3**-0.5  # observation, action and time step share the first layer's variance
    return {
        "observe": shared * (bits / 4) ** -0.5,
        "bias": shared,
        "act": shared,
        "clock": shared,
        "gate": 1.0,
        "hidden": (2 / width) ** 0.5,
        "hidden_bias": 0.1,
        "head": (2 / width) ** 0.5,
        "head_bias": 0.1,
    }


@dataclass(frozen=True)
class Bernoulli(AbstractFamily):
    """For binary vectors, each bit with a chance of its own."""

    of_probabilities: ClassVar[bool] = True
    calibrated: ClassVar[bool] = True
    tells_dice: ClassVar[bool] = True

    hidden: int = setting(64, "Hidden layer size (App. C.1: 50)", at_least=1)
    conditioning: Conditioning = setting(
        "gate",
        'How dynamics take action and time step: one-hot "input" as in the paper\'s code, or "gate" as in App. C.3',
    )
    mean_over_bits: bool = setting(
        False,
        "Average the observation's log-likelihood over its bits, as the paper's code does, instead of summing",
    )
    reward_weight: float = setting(
        0.5,
        "Of the reward's squared error beside the observation's log-likelihood: ½ is a likelihood too; 1 is the "
        "paper's code",
        before=0.5,
    )

    @staticmethod
    def natural(encoding: Encoding) -> bool:
        return len(encoding.shape) == 1 and kinds_of(encoding) == {"binary"}

    @staticmethod
    def refuses(encoding: Encoding) -> str | None:
        return None if Bernoulli.natural(encoding) else "binary vectors"

    def make(self, problem: Problem) -> Callable[[Key], BernoulliDynamics]:
        steps = problem.horizon if problem.clock else 1
        return lambda key: BernoulliDynamics(
            problem.entries,
            problem.actions,
            steps,
            width=self.hidden,
            conditioning=self.conditioning,
            mean_over_bits=self.mean_over_bits,
            reward_weight=self.reward_weight,
            key=key,
        )

    def loss_terms(self, entries: int) -> int:
        return 1 if self.mean_over_bits else entries
