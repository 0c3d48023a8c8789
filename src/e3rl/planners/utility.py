"""What a step is worth: disagreement of the models while exploring, predicted reward while exploiting (section 2).

Every planner is handed one of these, and nobody else says what a disagreement is.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from e3rl.models.base import Prediction
from e3rl.runs.settings import Settings, setting


def total_variation(p: Any, q: Any) -> Any:
    """‖p − q‖_TV as in section 3 and appendix A: sup over |f| ≤ 1, that is Σ|p − q| without the ½.

    Over the last axis, of JAX arrays or of NumPy's (whose precision it keeps).
    """
    return abs(p - q).sum(axis=-1)


def mean_reward(predicted: Prediction) -> Float[Array, ""]:
    """R_exploit: the predicted reward averaged over the ensemble (App. B.2.2)."""
    return jnp.mean(predicted.reward)


@dataclass(frozen=True)
class AbstractUtility(Settings):
    """δ of section 2, and what it is good for. Predictions are those of one next state by every member, [E, …].

    Rewards are part of the state (section 2): a difference in predicted reward counts `reward_scale` times.
    """

    of_probabilities: ClassVar[bool] = False
    """Whether δ is between distributions and needs predictions that are chances."""

    reward_scale: float = setting(
        0.4, "Weight of a difference in predicted reward within δ; the paper's B.2.1 has 0"
    )
    caution: float = setting(0.05, "Exploiting, disagreement times this is taken off the predicted reward")

    @abstractmethod
    def disagreement(self, predicted: Prediction) -> Float[Array, ""]:
        """How far the members are apart about one next state."""

    def explore(self, predicted: Prediction) -> Float[Array, ""]:
        """R_explore of section 2."""
        return self.disagreement(predicted)

    def exploit(self, predicted: Prediction) -> Float[Array, ""]:
        """R_exploit, less what is not to be trusted."""
        reward = mean_reward(predicted)
        return reward - self.caution * self.disagreement(predicted) if self.caution > 0.0 else reward


class PairwiseUtility(AbstractUtility):
    """max_{e,e'} δ(P_e, P_e') over the pairs of an ensemble's predictions of one next state (App. B.2)."""

    @abstractmethod
    def pairs(
        self, p: Float[Array, "E 1 D"], q: Float[Array, "1 E D"], rewards: Float[Array, "E E"]
    ) -> Float[Array, "E E"]:
        """δ of every pair of members, with what they say of the next state and how far their rewards are apart."""

    def disagreement(self, predicted: Prediction) -> Float[Array, ""]:
        obs = predicted.obs.reshape(predicted.obs.shape[0], -1)
        rewards = predicted.reward[:, None] - predicted.reward[None, :]
        return jnp.max(self.pairs(obs[:, None], obs[None, :], rewards))


class Marginal(PairwiseUtility):
    """The sum over bits of the TV of the bit's two distributions, 2|p − p'|: the joint TV has no closed form."""

    def pairs(
        self, p: Float[Array, "E 1 D"], q: Float[Array, "1 E D"], rewards: Float[Array, "E E"]
    ) -> Float[Array, "E E"]:
        return 2.0 * total_variation(p, q) + jnp.abs(rewards) * self.reward_scale


class Mean(PairwiseUtility):
    """The mean over bits and reward of |p − p'|, as the paper's code has it."""

    of_probabilities: ClassVar[bool] = True

    def pairs(
        self, p: Float[Array, "E 1 D"], q: Float[Array, "1 E D"], rewards: Float[Array, "E E"]
    ) -> Float[Array, "E E"]:
        return (total_variation(p, q) + jnp.abs(rewards) * self.reward_scale) / (p.shape[-1] + 1)


class Hellinger(PairwiseUtility):
    """1 − Π_i (√(p p') + √((1−p)(1−p'))), the squared Hellinger distance of the joint distributions, between TV²/8 and
    TV/2."""

    of_probabilities: ClassVar[bool] = True

    def pairs(
        self, p: Float[Array, "E 1 D"], q: Float[Array, "1 E D"], rewards: Float[Array, "E E"]
    ) -> Float[Array, "E E"]:
        # The roots' derivative at 0 never matters here: utilities are not differentiated.
        affinity = jnp.sqrt(p * q) + jnp.sqrt((1.0 - p) * (1.0 - q))
        reward = jnp.abs(rewards) * self.reward_scale
        return 1.0 - jnp.prod(affinity, axis=-1) * jnp.exp(-(reward**2))


class Squared(PairwiseUtility):
    """‖s_e − s_e'‖²₂ + reward_scale · (r_e − r_e')² of the predicted means, the explore utility of Appendix B.2.1."""

    def pairs(
        self, p: Float[Array, "E 1 D"], q: Float[Array, "1 E D"], rewards: Float[Array, "E E"]
    ) -> Float[Array, "E E"]:
        apart = jnp.sum((p - q) ** 2, axis=-1)
        return apart + self.reward_scale * rewards**2 if self.reward_scale > 0.0 else apart
