"""Conditional variational autoencoder (Kingma & Welling 2014) for uncertain vectors and images (section 4.1)."""

from collections.abc import Callable
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int, Shaped

from e3rl.envs.encoding import Encoding
from e3rl.models.base import AbstractDynamics, AbstractFamily, Prediction, Problem
from e3rl.models.conv import HEAD, WINDOW, ConvDynamics, RewardHead, convolve
from e3rl.models.layers import CHANGE, SLOPE, GatedNetwork, draw_weights
from e3rl.models.mlp import MlpDynamics
from e3rl.replay import Transitions
from e3rl.runs.settings import setting
from e3rl.types import Key

TAIL = 1e-6
"""Uniform noise is kept this far from 0 and 1, where the normal quantile is infinite."""


class VectorEncoder(eqx.Module):
    """q(z | s, a, s') from the state and its change, by the gated network of appendix C.3."""

    network: GatedNetwork

    def __init__(self, entries: int, actions: int, width: int, outputs: int, *, key: Key):
        self.network = GatedNetwork(2 * entries, actions, width, outputs, key=key)

    def __call__(
        self, obs: Float[Array, " D"], action: Int[Array, ""], change: Float[Array, " D"]
    ) -> Float[Array, " outputs"]:
        return self.network(jnp.concatenate([obs - 0.5, change / CHANGE]), action)

    def prior_deviation(self) -> "VectorEncoder":
        return eqx.tree_at(lambda encoder: encoder.network, self, self.network.prior_deviation())


class ImageEncoder(eqx.Module):
    """q(z | s, a, s') from the frame and its change: a convolution, the maximum over the image, a linear layer."""

    look: Float[Array, "window maps"]
    look_bias: Float[Array, " maps"]
    act: Float[Array, "A maps"]
    out: Float[Array, "outputs maps"]
    out_bias: Float[Array, " outputs"]

    def __init__(self, channels: int, actions: int, maps: int, outputs: int, *, key: Key):
        shapes = {
            "look": (2 * WINDOW**2 * channels, maps),
            "look_bias": (maps,),
            "act": (actions, maps),
            "out": (outputs, maps),
            "out_bias": (outputs,),
        }
        for name, weight in draw_weights(shapes, _deviations(channels, maps), key).items():
            setattr(self, name, weight)

    def __call__(
        self, obs: Float[Array, "h w c"], action: Int[Array, ""], change: Float[Array, "h w c"]
    ) -> Float[Array, " outputs"]:
        seen = jnp.concatenate([obs - 0.5, change], axis=-1)
        x = jax.nn.leaky_relu(convolve(seen, self.look) + (self.look_bias + self.act[action]), SLOPE)
        return self.out @ jnp.max(x, axis=(0, 1)) + self.out_bias

    def prior_deviation(self) -> "ImageEncoder":
        window, maps = self.look.shape
        deviation = _deviations(window // (2 * WINDOW**2), maps)
        filled = [jnp.full_like(getattr(self, name), sd) for name, sd in deviation.items()]
        return eqx.tree_at(jax.tree.leaves, self, filled)


def _deviations(channels: int, maps: int) -> dict[str, float]:
    """Standard deviation of the image encoder's initial weights, in the order of its fields."""
    return {
        "look": (WINDOW**2 * channels / 4) ** -0.5,
        "look_bias": 0.1,
        "act": 1.0,
        "out": maps**-0.5,
        "out_bias": 0.1,
    }


class VaeDynamics(AbstractDynamics):
    """s' = decode(s, a, z) with z a standard normal vector: the deterministic network of appendix C.3 (`shape` [D]) or
    C.2 ([h, w, c]), with z embedded into its first layer.

    Trained on reconstruction + KL(q(z | s, a, s') ‖ N(0, 1)). Reconstruction counts the squared error in units of
    `deviation`: differences below it are left as noise, larger ones are worth the latent's bits. The prediction is the
    mean over `points` fixed values of z spread over its prior; `points=1` decodes z = 0 alone, which costs less.
    """

    decoder: MlpDynamics | ConvDynamics
    encoder: VectorEncoder | ImageEncoder
    embed: Float[Array, "n latent"]
    noise_shape: tuple[int, ...] = eqx.field(static=True)
    deviation: float = eqx.field(static=True)
    points: int = eqx.field(static=True)

    def __init__(
        self,
        shape: tuple[int, ...],
        actions: int,
        latent: int = 4,
        width: int = 64,
        maps: int = 16,
        reward_head: RewardHead = "pooled",
        deviation: float | None = None,
        points: int = 8,
        *,
        key: Key,
    ):
        key_decoder, key_encoder, key_embed = jax.random.split(key, 3)
        if len(shape) == 3:
            self.decoder = ConvDynamics(shape, actions, maps, width, reward_head, key=key_decoder)
            self.encoder = ImageEncoder(shape[2], actions, maps, 2 * latent, key=key_encoder)
        else:
            self.decoder = MlpDynamics(shape[0], actions, width, key=key_decoder)
            self.encoder = VectorEncoder(shape[0], actions, width, 2 * latent, key=key_encoder)
        image = len(shape) == 3
        size = maps if image else width
        self.embed = latent**-0.5 * jax.random.normal(key_embed, (size, latent))
        self.noise_shape = (latent,)
        self.deviation = deviation if deviation is not None else 0.1 if image else 0.003
        self.points = points

    def __call__(
        self, obs: Shaped[Array, "*obs"], action: Int[Array, ""], time: Int[Array, ""]
    ) -> Prediction:
        latents = jnp.array(_spread(self.points, self.embed.shape[-1]))
        decoded = jax.vmap(lambda z: self.decoder.outputs(obs, action, self.embed @ z).prediction())(latents)
        return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), decoded)._replace(detail=(obs, action))

    def draw(self, prediction: Prediction, uniform: Float[Array, " latent"]) -> Float[Array, "*obs"]:
        obs, action = prediction.detail
        z = ndtri(jnp.clip(uniform, TAIL, 1.0 - TAIL))
        return self.decoder.outputs(obs, action, self.embed @ z).obs

    def most_likely(self, prediction: Prediction) -> Float[Array, "*obs"]:
        """What the middle of the prior decodes to: the mean may be a blur."""
        obs, action = prediction.detail
        return self.decoder.outputs(obs, action).obs

    def loss(
        self, obs: Float[Array, "*obs"], row: Transitions, key: Key
    ) -> tuple[Float[Array, ""], Float[Array, "*obs"]]:
        """−ELBO with one reparameterised sample of z, and what that z decodes to."""
        mean, log_variance = jnp.split(self.encoder(obs, row.action, row.next_obs - obs), 2)
        z = mean + jnp.exp(0.5 * log_variance) * jax.random.normal(key, mean.shape)
        divergence = 0.5 * jnp.sum(jnp.exp(log_variance) + mean**2 - 1.0 - log_variance)
        out = self.decoder.outputs(obs, row.action, self.embed @ z)
        error = 0.5 * jnp.sum((out.obs - row.next_obs) ** 2) / self.deviation**2
        return error + divergence + out.surprise(row), out.obs

    def prior_deviation(self) -> "VaeDynamics":
        embed = jnp.full_like(self.embed, self.embed.shape[-1] ** -0.5)
        parts = (self.decoder.prior_deviation(), self.encoder.prior_deviation(), embed)
        return eqx.tree_at(lambda model: (model.decoder, model.encoder, model.embed), self, parts)


def _spread(points: int, latent: int) -> Float[np.ndarray, "{points} {latent}"]:
    """Fixed values of z that fill its prior evenly; the first is followed by more and more of the corners."""
    if points == 1:
        return np.zeros((1, latent), np.float32)
    from scipy.stats import norm, qmc  # half a second, for this line

    uniform = qmc.Halton(latent, scramble=False).random(points + 1)[1:]
    return norm.ppf(uniform).astype(np.float32)


@dataclass(frozen=True)
class Vae(AbstractFamily):
    """For vectors and images of numbers whose next value is uncertain."""

    hidden: int = setting(64, "Hidden layer size", at_least=1)
    latent: int = setting(4, "Entries of the latent vector z", at_least=1)
    maps: int = setting(16, "Feature maps of every convolution, for images", at_least=1)
    points: int = setting(
        8, "Values of z that the mean prediction is taken over; 1 decodes z = 0 alone", at_least=1
    )
    reward_head: RewardHead = setting("pooled", f"For images. {HEAD}")

    @staticmethod
    def refuses(encoding: Encoding) -> str | None:
        return None

    def make(self, problem: Problem) -> Callable[[Key], VaeDynamics]:
        return lambda key: VaeDynamics(
            problem.shape,
            problem.actions,
            latent=self.latent,
            width=self.hidden,
            maps=self.maps,
            reward_head=self.reward_head,
            points=self.points,
            key=key,
        )
