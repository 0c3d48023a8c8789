"""Random network distillation (Burda et al. 2019), the bonus of PPO+RND: what cannot be predicted is new."""

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from e3rl.baselines.bonus import AbstractBonus, AbstractStream
from e3rl.baselines.networks import Network
from e3rl.baselines.normalise import Moments, ReturnScale
from e3rl.runs.settings import setting
from e3rl.types import Key


class Novelty(NamedTuple):
    """What the bonus keeps beside its trained predictor."""

    target: Network
    """A random network that never changes; the predictor learns to say what it says."""
    obs: Moments
    scale: ReturnScale
    ended: Bool[Array, " n"]
    """Whether the last rollout's last step ended its episode, so that the next row is a beginning."""


@dataclass(frozen=True)
class Rnd(AbstractBonus):
    """Random network distillation."""

    coefficient: float = setting(1.0, 'App. C.1 and C.3: "Intrinsic Reward coefficient", on advantages')
    discount: float = setting(0.99, "γ_I (App. C.1 and C.3)", at_most=1)
    embedding: int = setting(64, "Outputs of the random network", at_least=1)
    predictor_share: float = setting(1.0, "Share of the samples that trains the predictor", at_most=1)
    obs_clip: float = setting(5.0, "Normalised observations of the networks stay within ± this", above=0)

    def stream(self, width: int, maps: int, copies: int) -> "RandomDistillation":
        return RandomDistillation(self, width, maps, copies)


class RandomDistillation(AbstractStream):
    """Intrinsic reward: the squared error of a trained network's guess of a fixed random network's output.

    Observations are brought to mean 0 and deviation 1 and clipped; rewards are divided by the running deviation of
    their discounted sum.
    """

    settings: Rnd = eqx.field(static=True)
    width: int = eqx.field(static=True)
    maps: int = eqx.field(static=True)
    copies: int = eqx.field(static=True)

    @property
    def coefficient(self) -> float:
        return self.settings.coefficient

    @property
    def discount(self) -> float:
        return self.settings.discount

    def init(self, key: Key, shape: tuple[int, ...]) -> tuple[Network, Novelty]:
        """The predictor, one hidden layer deeper than what it predicts, and the rest."""
        k_target, k_predictor = jax.random.split(key)
        predictor, target = (
            Network(
                shape,
                ((self.settings.embedding, 1.0),),
                self.width,
                depth,
                self.maps,
                jax.nn.leaky_relu,
                key=k,
            )
            for k, depth in ((k_predictor, 3), (k_target, 2))
        )
        ended = jnp.ones(self.copies, bool)
        return predictor, Novelty(target, Moments.empty(shape), ReturnScale.empty(self.copies), ended)

    def error(self, predictor: Network, novelty: Novelty, obs: Float[Array, "N *obs"]) -> Float[Array, " N"]:
        """Mean squared difference of prediction and target."""
        seen = novelty.obs.normalise(obs, self.settings.obs_clip)
        target = jax.lax.stop_gradient(jax.vmap(novelty.target)(seen))
        return jnp.mean(jnp.square(jax.vmap(predictor)(seen) - target), axis=-1)

    def reward(
        self, predictor: Network, novelty: Novelty, next_obs: Shaped[Array, "T n *obs"]
    ) -> tuple[Float[Array, "T n"], Novelty]:
        """The normalised bonus of every step, for where it led; statistics take this rollout in first."""
        steps, copies = next_obs.shape[:2]
        novelty = novelty._replace(obs=novelty.obs.update(next_obs))
        flat = next_obs.reshape(steps * copies, *next_obs.shape[2:])
        bonus = self.error(predictor, novelty, flat).reshape(steps, copies)
        scale = novelty.scale.update(bonus, self.discount)
        return scale.normalise(bonus), novelty._replace(scale=scale)

    def loss(
        self, predictor: Network, novelty: Novelty, obs: Float[Array, "N *obs"], key: Key
    ) -> Float[Array, ""]:
        """The predictor's mean error over the samples that train it."""
        chosen = jax.random.bernoulli(key, self.settings.predictor_share, (obs.shape[0],)).astype(jnp.float32)
        error = self.error(predictor, novelty, obs)
        return jnp.sum(error * chosen) / jnp.maximum(jnp.sum(chosen), 1.0)
