"""What a plan is worth: disagreement of the models while exploring, predicted reward while exploiting (section 2)."""

from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from e3rl.models.base import Prediction

Mode = Literal["explore", "exploit"]
Distance = Literal["marginal", "mean", "hellinger", "squared"]


def total_variation(p: Any, q: Any) -> Any:
    """‖p − q‖_TV as in section 3 and appendix A: sup over |f| ≤ 1, that is Σ|p − q| without the ½.

    Over the last axis, of JAX arrays or of NumPy's (whose precision it keeps).
    """
    return abs(p - q).sum(axis=-1)


def max_disagreement(predicted: Prediction, distance: Distance, reward_scale: float) -> Float[Array, ""]:
    """max_{e,e'} δ(P_e, P_e') over the pairs of an ensemble's predictions of one next state (App. B.2).

    Of continuous observations δ is `squared`, the squared distance of the predicted means (App. B.2.1). Of binary ones
    the distributions are products of Bernoullis, whose joint TV has no closed form; δ is one of
      marginal   the sum over bits of the TV of the bit's two distributions, 2|p − p'|
      mean       the mean over bits and reward of |p − p'|, as the paper's code has it
      hellinger  1 − Π_i (√(p p') + √((1−p)(1−p'))), the squared Hellinger distance of the joint distributions,
                 between TV²/8 and TV/2
    Rewards are part of the state (section 2): they enter as |r − r'| · reward_scale.
    """
    if distance == "squared":
        return max_squared_distance(predicted, reward_scale)
    obs = predicted.obs.reshape(predicted.obs.shape[0], -1)
    p, q = obs[:, None], obs[None, :]
    reward = jnp.abs(predicted.reward[:, None] - predicted.reward[None, :]) * reward_scale
    if distance == "marginal":
        pairs = 2.0 * total_variation(p, q) + reward
    elif distance == "mean":
        pairs = (total_variation(p, q) + reward) / (p.shape[-1] + 1)
    else:
        # The roots' derivative at 0 never matters here: utilities are not differentiated.
        affinity = jnp.sqrt(p * q) + jnp.sqrt((1.0 - p) * (1.0 - q))
        pairs = 1.0 - jnp.prod(affinity, axis=-1) * jnp.exp(-(reward**2))
    return jnp.max(pairs)


def mean_reward(predicted: Prediction) -> Float[Array, ""]:
    """R_exploit: the predicted reward averaged over the ensemble (App. B.2.2)."""
    return jnp.mean(predicted.reward)


def max_squared_distance(predicted: Prediction, reward_scale: float) -> Float[Array, ""]:
    """max_{e,e'} ‖s_e − s_e'‖²₂ + reward_scale · (r_e − r_e')², the explore utility of Appendix B.2.1.

    The paper's has states only (`reward_scale` 0), though rewards are part of the state in section 2.
    """
    obs = predicted.obs.reshape(predicted.obs.shape[0], -1)
    pairs = jnp.sum((obs[:, None] - obs[None, :]) ** 2, axis=-1)
    if reward_scale > 0.0:
        pairs += reward_scale * (predicted.reward[:, None] - predicted.reward[None, :]) ** 2
    return jnp.max(pairs)
