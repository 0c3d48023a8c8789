"""Imagined steps with what follows them, while every member carries its own state (section 2's exploration MDP).

The state of that MDP is one state for each member, and its reward is how far they are apart. Members that disagreed are
in different places afterwards, which is where the paper differs from MAX: there, all go on from one state.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from e3rl.models.base import Prediction, within_bounds
from e3rl.models.ensemble import Ensemble
from e3rl.values.network import QNetwork


def backup(
    value: QNetwork,
    ensemble: Ensemble,
    predicted: Prediction,
    gain: Float[Array, ""],
    time: Int[Array, ""],
    leader: Int[Array, ""],
    noise: Float[Array, "n ..."],
    utility: Callable[[Prediction], Float[Array, ""]],
    discount: float,
) -> Float[Array, ""]:
    """u_0 + γ u_1 + … + γⁿ max_a Q(s_n, a), every term weighted with the chance that the episode is still under way.

    `predicted` and `gain` are of the first step, from a state that all members share. Then each draws a next state of
    its own, with the same dice, and is asked about that one: u_1 and later ones compare those answers. All follow one
    action sequence, which is greedy for the leader, a random member; the leader's are also the chance to go on and s_n.
    With n = 1 this is u(s, a) + γ (1 − end) max_a' Q(s', a'), with s' drawn from a random member.
    """
    member, own = jax.tree.map(lambda leaf: leaf[leader], (ensemble, predicted))
    alive = 1.0 - own.termination
    if len(noise) == 1:
        last = within_bounds(member.draw(own, noise[0]))
        return gain + alive * discount * jnp.max(value(last, time + 1))

    def draw(member: Ensemble, predicted: Prediction) -> Float[Array, "*obs"]:
        return within_bounds(member.draw(predicted, noise[0]))

    def ask(member: Ensemble, obs: Shaped[Array, "*obs"]) -> Prediction:
        return member(obs, action, time + 1)

    states = eqx.filter_vmap(draw)(ensemble, predicted)
    action = jnp.argmax(value(states[leader], time + 1)).astype(jnp.int32)
    following = eqx.filter_vmap(ask)(ensemble, states)
    next_gain = jnp.where(value.lasts(time + 1), utility(following), 0.0)
    onwards = backup(value, ensemble, following, next_gain, time + 1, leader, noise[1:], utility, discount)
    return gain + alive * discount * onwards
