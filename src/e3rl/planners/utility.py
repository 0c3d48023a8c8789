"""What a step is worth: disagreement of the models while exploring, predicted reward while exploiting (section 2).

Every planner is handed one of these, and nobody else says what a disagreement is.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from e3rl.models.base import Prediction
from e3rl.runs.settings import Settings, setting


def total_variation(p: Any, q: Any) -> Any:
    """‖p − q‖_TV as in section 3 and appendix A: sup over |f| ≤ 1, that is Σ|p − q| without the ½.

    Over the last axis, of JAX arrays or of NumPy's (whose precision it keeps).
    """
    return abs(p - q).sum(axis=-1)


def empirical_total_variation(particles: Shaped[Array, "E D K"]) -> Float[Array, "E E"]:
    """‖P̂_e − P̂_e'‖_TV of the joint empirical distributions of every two members' K particles (App. B.2.2).

    Of distributions p and q it is 2 E_{x~p} max(0, 1 − q(x)/p(x)): how often a particle is found among those of one
    member, and how often among the other's.
    """
    if jnp.issubdtype(particles.dtype, jnp.integer):  # bits, eight of which are compared at once
        particles = jnp.packbits(particles.astype(jnp.uint8), axis=1)
    whole = jnp.moveaxis(particles, 1, -1)
    same = jnp.all(whole[:, :, None, None] == whole, axis=-1)
    found = jnp.sum(same, axis=-1, dtype=jnp.float32)  # [E, K, E]: of a particle among every member's
    own = jnp.moveaxis(jnp.diagonal(found, axis1=0, axis2=2), -1, 0)[..., None]
    return 2.0 * jnp.mean(jax.nn.relu(1.0 - found / own), axis=1)


def looks_at_particles(
    utility: Callable[[Prediction], Float[Array, ""]], members: int, shape: tuple[int, ...]
) -> bool:
    """Whether particles matter to it, where there are some, beyond their means."""

    def of(particles: Array) -> Float[Array, ""]:
        each = jnp.zeros(members)
        return utility(Prediction(jnp.zeros((members, *shape)), each, each, particles=particles))

    traced = jax.make_jaxpr(of)(jax.ShapeDtypeStruct((members, *shape, 2), jnp.int8)).jaxpr
    return any(used is traced.invars[0] for equation in traced.eqns for used in equation.invars)


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


class Joint(PairwiseUtility):
    """The TV of the joint empirical distributions of tree search's particles, as the text of App. B.2.2 has it.

    Of chances it has no closed form. There it is 2 (1 − Π_i (1 − |p − p'|)), which bounds it: the chance that two draws
    with the same dice differ. That is also what particles come to that share their dice and of which no two are alike.
    """

    of_probabilities: ClassVar[bool] = True

    def pairs(
        self, p: Float[Array, "E 1 D"], q: Float[Array, "1 E D"], rewards: Float[Array, "E E"]
    ) -> Float[Array, "E E"]:
        return 2.0 * (1.0 - jnp.prod(1.0 - jnp.abs(p - q), axis=-1)) + jnp.abs(rewards) * self.reward_scale

    def disagreement(self, predicted: Prediction) -> Float[Array, ""]:
        if predicted.particles is None:
            return super().disagreement(predicted)
        members, *_, draws = predicted.particles.shape
        apart = empirical_total_variation(predicted.particles.reshape(members, -1, draws))
        rewards = predicted.reward[:, None] - predicted.reward[None, :]
        return jnp.max(apart + jnp.abs(rewards) * self.reward_scale)


class Squared(PairwiseUtility):
    """‖s_e − s_e'‖²₂ + reward_scale · (r_e − r_e')² of the predicted means, the explore utility of Appendix B.2.1."""

    def pairs(
        self, p: Float[Array, "E 1 D"], q: Float[Array, "1 E D"], rewards: Float[Array, "E E"]
    ) -> Float[Array, "E E"]:
        apart = jnp.sum((p - q) ** 2, axis=-1)
        return apart + self.reward_scale * rewards**2 if self.reward_scale > 0.0 else apart
